//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// A quota of 64 MiB, and a seller whose goods have 31 MiB each: however many are bought, the ledger
// stays small, the oldest that was delivered goes first, and its payment is shown, exported and
// verified as before.
func TestContentHasAQuota(t *testing.T) {
	t.Parallel()
	w, env := quotaHousehold(t)
	for i := range 6 {
		out, _ := runs(t, 0, env, "pay", fmt.Sprintf("%s/sells/large?%d", w.front.URL, i))
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
	out, _ := runs(t, 1, env, "pay", url(3))
	require.Contains(t, out, `"error": "LEDGER_UNAVAILABLE"`)
	require.Contains(t, out, `"spent": "0"`)
	require.Contains(t, out, `"limit": 67108864`)
	require.Len(t, w.Settlements(), 3, "nothing was paid")
	require.Equal(t, 3, w.Signatures())
	out, _ = runs(t, 1, append(env, "HOME="+t.TempDir()), "doctor")
	require.Contains(t, out, "nothing more is bought: 93 MiB of stored content, 93 MiB of it not fetched yet")

	out, _ = runs(t, 0, env, "pay", url(0)) // its answer was lost, and it is still there
	require.Contains(t, out, `"status": "replayed"`)
	out, _ = runs(t, 0, env, "pay", url(3))
	require.Contains(t, out, `"status": "paid"`)
	out, _ = runs(t, 0, env, "ledger", "prune", "--before", "2100-01-01", "--undelivered")
	require.Contains(t, out, `"deleted": 3`, "the two that nobody fetched, and the last")
	runs(t, 0, env, "history", "verify", "--seals")
}

func quotaHousehold(t *testing.T) (w *world, env []string) {
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
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t))
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
