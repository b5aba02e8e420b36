package owner_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/keystore/keytest"
	. "x402-wallet/wallet/owner"
)

func TestCheckPassphrase(t *testing.T) {
	e := "e\u0301" // one letter, two code points
	for name, tc := range map[string]struct {
		p    string
		says string // empty: good
	}{
		"empty":                       {"", "has 0 characters, at least 12"},
		"seven":                       {"1234567", "has 7 characters, at least 12"},
		"eleven":                      {"12345678901", "has 11 characters"},
		"twelve":                      {"123456789012", ""},
		"twelve outside ASCII":        {"ääääääääääää", ""},
		"twelve of another plane":     {strings.Repeat("😀", 12), ""},
		"six wide ones are no twelve": {strings.Repeat("😀", 6), "has 6 characters"},
		"eleven, NFD":                 {strings.Repeat(e, 11), "has 11 characters"},
		"twelve, NFD":                 {strings.Repeat(e, 12), ""},
		"spaces count":                {"a b c d e f ", ""},
		"1024 bytes":                  {strings.Repeat("x", 1024), ""},
		"1025 bytes":                  {strings.Repeat("x", 1025), "longer than 1024"},
		"1 MB":                        {strings.Repeat("x", 1<<20), "longer than 1024"},
		"two lines":                   {"correct horse\nbattery", "line break"},
		"a second line end":           {"correct horse\n", "line break"},
		"NUL":                         {"correct horse\x00", "control"},
		"not UTF-8":                   {"correct horse\xff", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			before := []byte(tc.p)
			err := CheckPassphrase(before)
			require.Equal(t, tc.p, string(before), "it is not wiped by looking")
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			got := keytest.RequireCode(t, err, coded.SetupFailed)
			require.Contains(t, got.Error(), tc.says)
			require.NotEmpty(t, got.Hint())
		})
	}
}

func TestCreateWithoutAGoodPassphrase(t *testing.T) {
	for name, tc := range map[string]struct {
		source wallet.Passphrase
		says   string
	}{
		"none":     {value(""), "no passphrase is at hand"},
		"short":    {value("short"), "has 5 characters"},
		"two":      {value("correct horse\nbattery staple"), "line break"},
		"far long": {value(strings.Repeat("x", 1<<20)), "longer than 1024"},
		"empty":    {func(context.Context) ([]byte, error) { return nil, nil }, "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/new"
			_, err := Create(t.Context(), dir, tc.source, Options{KDF: new(keytest.KDF).Derive})
			e := keytest.RequireCode(t, err, coded.SetupFailed)
			require.Contains(t, e.Error(), tc.says)
			require.NotEmpty(t, e.Hint())
			require.NoDirExists(t, dir, "nothing is left of it")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, must.Err(Create(ctx, t.TempDir()+"/new", func(ctx context.Context) ([]byte, error) {
		return nil, ctx.Err()
	}, Options{})), context.Canceled)
}

// An empty passphrase given by hand and 12 letters typed in two ways.
func TestNFCAndNFDOpenTheSameWallet(t *testing.T) {
	f := &keytest.KDF{}
	nfc, nfd := strings.Repeat("\u00e9", 12), strings.Repeat("e\u0301", 12)
	w := must.Get(Create(t.Context(), keytest.Home(t), value(nfd), Options{KDF: f.Derive}))(t)
	for _, p := range []string{nfc, nfd} {
		w.Lock()
		require.NoError(t, w.Unlock(t.Context(), value(p)))
	}
	w.Lock()
	keytest.RequireCode(t, w.Unlock(t.Context(), value(strings.Repeat("e", 12))), coded.InvalidPassphrase)
	require.False(t, bytes.Equal([]byte(nfc), []byte(nfd)))
}
