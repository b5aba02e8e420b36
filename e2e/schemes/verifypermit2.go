package schemes

import (
	"encoding/json"
	"errors"
	"strings"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// verifyPermit2 is the reference facilitator's list for payments by Permit2, in its order
// (x402 2.27: exact by Permit2, upto), and its simulation of all that was signed for.
func (s *World) verifyPermit2(q *sandbox.Submission) (p permit2Call, err error) {
	asset := s.chain.Asset
	upto := q.Terms.Scheme == x402.Upto
	if q.Version != 2 || (!upto && q.Terms.ExtraString("assetTransferMethod") != x402.Permit2) {
		return p, sandbox.Reason("invalid_payload")
	}
	_, a, errSigned := payload.RecoverPermit2(asset.Network, q.Payload)
	if errSigned != nil && !errors.Is(errSigned, message.ErrSignature) {
		return p, sandbox.Reason("invalid_payload")
	}
	p = permit2Call{Permit2Authorization: a, sender: s.Settler, signature: sandbox.SignatureIn(q.Payload)}
	now := s.Now().Unix()
	switch {
	case a.IsUpto() != upto:
		return p, sandbox.Reason("invalid_permit2_spender")
	case !strings.EqualFold(a.To, q.Terms.PayTo):
		return p, sandbox.Reason("invalid_permit2_recipient_mismatch")
	case upto && !strings.EqualFold(a.Facilitator, s.Settler):
		return p, sandbox.Reason("upto_facilitator_mismatch")
	case a.Deadline < now+youngest:
		return p, sandbox.Reason("permit2_deadline_expired")
	case a.ValidAfter > now:
		return p, sandbox.Reason("permit2_not_yet_valid")
	case a.Amount != q.Ceiling:
		return p, sandbox.Reason("permit2_amount_mismatch")
	case !strings.EqualFold(a.Token, q.Terms.Asset):
		return p, sandbox.Reason("permit2_token_mismatch")
	case !strings.EqualFold(a.Token, asset.Address):
		return p, sandbox.Reason("asset_not_deployed_contract")
	case errSigned != nil:
		return p, sandbox.Reason("invalid_permit2_signature")
	}
	p.approval, err = s.readApproval(q, a)
	if err != nil {
		return p, err
	}
	p.moves, _ = q.Ceiling.Uint64()
	s.chain.Lock()
	defer s.chain.Unlock()
	return p, s.chain.checkPermit2(p)
}

// readApproval reads the approval that comes with a payment, if there is one.
func (s *World) readApproval(q *sandbox.Submission, a message.Permit2Authorization) (*permit, error) {
	raw := q.Extensions[x402.EIP2612Sponsoring]
	var said struct{ Info json.RawMessage }
	_ = json.Unmarshal(raw, &said) // without it there is none
	signature := sandbox.SignatureIn(said.Info)
	if len(signature) == 0 {
		return nil, nil // none, or what the seller declared, sent back
	}
	p, err := payload.RecoverPermit(s.chain.Asset, raw)
	switch {
	case err != nil:
		return nil, sandbox.Reason("invalid_eip2612_extension")
	case !strings.EqualFold(p.Owner, a.From):
		return nil, sandbox.Reason("eip2612_from_mismatch")
	case p.Deadline < s.Now().Unix()+youngest:
		return nil, sandbox.Reason("eip2612_deadline_expired")
	}
	return &permit{Permit: p, signature: signature}, nil
}

// permit2Verdict is what the facilitator's verify says.
func (s *World) permit2Verdict(q *sandbox.Submission) (signer string, extra map[string]any, err error) {
	p, err := s.verifyPermit2(q)
	return p.From, nil, err
}

// settlePermit2 brings a payment to the chain: at upto for what the seller says that it comes to, which is
// nothing at all where that is 0.
func (s *World) settlePermit2(q *sandbox.Submission) (done sandbox.Settlement, more map[string]any,
	err error) {
	p, err := s.verifyPermit2(q)
	if err != nil {
		return done, nil, err
	}
	if q.Terms.Amount.Cmp(q.Ceiling) > 0 {
		return done, nil, sandbox.Reason("invalid_upto_evm_payload_settlement_exceeds_amount")
	}
	if q.Terms.Scheme == x402.Upto {
		more = map[string]any{"amount": q.Terms.Amount}
	}
	if q.Terms.Amount.IsZero() {
		done = sandbox.Settlement{Network: s.chain.Asset.Network, Payer: p.From, Signer: p.From, PayTo: p.To}
		return done, more, nil
	}
	p.moves, _ = q.Terms.Amount.Uint64()
	s.chain.Lock()
	defer s.chain.Unlock()
	done, err = s.chain.executePermit2(p)
	return done, more, err
}

// uptoTerms takes the terms of upto apart, of which a settlement names what the call came to: that, and the
// terms as they were when they were accepted, with the amount that was signed for. Other terms stay as they
// are.
func uptoTerms(accepted, terms json.RawMessage) (comesTo *money.Amount, asked json.RawMessage) {
	var signed, said struct {
		Scheme string
		Amount money.Amount
	}
	var members map[string]any
	err := errors.Join(json.Unmarshal(accepted, &signed), json.Unmarshal(terms, &said),
		json.Unmarshal(terms, &members))
	if err != nil || said.Scheme != x402.Upto {
		return nil, terms
	}
	members["amount"] = signed.Amount.String()
	asked, _ = json.Marshal(members) // of what was JSON: cannot fail
	return &said.Amount, asked
}
