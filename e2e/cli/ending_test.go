//go:build unix

package cli

import (
	"context"
	"database/sql"
	"encoding/json"
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
				out, _ := runs(t, 0, env, "pay", url)
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
	w = must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	w.home = filepath.Join(t.TempDir(), "home")
	var err error
	w.evm, _, err = testworld.MakeHome(w.home, strings.Replace(w.rules(sandbox.Rules{}), "[policy]\n",
		"[policy]\ndeadline = \"8s\"\n", 1), testPassphrase)
	require.NoError(t, err)
	w.Fund(w.evm, sandbox.USDC)
	return w, []string{"X402_WALLET_HOME=" + w.home, passphraseFile(t)}
}

// locked is the ledger in the hands of another program, which writes and does not end, until release.
func locked(t *testing.T, home string) (release func()) {
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
