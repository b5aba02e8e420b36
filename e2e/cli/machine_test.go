//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// Without file descriptors nothing is paid that is not recorded, the server lives, and with
// descriptors again the very same call is the same purchase.
func TestNoFileDescriptors(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	refused := 0
	for limit := 6; limit <= 30; limit += 2 { // from too few to open the ledger to enough
		call := fmt.Sprintf(`{"url":"%s/weather?%d"}`, w.SellerURL, limit)
		starved, ok := tryServe(t, commandOf(t, env, "sh", "-c",
			fmt.Sprintf(`ulimit -n %d; exec x402-wallet mcp`, limit)))
		settled := len(w.Settlements())
		if ok {
			answer := starved.call("x402_pay", call)
			if strings.Contains(answer, `"error"`) {
				refused++
				require.NotContains(t, answer, `"INTERNAL"`)
			}
			require.Contains(t, string(starved.ask("ping", "{}")), "{}", "it lives")
			starved.leave()
		}
		again := serve(t, env...)
		answer := again.call("x402_pay", call)
		again.leave()
		result := must.JSON[struct{ Status string }]([]byte(answer))(t)
		require.Contains(t, []string{"paid", "replayed"}, result.Status, "limit %d: %s", limit, answer)
		require.LessOrEqual(t, len(w.Settlements()), settled+2)
	}
	require.NotZero(t, refused, "no limit was low enough to be one")
	t.Logf("%d limits stopped the payment", refused)
}

// A process that is suspended in the middle of a payment, and not of a write, holds nobody up, and ends its
// payment when it goes on.
func TestSuspended(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	first, other := serve(t, env...), serve(t, env...)
	other.call("x402_pay", fmt.Sprintf(`{"url":"%s/weather?unlock"}`, w.SellerURL))
	first.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":{"url":%q}}`, w.atHeld("")))
	w.awaitSettlements(t, 2)
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	for !w.isUnlocked() {
		require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	}
	require.Contains(t, other.call("x402_pay", fmt.Sprintf(`{"url":"%s/weather?other"}`, w.SellerURL)),
		`"status":"paid"`)
	require.Contains(t, other.call("x402_check_balance", "{}"), `"held":"0.001"`, "the suspended one's")
	w.release(t) // its answer comes meanwhile
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	require.Contains(t, string(first.hear()), `\"status\":\"paid\"`)
	require.Len(t, w.Settlements(), 3)
	require.Contains(t, other.call("x402_check_balance", "{}"), `"held":"0.00"`)
}

// isUnlocked reports whether no process holds a lock of the ledger.
func (w *world) isUnlocked() bool {
	for _, name := range []string{"ledger", "mark"} {
		lock := sqldb.NewFileLock(w.home, name)
		lock.SetPatience(100*time.Millisecond, time.Millisecond)
		unlock, err := lock.Lock(context.Background())
		if err != nil {
			return false
		}
		unlock()
		_ = lock.Close()
	}
	return true
}

// Certificate authorities of the environment count for nothing: a project's .env could name them.
func TestAuthoritiesOfTheEnvironmentAreIgnored(t *testing.T) {
	t.Parallel()
	w := must.Get(newWorld(sandbox.Options{}))(t)
	t.Cleanup(w.close)
	seller := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "free")
	}))
	seller.Config.ErrorLog = log.New(io.Discard, "", 0) // it would tell of the handshakes
	seller.StartTLS()
	t.Cleanup(seller.Close)
	home, roots := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "roots.pem")
	_, _, err := testworld.MakeHome(home, strings.Replace(w.rules(sandbox.Rules{}), "loopback = [",
		fmt.Sprintf("loopback = [%q, ", seller.Listener.Addr()), 1), testPassphrase)
	require.NoError(t, err)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: seller.Certificate().Raw})
	require.NoError(t, os.WriteFile(roots, root, 0o600))
	for _, variable := range []string{"SSL_CERT_FILE=" + roots, "SSL_CERT_DIR=" + filepath.Dir(roots)} {
		out, said := runs(t, 1, []string{"X402_WALLET_HOME=" + home, variable}, "pay", "--json",
			seller.URL+"/")
		require.Contains(t, out, `"error": "NETWORK_ERROR"`)
		require.Contains(t, said, "only the system's own certificate authorities count")
	}
}

// With too little memory the process ends, wherever that meets it; the money is as the ledger
// says, and the same call goes on.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("ulimit -v bounds memory on Linux only")
	}
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	ended := map[bool]int{}
	for kib := 100_000; kib <= 4_000_000; kib = kib * 6 / 5 {
		cmd := commandOf(t, env, "sh", "-c", fmt.Sprintf(`ulimit -v %d && exec x402-wallet pay --json "$1"`, kib),
			"sh", w.SellerURL+"/weather?memory")
		out, _ := cmd.Output()
		paid := cmd.ProcessState.Success()
		ended[paid]++
		if paid {
			require.Contains(t, string(out), `"status"`)
		}
		require.LessOrEqual(t, len(w.Settlements()), ended[true]+1, "never more than was asked for")
	}
	require.Positive(t, ended[false], "some were too small")
	require.Positive(t, ended[true], "some were not")
	out, _ := runs(t, 0, env, "history", "verify", "--seals")
	require.Contains(t, out, `"ok": true`)
	_, _ = runs(t, 0, env, "pay", "--json", w.SellerURL+"/weather?after")
}

// A server that runs follows the rules as the owner changes them, and no others.
func TestRulesChangeUnderARunningServer(t *testing.T) {
	t.Parallel()
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	original := w.configText(t)
	a := serve(t, env...)
	pay := func() string {
		return a.call("x402_pay", fmt.Sprintf(`{"url":"%s/weather?%d"}`, w.SellerURL, a.nextID))
	}
	require.Contains(t, pay(), `"status":"paid"`)

	w.setConfig(t, strings.Replace(original, "[budget]", "[budget]\nrate = 100000", 1))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	w.setConfig(t, "[budget")
	require.Contains(t, pay(), `"error":"SETUP_FAILED"`)
	require.NoError(t, os.Remove(filepath.Join(w.home, "config.toml")))
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`)
	w.setConfig(t, original)
	require.Contains(t, pay(), `"status":"paid"`)

	sit(t, nil, env, "budget", "set", "session", "0.002").ends(0)
	require.Contains(t, pay(), `"layer":"session"`)
	w.setConfig(t, original)
	require.Contains(t, pay(), `"error":"POLICY_UNSEALED"`, "it was tightened and sealed")

	withPassphrase(t, 0, env, "policy", "seal")
	require.Contains(t, pay(), `"status":"paid"`)
	require.Len(t, w.Settlements(), 3)
}

// A quota of 64 MiB, and a seller whose goods have 31 MiB each: however many are bought, the ledger
// stays small, the oldest that was delivered goes first, and its payment is shown, exported and
// verified as before.
func TestContentHasAQuota(t *testing.T) {
	t.Parallel()
	w, env := quotaHousehold(t)
	for i := range 6 {
		out, _ := runs(t, 0, env, "pay", "--json", fmt.Sprintf("%s/sells/large?%d", w.front.URL, i))
		require.Contains(t, out, `"status": "paid"`)
	}
	require.Less(t, ledgerSize(t, w), int64(4*largeSize), "what was removed made room for the next")

	var list struct{ Transactions []struct{ PaymentID string } }
	out, _ := runs(t, 0, env, "history")
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	newest, oldest := list.Transactions[0].PaymentID, list.Transactions[5].PaymentID
	out, _ = runs(t, 0, env, "show", newest, "--content")
	require.Len(t, out, largeSize/14*14)
	out, _ = runs(t, 0, env, "show", oldest)
	require.Contains(t, out, `"contentRemoved": "removed by quota (policy.content_quota): 32505844 bytes, SHA-256 `)
	require.Contains(t, out, `"nonce"`)
	_, said := runs(t, 2, env, "show", oldest, "--content")
	require.Contains(t, said, "was removed by quota")
	receipt := filepath.Join(t.TempDir(), "receipt.json")
	runs(t, 0, env, "reconcile")
	out, _ = runs(t, 0, env, "show", oldest, "--receipt")
	require.Contains(t, out, `"bytes": 32505844`)
	require.NoError(t, os.WriteFile(receipt, []byte(out), 0o600))
	runs(t, 0, env, "verify-receipt", receipt)
	out, _ = runs(t, 0, env, "export", "--format", "jsonl")
	require.Equal(t, 6, strings.Count(out, "\n"))
	runs(t, 0, env, "history", "verify", "--seals")
	out, _ = runs(t, 0, append(env, "HOME="+t.TempDir()), "doctor")
	require.Contains(t, out, "62 MiB of stored content, 0 KiB of it not fetched yet, of a quota of 64MiB")

	before := ledgerSize(t, w)
	out, _ = runs(t, 0, env, "ledger", "prune", "--before", "2100-01-01")
	require.Contains(t, out, `"deleted": 2`)
	require.Less(t, ledgerSize(t, w), before-(60<<20), "the disk has it back")
	runs(t, 0, env, "history", "verify", "--seals")
}

// What was paid for and never fetched is not pushed out: when it fills the quota nothing more is paid,
// and the refusal says what helps.
func TestContentThatNobodyFetchedStopsPaymentsWhenItFillsTheQuota(t *testing.T) {
	t.Parallel()
	w, env := quotaHousehold(t)
	url := func(i int) string { return fmt.Sprintf("%s/sells/large?%d", w.front.URL, i) }
	for i := range 3 {
		cmd := commandOf(t, env, "sh", "-c", "x402-wallet pay '"+url(i)+"' | true")
		_ = cmd.Run()
	}
	require.Len(t, w.Settlements(), 3)
	out, _ := runs(t, 1, env, "pay", "--json", url(3))
	require.Contains(t, out, `"error": "LEDGER_UNAVAILABLE"`)
	require.Contains(t, out, `"spent": "0"`)
	require.Contains(t, out, `"limit": 67108864`)
	require.Len(t, w.Settlements(), 3, "nothing was paid")
	require.Equal(t, 3, w.Signatures())
	out, _ = runs(t, 1, append(env, "HOME="+t.TempDir()), "doctor")
	require.Contains(t, out, "nothing more is bought: 93 MiB of stored content, 93 MiB of it not fetched yet")

	out, _ = runs(t, 0, env, "pay", "--json", url(0)) // its answer was lost, and it is still there
	require.Contains(t, out, `"status": "replayed"`)
	out, _ = runs(t, 0, env, "pay", "--json", url(3))
	require.Contains(t, out, `"status": "paid"`)
	out, _ = runs(t, 0, env, "ledger", "prune", "--before", "2100-01-01", "--undelivered")
	require.Contains(t, out, `"deleted": 3`, "the two that nobody fetched, and the last")
	runs(t, 0, env, "history", "verify", "--seals")
}

func quotaHousehold(t *testing.T) (w *world, env []string) {
	t.Helper()
	w, env = householdWith(t, sandbox.Options{}, func(w *world) string {
		return strings.Replace(w.rules(sandbox.Rules{}), "[policy]\n",
			"[policy]\ncontent_quota = \"64MiB\"\n", 1)
	})
	return w, append(env, passphraseFile(t))
}

func ledgerSize(t *testing.T, w *world) (size int64) {
	files := must.Get(filepath.Glob(filepath.Join(w.home, "ledger.db*")))(t)
	for _, file := range files {
		info := must.Get(os.Stat(file))(t)
		size += info.Size()
	}
	return size
}

// Many calls at once, each with a large body: all get what they paid for, and memory holds only a few
// of them at a time.
func TestLargeBodiesAtOnce(t *testing.T) {
	w, env := openHousehold(t, sandbox.Options{}, sandbox.Rules{})
	c := serve(t, env...)
	const calls = 24
	for i := range calls {
		c.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":{"url":"%s/sells/large?%d"}}`,
			w.front.URL, i))
	}
	for range calls {
		require.Contains(t, string(c.hear()), `\"status\":\"paid\"`)
	}
	require.Len(t, w.Settlements(), calls)
	peak := resident(t, c.cmd.Process.Pid, "VmHWM")
	t.Logf("%d MiB at most", peak)
	require.Less(t, peak, int64(mostResident))
}

// What large bodies take of memory is given back to the system when they are done with.
func TestLargeBodiesGiveMemoryBack(t *testing.T) {
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	c := serve(t, append(env, passphraseFile(t))...)
	for i := range 3 {
		c.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":{"url":"%s/sells/ten?%d"}}`,
			w.front.URL, i))
		require.Contains(t, string(c.hear()), `\"status\":\"paid\"`)
	}
	peak := resident(t, c.cmd.Process.Pid, "VmHWM")
	givenBack := func() bool { return resident(t, c.cmd.Process.Pid, "VmRSS") < max(peak-20, 60) }
	require.Eventually(t, givenBack, time.Minute, time.Second)
	t.Logf("%d MiB at most, then %d MiB", peak, resident(t, c.cmd.Process.Pid, "VmRSS"))
}

// mostResident is what a process may hold of memory then, in MiB.
const mostResident = 640
