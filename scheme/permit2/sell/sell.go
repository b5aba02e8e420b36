// Package sell is how Permit2 pays a seller: scheme "exact" with extra.assetTransferMethod "permit2", for
// tokens without EIP-3009, and scheme "upto". What is signed names the proxy that may move the money, the
// payee and a nonce of Permit2, whose nonces are the payer's on that network, whatever the token.
//
// What must stay true: everything that was asked for is in what is signed. Whether the signature is valid is
// for the facilitator to say. The refusal of its settlement proves nothing: a permit that was used before, by
// whomever, is refused for its allowance or because it cannot be simulated.
package sell

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/facilitator"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
)

var (
	errSpender     = fmt.Errorf("%w: it lets another contract move the money", selling.ErrRejected)
	errFacilitator = fmt.Errorf("%w: it names another facilitator", selling.ErrRejected)
)

// Exact is a selling.Way: the payer signs the price.
type Exact struct{ selling.Plain }

func (Exact) Traits() selling.Traits {
	return selling.Traits{Name: x402.Permit2, Scheme: x402.Exact, IsByPermit2: true, IsNewer: true,
		DoubtsRefusals: true}
}

func (Exact) Extra(o selling.Option, _ facilitator.Kind, extra map[string]json.RawMessage) error {
	if o.Asset.HasPermit() {
		o.Domain(extra)
	}
	extra["assetTransferMethod"] = selling.JSON(x402.Permit2)
	return nil
}

// Extension implements selling.Way: by it a buyer's approval of Permit2 is brought to the chain together with
// the payment, as the reference declares it (x402 2.27, eip2612-gas-sponsoring).
func (Exact) Extension(o selling.Option) (string, json.RawMessage) {
	if !o.Asset.HasPermit() {
		return "", nil
	}
	field := func(pattern string) map[string]string {
		return map[string]string{"type": "string", "pattern": pattern}
	}
	const address, number = "^0x[a-fA-F0-9]{40}$", "^[0-9]+$"
	return x402.EIP2612Sponsoring, selling.JSON(map[string]any{
		"info": map[string]string{"version": "1",
			"description": "An approval of Permit2 by EIP-2612 is brought to the chain with the payment."},
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

func (e Exact) Read(p selling.Shown, s selling.Shop) (selling.Signed, error) {
	return read(p, s, e.Traits())
}

// Upto is a selling.Way: the payer signs the most that a call can cost, and names the facilitator that
// settles.
type Upto struct {
	Exact

	mu sync.Mutex
	// told are the facilitators' addresses that buyers were told to name, by network.
	told map[string][]string
}

func (*Upto) Traits() selling.Traits {
	return selling.Traits{Name: x402.Upto, Scheme: x402.Upto, IsByPermit2: true, IsNewer: true,
		IsMetered: true, DoubtsRefusals: true}
}

// facilitatorKey is in an offer's extra.
const facilitatorKey = "facilitatorAddress"

func (*Upto) SettlerIn(string) string { return facilitatorKey }

func (u *Upto) Complete(o *selling.Option, said selling.Said, s selling.Shop) error {
	if said.IsUpfront {
		return errors.New("what upto costs is known when it has run: it is not paid upfront")
	}
	return u.Plain.Complete(o, said, s)
}

// maxTold bounds the facilitators' addresses that are remembered for each network.
const maxTold = 64

// Extra implements selling.Way. It remembers the facilitator's address: a facilitator with several takes one
// at random each time it is asked, so a buyer may come back with the one before.
func (u *Upto) Extra(o selling.Option, k facilitator.Kind, extra map[string]json.RawMessage) error {
	address, err := evm.Address(k.Settler())
	if err != nil {
		return fmt.Errorf("the facilitator's address: %w", err)
	}
	extra[facilitatorKey] = selling.JSON(address)
	u.mu.Lock()
	defer u.mu.Unlock()
	if known := u.told[o.Network]; !slices.Contains(known, address) {
		if len(known) >= maxTold {
			known = slices.Delete(known, 0, 1)
		}
		if u.told == nil {
			u.told = map[string][]string{}
		}
		u.told[o.Network] = append(known, address)
	}
	return u.Exact.Extra(o, k, extra)
}

// Accepted implements selling.Way: a buyer may have accepted another facilitator that buyers were told to
// name.
func (u *Upto) Accepted(ours x402.Requirement, theirs json.RawMessage) x402.Requirement {
	var said struct {
		Extra struct {
			Address string `json:"facilitatorAddress"`
		} `json:"extra"`
	}
	if json.Unmarshal(theirs, &said) != nil || said.Extra.Address == ours.ExtraString(facilitatorKey) {
		return ours
	}
	u.mu.Lock()
	isOurs := slices.Contains(u.told[ours.Network], said.Extra.Address)
	u.mu.Unlock()
	if !isOurs {
		return ours
	}
	other, err := x402.DecodeRequirement(selling.WithExtra(ours.Raw,
		func(extra map[string]json.RawMessage) {
			extra[facilitatorKey] = selling.JSON(said.Extra.Address)
		}), 2)
	if err != nil {
		return ours
	}
	return other
}

func (u *Upto) Read(p selling.Shown, s selling.Shop) (selling.Signed, error) {
	return read(p, s, u.Traits())
}

// isSignature reports whether a text has the form of a key's signature or a longer one of a contract
// (ERC-1271, ERC-6492).
func isSignature(text string) bool {
	digits, found := strings.CutPrefix(text, "0x")
	bytes, err := hex.DecodeString(digits)
	return found && err == nil && len(bytes) >= 65
}

// read reads a permit, by a decoder of our own (chain/evm).
func read(p selling.Shown, shop selling.Shop, way selling.Traits) (s selling.Signed, err error) {
	var said map[string]json.RawMessage
	if err := p.ReadPayload(&said); err != nil {
		return s, err
	}
	var signature string
	if len(said) != 2 || json.Unmarshal(said["signature"], &signature) != nil ||
		!isSignature(signature) {
		return s, fmt.Errorf("%w: its payload is not a signature and a permit2Authorization",
			selling.ErrInvalid)
	}
	a, err := evm.DecodePermit2(said["permit2Authorization"])
	if err != nil {
		return s, fmt.Errorf("%w: %w", selling.ErrInvalid, err)
	}
	now, o := shop.Now(), p.Option
	switch {
	case a.IsUpto() != way.IsMetered:
		return s, errSpender
	case !strings.EqualFold(a.Token, o.Asset.Address):
		return s, selling.ErrAsset
	case !strings.EqualFold(a.To, o.PayTo):
		return s, selling.ErrPayee
	case a.Amount != o.Amount:
		return s, selling.ErrAmount
	case a.IsUpto() && !strings.EqualFold(a.Facilitator, p.Asked.ExtraString(facilitatorKey)):
		return s, errFacilitator
	case a.ValidAfter > now.Unix():
		return s, selling.ErrNotYet
	}
	end := time.Unix(a.Deadline, 0)
	nonce := "0x" + hex.EncodeToString(a.Nonce[:])
	s.Payer = a.From
	s.Expires = selling.Earlier(end, now.Add(p.Asked.MaxTimeout))
	s.UniqueKey = strings.Join([]string{o.Network, x402.Permit2, strings.ToLower(a.From), nonce}, " ")
	s.Evidence = x402.Evidence{Network: o.Network, Asset: o.Asset.Address, Payer: a.From, PayTo: a.To,
		Amount: a.Amount, Way: way.Name, Facilitator: a.Facilitator, Nonce: nonce, ValidBefore: a.Deadline,
		ExpiresAt: end}
	if end.Sub(now) <= shop.Margin {
		return s, selling.ErrExpired
	}
	return s, nil
}
