package recovery

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
	"x402-wallet/wallet/internal/keystore/keytest"
	"x402-wallet/wallet/internal/record"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/owner"
)

// Addresses as other wallets have them: anvil's accounts 0 and 1, Phantom's first, solana-keygen's without a
// path (made with viem 2.57, solana-keygen's documentation, and testdata/golden.py).
func TestPhraseAddresses(t *testing.T) {
	seedPath := StandardPaths(0)
	require.NoError(t, seedPath.Put(wallet.ChainSolana, record.SeedPath))
	for name, tc := range map[string]struct {
		passphrase  string
		paths       Paths
		solana, evm string
	}{
		"standard":  {"", StandardPaths(0), knownSolana, keytest.EVM},
		"account 1": {"", StandardPaths(1), "", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"},
		"seed":      {"", seedPath, "", keytest.EVM},
	} {
		t.Run(name, func(t *testing.T) {
			p := readPhrase(t, knownPhrase, tc.passphrase, tc.paths)
			solana, evm, err := p.Addresses()
			require.NoError(t, err)
			require.Equal(t, tc.evm, evm)
			if tc.solana != "" {
				require.Equal(t, tc.solana, solana)
			} else {
				require.NotEqual(t, knownSolana, solana)
			}
		})
	}
	solana, evm, err := readPhrase(t, knownPhrase, "hunter2", StandardPaths(0)).Addresses()
	require.NoError(t, err)
	require.NotEqual(t, knownSolana, solana)
	require.NotEqual(t, keytest.EVM, evm)
}

// solana-keygen without a path takes the first half of a seed.
func TestSolanaKeygensOwnPath(t *testing.T) {
	words, _, err := readWords([]byte(knownPhrase))
	require.NoError(t, err)
	seed := must.Get(bip39Seed(words, nil))(t)
	key := ed25519.NewKeyFromSeed(seed[:32])
	paths := StandardPaths(0)
	require.NoError(t, paths.Put(wallet.ChainSolana, record.SeedPath))
	solana, _, err := readPhrase(t, knownPhrase, "", paths).Addresses()
	require.NoError(t, err)
	require.Equal(t, curve.SolanaAddressOf(key), solana)
}

// A new wallet's phrase makes the same wallet again, in this program as in another.
func TestNewPhrase(t *testing.T) {
	p := must.Get(New(bytes.NewReader(bytes.Repeat([]byte{0x7f}, 32))))(t)
	defer p.Wipe()
	solana, evm, err := p.Addresses()
	require.NoError(t, err)
	again := readPhrase(t, strings.Repeat("legal winner thank year wave sausage worth useful ", 2)+
		"legal winner thank year wave sausage worth title", "", StandardPaths(0))
	solanaAgain, evmAgain, err := again.Addresses()
	require.NoError(t, err)
	require.Equal(t, [2]string{solana, evm}, [2]string{solanaAgain, evmAgain})
	keytest.RequireCode(t, must.Err(New(bytes.NewReader(make([]byte, 31)))), coded.SetupFailed)
}

// No error tells a word, whatever is wrong.
func TestReadPhraseRefuses(t *testing.T) {
	for text, said := range map[string]string{
		strings.Replace(knownPhrase, "junk", "jnuk", 1):      "word 12 is not in the English list of BIP-39",
		strings.Replace(knownPhrase, "test", "tset", 1):      "word 1 is not in the English list",
		strings.Replace(knownPhrase, "junk", "test", 1):      "its checksum is wrong",
		strings.Replace(knownPhrase, " junk", "", 1):         "12, 15, 18, 21 or 24 words, this one 11",
		knownPhrase + " " + knownPhrase + " zoo":             "or 24 words",
		"ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae": "word 1 is not in the English list",
		strings.Repeat("zoo ", 300):                          "longer than 1024 bytes",
		"\xff\xfe":                                           "word 1 is not in the English list",
	} {
		p, err := Read(t.Context(), wallet.FromValue(text), nil, StandardPaths(0))
		require.Nil(t, p)
		e := keytest.RequireCode(t, err, coded.SetupFailed)
		require.Contains(t, e.Error(), said)
		for _, word := range strings.Fields(text) {
			require.NotContains(t, " "+strings.ReplaceAll(e.Error()+" "+e.Hint(), "\"", " ")+" ", " "+
				""+word+" ")
		}
	}
	_, err := Read(t.Context(), wallet.FromValue(""), nil, StandardPaths(0))
	require.ErrorContains(t, err, "there is no terminal")
	keytest.RequireCode(t, err, coded.SetupFailed)
	_, err = Read(t.Context(), wallet.FromValue(knownPhrase), wallet.FromValue(""), StandardPaths(0))
	keytest.RequireCode(t, err, coded.SetupFailed)
	for _, paths := range []Paths{{}, {Solana: "m/44'/501'", EVM: "seed"}, {Solana: "m/44'/501'/0",
		EVM: "m/44'/60'"}} {
		_, err = Read(t.Context(), wallet.FromValue(knownPhrase), nil, paths)
		require.ErrorContains(t, err, "choose the keys of the phrase")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, must.Err(Read(ctx, func(ctx context.Context) ([]byte, error) { return nil, ctx.Err() },
		nil, StandardPaths(0))), context.Canceled)
}

func TestPhraseFromFile(t *testing.T) {
	file := keytest.KeyFile(t, "  Test test test test\ntest test test test\r\ntest test test junk\n\n")
	p := must.Get(Read(t.Context(), FromFile(file), nil, StandardPaths(0)))(t)
	_, evm, err := p.Addresses()
	require.NoError(t, err)
	require.Equal(t, keytest.EVM, evm)
	p.Wipe()

	for file, said := range map[string]string{
		filepath.Join(t.TempDir(), "none"):           "there is no such file",
		keytest.KeyFile(t, ""):                       "the file is empty",
		keytest.KeyFile(t, strings.Repeat(" ", 2e3)): "larger than it may be",
	} {
		_, err := Read(t.Context(), FromFile(file), nil, StandardPaths(0))
		require.Contains(t, keytest.RequireCode(t, err, coded.SetupFailed).Error(), said)
	}
}

// Another wallet's phrase is for another account of it, and takes the passphrase that belongs to it.
func TestPhraseForAnotherAccount(t *testing.T) {
	own := must.Get(readPhrase(t, knownPhrase, "hunter2", StandardPaths(3)).Seeds())(t)
	w := must.Get(owner.Create(t.Context(), keytest.Home(t), wallet.FromValue(keytest.Passphrase),
		owner.Options{N: 1 << 14, Phrase: own}))(t)
	t.Cleanup(func() { _ = w.Close() })
	w.Lock()
	p := must.Get(Of(t.Context(), w, wallet.FromValue(keytest.Passphrase), wallet.FromValue("hunter2"),
		StandardPaths(4)))(t)
	defer p.Wipe()
	require.True(t, w.Locked(), "it is not unlocked by this")
	solana, evm, err := p.Addresses()
	require.NoError(t, err)
	wantSolana, wantEVM, err := readPhrase(t, knownPhrase, "hunter2", StandardPaths(4)).Addresses()
	require.NoError(t, err)
	require.Equal(t, [2]string{wantSolana, wantEVM}, [2]string{solana, evm})

	oneKey := StandardPaths(4)
	require.NoError(t, oneKey.Put("", "m/44'/60'/0'/0/3"))
	for name, tc := range map[string]struct {
		passphrase, extra string
		paths             Paths
		said              string
	}{
		"its own account":     {keytest.Passphrase, "hunter2", StandardPaths(3), "that wallet's own"},
		"its own EVM key":     {keytest.Passphrase, "hunter2", oneKey, "that wallet's own"},
		"another passphrase":  {keytest.Passphrase, "hunter3", StandardPaths(4), "this is not the one"},
		"no passphrase of it": {keytest.Passphrase, "", StandardPaths(4), "this is not the one"},
		"a wrong one of ours": {"another horse, another battery", "hunter2", StandardPaths(4),
			"wrong passphrase"},
		"no path of an EVM key": {keytest.Passphrase, "hunter2", Paths{Solana: "seed", EVM: "seed"},
			"has a " +
				"path"},
	} {
		t.Run(name, func(t *testing.T) {
			var extra wallet.Passphrase
			if tc.extra != "" {
				extra = wallet.FromValue(tc.extra)
			}
			p, err := Of(t.Context(), w, wallet.FromValue(tc.passphrase), extra, tc.paths)
			require.Nil(t, p)
			require.ErrorContains(t, err, tc.said)
			require.NotContains(t, err.Error(), "hunter")
		})
	}
	without := otherWallet(t)
	_, err = Of(t.Context(), without, wallettest.Never(t), nil, StandardPaths(1))
	require.ErrorContains(t, err, "this keystore has none")
}

func TestCheckPhrase(t *testing.T) {
	w := walletOfPhrase(t)
	words := must.Get(Check(t.Context(), w, wallet.FromValue(keytest.Passphrase),
		wallet.FromValue(knownPhrase)))(t)
	require.Equal(t, 12, words)
	other := strings.Repeat("abandon ", 11) + "about"
	_, err := Check(t.Context(), w, wallet.FromValue(keytest.Passphrase), wallet.FromValue(other))
	require.ErrorContains(t, err, "not this wallet's")
	_, err = Check(t.Context(), w, wallet.FromValue("another horse, another battery"), wallettest.Never(t))
	keytest.RequireCode(t, err, coded.InvalidPassphrase)
	without := otherWallet(t)
	_, err = Check(t.Context(), without, wallettest.Never(t), wallettest.Never(t))
	require.ErrorContains(t, err, "this keystore has none")
}

func readPhrase(t *testing.T, text, passphrase string, paths Paths) *Phrase {
	t.Helper()
	var extra wallet.Passphrase
	if passphrase != "" {
		extra = wallet.FromValue(passphrase)
	}
	p := must.Get(Read(t.Context(), wallet.FromValue(text), extra, paths))(t)
	t.Cleanup(p.Wipe)
	return p
}

// walletOfPhrase is a wallet of the known phrase.
func walletOfPhrase(t *testing.T) *wallet.Wallet {
	t.Helper()
	seeds := must.Get(readPhrase(t, knownPhrase, "", StandardPaths(0)).Seeds())(t)
	return wallettest.Wallet(t, owner.Options{Phrase: seeds})
}

// otherWallet has no phrase.
func otherWallet(t *testing.T) *wallet.Wallet {
	t.Helper()
	return wallettest.Wallet(t, owner.Options{})
}

// A phrase prints as [redacted], whichever way.
func TestRedaction(t *testing.T) {
	p := readPhrase(t, knownPhrase, "", StandardPaths(0))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		require.Equal(t, guarded.Redaction, fmt.Sprintf(verb, p), verb)
	}
}
