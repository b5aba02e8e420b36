// Package wallettest is for the tests of the wallet's packages.
package wallettest

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/owner"
)

// Main runs the tests, or in another process of the test binary (keytest.Command) helper.
func Main(m *testing.M, helper func(ctx context.Context, name string) error) {
	if name := os.Getenv(keytest.HelperVariable); name != "" {
		if err := helper(context.Background(), name); err != nil {
			os.Exit(keytest.Report(err))
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// Wallet is a locked wallet of a key derivation that is quick.
func Wallet(t testing.TB, opt owner.Options) *wallet.Wallet {
	t.Helper()
	opt.N = 1 << 14
	w, err := owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase), opt)
	require.NoError(t, err)
	w.Lock()
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// Never fails the test when it is asked.
func Never(t testing.TB) wallet.Passphrase {
	return func(context.Context) ([]byte, error) {
		t.Error("the passphrase was asked for")
		return nil, wallet.ErrNoPassphrase
	}
}
