package owner_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
	. "x402-wallet/wallet/owner"
	"x402-wallet/wallet/recovery"
)

// TestMain is also the other process in tests that need one.
func TestMain(m *testing.M) {
	if os.Getenv(keytest.HelperVariable) == "create" {
		os.Exit(creates(context.Background()))
	}
	goleak.VerifyTestMain(m)
}

// creates waits for the end of stdin, so that two can start together.
func creates(ctx context.Context) int {
	_, _ = os.Stdin.Read(make([]byte, 1))
	w, err := Create(ctx, os.Getenv("WALLET_TEST_DIR"), value(keytest.Passphrase),
		Options{KDF: new(keytest.KDF).Derive})
	if err != nil {
		return keytest.Report(err)
	}
	_, evm := w.Addresses()
	fmt.Println(evm)
	return 0
}

func value(p string) wallet.Passphrase { return wallet.FromValue(p) }

// newTestWallet creates a wallet with a fake KDF and answers it locked.
func newTestWallet(t *testing.T) (*wallet.Wallet, *keytest.KDF) {
	t.Helper()
	f := &keytest.KDF{}
	w := must.Get(Create(t.Context(), keytest.Home(t), value(keytest.Passphrase), Options{KDF: f.Derive}))(t)
	w.Lock()
	f.Calls = 0
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

// reopened is a wallet as another process has it.
func reopened(t *testing.T, dir string, f *keytest.KDF) *wallet.Wallet {
	t.Helper()
	ks, _, err := keystore.Read(dir)
	require.NoError(t, err)
	w := wallet.New(dir, ks, f.Derive, time.Now)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// header is that of the keystore in a home.
func header(t *testing.T, dir string) keystore.Header {
	t.Helper()
	ks, _, err := keystore.Read(dir)
	require.NoError(t, err)
	return ks.Header
}

func requireAddresses(t *testing.T, w *wallet.Wallet, solana, evm string) {
	t.Helper()
	gotSolana, gotEVM := w.Addresses()
	require.Equal(t, solana, gotSolana)
	require.Equal(t, evm, gotEVM)
}

// seeds are those of the known phrase.
func seeds(t *testing.T, passphrase string, account uint32) *guarded.Seeds {
	t.Helper()
	var extra wallet.Passphrase
	if passphrase != "" {
		extra = value(passphrase)
	}
	p, err := recovery.Read(t.Context(), value(keytest.Phrase), extra, recovery.StandardPaths(account))
	require.NoError(t, err)
	defer p.Wipe()
	s := must.Get(p.Seeds())(t)
	t.Cleanup(s.Wipe)
	return s
}

// phraseWallet is a wallet of the known phrase.
func phraseWallet(t *testing.T, opt Options) (*wallet.Wallet, *keytest.KDF) {
	t.Helper()
	f := &keytest.KDF{}
	opt.KDF = f.Derive
	opt.Phrase = seeds(t, "", 0)
	w := must.Get(Create(t.Context(), keytest.Home(t), value(keytest.Passphrase), opt))(t)
	requireWiped(t, opt.Phrase)
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

func requireWiped(t *testing.T, s *guarded.Seeds) {
	t.Helper()
	solana, evm, phrase := guarded.PartsOf(s)
	require.Equal(t, make([]byte, 64), append(solana[:], evm[:]...))
	require.Equal(t, make([]byte, len(phrase)), phrase)
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	require.Empty(t, must.Get(os.ReadDir(dir))(t))
}
