package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// The owner delegates, and takes it back, by our commands on the real token programs; the agent spends in
// between from the owner's token account, in V2 and V1, and the chain keeps the cap.
func TestTheOwnerDelegates(t *testing.T) {
	lab := Start(t)
	bin := testworld.Build(t)
	home := testworld.NewHome(t, lab.Config(ConfigOptions{Budget: plenty}))
	for _, c := range []struct{ name, path, mint string }{
		{"SPL Token", lab.Seller + "/svm", lab.SVM.Mint}, {"V1", lab.SellerV1 + "/v1/svm", lab.SVM.Mint},
		{"Token-2022", lab.Seller + "/svm2022", lab.SVM.Mint2022},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := lab.For(t)
			lab.SVMFund(lab.SVM.PayTo, c.mint, 0)
			owner := lab.SVMKey("delegating " + c.name)
			file := filepath.Join(t.TempDir(), "id.json")
			writePrivate(t, file, string(owner.Keypair))
			account := lab.SVMFund(owner.Address, c.mint, 500_000)
			run := func(code int, args ...string) (out struct {
				Error, TransactionSignature,
				Transaction string
			}) {
				t.Helper()
				endWallet(t, home, bin, code, &out, append([]string{"delegation"}, args...)...)
				return out
			}
			approve := []string{"approve", "--owner-keypair", file, "--asset", c.mint, "--amount", "0.0025"}
			require.Equal(t, "CHECK_FAILED", run(1, approve...).Error,
				"the owner has no SOL for the fee, and nothing is sent")
			lab.SVMAirdrop(owner.Address, 1_000_000_000)
			require.NotEmpty(t, run(0, approve...).TransactionSignature)
			got := lab.SVMTokenAccount(account)
			require.Equal(t, home.Solana, got.Delegate)
			require.Equal(t, uint64(2_500), got.DelegatedAmount)

			w := testworld.StartWallet(t, bin, home)
			for _, left := range []uint64{1_500, 500} {
				p := buyAnew(t, w, c.path)
				require.Equal(t, "paid", p.Status, "%+v", p)
				require.Equal(t, left, lab.SVMTokenAccount(account).DelegatedAmount)
			}
			require.Zero(t, lab.SVMBalance(home.Solana, c.mint), "the agent itself owns nothing")
			p := buyAnew(t, w, c.path)
			require.Equal(t, []string{"DELEGATION_EXHAUSTED", "0"}, []string{p.Error, p.Spent}, "%+v", p)

			require.NotEmpty(t, run(0, "revoke", "--unsigned", "--token-account", account).Transaction)
			require.Equal(t, home.Solana, lab.SVMTokenAccount(account).Delegate, "nobody signed that")
			require.NotEmpty(t, run(0, "revoke", "--owner-keypair", file, "--asset",
				c.mint).TransactionSignature)
			require.Empty(t, lab.SVMTokenAccount(account).Delegate)
			require.NotEmpty(t, buyAnew(t, w, c.path).Error)
			require.Equal(t, uint64(498_000), lab.SVMTokenAccount(account).Amount)
		})
	}
}
