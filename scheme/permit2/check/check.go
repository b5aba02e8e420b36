// Package check decides whether a payment by Permit2 may be signed: one of the scheme exact for which the
// seller asks for Permit2, or one of the scheme upto. The approval that goes with it is signed by the same
// decision.
//
// What must stay true: the spender is the proxy of the payment's scheme, payer, payee, token and amount are
// the reserved payment's, and an approval is for exactly that amount.
package check

import (
	"context"
	"encoding/json"
	"slices"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Check is a signing.Check.
type Check struct {
	// ApprovalGas is, by network, the most that an approval by a transaction may cost, in wei; missing: none
	// is signed.
	ApprovalGas map[string]money.Amount
	// KnowsFacilitator reports whether an address is one that the owner's facilitators settle from. It is nil
	// if none is.
	KnowsFacilitator func(ctx context.Context, network, address string) bool
}

// Permit is a payment as it is given to who signs.
type Permit struct {
	Authorization json.RawMessage `json:"authorization"`
	Approval
}

// Approval is what the approval of a payment has of its own. All else in it is the payment's. At most one of
// the two is there.
type Approval struct {
	// Nonce is the token's, of an approval by EIP-2612.
	Nonce *money.Amount `json:"approval,omitempty"`
	// Transaction is of an approval by a transaction.
	Transaction *message.ApprovalGas `json:"transaction,omitempty"`
}

func ApprovalOf(permit *message.Permit, transaction *message.ApprovalGas) (a Approval) {
	if permit != nil {
		a.Nonce = &permit.Nonce
	}
	a.Transaction = transaction
	return a
}

// permit is a signing.Message.
type permit struct {
	signing.Basis
	message.PermitDraft
}

func (c Check) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	var asked Permit
	err := x402.DecodeStrict(q.Message, message.MaxPayload, &asked)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	got, err := message.DecodePermit2(asked.Authorization)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	p, payer := q.Payment, q.Account.EVM
	err = signing.Compare(
		signing.Is("chain", x402.Namespace(p.Network) == "eip155"),
		signing.Is("payer", signing.SameAddress(got.From, payer) && signing.SameAddress(p.Source, payer)),
		signing.Is("payee", signing.SameAddress(got.To, p.PayTo)),
		signing.Is("asset", signing.SameAddress(got.Token, q.Asset.Address)),
		signing.Is("amount", got.Amount == p.Amount),
		signing.Is("scheme", got.IsUpto() == (p.Scheme == x402.Upto)),
		signing.Is("validity", got.ValidAfter <= q.Now.Unix() && q.Lives(got.Deadline)))
	if err != nil {
		return nil, err
	}
	d := message.PermitDraft{Payment: p.ID, Asset: q.Asset, Authorization: got,
		Transaction: asked.Transaction}
	d.Approval, err = c.Approves(p.Network, got, asked.Approval)
	if err != nil {
		return nil, err
	}
	terms := q.Costs()
	terms.Always = c.whyAlwaysAsked(ctx, p.Network, got)
	return permit{signing.Basis{Asks: terms, Bytes: asked.Authorization}, d}, nil
}

// Approves decides about the approval of a payment, and is the one by EIP-2612 if it is that. Of one by
// EIP-2612 only the token's nonce is the caller's word, and with a wrong one it approves nothing; of one by a
// transaction the account's nonce and the gas, which the owner's rules bound.
func (c Check) Approves(network string, a message.Permit2Authorization, asked Approval) (*message.Permit,
	error) {
	if g := asked.Transaction; g != nil {
		if most := c.ApprovalGas[network]; g.MaxCost().Cmp(most) > 0 || most.IsZero() {
			return nil, signing.Refuse("the gas of its approval may cost %s wei, and approval_gas allows %s",
				g.MaxCost(), most)
		}
	}
	if asked.Nonce == nil {
		return nil, nil
	}
	if asked.Transaction != nil {
		return nil, signing.Refuse("it is approved twice")
	}
	return message.ApprovalOf(a, *asked.Nonce), nil
}

// whyAlwaysAsked is why a person has to approve a payment whatever it costs. What an upto payment comes to is
// the word of its facilitator.
func (c Check) whyAlwaysAsked(ctx context.Context, network string, a message.Permit2Authorization) string {
	isKnown := c.KnowsFacilitator != nil && c.KnowsFacilitator(ctx, network, a.Facilitator)
	if !a.IsUpto() || isKnown {
		return ""
	}
	return x402.StrangeFacilitator(a.Facilitator)
}

func (m permit) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	return Sign(ctx, by, m.PermitDraft, nil)
}

// Sign signs what was read. The approval's signature comes behind the permit's. into is the channel that a
// deposit is for; nil: it pays somebody.
func Sign(ctx context.Context, by *wallet.Account, m message.PermitDraft, into *wallet.PaymentChannel) (
	[]byte, error) {
	chain, ok := x402.ChainID(m.Asset.Network)
	if !ok {
		return nil, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := m.Authorization
	t := wallet.PermitTransfer{ChainID: chain, Token: a.Token, From: a.From, To: a.To,
		Value: a.Amount.Bytes32(), NotBefore: uint64(a.ValidAfter), Deadline: uint64(a.Deadline),
		Nonce: a.Nonce, Facilitator: a.Facilitator, Into: into}
	if m.Approval != nil {
		t.Approval = &wallet.TokenApproval{Name: m.Asset.Name, Version: m.Asset.Version,
			Nonce: m.Approval.Nonce.Bytes32()}
	}
	if g := m.Transaction; g != nil {
		t.ApprovalGas = &wallet.ApprovalGas{Nonce: g.Nonce, Gas: g.Gas, Tip: g.Tip.Bytes32(),
			MaxFee: g.MaxFee.Bytes32()}
	}
	signature, approval, err := by.SignPermit2(ctx, t)
	if err != nil || (m.Approval == nil && m.Transaction == nil) {
		return signature[:], err
	}
	return slices.Concat(signature[:], approval[:]), nil
}

func (m permit) Signed([]byte) (history.Signed, error) {
	return history.Signed{Evidence: m.Evidence()}, nil
}
