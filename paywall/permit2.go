package paywall

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// Payments by Permit2: scheme "exact" with extra.assetTransferMethod "permit2", for tokens without EIP-3009, and
// scheme "upto". What is signed names the proxy that may move the money, the payee and a nonce of Permit2,
// whose nonces are the payer's on that network, whatever the token.

var (
	errSpender     = fmt.Errorf("%w: it lets another contract move the money", ErrPaymentRejected)
	errFacilitator = fmt.Errorf("%w: it names another facilitator", ErrPaymentRejected)
)

// isSignature reports whether a text has the form of a key's signature or a longer one of a contract (ERC-1271,
// ERC-6492).
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
		return s, fmt.Errorf("%w: its payload is not a signature and a permit2Authorization", ErrInvalidRequest)
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

// maxSettlers bounds the facilitators' addresses that are remembered for each network.
const maxSettlers = 64

// nameSettler puts a facilitator's address, which buyers have to name, into an offer's extra, and remembers it:
// a facilitator with several takes one at random each time it is asked, so a buyer may come back with the one
// before.
func (w *Paywall) nameSettler(network, address string, extra map[string]json.RawMessage) error {
	address, err := evm.Address(address)
	if err != nil {
		return fmt.Errorf("the facilitator's address: %w", err)
	}
	extra["facilitatorAddress"] = jsonOf(address)
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.settlers[network]
	if slices.Contains(known, address) {
		return nil
	}
	if len(known) >= maxSettlers {
		known = slices.Delete(known, 0, 1)
	}
	w.settlers[network] = append(known, address)
	return nil
}

// uptoTerms are an offer's terms with the facilitator that the buyer accepted, if buyers were told to name it.
func (w *Paywall) uptoTerms(r x402.Requirement, accepted json.RawMessage) x402.Requirement {
	var said struct {
		Extra struct {
			Address string `json:"facilitatorAddress"`
		} `json:"extra"`
	}
	if json.Unmarshal(accepted, &said) != nil || said.Extra.Address == r.ExtraString("facilitatorAddress") {
		return r
	}
	w.mu.Lock()
	isOurs := slices.Contains(w.settlers[r.Network], said.Extra.Address)
	w.mu.Unlock()
	var entry, extra map[string]json.RawMessage
	if !isOurs || json.Unmarshal(r.Raw, &entry) != nil || json.Unmarshal(entry["extra"], &extra) != nil {
		return r
	}
	extra["facilitatorAddress"] = jsonOf(said.Extra.Address)
	entry["extra"] = jsonOf(extra)
	if other, err := x402.DecodeRequirement(jsonOf(entry), 2); err == nil {
		return other
	}
	return r
}

// declaredSponsoring is the extension by which a buyer's approval of Permit2 is brought to the chain together
// with the payment, as the reference declares it (x402 2.27, eip2612-gas-sponsoring).
func declaredSponsoring() json.RawMessage {
	field := func(pattern string) map[string]string { return map[string]string{"type": "string", "pattern": pattern} }
	const address, number = "^0x[a-fA-F0-9]{40}$", "^[0-9]+$"
	return jsonOf(map[string]any{
		"info": map[string]string{"version": "1",
			"description": "The facilitator accepts EIP-2612 gasless Permit to `Permit2` canonical contract."},
		"schema": map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
			"properties": map[string]any{"from": field(address), "asset": field(address),
				"spender": field(address), "amount": field(number), "nonce": field(number),
				"deadline": field(number), "signature": field("^0x[a-fA-F0-9]+$"),
				"version": field(`^[0-9]+(\.[0-9]+)*$`)},
			"required": []string{"from", "asset", "spender", "amount", "nonce", "deadline", "signature",
				"version"},
		},
	})
}

// isSponsored reports whether a buyer can approve Permit2 for an option by a signature.
func (o option) isSponsored() bool { return o.way != x402.Exact && o.Asset.HasPermit() }
