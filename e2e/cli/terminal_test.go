//go:build unix

package cli

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/mdp/qrterminal/v3"
	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
)

// fails for who leads a session already, as those on a terminal of their own do
func detach() { _, _ = syscall.Setsid() }

func become(program string) { panic(syscall.Exec(program, os.Args, os.Environ())) }

type console struct {
	t      *testing.T
	keys   *os.File // what the person types goes in here, what they see comes out
	cmd    *exec.Cmd
	closed chan struct{}

	mu   sync.Mutex
	seen strings.Builder

	answered int // as much of text
}

// sit starts the program on a terminal. stdout nil is the terminal too. The environment is only
// what is given.
func sit(t *testing.T, stdout *os.File, env []string, args ...string) *console {
	t.Helper()
	keys, tty, err := pty.Open()
	require.NoError(t, err)
	defer tty.Close()
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}))
	if stdout == nil {
		stdout = tty
	}
	c := &console{t: t, keys: keys, cmd: command(t, env, args...), closed: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, stdout, tty
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.cmd.Start())
	go func() {
		defer close(c.closed)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			c.mu.Lock()
			c.seen.Write(buffer[:n])
			c.mu.Unlock()
			if err != nil { // EIO: the last one has closed the terminal
				return
			}
		}
	}()
	t.Cleanup(func() { keys.Close() })
	return c
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.seen.String(), "\r\n", "\n")
}

func (c *console) sees(text string, times int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		return strings.Count(c.text(), text) >= times
	}, time.Minute, 5*time.Millisecond, "%q", c)
}

func (c *console) String() string { return c.text() }

func (c *console) types(text string) {
	must.Get(io.WriteString(c.keys, text))(c.t)
}

// answers types each answer when its question is there, behind the one before.
func (c *console) answers(pairs ...string) {
	c.t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		at := -1
		require.Eventually(c.t, func() bool {
			at = strings.Index(c.text()[c.answered:], pair[0])
			return at >= 0
		}, time.Minute, 5*time.Millisecond, "%q in %q", pair[0], c)
		c.answered += at + len(pair[0])
		c.types(pair[1] + "\n")
	}
}

// withPassphrase runs a command at a terminal, types the passphrase where it asks for it, and gives what was
// seen in all.
func withPassphrase(t *testing.T, code int, env []string, args ...string) (seen string) {
	t.Helper()
	c := sit(t, nil, env, args...)
	c.answers("Passphrase", testPassphrase)
	return c.ends(code)
}

func (c *console) ends(code int) string {
	c.t.Helper()
	<-c.closed
	_ = c.cmd.Wait()
	require.Equal(c.t, code, c.cmd.ProcessState.ExitCode(), "%s", c)
	return c.text()
}

const (
	asksNew   = "New passphrase (at least 12 characters, not shown): "
	asksAgain = "The same again: "

	asksUnlock   = "How will the agent's wallet be unlocked?"
	asksClients  = "Give the wallet to which of these?"
	asksWait     = "Wait here until it has arrived? [y/N] "
	asksPurchase = "What (Enter: nothing)? "
)

func TestInitAsksTwice(t *testing.T) {
	t.Parallel()
	w := must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	home, rules := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "rules.toml")
	require.NoError(t, os.WriteFile(rules, []byte(w.rules(sandbox.Rules{})), 0o600))
	c := sit(t, nil, []string{"X402_WALLET_HOME=" + home}, "init", "--config", rules)
	c.sees(asksNew, 1)
	require.NoFileExists(t, filepath.Join(home, "ledger.db"), "nothing is made before there is a passphrase")
	c.answers(asksNew, "hunter22", asksNew, testPassphrase, asksAgain, "correct house battery")
	c.answers(asksNew, testPassphrase, asksAgain, testPassphrase, asksUnlock, "none", asksWait, "",
		asksPurchase, "")
	seen := c.ends(0)

	require.Contains(t, seen, "the passphrase has 8 characters, at least 12 are needed.\n")
	require.Contains(t, seen, "the two are not the same.\n")
	for _, secret := range []string{"hunter22", "battery"} {
		require.NotContains(t, seen, secret, "echoed")
	}
	keys := must.Get(wallet.Open(home))(t)
	defer keys.Close()
	solana, evm := keys.Addresses()
	for _, address := range []string{solana, evm} {
		require.Contains(t, seen, "\n  "+address+"\n")
		if address == solana {
			continue // it is funded second
		}
		var code strings.Builder
		qrterminal.GenerateHalfBlock(address, qrterminal.L, &code)
		for row := range strings.Lines(code.String()) { // black on white, whatever the terminal's colours are
			require.Contains(t, seen, "\x1b[97;40m"+strings.TrimSuffix(row, "\n")+"\x1b[0m\n")
		}
	}
	require.Contains(t, seen, "Next:\n  1. back up keystore.json")
	require.FileExists(t, filepath.Join(home, "config.toml"))
	opened := withPassphrase(t, 0, []string{"X402_WALLET_HOME=" + home}, "session", "new")
	require.Contains(t, opened, "$5.00 left of $5.00")
}

func TestPayAtATerminal(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	c := sit(t, nil, env, "pay", w.SellerURL+"/weather")
	c.answers("Passphrase: ", "incorrect horse battery")
	seen := c.ends(4)
	require.Contains(t, seen, "\x1b[31mINVALID_PASSPHRASE:\x1b[0m wrong passphrase")
	require.NotContains(t, seen, "battery")
	require.Zero(t, w.Signatures())

	seen = withPassphrase(t, 0, env, "pay", w.SellerURL+"/weather")
	require.Contains(t, seen, sandbox.Content("/weather")+
		"\n\x1b[32mpaid:\x1b[0m $0.001 in USDC on Base Sepolia to ")
	require.NotContains(t, seen, "battery")
	require.Len(t, w.Settlements(), 1)

	seen = withPassphrase(t, 0, append(env, "NO_COLOR=1"), "pay", w.SellerURL+"/weather")
	require.Contains(t, seen, "\npaid: $0.001")
	require.NotContains(t, seen, "\x1b")
	require.Len(t, w.Settlements(), 2)

	c = sit(t, nil, env, "pay", w.SellerURL+"/weather")
	c.sees("Passphrase: ", 1)
	c.types("\x03")
	seen = c.ends(1)
	require.Contains(t, seen, "interrupted; nothing was paid")
	require.NotContains(t, seen, "stopping")
	require.Len(t, w.Settlements(), 2)
}

// With --json a file or pipe gets the JSON alone; the person is asked on the terminal.
func TestAnswerToAFile(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "answer")))(t)
	defer file.Close()
	c := sit(t, file, env, "pay", "--json", w.SellerURL+"/weather")
	c.answers("Passphrase: ", testPassphrase)
	require.NotContains(t, c.ends(0), "Lisbon")
	answer := must.Get(os.ReadFile(file.Name()))(t)
	require.True(t, strings.HasPrefix(string(answer), "{\n  \"status\": \"paid\","), "%s", answer)
}

func TestSessionNewTakesThePerson(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t), "X402_WALLET_PASSPHRASE="+testPassphrase)
	c := sit(t, nil, env, "session", "new")
	c.answers("Passphrase, to start a new session: ", "incorrect horse battery")
	require.Contains(t, c.ends(4), "INVALID_PASSPHRASE:")
	require.Contains(t, sit(t, nil, env, "session").ends(0), "no session is open")

	seen := withPassphrase(t, 0, env, "session", "new")
	require.Contains(t, seen, "$5.00 left of $5.00")
	require.NotContains(t, seen, "battery")
	first := sit(t, nil, env, "session").ends(0)
	withPassphrase(t, 0, env, "session", "new")
	require.NotEqual(t, first, sit(t, nil, env, "session").ends(0))
}

// A person approves, and stops and starts the wallet; a passphrase file does not.
func TestDecisionsTakeThePerson(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	env = append(env, passphraseFile(t), "X402_WALLET_PASSPHRASE="+testPassphrase, "NO_COLOR=1")
	pays := func(code int) string { return sit(t, nil, env, "pay", w.SellerURL+"/weather").ends(code) }
	types := func(prompt, passphrase string, code int, args ...string) string {
		t.Helper()
		c := sit(t, nil, env, args...)
		c.answers(prompt, passphrase)
		seen := c.ends(code)
		require.NotContains(t, seen, "battery", "echoed")
		return seen
	}
	const approves, starts = "Passphrase, to approve this payment: ",
		"Passphrase, to allow payments again: "

	_, id, found := strings.Cut(pays(4), "x402-wallet approve ")
	require.True(t, found)
	id, _, _ = strings.Cut(id, ";")
	require.Contains(t, types(approves, "incorrect horse battery", 4, "approve", id), "INVALID_PASSPHRASE")
	pays(4)
	seen := types(approves, testPassphrase, 0, "approve", id)
	for _, shown := range []string{"price         $0.001 (1000 atomic units of USDC)", "to            " +
		w.PayToEVM, "for           GET " + w.SellerURL + "/weather", "the agent can make this payment once"} {
		t.Run(shown, func(t *testing.T) { require.Contains(t, seen, shown) })
	}
	require.Contains(t, pays(0), "paid: $0.001")
	require.Contains(t, pays(4), "APPROVAL_REQUIRED", "it was good for one")
	require.NotContains(t, sit(t, nil, env, "approve", id).ends(2), approves,
		"what is over asks for no passphrase")
	require.Len(t, w.Settlements(), 1)

	sit(t, nil, env, "freeze").ends(0)
	stopped := pays(3)
	require.Contains(t, stopped, "WALLET_FROZEN: this wallet is frozen: the owner stopped it")
	require.Contains(t, stopped, "please look at x402-wallet history, and unfreeze if it is right")
	require.Contains(t, stopped, "what to do: x402-wallet unfreeze")
	require.Contains(t, types(starts, "incorrect horse battery", 4, "unfreeze"), "INVALID_PASSPHRASE")
	pays(3)
	require.Contains(t, types(starts, testPassphrase, 0, "unfreeze"), "the whole wallet since ")
	require.Contains(t, pays(4), "APPROVAL_REQUIRED")
	require.Contains(t, sit(t, nil, env, "unfreeze").ends(0), "nothing is frozen")
	require.Len(t, w.Settlements(), 1)
}

// What strangers wrote is printed so that it cannot drive the terminal; only our own colours are
// escape sequences.
func TestStrangersDoNotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	const harmless = "one\ttwo\n\\x1b[2J\\x1b]0;owned\\a\\u202eevil\\rpaid: nothing\\u0085\n"
	require.Contains(t, sit(t, nil, append(env, "NO_COLOR=1"), "pay", w.front.URL+"/evil").ends(0), harmless)

	id := paymentID(t, sit(t, nil, env, "pay", w.front.URL+"/sells/evil").ends(0))
	require.Contains(t, sit(t, nil, append(env, "NO_COLOR=1"), "show", id, "--content").ends(0), harmless)
	id = paymentID(t, sit(t, nil, env, "pay", w.front.URL+"/sells/binary").ends(0))
	seen := sit(t, nil, env, "show", id, "--content").ends(2)
	require.Contains(t, seen, "show "+id+" --content > FILE")
	require.NotContains(t, seen, "\x00")
}

func paymentID(t *testing.T, seen string) string {
	t.Helper()
	_, after, found := strings.Cut(seen, "\npayment ")
	require.True(t, found, seen)
	id, _, _ := strings.Cut(after, ",")
	return id
}

// What a person looks at often is in columns, with colours that NO_COLOR takes away and that no
// column is bent by.
func TestViews(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	today := time.Now().UTC().Format(time.DateOnly)
	if c := sit(t, nil, env, "pay", w.SellerURL+"/weather"); c.ends(0) == "" {
		t.Fatal("nothing was bought")
	}
	for i, line := range []struct {
		args  []string
		plain string // a line of it without colours
	}{
		{[]string{"budget"}, `(?m)^session   \$5.00    \$0.001  \$0.00  \$4.999   █·········   0%  \d{4}-`},
		{[]string{"balance"}, `(?m)^Base Sepolia +USDC +\S+ +- +0 +\S+$`},
		{[]string{"history"},
			`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  pay_\w+  \$0.001  USDC   Base Sepolia  settled \(not confirmed on chain yet\)  GET http`},
		{[]string{"history", "--plot", "--days", "3"}, `(?m)^` + today + `  █{40}  \$0.001$`},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			colored := sit(t, nil, env, line.args...).ends(0)
			without := sit(t, nil, append(env, "NO_COLOR=1"), line.args...).ends(0)
			require.Regexp(t, line.plain, without)
			require.NotContains(t, without, "\x1b[")
			require.Contains(t, colored, "\x1b[", "%v", line.args)
			require.Equal(t, without, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored, ""))
		})
	}
}

// A long list is asked for page by page, and a plot begins with the first day on which anything was paid.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	db := must.Get(sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(w.home, "ledger.db"))+
		"?_pragma=busy_timeout(5000)"))(t)
	now := time.Now().UTC()
	for i := range 250 {
		at := now.AddDate(0, 0, -3*((249-i)/125)).UnixMicro() - int64(249-i) // of two days
		must.Get(db.Exec(`INSERT INTO payments (id, session, state, proof, created_at, updated_at,
			fingerprint, method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd,
			pay_to, source, delivered, requirement)
			VALUES (?, 's', 'settled', 'chain', ?, ?, x'00', 'GET',
			'https://a.example/', '', 'a.example', 'eip155:8453', 'exact', 'v2', '0x', 'USDC', '1000', 1000,
			'0xpayee', '', 1, '{}')`,
			fmt.Sprintf("pay_%032x", i), at, at))(t)
	}
	require.NoError(t, db.Close())
	var list struct {
		Count        int
		Next         string
		Transactions []struct{ PaymentID string }
	}
	for limit, next := range map[string]bool{"250": false, "1000": false, "200": true} {
		out, _ := runs(t, 0, env, "history", "--json", "--limit", limit)
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		seen := map[string]bool{}
		for _, p := range list.Transactions {
			seen[p.PaymentID] = true
		}
		require.Len(t, seen, list.Count)
		require.Equal(t, map[bool]int{true: 200, false: 250}[next], list.Count)
		require.Equal(t, next, list.Next != "")
		list.Next = ""
	}
	said, _ := runs(t, 2, env, "history", "--limit", "1001")
	require.Contains(t, said, "x402-wallet export")

	plot := sit(t, nil, append(env, "NO_COLOR=1"), "history", "--plot").ends(0)
	require.NotContains(t, plot, now.AddDate(0, 0, -4).Format(time.DateOnly))
	for ago := range 4 {
		require.Contains(t, plot, now.AddDate(0, 0, -ago).Format(time.DateOnly))
	}
}

func TestMCPServerAtATerminal(t *testing.T) {
	t.Parallel()
	home := "X402_WALLET_HOME=" + filepath.Join(t.TempDir(), "none")
	require.Contains(t, sit(t, nil, []string{home}).ends(0), "\nUsage:\n  x402-wallet COMMAND\n")
	c := sit(t, nil, []string{home}, "mcp")
	c.sees("waiting for JSON-RPC", 1)
	c.types("\x04") // Ctrl-D: the end of its input
	c.ends(0)
}

// The passphrase is changed at the terminal, whatever else would unlock the wallet.
func TestPassphraseIsChangedAtTheTerminal(t *testing.T) {
	t.Parallel()
	_, env := household(t, sandbox.Options{}, sandbox.Rules{})
	c := sit(t, nil, append(env, passphraseFile(t)), "passphrase")
	c.answers("Old passphrase: ", "wrong horse battery")
	require.Contains(t, c.ends(4), "INVALID_PASSPHRASE:")

	c = sit(t, nil, env, "passphrase")
	c.answers("Old passphrase: ", testPassphrase, asksNew, "another horse and battery",
		asksAgain, "another horse and battery")
	seen := c.ends(0)
	require.Contains(t, seen, "the passphrase is changed")
	require.NotContains(t, seen, "battery")

	for passphrase, code := range map[string]int{testPassphrase: 4, "another horse and battery": 0} {
		c = sit(t, nil, env, "session", "new")
		c.answers("Passphrase, to start a new session: ", passphrase)
		c.ends(code)
	}
}

// What loosens the rules takes the passphrase at the terminal, and shows before what it changes.
func TestPolicyAtATerminal(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	raise := func(typed string) *console {
		c := sit(t, nil, env, "budget", "set", "session", "7.50")
		c.answers("Passphrase, to seal these rules: ", typed)
		return c
	}
	before := w.configText(t)
	require.Contains(t, raise("not the passphrase").ends(4), "INVALID_PASSPHRASE")
	require.Equal(t, before, w.configText(t))

	seen := raise(testPassphrase).ends(0)
	require.Contains(t, seen, "loosens")
	require.Contains(t, seen, "budget.session: $5.00 → $7.50")
	require.NotContains(t, seen, testPassphrase)
	require.Contains(t, sit(t, nil, env, "policy").ends(0), "budget.session")
	require.Contains(t, sit(t, nil, env, "budget").ends(0), "$7.50")

	require.NoError(t, os.Remove(filepath.Join(w.home, "ledger.mark")))
	seen = withPassphrase(t, 0, env, "policy", "seal")
	require.Contains(t, seen, "config.toml is unchanged; sealing accepts the ledger",
		"why the passphrase is asked all the same")
	require.Contains(t, seen, "done: these rules apply from now on")
	require.FileExists(t, filepath.Join(w.home, "ledger.mark"))

	store := must.Get(ledgers.Open(t.Context(), w.home, history.Options{Contents: content.Keeper{},
		Now: func() time.Time { return time.Now().AddDate(10, 0, 0) }}))(t)
	_, err := historytest.Reserve(t.Context(), store,
		history.Hold{Payment: history.Payment{URL: "https://a.example/"}})
	require.NoError(t, errors.Join(err, store.Close()))
	require.Contains(t, sit(t, nil, env, "doctor").ends(1), "ahead of this")
	c := sit(t, nil, append(env, passphraseFile(t)), "policy", "seal") // no file answers for the owner
	c.sees("Passphrase, to seal these rules: ", 1)
	require.Contains(t, c.text(), "if the clock is wrong, set it first")
	c.types(testPassphrase + "\n")
	c.ends(0)
	require.NotContains(t, sit(t, nil, append(env, passphraseFile(t)), "policy", "seal").ends(0), "clock")
}

// Who writes to the ledger can forge the text that a difference is taken from. Then the person sees
// every rule, and is asked again, before anything is sealed.
func TestAForgedDifferenceHidesNothing(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	loose := strings.Replace(w.configText(t), "day = \"10.00\"", "day = \"1000.00\"", 1)
	require.NotEqual(t, w.configText(t), loose)
	w.setConfig(t, loose)
	store := must.Get(ledgers.Open(t.Context(), w.home, historytest.Options()))(t)
	sealed := must.Get(store.Rules(t.Context()))(t)
	sealed.Version, sealed.Config = sealed.Version+1, []byte(loose)
	require.NoError(t, store.SealRules(t.Context(), sealed, "", true, historytest.Keyholder()))
	require.NoError(t, store.Close())

	c := sit(t, nil, env, "budget", "set", "session", "6.00")
	c.answers("Passphrase, to seal these rules: ", testPassphrase)
	c.sees("Passphrase again, to seal all of these: ", 1)
	require.Contains(t, c.text(), "budget.day = $1000.00")
	c.types("no, not that\n")
	c.ends(4)
	require.Contains(t, sit(t, nil, append(env, passphraseFile(t)), "policy").ends(0), "$1000.00")
	store = must.Get(ledgers.Open(t.Context(), w.home, historytest.Options()))(t)
	defer store.Close()
	require.Equal(t, sealed.Version, must.Get(store.Rules(t.Context()))(t).Version, "nothing was sealed")
}
