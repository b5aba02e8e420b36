package wallet

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
)

func TestFromValue(t *testing.T) {
	require.ErrorIs(t, must.Err(FromValue("")(t.Context())), ErrNoPassphrase)
	p := must.Get(FromValue("x\n")(t.Context()))(t)
	require.Equal(t, "x\n", string(p))
	clear(p) // the caller's own
	p = must.Get(FromValue("x\n")(t.Context()))(t)
	require.Equal(t, "x\n", string(p))
}

// What a source gives is wiped once it has been used.
func TestGivenPassphraseIsWiped(t *testing.T) {
	f := &keytest.KDF{}
	given := []byte(keytest.Passphrase)
	source := func(context.Context) ([]byte, error) { return given, nil }
	dir := keytest.Home(t)
	w := must.Get(Outside.Create(t.Context(), dir, source, Creation{KDF: f.Derive}))(t)
	require.Equal(t, make([]byte, len(keytest.Passphrase)), given)
	w.Lock()
	copy(given, keytest.Passphrase)
	require.NoError(t, w.Unlock(t.Context(), source))
	require.Equal(t, make([]byte, len(keytest.Passphrase)), given)
	copy(given, keytest.Passphrase)
	require.NoError(t, w.Confirm(t.Context(), source))
	require.Equal(t, make([]byte, len(keytest.Passphrase)), given)
}

// A process that could not be closed to others takes no passphrase.
func TestAnOpenProcessTakesNoPassphrase(t *testing.T) {
	t.Cleanup(func() { failedHarden.Store(nil) })
	require.Error(t, notHardened(errors.New("not permitted")))
	_, err := AskPassphrase(t.Context(), []Passphrase{FromValue(keytest.Passphrase)})
	keytest.RequireCode(t, err, coded.WalletLocked)
}
