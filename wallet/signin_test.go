package wallet

import (
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/keystore/keytest"
)

const signInSolanaChain = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"

// signInText is what a seller asks an account to sign, issued a minute ago.
func signInText(kind, account, chain string) string {
	issued := kindsNow.Add(-time.Minute).UTC().Format("2006-01-02T15:04:05.000Z")
	place := "\n"
	if kind == "Solana" {
		place = ""
	}
	return fmt.Sprintf("api.example.com wants you to sign in with your %s account:\n%s\n\n%sURI: "+
		"https://api.example.com/data\nVersion: 1\nChain ID: %s\nNonce: a1b2c3d4e5f67890\nIssued At: %s",
		kind, account, place, chain, issued)
}

// The judges are go-ethereum's recovery and crypto/ed25519.
func TestSignIn(t *testing.T) {
	w := goldenWallet(t)
	w.now = func() time.Time { return kindsNow }
	text := signInText("Ethereum", keytest.EVM, "8453")
	sig := must.Get(w.SignIn(t.Context(), text))(t)
	require.Len(t, sig, 65)
	sig[64] -= 27
	digest := crypto.Keccak256([]byte(fmt.Sprintf("\x19Ethereum Signed Message:\n%d%s", len(text), text)))
	key := must.Get(crypto.SigToPub(digest, sig))(t)
	require.Equal(t, keytest.EVM, crypto.PubkeyToAddress(*key).Hex())

	text = signInText("Solana", keytest.Solana, signInSolanaChain)
	sig = must.Get(w.SignIn(t.Context(), text))(t)
	require.True(t, ed25519.Verify(curve.Unbase58(keytest.Solana, 32), []byte(text), sig))
}

// Nothing but a sign-in of this wallet's own account that is good now.
func TestSignInRefused(t *testing.T) {
	good := signInText("Ethereum", keytest.EVM, "8453")
	full := strings.Replace(good, "\n\n\n", "\n\nWelcome, dear buyer!\n\n", 1) +
		"\nExpiration Time: " + kindsNow.Add(time.Hour).UTC().Format(time.RFC3339) +
		"\nNot Before: 2025-02-27T16:00:00Z\nRequest ID: r-1\nResources:\n- https://api.example.com/a" +
		"\n- https://api.example.com/b"
	replace := func(from, to string) string {
		changed := strings.Replace(full, from, to, 1)
		require.NotEqual(t, full, changed, from)
		return changed
	}
	h := goldenWallet(t).self()
	for _, text := range []string{good, full, strings.Replace(good, "https://", "http://", 1),
		strings.ReplaceAll(good, "api.example.com", "127.0.0.1:4021"),
		strings.ReplaceAll(good, "api.example.com", "[::1]:80")} {
		require.NoError(t, must.Err(h.checkSignIn(text, kindsNow)), text)
	}
	for name, text := range map[string]string{
		"nothing":                   "",
		"a payment's words":         "Pay 5 USDC to 0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		"another account":           replace(keytest.EVM, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"),
		"in small letters":          replace(keytest.EVM, strings.ToLower(keytest.EVM)),
		"the other kind's account":  replace("Ethereum", "Solana"),
		"a URI at another site":     replace("https://api.example.com/data", "https://evil.example/data"),
		"a URI that begins alike":   replace("//api.example.com/data", "//api.example.com.b.example"),
		"a user in the URI":         replace("//api.example.com/data", "//api.example.com@b.example"),
		"a port in the URI":         replace("https://api.example.com/data", "https://api.example.com:99"),
		"another scheme":            replace("https://", "ftp://"),
		"a site with a path":        replace("api.example.com wants", "api.example.com/x wants"),
		"version 2":                 replace("Version: 1", "Version: 2"),
		"a short nonce":             replace("a1b2c3d4e5f67890", "a1b2c3d"),
		"a nonce with other signs":  replace("a1b2c3d4e5f67890", "a1b2c3d4-5f67890"),
		"a chain that is none":      replace("Chain ID: 8453", "Chain ID: 08453"),
		"Solana's chain":            replace("Chain ID: 8453", "Chain ID: "+signInSolanaChain),
		"issued long ago":           replace("Issued At: 2025", "Issued At: 2024"),
		"issued never":              replace("Issued At: 2025-", "Issued At: 2025"),
		"good for too long":         replace("Expiration Time: 2025-02", "Expiration Time: 2025-03"),
		"over":                      replace("Expiration Time: 2025-02", "Expiration Time: 2025-01"),
		"something behind it":       full + "\n",
		"something before it":       "\n" + full,
		"a null byte":               replace("dear buyer", "dear\x00buyer"),
		"letters that are not seen": replace("dear buyer", "dear\u202ebuyer"),
		"two statements":            replace("Welcome, dear buyer!\n", "Welcome,\ndear buyer!\n"),
		"unknown lines":             replace("Request ID", "Pay To"),
		"lines in another order":    replace("Version: 1\nChain ID: 8453", "Chain ID: 8453\nVersion: 1"),
		"too long":                  replace("dear", strings.Repeat("dear ", 1000)),
		"a site of other letters":   strings.ReplaceAll(full, "api.example", "аpi.example"),
	} {
		require.ErrorIs(t, must.Err(h.checkSignIn(text, kindsNow)), coded.ErrUnsupported, name)
	}
	w := goldenWallet(t)
	w.Lock()
	_, err := w.SignIn(t.Context(), "hello")
	require.ErrorIs(t, err, coded.ErrUnsupported, "and nobody was asked for the passphrase")
}

// What is signed as a sign-in is none of Solana's messages: its first byte would be the number of signers,
// for whom there is no room.
func FuzzCheckSignIn(f *testing.F) {
	f.Add(signInText("Ethereum", keytest.EVM, "8453"))
	f.Add(signInText("Solana", keytest.Solana, signInSolanaChain))
	h := addresses{evm: keytest.EVM, solana: keytest.Solana}
	f.Fuzz(func(t *testing.T, text string) {
		isSolana, err := h.checkSignIn(text, kindsNow)
		if err != nil {
			return
		}
		require.Greater(t, int(text[0])*ed25519.PublicKeySize, maxSolanaMessage)
		require.Equal(t, isSolana, strings.Contains(text, keytest.Solana))
		require.NotContains(t, text, "\x00")
	})
}
