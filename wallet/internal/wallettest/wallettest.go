// Package wallettest is for the tests of the wallet's packages.
package wallettest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
)

// Passphrase is that of the wallets of tests.
const Passphrase = "correct horse battery staple"

// The secrets of wallet/testdata/keystore.json.
const (
	// RFC 8032 §7.1 test 1
	SolanaSeed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
	Solana     = "FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z"
	// anvil's first account
	EVMSecret = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	EVM       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
)

// helperVariable names what another process of a test binary does.
const helperVariable = "WALLET_TEST_HELPER"

// Main runs the tests, or in another process of the test binary ([HelperCommand]) helper.
func Main(m *testing.M, helper func(ctx context.Context, name string) error) {
	if name := os.Getenv(helperVariable); name != "" {
		if err := helper(context.Background(), name); err != nil {
			os.Exit(report(err))
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// report prints the code of an error where the parent reads it.
func report(err error) int {
	var e *coded.Error
	if errors.As(err, &e) {
		fmt.Print(e.Code(), " ", e)
	} else {
		fmt.Print(err)
	}
	return 1
}

// Home is a directory that passes, with nothing in it.
func Home(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// Wallet is a locked wallet of a key derivation that is quick.
func Wallet(t testing.TB, opt wallet.Options) *wallet.Wallet {
	t.Helper()
	opt.N = 1 << 14
	w, err := wallet.Create(t.Context(), Home(t), wallet.FromValue(Passphrase), opt)
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

// KeyFile is a file with this content, for its owner alone.
func KeyFile(t testing.TB, content string) string {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// RequireCode wants an error with this code.
func RequireCode(t testing.TB, err error, code coded.Code) *coded.Error {
	t.Helper()
	var e *coded.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, string(code), e.Code(), "%v", err)
	return e
}

// Unhex decodes hexadecimal digits.
func Unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}
