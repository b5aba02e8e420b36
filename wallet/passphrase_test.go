package wallet

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/wallet/internal/coded"
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
			got := requireCode(t, err, coded.SetupFailed)
			require.Contains(t, got.Error(), tc.says)
			require.NotEmpty(t, got.Hint())
		})
	}
}

// NFC must fit into what normalizeNFC reserves, or a copy stays behind.
func TestNormaliseDoesNotGrow(t *testing.T) {
	for _, p := range []string{"", "x", strings.Repeat("\U0001D160", 300), strings.Repeat("\ufb2c", 300),
		strings.Repeat("\u0390", 300), strings.Repeat("é", 512)} {
		t.Run(p, func(t *testing.T) {
			out := normalizeNFC([]byte(p))
			require.LessOrEqual(t, len(out.Bytes), 3*len(p))
			require.Equal(t, 3*len(p)+4, cap(out.Bytes))
			if p != "" {
				first := &out.Bytes[0]
				out.Wipe()
				require.Equal(t, make([]byte, 3*len(p)+4), out.Bytes)
				require.Same(t, first, &out.Bytes[0])
			}
		})
	}
	p := []byte("unchanged")
	require.NotSame(t, &p[0], &normalizeNFC(p).Bytes[0])
}

func TestFromValue(t *testing.T) {
	_, err := FromValue("")(t.Context())
	require.ErrorIs(t, err, ErrNoPassphrase)
	p, err := FromValue("x\n")(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x\n", string(p))
	clear(p) // the caller's own
	p, err = FromValue("x\n")(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x\n", string(p))
}

// What a source gives is wiped once it has been used.
func TestGivenPassphraseIsWiped(t *testing.T) {
	f := &fakeKDF{}
	given := []byte(testPassphrase)
	source := func(context.Context) ([]byte, error) { return given, nil }
	dir := home(t)
	w, err := Create(t.Context(), dir, source, Options{derive: f.derive})
	require.NoError(t, err)
	require.Equal(t, make([]byte, len(testPassphrase)), given)
	w.Lock()
	copy(given, testPassphrase)
	require.NoError(t, w.Unlock(t.Context(), source))
	require.Equal(t, make([]byte, len(testPassphrase)), given)
	copy(given, testPassphrase)
	require.NoError(t, w.Confirm(t.Context(), source))
	require.Equal(t, make([]byte, len(testPassphrase)), given)
}

func TestCreateWithoutAGoodPassphrase(t *testing.T) {
	for name, tc := range map[string]struct {
		source Passphrase
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
			_, err := Create(t.Context(), dir, tc.source, Options{derive: new(fakeKDF).derive})
			e := requireCode(t, err, coded.SetupFailed)
			require.Contains(t, e.Error(), tc.says)
			require.NotEmpty(t, e.Hint())
			require.NoDirExists(t, dir, "nothing is left of it")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Create(ctx, t.TempDir()+"/new", func(ctx context.Context) ([]byte, error) {
		return nil, ctx.Err()
	}, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

// An empty passphrase given by hand and 12 letters typed in two ways.
func TestNFCAndNFDOpenTheSameWallet(t *testing.T) {
	f := &fakeKDF{}
	nfc, nfd := strings.Repeat("\u00e9", 12), strings.Repeat("e\u0301", 12)
	w, err := Create(t.Context(), home(t), value(nfd), Options{derive: f.derive})
	require.NoError(t, err)
	for _, p := range []string{nfc, nfd} {
		w.Lock()
		require.NoError(t, w.Unlock(t.Context(), value(p)))
	}
	w.Lock()
	requireCode(t, w.Unlock(t.Context(), value(strings.Repeat("e", 12))), coded.InvalidPassphrase)
	require.False(t, bytes.Equal([]byte(nfc), []byte(nfd)))
}

// A process that could not be closed to others takes no passphrase.
func TestAnOpenProcessTakesNoPassphrase(t *testing.T) {
	t.Cleanup(func() { failedHarden.Store(nil) })
	require.Error(t, notHardened(errors.New("not permitted")))
	_, err := AskPassphrase(t.Context(), []Passphrase{FromValue(testPassphrase)})
	requireCode(t, err, coded.WalletLocked)
}
