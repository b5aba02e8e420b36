package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

func TestSafe(t *testing.T) {
	for given, want := range map[string]string{
		"plain äöü 日本 €": "plain äöü 日本 €", "a\tb\nc": `a\tb\nc`, "\x1b[31m\x07\x7f": `\x1b[31m\a\x7f`,
		"\u009b1m":                 `\u009b1m`,
		"\u202e\u2066\u200b\ufeff": `\u202e\u2066\u200b\ufeff`, "\u2028\u2029": `\u2028\u2029`,
		"\ue000\U000e0041": `\ue000\U000e0041`,
		"\xff\x9b1m":       `\xff\x9b1m`, "\ufffd": "\ufffd", "it's": "it's", "": "",
	} {
		t.Run(given, func(t *testing.T) { require.Equal(t, want, safe(given)) })
	}
	require.Equal(t, "a\tb\nc\n\\rd", safeText("a\tb\r\nc\n\rd"))
}

// Whoever runs bin/x402-wallet demo from a fresh clone has no x402-wallet in the PATH yet.
func TestDemoSelf(t *testing.T) {
	dir := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	name := "x402-wallet"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	program := filepath.Join(dir, "my bin", name)
	require.NoError(t, os.Mkdir(filepath.Dir(program), 0o700))
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	t.Setenv("PATH", "")
	require.Equal(t, shellWord(program), demoSelf(program))
	t.Chdir(dir)
	require.Equal(t, shellWord(filepath.Join(".", "my bin", name)), strings.Replace(demoSelf(program), "."+
		string(filepath.Separator), "", 1))
	t.Setenv("PATH", filepath.Dir(program))
	require.Equal(t, "x402-wallet", demoSelf(program))
}

// What a list's sellers say of themselves is long; the table stands first, then why something
// cannot be paid.
func TestServices(t *testing.T) {
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "screen")))(t)
	defer file.Close()
	u := newUI(file, file, true)
	found := must.JSON[tools.DiscoverOut]([]byte(`{"services":[
		{"url":"https://a.example/x","price":"$0.01","network":"eip155:8453","why":"too\u001bdear",
			"description":"` + strings.Repeat("ü", 300) + `"},
		{"url":"https://b.example/y","price":"$0.02","network":"eip155:8453","payable":true,
			"description":"short"}]}`))(t)
	u.services(found)
	seen := must.Get(os.ReadFile(file.Name()))(t)
	require.Regexp(t,
		`^PRICE .*\n\$0\.01  Base +no +https://a\.example/x  ü{59}…\n\$0\.02  Base +yes +https://b\.example/y  short\nno: https://a\.example/x: too\\x1bdear\nsource: `, string(seen))
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", 200)
	require.Equal(t, []string{"a", long, "b c"}, wrap("a "+long+" b c", 87))
	require.Equal(t, []string{""}, wrap("", 80))
	require.Equal(t, []string{"··· ···", "···"}, wrap("··· ··· ···", 7), "columns, not bytes")
}

func TestReflow(t *testing.T) {
	const text = "one two three four\nfive\n\nsix\n"
	require.Equal(t, "one two three four\nfive\n\nsix", reflow(text, 0),
		"as it is written where nobody knows better")
	require.Equal(t, "one two three four\nfive\n\nsix", reflow(text, 18), "or where it fits")
	require.Equal(t, "one two three\nfour five\n\nsix", reflow(text, 17))
}

// A text of help.txt that no command has would be read by nobody.
func TestHelpTextsAreOfCommands(t *testing.T) {
	root := (&Program{Stdout: os.Stdout}).root(newUI(os.Stdout, os.Stderr, true))
	for line := range strings.Lines(helpTexts) {
		if path, is := strings.CutPrefix(strings.TrimSpace(line), "# x402-wallet"); is {
			cmd, rest, err := root.Find(strings.Fields(path))
			require.NoError(t, err)
			require.Empty(t, rest)
			describe(cmd)
			require.NotEmpty(t, cmd.Long)
			require.NotContains(t, cmd.Long+cmd.Example, "\n# ", "no empty line before the next text")
		}
	}
}

func TestMaxAmount(t *testing.T) {
	for given, want := range map[string]string{"": "", "50000": "50000", "$0.05": "$0.05", "0.05": "$0.05",
		"5.00": "$5.00", "$x": "$x"} {
		t.Run(given, func(t *testing.T) {
			// the engine reads dollars
			require.Equal(t, want, must.Get(maxAmount(given))(t))
		})
	}
	for _, given := range []string{"bash.05", ".5", "5.", "1.2.3", "-1", "1e3", "0,05", "5 USDC"} {
		t.Run(given, func(t *testing.T) {
			require.ErrorAs(t, must.Err(maxAmount(given)), &usageError{}, given)
		})
	}
}

func TestShellWord(t *testing.T) {
	for given, want := range map[string]string{"/home/me/.x": "/home/me/.x", "a b": "'a b'",
		"it's": `'it'\''s'`, "$HOME": "'$HOME'", "": "''"} {
		t.Run(given, func(t *testing.T) { require.Equal(t, want, shellWord(given)) })
	}
}

// Every code has one of the program's exit codes; one that holds money is an unknown outcome, whatever its
// name.
func TestExitCode(t *testing.T) {
	for code, want := range map[x402.Code]int{
		x402.InvalidArgument: 2, x402.BudgetExceeded: 3, x402.URLBlocked: 3, x402.RedirectRefused: 3,
		x402.WalletLocked: 4, x402.InsufficientFunds: 4,
		x402.ApprovalRequired: 4, x402.OutcomeUnknown: 5, x402.PaymentRejected: 1, x402.NetworkError: 1,
		x402.Internal: 1,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			require.Equal(t, want, exitCode(&x402.Error{Code: code, Spent: "0"}), code)
			require.Equal(t, want, exitCode(&x402.Error{Code: code}), code)
			require.Equal(t, exitUnknown, exitCode(&x402.Error{Code: code, Spent: "1000"}), code)
		})
	}
}

func TestBrokenRulesNamesEveryFault(t *testing.T) {
	require.ErrorContains(t, brokenRules("my.toml", errors.Join(errors.New("config.toml line 1: a: wrong"),
		fmt.Errorf("config.toml line 2: b: wrong"))), "my.toml: line 1: a: wrong\nline 2: b: wrong")
	require.NoError(t, brokenRules("my.toml", nil))
}

func TestGauge(t *testing.T) {
	for i, line := range []struct {
		spent, held, limit int64
		want               string
	}{
		{0, 0, 100, "··········   0%"},
		{1, 0, 1000, "█·········   0%"}, // something is not nothing
		{50, 0, 100, "█████·····  50%"},
		{50, 20, 100, "█████▒▒···  70%"},
		{50, 1, 100, "█████▒····  51%"},
		{999, 0, 1000, "█████████·  99%"}, // and nearly all is not all
		{95, 1, 100, "█████████·  96%"},
		{0, 1000, 1000, "▒▒▒▒▒▒▒▒▒▒ 100%"},
		{1000, 0, 1000, "██████████ 100%"},
		{2000, 0, 1000, "██████████ 200%"}, // a limit that was lowered
		{0, 0, 0, "██████████ 100%"},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, _ := gauge(line.spent, line.held, line.limit)
			require.Equal(t, line.want, got, "%+v", line)
		})
	}
}

func TestBar(t *testing.T) {
	require.Empty(t, bar(0, 100))
	require.Equal(t, "▏", bar(1, 1_000_000))
	require.Equal(t, barWidth, utf8.RuneCountInString(bar(100, 100)))
	require.Equal(t, barWidth/2, utf8.RuneCountInString(bar(50, 100)))
	require.Equal(t, "█████▌", bar(55, 400))
}
