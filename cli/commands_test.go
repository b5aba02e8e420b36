package cli

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownuser"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Every line that an error tells the person to type is one of this program's commands, with its flags and
// as many arguments as it takes: those of the codes themselves, and those that any package makes by
// x402.Command. Those that texts name together with a value are commands.
func TestWhatThePersonIsToldToTypeIsACommand(t *testing.T) {
	lines, named := map[string]string{}, map[string]string{} // where it is made
	files := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "e2e" {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			if line, ok := commandLine(n); ok {
				lines[line] = path
			}
			for _, line := range namedLines(n) {
				named[line] = path
			}
			return true
		})
		return nil
	}))
	require.Greater(t, files, 200)
	require.Contains(t, lines, "x402-wallet approve VALUE")
	require.Contains(t, lines, "x402-wallet budget set VALUE VALUE")
	require.Contains(t, named, "show VALUE")
	text := must.Get(os.ReadFile("../x402/errors.go"))(t)
	for _, word := range strings.Split(string(text), `"`) {
		if x402.Code(word).IsKnown() {
			lines[x402.Errorf(x402.Code(word), "x").NextStep().Command] = word
		}
	}
	delete(lines, "") // of a step that is no person's
	for line, where := range lines {
		t.Run(line, func(t *testing.T) {
			args := strings.Fields(line)
			require.Equal(t, "x402-wallet", args[0])
			root := (&Program{}).root(&ui{out: &output{w: os.Stdout}})
			cmd, rest, err := root.Find(args[1:])
			require.NoError(t, err, where)
			require.True(t, cmd.HasParent(), "%s: no command", where)
			require.NoError(t, cmd.ParseFlags(rest), where)
			require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), where)
		})
	}
	for line, where := range named {
		t.Run(line, func(t *testing.T) {
			cmd, rest, err := (&Program{}).root(&ui{out: &output{w: os.Stdout}}).Find(strings.Fields(line))
			require.NoError(t, err, where)
			require.True(t, cmd.HasParent(), "%s: no command", where)
			require.False(t, cmd.HasSubCommands() && rest[0] == strings.ToLower(rest[0]) && rest[0][0] != '-',
				"%s: no such subcommand", where)
		})
	}
}

// commandLine is the line that a call of x402.Command makes, with VALUE where a value stands.
func commandLine(n ast.Node) (line string, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	if !isCall || call.Ellipsis.IsValid() {
		return "", false
	}
	if of, ok := call.Fun.(*ast.SelectorExpr); !ok || of.Sel.Name != "Command" {
		return "", false
	} else if name, ok := of.X.(*ast.Ident); !ok || name.Name != "x402" {
		return "", false
	}
	words := []string{"x402-wallet"}
	for _, arg := range call.Args {
		word := "VALUE"
		if literal, ok := arg.(*ast.BasicLit); ok {
			word, _ = strconv.Unquote(literal.Value)
		}
		words = append(words, word)
	}
	return strings.Join(words, " "), true
}

// namedLines are a text's commands that a value follows: "x402-wallet show %s", "x402-wallet approve ID".
func namedLines(n ast.Node) (lines []string) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	for _, found := range namedLine.FindAllStringSubmatch(literal.Value, -1) {
		lines = append(lines, found[1]+"VALUE")
	}
	return lines
}

var namedLine = regexp.MustCompile(`x402-wallet ((?:[a-z0-9-]+ )+)(?:%[a-z]|[A-Z]{2,}\b)`)

func TestTermsSayWhoAsks(t *testing.T) {
	for _, a := range []history.Approval{{Price: 1, PayTo: "0xpayee", Amount: money.NewAmount(1)}, {}} {
		nameless := len(termsOf(a))
		a.Agent = "ann"
		require.Contains(t, termsOf(a), [2]string{"asked by", "ann"})
		require.Len(t, termsOf(a), nameless+1)
		require.Contains(t, string(must.Get(json.Marshal(shown(a)))(t)), `"agent":"ann"`)
	}
}

// Where a new wallet's money is expected: on the networks that it can pay on, the preferred ones first. Most
// files name no network, because the public nodes do.
func TestWhereMoneyIsExpected(t *testing.T) {
	template := must.Get(environ.Template(environ.Env{}))(t)
	const solana, base, polygon = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "eip155:8453", "eip155:137"
	for name, c := range map[string]struct {
		rules string
		want  []string
	}{
		"what init writes": {string(template), []string{solana, base}},
		"empty":            {"", []string{solana, base}},
		"one is named":     {"[networks.base]\n", []string{base}},
		"one is off": {"[policy]\npublic_nodes = true\n[networks.solana]\nrpc = \"\"\n",
			[]string{base}},
		"none is preferred":   {"[networks.polygon]\n", []string{polygon}},
		"nor is any by name":  {"[policy]\nprefer = [\"polygon\"]\n", []string{polygon}},
		"channels alone":      {"[networks.\"rooch:main\"]\nrpc = \"https://rooch.example\"\n", []string{}},
		"none can be paid on": {"[policy]\npublic_nodes = false\n", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			rules := must.Get(config.Parse([]byte(c.rules)))(t)
			require.Equal(t, c.want, append([]string{}, watched(rules)...))
		})
	}
}

func TestVersionOption(t *testing.T) {
	for _, option := range []string{"--version", "-v"} {
		out := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
		t.Cleanup(func() { _ = out.Close() })
		p := &Program{Version: "1.2.3", Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr}
		require.Equal(t, exitDone, p.Run(t.Context(), []string{option}))
		said := must.Get(os.ReadFile(out.Name()))(t)
		require.Equal(t, p.build().String()+"\n", string(said))
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func allCommands(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	all := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all[below(cmd)] = cmd
		if cmd.HasParent() {
			require.Nil(t, cmd.PersistentPreRunE, "%s would not be checked", cmd.CommandPath())
			require.Nil(t, cmd.PersistentPreRun, "%s would not be checked", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	p := &Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	root := p.root(newUI(os.Stdout, os.Stderr, true))
	walk(root)
	delete(all, "")
	return all
}

func isBelow(name string, list []string) bool {
	return slices.ContainsFunc(list, func(top string) bool {
		return name == top || strings.HasPrefix(name, top+" ")
	})
}

// notAtService are the commands that may not come by the socket, and all below them: they read files, show
// the recovery phrase, ask a stranger, pay, or stay.
var notAtService = []string{"call", "channel commit", "channel deposit", "channel open",
	"channel recover", "channel refund", "channel show", "channel withdraw", "dashboard",
	"delegation approve",
	"delegation revoke", "discover", "estimate", "export-phrase", "history import",
	"ledger backup", "ledger copy", "ledger prune", "pay", "run", "signer add", "subscriptions due",
	"vault allow", "vault deploy", "vault deposit", "vault revoke", "vault withdraw"}

// Every command and every flag was thought about: it may come by the service's socket, or it may not, on
// purpose. Add a new one to atService, where it lets its caller do nothing with the files and programs of the
// service's user, else to notAtService.
func TestEveryCommandMayBeHandedOverOrNot(t *testing.T) {
	all := allCommands(t)
	require.Greater(t, len(all), 60)
	for name, cmd := range all {
		may, ok := atService[name]
		where := []bool{ok, isBelow(name, notAtService), isBelow(name, onlyHere) ||
			isBelow(name, noHomeCommands)}
		n := 0
		for _, is := range where {
			if is {
				n++
			}
		}
		require.Equal(t, 1, n, "%s is in %d of atService, notAtService and onlyHere", name, n)
		if !ok {
			continue
		}
		var flags []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(everywhere, f.Name) {
				flags = append(flags, f.Name)
			}
		})
		require.ElementsMatch(t, slices.Concat(may.flags, may.refused), flags, "the flags of %s", name)
		for _, flag := range may.flags {
			usage := cmd.Flags().Lookup(flag).Usage
			require.NotRegexp(t, "`(FILE|DIR|DIRECTORY|PATH)`|descriptor", usage, "%s --%s", name, flag)
		}
		require.NotRegexp(t, "FILE|DIR|PATH", cmd.Use, name)
	}
	for _, list := range [][]string{notAtService, onlyHere} {
		for _, name := range list {
			require.Contains(t, all, name)
		}
	}
	for name := range atService {
		require.Contains(t, all, name)
	}
}

func TestWhatMayBeHandedOver(t *testing.T) {
	for _, line := range []string{"balance", "balance --network base --json", "--json=false approve apr_1",
		"agents add x --budget day=1 --user alice", "export --format csv", "init", "init --import-phrase " +
			"--index 2 --keys-only", "history verify --seals",
		"budget set day 5.00 --host a.example"} {
		require.NoError(t, CheckHanded(strings.Fields(line), "/home/of/it"), line)
	}
	for _, line := range []string{"", "--json", "mcp", "serve", "pay https://a.example", "dashboard",
		"export -o /etc/x", "export-phrase", "init --export-phrase", "init --import-phrase-file /etc/x",
		"init --import-phrase-of /home", "init --import-phrase-fd 3", "export --output=/etc/x", "export " +
			"-o/etc/x", "init --passphrase-file /etc/x",
		"unlock --passphrase-fd 0", "unlock --handed-over", "unlock --foreground", "approve x --page",
		"history import /etc/x", "ledger prune", "man /etc", "verify-receipt /etc/x", "install claude-code",
		"service install", "paywall --config /etc/x", "__complete approve x", "completion bash", "help",
		"policy seal --page=true", "nothing", "balance --nothing"} {
		err := CheckHanded(strings.Fields(line), "/home/of/it")
		require.True(t, x402.HasCode(err, x402.InvalidArgument), "%q: %v", line, err)
	}
	err := x402.AsError(CheckHanded([]string{"export", "-o", "/a b"}, "/home/of/it"))
	require.Contains(t, err.Message, "export --output is not run")
	require.Regexp(t, `^as the service's user: sudo -u \S+ env X402_WALLET_HOME=/home/of/it \S+ `+
		`export -o '/a b'$`, err.Hint)
}

// The program that the service starts checks for itself what the service has checked.
func TestTheProgramOfAnOwnerChecksItself(t *testing.T) {
	for _, args := range [][]string{{"mcp"}, {}, {"unlock", "--foreground"}, {"pay", "https://a.example"},
		{"verify-receipt", "/etc/passwd"}, {"man", t.TempDir()},
		{cobra.ShellCompRequestCmd, "approve", ""}} {
		in, out, err := os.Pipe() // no terminal
		require.NoError(t, err)
		stdout := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
		p := &Program{Env: environ.Env{Handed: environ.HandedTerminal}, Home: t.TempDir(), Stdin: in,
			Stdout: stdout, Stderr: stdout}
		require.Equal(t, exitUsage, p.Run(t.Context(), args), args)
		require.Contains(t, string(must.Get(os.ReadFile(stdout.Name()))(t)), "service", args)
		for _, f := range []*os.File{in, out, stdout} {
			require.NoError(t, f.Close())
		}
	}
}

// Where a command goes: nobody has to say so where there is no wallet, and no place was named for one.
func TestWhereACommandGoes(t *testing.T) {
	machines := ownuser.Service().Socket
	for name, c := range map[string]struct {
		env    environ.Env
		noHome error
		goes   string
		found  bool
	}{
		"by itself":                  {environ.Env{}, nil, machines, true},
		"the home is named":          {environ.Env{Home: "/x"}, nil, "", false},
		"it is off":                  {environ.Env{Service: "off"}, nil, "", false},
		"it is named":                {environ.Env{Service: "/s", Home: "/x"}, nil, "/s", false},
		"it is there already":        {environ.Env{Service: "/s", Handed: "terminal"}, nil, "", false},
		"there can be no home of it": {environ.Env{}, os.ErrNotExist, "", false},
	} {
		p := &Program{Env: c.env, NoHome: c.noHome, Home: t.TempDir()}
		socket, found := p.service()
		require.Equal(t, []any{c.goes, c.found}, []any{socket, found}, name)
	}
	home := t.TempDir()
	require.NoError(t, os.WriteFile(home+"/keystore.json", nil, 0o600))
	socket, _ := (&Program{Home: home}).service()
	require.Empty(t, socket, "there is a wallet")
}

// A file is sent byte for byte, whatever is in it.
func TestDataIsSentAsItIs(t *testing.T) {
	data := []byte{0, 0xff, 0xfe, '\r', '\n', 0xc3, '=', '&'}
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	f := requestFlags{data: []string{"@" + file}}
	in := must.Get(f.read(&cobra.Command{}))(t)
	require.Equal(t, []string{"POST", string(data)}, []string{in.Method, in.Body})
}
