package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// charge looks by itself what a payment came to, and records that it was less than was signed for. The
// caller's word is not asked for.
func (s *Server) charge(ctx context.Context, id string) error {
	rules, p, err := s.payment(ctx, id) // whoever chooses the node chooses the evidence
	if err != nil {
		return err
	}
	status, err := rules.Status(ctx, p.Evidence)
	if err != nil {
		return err
	}
	if status.State != x402.Settled || status.Amount == nil {
		return refuse("what it came to is not proven: %s", x402.Brief(status.Note))
	}
	_, err = s.Recorder.Charge(ctx, rules, p, status)
	return err
}

// signPermit2 signs a permit of Permit2, and the approval that goes with it if one is wanted: one signature
// behind the other. Spender and witness are those of the ledger's row, whose way of paying says which. Of an
// approval by EIP-2612 only the token's nonce is the caller's word, and with a wrong one it approves nothing;
// of one by a transaction the account's nonce and the gas, which the owner's rules bound.
func (s *Server) signPermit2(ctx context.Context, q Request) ([]byte, error) {
	rules, p, asset, by, err := s.reserved(ctx, q.Payment, x402.Permit2, x402.Upto)
	if err != nil {
		return nil, err
	}
	got, err := message.DecodePermit2(q.Authorization)
	if err != nil {
		return nil, refuse("it cannot be read")
	}
	now, payer := s.Now().Unix(), by.EVM.Address()
	err = compare([]field{
		{name: "chain", same: x402.Namespace(p.Network) == "eip155"},
		{name: "payer", same: strings.EqualFold(got.From, payer) && strings.EqualFold(p.Source, payer)},
		{name: "payee", same: strings.EqualFold(got.To, p.PayTo)},
		{name: "asset", same: strings.EqualFold(got.Token, asset.Address)},
		{name: "amount", same: got.Amount == p.Amount},
		{name: "scheme", same: got.IsUpto() == (p.Scheme == x402.Upto)},
		{name: "validity", same: got.ValidAfter <= now && got.Deadline > now &&
			got.Deadline <= now+int64(rules.MaxTimeout/time.Second)},
	})
	if err != nil {
		return nil, err
	}
	digest, err := message.Permit2Digest(p.Network, got)
	if err != nil {
		return nil, refuse("%v", err)
	}
	d := message.PermitDraft{Payment: p.ID, Asset: asset, Authorization: got, Digest: digest}
	if q.Approval != "" {
		nonce, err := money.ParseAmount(q.Approval)
		if err != nil {
			return nil, refuse("the approval's nonce cannot be read")
		}
		d.Approval = message.ApprovalOf(got, nonce)
	}
	if g := q.ApprovalGas; g != nil {
		if most := rules.ApprovalGas[p.Network]; g.MaxCost().Cmp(most) > 0 || most.IsZero() {
			return nil, refuse("the gas of its approval may cost %s wei, and approval_gas allows %s",
				g.MaxCost(), most)
		}
		d.Transaction = g
	}
	permit, approval, err := by.EVM.SignPermit2(ctx, d)
	if err != nil {
		return nil, err
	}
	signatures := permit[:]
	if d.Approval != nil || d.Transaction != nil {
		signatures = slices.Concat(permit[:], approval[:])
	}
	return s.recorded(ctx, rules, p, history.Signed{Evidence: d.Evidence()}, q.Authorization, signatures)
}
