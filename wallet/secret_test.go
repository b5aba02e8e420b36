package wallet

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
	"x402-wallet/wallet/internal/keystore/keytest"
)

// traces are the spellings a secret could appear in.
func traces(secret []byte) []string {
	list := make([]int, len(secret))
	words := make([]string, len(secret))
	for i, b := range secret {
		list[i] = int(b)
		words[i] = fmt.Sprintf("0x%x", b)
	}
	decimal := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(list), "[]")), " ")
	return []string{
		string(secret), hex.EncodeToString(secret), strings.ToUpper(hex.EncodeToString(secret)),
		curve.Base58(secret),
		strings.TrimRight(base64.StdEncoding.EncodeToString(secret), "="),
		strings.TrimRight(base64.URLEncoding.EncodeToString(secret), "="),
		decimal, strings.ReplaceAll(decimal, " ", ","), strings.Join(words, ", "),
	}
}

func requireNoTrace(t *testing.T, text string, secrets ...[]byte) {
	t.Helper()
	for _, secret := range secrets {
		for _, trace := range traces(secret) {
			require.NotContains(t, text, trace)
		}
	}
}

func goldenSecrets(t *testing.T) [][]byte {
	seal := make([]byte, 32)
	for i := range seal {
		seal[i] = byte(i)
	}
	return [][]byte{keytest.Unhex(t, keytest.SolanaSeed), keytest.Unhex(t, keytest.EVMSecret), seal}
}

// Every way to print a value says [redacted], and nothing of the secret.
func TestRedaction(t *testing.T) {
	w := goldenWallet(t)
	require.NoError(t, w.Unlock(t.Context()))
	imported := keytest.PrivateKey(t, ChainEVM, keytest.Unhex(t, keytest.EVMSecret))
	secrets := goldenSecrets(t)
	phrase := Outside.Seeds(t, keytest.Phrase, "", 0)
	for name, v := range map[string]any{
		"wallet": w, "keys": w.keys, "keys, by value": *w.keys, "imported": imported,
		"pointer to imported": &imported, "phrase": phrase,
		"options": Creation{Import: []guarded.PrivateKey{imported}}, "slice": []guarded.PrivateKey{imported},
		"map": map[string]any{"k": w.keys}, "in a struct": struct{ K *keystore.Keys }{w.keys},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c",
				"%U", "%t", "%e", "%T", "%p", "% x", "%08x"} {
				text := fmt.Sprintf(verb, v)
				requireNoTrace(t, text, secrets...)
				if slices.Contains([]string{"keys", "imported", "wallet", "phrase"}, name) {
					if verb != "%T" && verb != "%p" {
						require.Equal(t, guarded.Redaction, text, "%s %s", name, verb)
					}
				}
			}
			out, err := json.Marshal(v)
			if err == nil { // options holds functions
				requireNoTrace(t, string(out), secrets...)
				require.Contains(t, string(out), guarded.Redaction, name)
			}
			var log bytes.Buffer
			slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
			slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
			requireNoTrace(t, log.String(), secrets...)
			require.Contains(t, log.String(), guarded.Redaction, name)
		})
	}
	// fmt cannot ask unexported fields for their form: they show an address
	hidden := struct {
		w *Wallet
		k *keystore.Keys
		i guarded.PrivateKey
	}{w, w.keys, imported}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x"} {
		requireNoTrace(t, fmt.Sprintf(verb, hidden), secrets...)
	}
	require.Equal(t, guarded.Redaction, w.keys.String())
	require.Equal(t, guarded.Redaction, w.keys.GoString())
	var out strings.Builder
	require.NoError(t, template.Must(template.New("").Parse("{{.}}")).Execute(&out, w.keys))
	require.Equal(t, guarded.Redaction, out.String())
	out.Reset()
	fmt.Fprint(&out, errors.Join(fmt.Errorf("%v", w.keys)), w.keys)
	requireNoTrace(t, out.String(), secrets...)
}

// The canary: nothing of passphrase or keys in any file or any error text.
func TestNoSecretLeavesATrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	f := &keytest.KDF{}
	solana := keytest.PrivateKey(t, ChainSolana, keytest.Unhex(t, keytest.SolanaSeed))
	evm := keytest.PrivateKey(t, ChainEVM, keytest.Unhex(t, keytest.EVMSecret))
	w := must.Get(Outside.Create(t.Context(), dir, value(keytest.Passphrase),
		Creation{KDF: f.Derive, Import: []guarded.PrivateKey{solana, evm}}))(t)
	secrets := append(goldenSecrets(t)[:2], []byte(keytest.Passphrase), bytes.Clone(w.keys.Seal[:]))

	path := filepath.Join(dir, keystore.Name)
	whole := must.Get(os.ReadFile(path))(t)
	var said []error
	try := func(err error) {
		require.Error(t, err)
		said = append(said, err)
	}
	w.Lock()
	try(w.Unlock(t.Context(), value(keytest.Passphrase+"!")))
	try(w.Unlock(t.Context(), value("")))
	_, err := Outside.Create(t.Context(), dir, value(keytest.Passphrase), Creation{})
	try(err)
	try(Outside.CheckPassphrase([]byte(keytest.Passphrase + "\n")))
	try(Outside.CheckPassphrase(bytes.Repeat([]byte(keytest.Passphrase), 100)))
	try(Outside.Import(t, "key-file:evm", keytest.KeyFile(t, keytest.EVMSecret+"z")))
	try(Outside.Import(t, "solana", keytest.KeyFile(t, keytest.SolanaSeed)))
	for row, i := range []int{0, len(whole) / 3, len(whole) / 2, len(whole) - 10} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			spoiled := bytes.Clone(whole)
			spoiled[i] ^= 1
			require.NoError(t, os.WriteFile(path, spoiled, 0o600))
			try(w.Unlock(t.Context(), value(keytest.Passphrase)))
		})
	}
	forged := keytest.Forge(t, f, w.header, []byte(keytest.Passphrase+keytest.EVMSecret))
	_, err = forged.Decrypt([]byte(keytest.Passphrase), f.Derive)
	try(err)
	broken := func([]byte, []byte, uint64, uint64, uint64) ([]byte, error) {
		return nil, errors.New("no memory")
	}
	_, err = forged.Decrypt([]byte(keytest.Passphrase), broken)
	try(err)

	for _, err := range said {
		for e := err; e != nil; e = errors.Unwrap(e) {
			requireNoTrace(t, fmt.Sprintf("%v %+v %#v", e, e, e), secrets...)
		}
		var e *coded.Error
		require.ErrorAs(t, err, &e)
		requireNoTrace(t, e.Hint(), secrets...)
	}
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		requireNoTrace(t, string(data), secrets...)
		return err
	}))
}

// The codes are those of docs/codes.md, and errors.Is goes by kind.
func TestErrors(t *testing.T) {
	for want, code := range map[string]coded.Code{
		"WALLET_NOT_FOUND": coded.NotFound, "WALLET_LOCKED": coded.WalletLocked,
		"INVALID_PASSPHRASE": coded.InvalidPassphrase,
		"KEYSTORE_CORRUPT":   coded.KeystoreCorrupt, "KEYSTORE_PERMISSIONS": coded.Permissions,
		"KEYPAIR_EXISTS": coded.Exists,
		"SETUP_FAILED":   coded.SetupFailed,
	} {
		t.Run(want, func(t *testing.T) {
			e := &coded.Error{As: code, Msg: "open it", Cause: fs.ErrClosed}
			require.Equal(t, want, e.Code())
			require.ErrorIs(t, fmt.Errorf("pay: %w", e), code)
			require.ErrorIs(t, e, fs.ErrClosed)
			require.EqualError(t, e, "open it: file already closed")
			require.NotErrorIs(t, e, ErrNoPassphrase)
			for _, other := range []coded.Code{coded.NotFound, coded.WalletLocked, coded.KeystoreCorrupt,
				coded.SetupFailed} {
				require.Equal(t, other == code, errors.Is(e, other))
			}
		})
	}
}
