package wallet

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet/internal/coded"
)

const (
	testPassphrase = "correct horse battery staple"
	newPassphrase  = "another horse, another battery"
)

// The secrets of testdata/keystore.json.
const (
	// RFC 8032 §7.1 test 1
	goldenSolanaSeed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
	goldenSolana     = "FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z"
	// anvil's first account
	goldenEVMSecret = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	goldenEVM       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
)

// TestMain is also the other process in tests that need one.
func TestMain(m *testing.M) {
	if name := os.Getenv("WALLET_TEST_HELPER"); name != "" {
		os.Exit(helper(name))
	}
	goleak.VerifyTestMain(m)
}

func helper(name string) int {
	ctx := context.Background()
	switch name {
	case "create": // waits for the end of stdin, so that two can start together
		_, _ = os.Stdin.Read(make([]byte, 1))
		w, err := Create(ctx, os.Getenv("WALLET_TEST_DIR"), FromValue(testPassphrase),
			Options{derive: new(fakeKDF).derive})
		if err != nil {
			return report(err)
		}
		fmt.Println(w.header.evm)
	case "change":
		w, err := Open(os.Getenv("WALLET_TEST_DIR"))
		if err != nil {
			return report(err)
		}
		w.derive = new(fakeKDF).derive
		if err := w.ChangePassphrase(ctx, FromValue(testPassphrase), FromValue(newPassphrase),
			Options{}); err != nil {
			return report(err)
		}
		fmt.Print("changed")
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

// fakeKDF stands for scrypt where only this of it matters: every input changes all of the output.
// It counts its calls and remembers the real thing where it was given.
type fakeKDF struct {
	mu    sync.Mutex
	calls int
	known map[string][]byte
}

func kdfInput(passphrase, salt []byte, n, r, p uint64) []byte {
	return fmt.Appendf(nil, "%d %x %x %d %d %d", len(passphrase), passphrase, salt, n, r, p)
}

func (f *fakeKDF) derive(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	if err := checkScrypt(n, r, p); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	input := kdfInput(passphrase, salt, n, r, p)
	if out, ok := f.known[string(input)]; ok {
		return bytes.Clone(out), nil
	}
	out := sha512.Sum512(input)
	return out[:], nil
}

// remember puts the real derivation for ks in.
func (f *fakeKDF) remember(t *testing.T, ks *keystore, passphrase []byte) {
	out, err := scryptKDF(passphrase, ks.salt, ks.n, ks.r, ks.p)
	require.NoError(t, err)
	if f.known == nil {
		f.known = map[string][]byte{}
	}
	f.known[string(kdfInput(passphrase, ks.salt, ks.n, ks.r, ks.p))] = out
}

func value(p string) Passphrase { return FromValue(p) }

// never fails the test when it is asked.
func never(t *testing.T) Passphrase {
	return func(context.Context) ([]byte, error) {
		t.Error("the passphrase was asked for")
		return nil, ErrNoPassphrase
	}
}

// home is a directory that passes, with nothing in it.
func home(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

// newTestWallet creates a wallet with a fake KDF and answers it locked.
func newTestWallet(t *testing.T) (*Wallet, *fakeKDF) {
	f := &fakeKDF{}
	w, err := Create(t.Context(), home(t), value(testPassphrase), Options{derive: f.derive})
	require.NoError(t, err)
	w.Lock()
	f.calls = 0
	t.Cleanup(func() { _ = w.Close() })
	return w, f
}

// reopened is the wallet as another process has it, which a passphrase unlocks.
func reopened(t *testing.T, w *Wallet, f *fakeKDF, passphrase string) *Wallet {
	t.Helper()
	again, err := Open(w.dir)
	require.NoError(t, err)
	again.derive, again.Sources = f.derive, []Passphrase{value(passphrase)}
	t.Cleanup(func() { _ = again.Close() })
	return again
}

func requireAddresses(t *testing.T, w *Wallet, solana, evm string) {
	t.Helper()
	gotSolana, gotEVM := w.Addresses()
	require.Equal(t, solana, gotSolana)
	require.Equal(t, evm, gotEVM)
}

// golden is the content of testdata/keystore.json and its passphrase, NFC.
func golden(t testing.TB) (file, passphrase []byte) {
	file, err := os.ReadFile("testdata/keystore.json")
	require.NoError(t, err)
	typed, err := os.ReadFile("testdata/passphrase.txt")
	require.NoError(t, err)
	return file, normalizeNFC(ownfile.TrimLine(typed)).Bytes
}

// goldenKeystore is a keystore that another program made (testdata/golden.py), read and opened. of is what it
// holds: phrase, account or all of them.
func goldenKeystore(t *testing.T, of string) (*keystore, *keys, *fakeKDF) {
	t.Helper()
	data := mustRead(t, "testdata/keystore-"+of+".json")
	ks, err := parse(data)
	require.NoError(t, err)
	out, err := ks.marshal()
	require.NoError(t, err)
	require.Equal(t, string(data), string(out))
	_, passphrase := golden(t)
	f := &fakeKDF{}
	f.remember(t, ks, passphrase)
	k, err := ks.decrypt(passphrase, f.derive)
	require.NoError(t, err)
	return ks, k, f
}

// readFile is the keystore of a home.
func readFile(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, keystoreName))
	require.NoError(t, err)
	return string(data)
}

// putKeystore makes a home with this keystore.
func putKeystore(t *testing.T, data []byte) string {
	dir := home(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, keystoreName), data, 0o600))
	return dir
}

// goldenHome is a home with the golden keystore, and its passphrase in the file passphrase.
func goldenHome(t *testing.T) string {
	data, _ := golden(t)
	dir := putKeystore(t, data)
	typed, err := os.ReadFile("testdata/passphrase.txt")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "passphrase"), typed, 0o600))
	return dir
}

func requireCode(t *testing.T, err error, code coded.Code) *coded.Error {
	t.Helper()
	var e *coded.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, string(code), e.Code(), "%v", err)
	return e
}

// requireCodeAsync is requireCode for goroutines, which must not end the test.
func requireCodeAsync(t *testing.T, err error, code coded.Code) {
	if e, ok := err.(*coded.Error); !ok || e.As != code {
		t.Errorf("%v, want %s", err, code)
	}
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// signDigest and signMessage have the keystore sign what no kind of message is.
func (w *Wallet) signDigest(ctx context.Context, digest [32]byte) ([65]byte, error) {
	return w.signEVM(ctx, Order{Chain: ChainEVM, Digest: digest})
}

func (w *Wallet) signMessage(ctx context.Context, message []byte) ([64]byte, error) {
	return w.signSolana(ctx, Transaction, message)
}
func keyFile(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
