package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
)

// sqlite3 runs Debian's SQLite on a ledger: another program, with an older library.
func sqlite3(t *testing.T, ledger, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sqlite3", "-cmd", ".timeout 5000", ledger,
		command).CombinedOutput()
	assert.NoError(t, err, "%s: %s", command, out)
	return strings.TrimSpace(string(out))
}

// Another program reads, copies and closes the ledger while two servers on one home, each with an account of
// its own, go on paying, and their owner changes the rules meanwhile. Chains, ledger and keys agree:
// nothing is lost, and no key is paid twice. Each server pays on another chain, because the facilitator
// here cannot take two payments on one chain at the same moment.
func TestLedger_BesideAnotherProgram(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	rules := lab.Config(ConfigOptions{Budget: plenty})
	home := testworld.NewHome(t, rules)
	travel := addAccount(t, home, bin, "travel")
	lab.EVMMint(home.EVM, 1_000_000)
	lab.SVMFund(travel.Solana, "", 1_000_000)
	file := filepath.Join(home.Dir, config.FileName)
	text := must.Get(os.ReadFile(file))(t)

	ledger := filepath.Join(home.Dir, "ledger.db")
	servers := []*Wallet{
		testworld.StartWallet(t, bin, home),
		testworld.StartWalletWith(t, bin, home, WalletOptions{Args: []string{"--account", "travel"}}),
	}
	sells := []string{lab.Seller + "/evm", lab.Seller + "/svm"}
	const rounds, each = 4, 3
	var paid [2]atomic.Int64
	for round := range rounds {
		var calls sync.WaitGroup
		for i, w := range servers {
			calls.Go(func() {
				for n := range each {
					key := fmt.Sprintf("key-%d-%d-%d", i, round, n)
					p := payFor(t, w, sells[i]+"?k="+key, "idempotencyKey", key)
					assert.Equal(t, "paid", p.Status, "%+v", p)
					if p.Status == "paid" {
						paid[i].Add(1)
					}
				}
			})
		}
		copied := filepath.Join(t.TempDir(), "copy.db")
		sqlite3(t, ledger, ".backup "+copied)
		assert.Equal(t, "ok", sqlite3(t, copied, "PRAGMA integrity_check"))
		sqlite3(t, ledger, "SELECT count(*) FROM payments")
		runWallet(t, home, bin, nil, "ledger", "backup", filepath.Join(t.TempDir(), "own.db"))
		calls.Wait()

		// Any byte of the rules that changed has the servers open their wallet again.
		text = append(text, "# looked at\n"...)
		require.NoError(t, ownfile.Write(file, text))
		seen, err := atTerminal(t, home, bin, testworld.Passphrase, "policy", "seal")
		require.NoError(t, err, seen)
		for _, w := range servers {
			payFor(t, w, lab.Seller+"/evm?k=again", "maxAmount", "1") // opens it, and buys nothing
			require.True(t, testworld.HoldsLock(t, w.PID(), ledger), "round %d", round)
			require.True(t, testworld.HoldsLock(t, w.PID(), ledger+"-shm"), "round %d", round)
		}
		sqlite3(t, ledger, "PRAGMA wal_checkpoint")
	}

	left := []uint64{lab.EVMBalance(home.EVM), lab.SVMBalance(travel.Solana, "")}
	for i := range servers {
		require.EqualValues(t, rounds*each, paid[i].Load())
		require.EqualValues(t, 1_000_000-rounds*each*price, left[i], "on chain %d", i)
	}
	settled := sqlite3(t, ledger, "SELECT count(*) FROM payments WHERE state = 'settled'")
	require.Equal(t, fmt.Sprint(2*rounds*each), settled, "what the ledger has")
	for i, w := range servers {
		for round := range rounds {
			key := fmt.Sprintf("key-%d-%d-0", i, round)
			p := payFor(t, w, sells[i]+"?k="+key, "idempotencyKey", key)
			require.Equal(t, "replayed", p.Status, "%+v", p)
		}
	}
	runWallet(t, home, bin, nil, "history", "verify", "--seals")
}
