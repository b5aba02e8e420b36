package unlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/zalando/go-keyring"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
)

func TestKeyring(t *testing.T) {
	keyring.MockInit()
	w := wallettest.Wallet(t, owner.Options{})
	_, err := Keyring(w)(t.Context())
	require.ErrorIs(t, err, wallet.ErrNoPassphrase, "nothing kept: the next source is asked")

	keytest.RequireCode(t, KeepInKeyring(t.Context(), w, wallet.FromValue("wrong horse battery staple")),
		coded.InvalidPassphrase)
	require.ErrorIs(t, must.Err(Keyring(w)(t.Context())), wallet.ErrNoPassphrase, "a wrong one is not kept")

	require.NoError(t, KeepInKeyring(t.Context(), w, wallet.FromValue(keytest.Passphrase)))
	require.True(t, w.Locked())
	require.NoError(t, w.Unlock(t.Context(), Keyring(w), wallettest.Never(t)))
	w.Lock()

	other := wallettest.Wallet(t, owner.Options{})
	_, err = Keyring(other)(t.Context())
	require.ErrorIs(t, err, wallet.ErrNoPassphrase, "another wallet's passphrase is not this one's")

	was := must.Get(ForgetKeyring(t.Context(), w))(t)
	require.True(t, was)
	was = must.Get(ForgetKeyring(t.Context(), w))(t)
	require.False(t, was)
}

func TestKeyringThatFails(t *testing.T) {
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	t.Cleanup(keyring.MockInit)
	w := wallettest.Wallet(t, owner.Options{})
	e := keytest.RequireCode(t, w.Unlock(t.Context(), Keyring(w), wallettest.Never(t)), coded.WalletLocked)
	require.Contains(t, e.Error(), "org.freedesktop.secrets was not provided")
	keytest.RequireCode(t, KeepInKeyring(t.Context(), w, wallet.FromValue(keytest.Passphrase)),
		coded.SetupFailed)
}

func TestKeyringThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer synctest.Wait()
		defer close(hang)
		_, err := askKeyring(context.Background(), "ask", func() ([]byte, error) {
			<-hang
			return nil, nil
		})
		require.Contains(t, keytest.RequireCode(t, err, coded.WalletLocked).Error(),
			"no answer within 20s")
	})
}
