package wallet

import (
	"context"
	"crypto/ed25519"
	"strings"
	"time"

	"x402-wallet/internal/pattern"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// A sign-in (CAIP-122): a text in words, which names a site, this wallet's account and a nonce. On EVM it is
// signed behind EIP-191's prefix, so that it is no typed message and no transaction. On Solana the text
// itself is signed: it begins with a letter, a digit or a bracket, which a transaction would read as 48
// signers or more, for whom it has no room.

const (
	maxSignIn     = 4 << 10 // bytes
	maxSignInAge  = 10 * time.Minute
	maxSignInLife = 24 * time.Hour
)

// signInForm is the text from its first byte to its last. Only printable ASCII stands in a line, so that no
// member can pretend to be another one.
var signInForm = pattern.Lazy(`^([a-zA-Z0-9.\-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?` +
	` wants you to sign in with your (Ethereum|Solana) account:\n([0-9A-Za-z]+)\n\n` +
	`(?:[ -~]+\n\n|\n)?` + // the seller's statement, or its place
	`URI: (https?)://([ -~]+)\nVersion: 1\nChain ID: ([0-9A-Za-z]+)\nNonce: [0-9A-Za-z]{8,128}\n` +
	`Issued At: ([0-9TZ:.+\-]+)` +
	`(?:\nExpiration Time: ([0-9TZ:.+\-]+))?(?:\nNot Before: [0-9TZ:.+\-]+)?(?:\nRequest ID: [ -~]+)?` +
	`(?:\nResources:(?:\n- [ -~]+)+)?$`)

var (
	evmChainForm    = pattern.Lazy(`^[1-9][0-9]{0,19}$`)
	solanaChainForm = pattern.Lazy(`^[1-9A-HJ-NP-Za-km-z]{32}$`)
)

// SignIn signs a sign-in text of this wallet's own account, for the site that it names, that is good now: 65
// bytes (r ‖ s ‖ v) by the secp256k1 key for an Ethereum account, 64 by the Ed25519 key for a Solana one. It
// unlocks the wallet. Errors: "the wallet does not sign this" for any other text; those of [Wallet.Unlock].
func (a *Account) SignIn(ctx context.Context, text string) (signature []byte, err error) {
	isSolana, err := a.self().checkSignIn(text, a.wallet.now())
	if err != nil {
		return nil, err
	}
	if isSolana {
		return a.sign(ctx, textOrder(ChainSolana, text))
	}
	return a.sign(ctx, textOrder(ChainEVM, text))
}

// checkSignIn refuses everything but such a text.
func (h addresses) checkSignIn(text string, now time.Time) (isSolana bool, err error) {
	if len(text) > maxSignIn {
		return false, coded.Unsupported("it is longer than %d bytes", maxSignIn)
	}
	part := signInForm().FindStringSubmatch(text)
	if part == nil {
		return false, coded.Unsupported("it is not the text of a sign-in")
	}
	site, account, chain, issued, end := part[1]+part[2], part[4], part[7], part[8], part[9]
	isSolana = part[3] == "Solana"
	isOurs := account == h.evm && evmChainForm().MatchString(chain)
	if isSolana {
		isOurs = account == h.solana && len(curve.Unbase58(account, ed25519.PublicKeySize)) > 0 &&
			solanaChainForm().MatchString(chain)
	}
	at, rest := part[6], strings.TrimPrefix(part[6], site)
	switch {
	case !isOurs:
		return false, coded.Unsupported("it signs in another account than this wallet's")
	case at == rest || (rest != "" && !strings.Contains("/?#", rest[:1])):
		return false, coded.Unsupported("its URI is not at the site that it names")
	}
	begun, err := time.Parse(time.RFC3339, issued)
	if err != nil || now.Sub(begun).Abs() > maxSignInAge {
		return false, coded.Unsupported("it was not issued within the last %v", maxSignInAge)
	}
	if end != "" {
		until, err := time.Parse(time.RFC3339, end)
		if err != nil || !now.Before(until) || until.Sub(now) > maxSignInLife {
			return false, coded.Unsupported("it is not good now, or for longer than %v", maxSignInLife)
		}
	}
	return isSolana, nil
}
