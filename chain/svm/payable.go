package svm

import (
	"encoding/json"

	"github.com/gagliardetto/solana-go"

	"x402-wallet/x402"
)

// maxMemo is the limit for extra.memo, in bytes (specs/schemes/exact/scheme_exact_svm.md).
const maxMemo = 256

// Payable says why r cannot be paid, or nil, from what r itself says: it asks nobody (security
// catalogue B8–B14). Every refusal is an *x402.Error: INVALID_REQUIREMENT, but UNTRUSTED_ASSET when
// asset is not the one that r asks for and WALLET_NOT_FOUND when there is no key. What only the
// chain knows, as whether the payee has a token account and who owns the source, Authorize refuses.
//
// A payTo off the curve is fine: a multisig or a program's wallet is such an address. Which order
// of paying and serving (extra.paymentFlow) is acceptable is the engine's to say: what is signed is
// the same.
func (e *Exact) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Scheme != "exact" {
		return invalid("the scheme is not exact").WithDetail("scheme", x402.Brief(r.Scheme))
	}
	if r.Version != 1 && r.Version != 2 {
		return invalid("x402Version is neither 1 nor 2")
	}
	if e.options.RPC[r.Network] == "" {
		return notConfigured(r.Network)
	}
	if _, ok := r.Amount.Uint64(); !ok || r.Amount.IsZero() {
		return invalid("the amount %s is not one of an SPL token (1 to 2^64-1)", r.Amount)
	}
	if asset.Network != r.Network || asset.Address != r.Asset {
		return x402.Errorf(x402.UntrustedAsset,
			"the mint asked for is not the one in the registry").WithDetail("asset", x402.Brief(r.Asset))
	}
	_, err := e.parties(r, "")
	return err
}

// parties are the keys and the memo that a requirement names.
type parties struct {
	payee, mint, feePayer solana.PublicKey // feePayer is zero when nobody is named and nobody has to be
	memo                  string
}

// parties reads them. feePayer is who pays the fee where the challenge names nobody.
func (e *Exact) parties(r x402.Requirement, feePayer string) (p parties, err error) {
	self, err := e.self()
	if err != nil {
		return p, err
	}
	p.mint, err = parseKey(r.Asset)
	if err != nil {
		return p, invalid("the asset is %w", err).WithDetail("asset", x402.Brief(r.Asset))
	}
	p.memo, err = memoOf(r)
	if err != nil {
		return p, err
	}
	p.payee, err = payee(r, self, p.mint)
	if err != nil {
		return p, err
	}
	p.feePayer, err = feePayerOf(r, feePayer)
	if err != nil || p.feePayer.IsZero() {
		return p, err
	}
	return p, p.judgeFeePayer(self)
}

// extraText is extra[key]: "" when it is absent or null, an error when it is anything but a text.
func extraText(r x402.Requirement, key string) (text string, err error) {
	if raw, there := r.Extra[key]; there && json.Unmarshal(raw, &text) != nil {
		return "", invalid("extra.%s is not a text", key)
	}
	return text, nil
}

// memoOf is the memo the seller wants in the transaction, verbatim, "" for none (B10). It is a
// stranger's text, and UTF-8: package x402 refuses a challenge that is not.
func memoOf(r x402.Requirement) (string, error) {
	memo, err := extraText(r, "memo")
	if err != nil {
		return "", err
	}
	if len(memo) > maxMemo {
		return "", invalid("extra.memo has %d bytes, at most %d can be sent", len(memo), maxMemo)
	}
	return memo, nil
}

// payee refuses addresses that cannot be anybody's wallet, and our own (B12).
func payee(r x402.Requirement, self, mint solana.PublicKey) (solana.PublicKey, error) {
	key, err := parseKey(r.PayTo)
	var why string
	switch {
	case err != nil:
		why = err.Error()
	case key == self:
		why = "this wallet itself"
	case key == mint:
		why = "the token's mint"
	case isProgram(key):
		why = "a program"
	default:
		return key, nil
	}
	return key, invalid("payTo is %s", why).WithDetail("payTo", x402.Brief(r.PayTo))
}

// feePayerOf is extra.feePayer, and where a dialect in which the wallet settles leaves it out (SPEC
// §7.2), the one the facilitator gave.
func feePayerOf(r x402.Requirement, given string) (solana.PublicKey, error) {
	text, err := extraText(r, "feePayer")
	if err != nil {
		return solana.PublicKey{}, err
	}
	if text == "" && r.Dialect.WalletSettles() {
		text = given
		if text == "" {
			return solana.PublicKey{}, nil
		}
	}
	if text == "" {
		return solana.PublicKey{}, invalid("extra.feePayer is missing")
	}
	key, err := parseKey(text)
	if err != nil {
		return key, invalid("extra.feePayer is %w", err).WithDetail("feePayer", x402.Brief(text))
	}
	return key, nil
}

// judgeFeePayer refuses those that would make us or the payee pay the fee, or that nobody can sign
// for (B8, B9).
func (p parties) judgeFeePayer(self solana.PublicKey) error {
	var why string
	switch {
	case p.feePayer == self:
		why = "this wallet: it never pays a fee"
	case p.feePayer == p.payee:
		why = "the payee"
	case p.feePayer == p.mint:
		why = "the token's mint"
	case isProgram(p.feePayer):
		why = "a program"
	case !p.feePayer.IsOnCurve():
		why = "no key that could sign"
	default:
		return nil
	}
	return invalid("extra.feePayer is %s", why).WithDetail("feePayer", p.feePayer.String())
}
