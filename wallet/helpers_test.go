package wallet

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/keystore/keytest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain is also the other process in tests that need one.
func TestMain(m *testing.M) {
	if name := os.Getenv(keytest.HelperVariable); name != "" {
		os.Exit(helper(name))
	}
	goleak.VerifyTestMain(m)
}

func helper(name string) int {
	ctx := context.Background()
	switch name {
	case "wipe":
		return wiped(ctx)
	case "harden":
		return hardened()
	case "no-memory-to-lock":
		return withoutLockedMemory(ctx)
	case "wait", "harden-wait":
		return standing(name == "harden-wait")
	}
	return 0
}

func value(p string) Passphrase { return FromValue(p) }

// never fails the test when it is asked.
func never(t *testing.T) Passphrase {
	return func(context.Context) ([]byte, error) {
		t.Error("the passphrase was asked for")
		return nil, ErrNoPassphrase
	}
}

// newTestWallet creates a wallet with a fake KDF and answers it locked.
func newTestWallet(t *testing.T) (*Wallet, *keytest.KDF) {
	f := &keytest.KDF{}
	w, err := Outside.Create(t.Context(), keytest.Home(t), value(keytest.Passphrase), Creation{KDF: f.Derive})
	require.NoError(t, err)
	w.Lock()
	f.Calls = 0
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

// phraseWallet is a wallet of the known phrase.
func phraseWallet(t *testing.T) (*Wallet, *keytest.KDF) {
	t.Helper()
	f := &keytest.KDF{}
	w := must.Get(Outside.Create(t.Context(), keytest.Home(t), value(keytest.Passphrase),
		Creation{KDF: f.Derive, Phrase: Outside.Seeds(t, keytest.Phrase, "", 0)}))(t)
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

// reopened is the wallet as another process has it, which a passphrase unlocks.
func reopened(t *testing.T, w *Wallet, f *keytest.KDF, passphrase string) *Wallet {
	t.Helper()
	again := must.Get(Open(w.dir))(t)
	again.derive, again.Sources = f.Derive, []Passphrase{value(passphrase)}
	t.Cleanup(func() { _ = again.Close() })
	return again
}

// goldenHome is a home with the golden keystore, and its passphrase in the file passphrase.
func goldenHome(t *testing.T) string {
	data, _ := keytest.Golden(t)
	dir := keytest.Put(t, data)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "passphrase"), keytest.Typed(t), 0o600))
	return dir
}

// signDigest and signMessage have the keystore sign what no kind of message is.
func (w *Wallet) signDigest(ctx context.Context, digest [32]byte) ([65]byte, error) {
	return w.signEVM(ctx, Order{Chain: ChainEVM, Digest: digest})
}

func (w *Wallet) signMessage(ctx context.Context, message []byte) ([64]byte, error) {
	return w.signSolana(ctx, Transaction, message)
}
