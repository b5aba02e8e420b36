package wallet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/zalando/go-keyring"
)

func TestKeyring(t *testing.T) {
	keyring.MockInit()
	w, _ := newTestWallet(t)
	_, err := FromKeyring(w)(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase, "nothing kept: the next source is asked")

	requireCode(t, KeepInKeyring(t.Context(), w, value("wrong horse battery staple")), codeInvalidPassphrase)
	_, err = FromKeyring(w)(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase, "a wrong one is not kept")

	require.NoError(t, KeepInKeyring(t.Context(), w, value(testPassphrase)))
	require.True(t, w.Locked())
	require.NoError(t, w.Unlock(t.Context(), FromKeyring(w), never(t)))
	w.Lock()

	other, _ := newTestWallet(t)
	_, err = FromKeyring(other)(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase, "another wallet's passphrase is not this one's")

	was, err := ForgetKeyring(t.Context(), w)
	require.NoError(t, err)
	require.True(t, was)
	was, err = ForgetKeyring(t.Context(), w)
	require.NoError(t, err)
	require.False(t, was)
}

func TestKeyringThatFails(t *testing.T) {
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	t.Cleanup(keyring.MockInit)
	w, _ := newTestWallet(t)
	e := requireCode(t, w.Unlock(t.Context(), FromKeyring(w), never(t)), codeLocked)
	require.Contains(t, e.Error(), "org.freedesktop.secrets was not provided")
	requireCode(t, KeepInKeyring(t.Context(), w, value(testPassphrase)), codeSetup)
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
		require.Contains(t, requireCode(t, err, codeLocked).Error(), "no answer within 20s")
	})
}
