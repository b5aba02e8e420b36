package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// Wallets that agents' hosts start show what each paid, in a file or at an address; two on one wallet do not
// get into each other's way.
func TestMetricsOverStdio(t *testing.T) {
	world, bin := x402test.New(t, x402test.Options{}), testworld.Build(t)
	start := func(t *testing.T, rules string) (testworld.Home, [2]*Wallet) {
		home := testworld.NewHome(t, world.WalletConfig()+"\n[metrics]\n"+rules)
		world.Fund(t, home.EVM, "1.00")
		var both [2]*Wallet
		for i := range both {
			both[i] = testworld.StartWalletWith(t, bin, home, WalletOptions{})
			require.Equal(t, "paid", payFor(t, both[i], fmt.Sprint(world.SellerURL, "/weather?", i)).Status)
		}
		return home, both
	}
	const paid = `outcome="paid"`

	t.Run("file", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "x402.prom")
		_, both := start(t, fmt.Sprintf("file = %q\n", file))
		for _, w := range both { // the first has the file, also when it has ended
			require.NoError(t, w.Close())
			require.Equal(t, []string{file}, must.Get(filepath.Glob(filepath.Join(dir, "*.prom")))(t))
		}
		text := string(must.Get(os.ReadFile(file))(t))
		require.Contains(t, text, paid)
		require.Contains(t, text, "x402_wallet_ledger_readable 1", "the wallet is still open")
		require.NotContains(t, text, "process=")
	})

	t.Run("address", func(t *testing.T) {
		l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
		at := l.Addr().String()
		require.NoError(t, l.Close())
		home, both := start(t, fmt.Sprintf("listen = %q\n", at))
		scrape := func() string {
			answer := must.Get(http.Get("http://" + at + "/metrics"))(t)
			defer answer.Body.Close()
			return string(must.Get(io.ReadAll(answer.Body))(t))
		}
		require.Contains(t, scrape(), paid)
		require.Contains(t, both[1].Stderr(), "no metrics are served", "and it pays all the same")
		ledger := filepath.Join(home.Dir, "ledger.db")
		require.NoError(t, os.Rename(ledger, ledger+".away"))
		require.Contains(t, scrape(), "x402_wallet_ledger_readable 0")
	})
}
