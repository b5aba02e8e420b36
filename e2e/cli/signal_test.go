//go:build unix

package cli

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// startHeld starts a command that pays at w.atHeld, and comes back when the facilitator's books have the
// payment.
func startHeld(t *testing.T, w *world, cmd *exec.Cmd) {
	t.Helper()
	before := len(w.Settlements())
	require.NoError(t, cmd.Start())
	w.awaitSettlements(t, before+1)
}

// answersLater lets the seller's answer go, after a second in which the program could have ended without it.
func (w *world) answersLater(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second)
	w.release(t)
}

// again makes the same call once more: it has what was bought, and nothing was paid for it.
func again(t *testing.T, w *world, env []string, url string) {
	t.Helper()
	settled, signed := len(w.Settlements()), w.Signatures()
	out, _ := runs(t, 0, env, "pay", "--json", url)
	var r struct{ Status, Content string }
	require.NoError(t, json.Unmarshal([]byte(out), &r), "%s", out)
	require.Equal(t, "replayed", r.Status, "%s", out)
	require.JSONEq(t, sandbox.Content("/weather"), r.Content)
	require.Len(t, w.Settlements(), settled)
	require.Equal(t, signed, w.Signatures())
}

// Every signal that ends a program, while the seller holds the payment: it is finished, and who asked
// has the answer. Signals behind it change nothing.
func TestASignalWhileTheSellerHoldsThePayment(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	for _, list := range [][]syscall.Signal{{syscall.SIGHUP}, {syscall.SIGINT}, {syscall.SIGTERM},
		{syscall.SIGQUIT}, {syscall.SIGHUP, syscall.SIGHUP}, {syscall.SIGINT, syscall.SIGINT,
			syscall.SIGTERM}} {
		t.Run(fmt.Sprint(list), func(t *testing.T) {
			var out bytes.Buffer
			cmd := command(t, env, "pay", "--json", w.atHeld(fmt.Sprint(list)))
			cmd.Stdout = &out
			startHeld(t, w, cmd)
			for _, s := range list {
				require.NoError(t, cmd.Process.Signal(s))
			}
			w.answersLater(t)
			require.NoError(t, cmd.Wait(), "it has the answer")
			require.Contains(t, out.String(), `"status": "paid"`)
		})
	}
}

// A terminal that is closed, as when ssh is lost: the answer has nowhere to go, and the next call has it.
func TestTheTerminalIsClosedWhileTheSellerHoldsThePayment(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	url := w.atHeld("")
	c := sit(t, nil, env, "pay", url)
	w.awaitSettlements(t, 1)
	require.NoError(t, c.keys.Close())
	w.answersLater(t)
	_ = c.cmd.Wait()
	status := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.False(t, status.Signaled(), "it ended by itself: %v", status)
	again(t, w, env, url)
}

// The terminal shows what a wait is for. At the second Ctrl-C the program ends at once, and the same call
// goes on with the same payment.
func TestCtrlCAgainEndsAtOnce(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	url := w.SellerURL + "/weather"
	w.Inject("seller hangs", 1)
	c := sit(t, nil, env, "pay", url)
	c.sees("waiting for the seller and the chain", 1)
	w.awaitSettlements(t, 1)
	c.types("\x03")
	c.sees("stopping; waiting for the answer", 1)
	for ended := false; !ended; { // those of the first second are the same wish
		c.types("\x03")
		select {
		case <-c.closed:
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.Contains(t, c.ends(5), "ended at once; a payment that was sent stays held")
	out, _ := runs(t, 1, env, "pay", "--json", url) // this seller serves a payment once
	require.Contains(t, out, `"status": "paid_not_served"`)
	require.Len(t, w.Settlements(), 1, "the same payment")
	require.Equal(t, 1, w.Signatures())
}

// Whoever read the answer, or the log, is gone: that is an error of writing and not the end.
func TestStdoutAndStderrAreClosedWhileTheSellerHoldsThePayment(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	url := w.atHeld("")
	cmd := command(t, env, "pay", "--json", url)
	ours, theirs, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = theirs, theirs
	startHeld(t, w, cmd)
	require.NoError(t, theirs.Close())
	require.NoError(t, ours.Close())
	w.answersLater(t)
	_ = cmd.Wait()
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v", cmd.ProcessState)
	again(t, w, env, url)

	list := commandOf(t, env, "sh", "-c", `x402-wallet history 2>&3 | true; echo`)
	said := must.Get(os.CreateTemp(t.TempDir(), "said"))(t)
	defer said.Close()
	list.ExtraFiles = []*os.File{said}
	require.NoError(t, list.Run())
	text := must.Get(os.ReadFile(said.Name()))(t)
	require.NotContains(t, string(text), "written", "a reader that had enough is nothing to speak of")
}

// nohup: a signal that was ignored at the start stays ignored.
func TestIgnoredFromTheStartStaysIgnored(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	for _, name := range []string{"HUP", "INT"} {
		cmd := commandOf(t, env, "sh", "-c", "trap '' "+name+"; exec x402-wallet mcp")
		in := must.Get(cmd.StdinPipe())(t)
		out := must.Get(cmd.StdoutPipe())(t)
		require.NoError(t, cmd.Start())
		answers := json.NewDecoder(out)
		var answer struct{ ID int }
		for id := range 3 {
			must.Get(fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id))(t)
			require.NoError(t, answers.Decode(&answer), "it lives")
			require.Equal(t, id, answer.ID)
			require.NoError(t, cmd.Process.Signal(map[string]os.Signal{"HUP": syscall.SIGHUP,
				"INT": syscall.SIGINT}[name]))
		}
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}
	require.Empty(t, w.Settlements())
}

// An agent's server that is ended, however, while a payment is sent and not answered: it is gone in
// bounded time, which where only its input ends is the call's deadline, and the same call goes on with
// the same payment.
func TestAServerEndsWhileTheSellerHoldsThePayment(t *testing.T) {
	t.Parallel()
	signals := func(list ...syscall.Signal) func(*mcpClient) {
		return func(c *mcpClient) {
			for _, s := range list {
				require.NoError(c.t, c.cmd.Process.Signal(s))
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	stdout := func(c *mcpClient) { require.NoError(c.t, c.from.Close()) }
	stdin := func(c *mcpClient) { require.NoError(c.t, c.in.Close()) }
	for name, end := range map[string]func(*mcpClient){
		"SIGHUP": signals(syscall.SIGHUP), "SIGINT": signals(syscall.SIGINT),
		"SIGTERM twice": signals(syscall.SIGTERM, syscall.SIGTERM), "stdin": stdin,
		"SIGPIPE, then SIGTERM": signals(syscall.SIGPIPE, syscall.SIGTERM),
		"stdout, then SIGTERM":  func(c *mcpClient) { stdout(c); signals(syscall.SIGTERM)(c) },
		"all of it":             func(c *mcpClient) { stdout(c); signals(syscall.SIGPIPE)(c); stdin(c) },
	} {
		for _, isLocked := range []bool{false, true} { // the ledger, by another program
			t.Run(name+map[bool]string{true: ", ledger locked"}[isLocked], func(t *testing.T) {
				t.Parallel()
				w, env := hasty(t)
				url := w.SellerURL + "/weather"
				w.Inject("seller hangs before", 1)
				c := serve(t, env...)
				c.send("tools/call", `{"name":"x402_pay","arguments":{"url":"`+url+`"}}`)
				require.Eventually(t, func() bool { return w.Presentations() == 1 }, time.Minute,
					time.Millisecond)
				release := func() {}
				if isLocked {
					release = locked(t, w.home)
				}
				end(c)
				ended := make(chan error, 1)
				go func() { ended <- c.cmd.Wait() }()
				select {
				case <-ended:
				case <-time.After(time.Minute):
					_ = c.cmd.Process.Signal(syscall.SIGABRT) // shows what it waits for
					<-ended
					t.Fatalf("it does not end:\n%s", c.log)
				}
				status := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
				require.False(t, status.Signaled(), "it ended by itself: %v", status)
				release()
				out, _ := runs(t, 0, env, "pay", "--json", url)
				var r struct{ Status, Content string }
				require.NoError(t, json.Unmarshal([]byte(out), &r), "%s", out)
				require.JSONEq(t, sandbox.Content("/weather"), r.Content, "%s", out)
				require.Len(t, w.Settlements(), 1)
				require.Equal(t, 1, w.Signatures(), "the same payment")
				runs(t, 0, env, "history", "verify", "--seals")
			})
		}
	}
}

func hasty(t *testing.T) (w *world, env []string) {
	t.Helper()
	w = must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	w.home = filepath.Join(t.TempDir(), "home")
	var err error
	w.evm, _, err = testworld.MakeHome(w.home, strings.Replace(w.rules(sandbox.Rules{}), "[policy]\n",
		"[policy]\ndeadline = \"8s\"\nmax_wait = \"8s\"\n", 1), testPassphrase)
	require.NoError(t, err)
	w.Fund(w.evm, sandbox.USDC)
	return w, []string{"X402_WALLET_HOME=" + w.home, passphraseFile(t)}
}

// locked is the ledger in the hands of another program, which writes and does not end, until release.
func locked(t *testing.T, home string) (release func()) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(home, "ledger.db"))+
		"?_pragma=busy_timeout(5000)"))(t)
	conn := must.Get(db.Conn(t.Context()))(t)
	must.Get(conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`))(t)
	return func() {
		must.Get(conn.ExecContext(context.Background(), `ROLLBACK`))(t)
		require.NoError(t, conn.Close())
		require.NoError(t, db.Close())
	}
}
