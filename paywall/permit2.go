package paywall

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/x402"
)

// Payments by Permit2: scheme "exact" with extra.assetTransferMethod "permit2", for tokens without EIP-3009,
// and scheme "upto". What is signed names the proxy that may move the money, the payee and a nonce of
// Permit2, whose nonces are the payer's on that network, whatever the token.

var (
	errSpender     = fmt.Errorf("%w: it lets another contract move the money", ErrPaymentRejected)
	errFacilitator = fmt.Errorf("%w: it names another facilitator", ErrPaymentRejected)
)

// isSignature reports whether a text has the form of a key's signature or a longer one of a contract
// (ERC-1271, ERC-6492).
func isSignature(text string) bool {
	digits, found := strings.CutPrefix(text, "0x")
	bytes, err := hex.DecodeString(digits)
	return found && err == nil && len(bytes) >= 65
}

// readPermit2 reads a permit, by a decoder of our own (chain/evm): everything that was asked for has to be in
// what is signed. Whether the signature is valid is for the facilitator to say, as with EIP-3009.
func (w *Paywall) readPermit2(p *payment, o offer) (s signed, err error) {
	var said map[string]json.RawMessage
	if err := x402.DecodeStrict(p.Payload, maxPayment, &said); err != nil {
		return s, fmt.Errorf("%w: its payload: %w", ErrInvalidRequest, err)
	}
	var signature string
	if len(said) != 2 || json.Unmarshal(said["signature"], &signature) != nil ||
		!isSignature(signature) {
		return s, fmt.Errorf("%w: its payload is not a signature and a permit2Authorization",
			ErrInvalidRequest)
	}
	a, err := evm.DecodePermit2(said["permit2Authorization"])
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	now := w.now()
	r := o.terms[p.Version]
	switch {
	case a.IsUpto() != (o.way == x402.Upto):
		return s, errSpender
	case !strings.EqualFold(a.Token, o.Asset.Address):
		return s, errAsset
	case !strings.EqualFold(a.To, o.PayTo):
		return s, errPayee
	case a.Amount != o.Amount:
		return s, errAmount
	case a.IsUpto() && !strings.EqualFold(a.Facilitator, r.ExtraString("facilitatorAddress")):
		return s, errFacilitator
	case a.ValidAfter > now.Unix():
		return s, errNotYet
	}
	end := time.Unix(a.Deadline, 0)
	nonce := "0x" + hex.EncodeToString(a.Nonce[:])
	s.payer = a.From
	s.expires = earlier(end, now.Add(r.MaxTimeout))
	s.uniqueKey = strings.Join([]string{o.Network, x402.Permit2, strings.ToLower(a.From), nonce}, " ")
	s.evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: a.From, PayTo: a.To,
		Amount: a.Amount, Way: o.way, Facilitator: a.Facilitator, Nonce: nonce, ValidBefore: a.Deadline,
		ExpiresAt: end}
	if end.Sub(now) <= w.settleMargin {
		return s, errExpired // s is complete: the payment may have had its run
	}
	return s, nil
}
