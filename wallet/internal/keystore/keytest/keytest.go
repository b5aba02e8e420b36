// Package keytest is for the tests of what reads a keystore, or writes one.
package keytest

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore"
)

const (
	// Passphrase is that of the wallets of tests, and NewPassphrase another one.
	Passphrase    = "correct horse battery staple"
	NewPassphrase = "another horse, another battery"
)

// The secrets of the golden keystores, which another program made (testdata/golden.py).
const (
	// RFC 8032 §7.1 test 1
	SolanaSeed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
	Solana     = "FVen3X669xLzsi6N2V91DoiyzHzg1uAgqiT8jZ9nS96Z"
	// anvil's first account
	EVMSecret = "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
	EVM       = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"

	// The phrase of anvil's and hardhat's accounts, and its Solana address in other wallets.
	Phrase       = "test test test test test test test test test test test junk"
	PhraseSolana = "oeYf6KAJkLYhBuR8CiGc6L4D4Xtfepr85fuDgA9kq96"
	Entropy      = "df9bf37e6fcdf9bf37e6fcdf9bf37e3c"

	// The account "research" of the golden keystores "account" and "all".
	ResearchEVM    = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" // anvil's second
	ResearchSolana = "AqynRZwvVqUPRwRJXvm6odUb3t93fDjnWe3p6BeuUFxD"
)

//go:embed testdata/*.json testdata/passphrase.txt
var testdata embed.FS

// File is a golden keystore that holds besides its keys nothing (""), the phrase, another account, or all.
func File(t testing.TB, of string) []byte {
	t.Helper()
	if of != "" {
		of = "-" + of
	}
	data, err := testdata.ReadFile("testdata/keystore" + of + ".json")
	require.NoError(t, err)
	return data
}

// Typed is the passphrase of the golden keystores, a line, in NFD.
func Typed(t testing.TB) []byte {
	t.Helper()
	typed, err := testdata.ReadFile("testdata/passphrase.txt")
	require.NoError(t, err)
	return typed
}

// Golden is the golden keystore, and its passphrase in NFC.
func Golden(t testing.TB) (file, passphrase []byte) {
	t.Helper()
	return File(t, ""), keystore.NFC(ownfile.TrimLine(Typed(t))).Bytes
}

// Opened is a golden keystore, and what it holds.
func Opened(t testing.TB, of string) (*keystore.File, *keystore.Keys, *KDF) {
	t.Helper()
	ks, err := keystore.Parse(File(t, of))
	require.NoError(t, err)
	_, passphrase := Golden(t)
	f := &KDF{}
	f.Remember(t, ks, passphrase)
	k, err := ks.Decrypt(passphrase, f.Derive)
	require.NoError(t, err)
	return ks, k, f
}

func Plaintext(k *keystore.Keys) string {
	var out []byte
	for _, part := range k.Parts(k.Holds()) {
		out = append(out, part.Name...)
		out = base64.StdEncoding.AppendEncode(out, part.Secret)
	}
	return string(out) + keystore.PlainEnd
}

// Forge writes what only the owner of the passphrase can: any header around any plaintext, sealed and
// committed properly.
func Forge(t testing.TB, f *KDF, h keystore.Header, plain []byte) *keystore.File {
	t.Helper()
	ks := &keystore.File{Header: h}
	derived, err := f.Derive([]byte(Passphrase), ks.Salt, ks.N, ks.R, ks.P)
	require.NoError(t, err)
	aead, err := keystore.NewGCM(derived)
	require.NoError(t, err)
	ks.Ciphertext = aead.Seal(nil, ks.Nonce, plain, ks.Canonical())
	ks.Commitment = ks.Commit(derived)
	return ks
}

// KDF stands for scrypt where only this of it matters: every input changes all of the output.
// It counts its calls and remembers the real thing where it was given.
type KDF struct {
	Calls int

	mu    sync.Mutex
	known map[string][]byte
}

func input(passphrase, salt []byte, n, r, p uint64) []byte {
	return fmt.Appendf(nil, "%d %x %x %d %d %d", len(passphrase), passphrase, salt, n, r, p)
}

func (f *KDF) Derive(passphrase, salt []byte, n, r, p uint64) ([]byte, error) {
	if err := keystore.CheckScrypt(n, r, p); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Calls++
	in := input(passphrase, salt, n, r, p)
	if out, ok := f.known[string(in)]; ok {
		return bytes.Clone(out), nil
	}
	out := sha512.Sum512(in)
	return out[:], nil
}

// Remember puts the real derivation for ks in.
func (f *KDF) Remember(t testing.TB, ks *keystore.File, passphrase []byte) {
	t.Helper()
	out, err := keystore.Scrypt(passphrase, ks.Salt, ks.N, ks.R, ks.P)
	require.NoError(t, err)
	if f.known == nil {
		f.known = map[string][]byte{}
	}
	f.known[string(input(passphrase, ks.Salt, ks.N, ks.R, ks.P))] = out
}

// Home is a directory that passes, with nothing in it.
func Home(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	require.NoError(t, os.Mkdir(dir, 0o700))
	return dir
}

func Put(t testing.TB, data []byte) string {
	t.Helper()
	dir := Home(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, keystore.Name), data, 0o600))
	return dir
}

// KeyFile is a file with this content, for its owner alone.
func KeyFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// PrivateKey is a private key as one from a file of another wallet.
func PrivateKey(t testing.TB, chain string, secret []byte) guarded.PrivateKey {
	t.Helper()
	if chain == keystore.ChainSolana {
		return guarded.NewPrivateKey(chain, curve.SolanaAddressOf(ed25519.NewKeyFromSeed(secret)), secret)
	}
	public, err := curve.PublicKey((*[guarded.Size]byte)(secret))
	require.NoError(t, err)
	return guarded.NewPrivateKey(chain, curve.EVMAddressOf(public), secret)
}

// RequireCode wants an error with this code.
func RequireCode(t testing.TB, err error, code coded.Code) *coded.Error {
	t.Helper()
	var e *coded.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, string(code), e.Code(), "%v", err)
	return e
}

// ExpectCode is RequireCode for goroutines, which must not end the test.
func ExpectCode(t testing.TB, err error, code coded.Code) {
	t.Helper()
	if e, ok := errors.AsType[*coded.Error](err); !ok || e.As != code {
		t.Errorf("%v, want %s", err, code)
	}
}

// Report prints the code of an error where the process that started this one reads it.
func Report(err error) int {
	if e, ok := errors.AsType[*coded.Error](err); ok {
		fmt.Print(e.Code(), " ", e)
	} else {
		fmt.Print(err)
	}
	return 1
}

// Stored is what the keystore in a home holds.
func Stored(t testing.TB, dir string, f *KDF, passphrase string) *keystore.Keys {
	t.Helper()
	ks, _, err := keystore.Read(dir)
	require.NoError(t, err)
	k, err := ks.Decrypt([]byte(passphrase), f.Derive)
	require.NoError(t, err)
	t.Cleanup(k.Wipe)
	return k
}

// HelperVariable names what another process of a test binary does.
const HelperVariable = "WALLET_TEST_HELPER"

// Command is another process of this test binary. Under the race detector
// it would sleep a second before it ends.
func Command(t testing.TB, name, dir string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), HelperVariable+"="+name, "WALLET_TEST_DIR="+dir,
		"GORACE=atexit_sleep_ms=0")
	return cmd
}

// RequireRefused wants KEYSTORE_CORRUPT, in time, without memory or passphrase.
func RequireRefused(t testing.TB, data []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	ks, err := keystore.Parse(data)
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	require.Nil(t, ks)
	RequireCode(t, err, coded.KeystoreCorrupt)
	require.Less(t, took, 10*time.Second)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20))
}

// Unhex decodes hexadecimal digits.
func Unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}
