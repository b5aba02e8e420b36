package sandbox

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"x402-wallet/chain/evm"
	"x402-wallet/x402"
)

// byPermit2 reports whether a payment is one that Permit2 moves.
func (q *submission) byPermit2() bool {
	return q.terms.Scheme == x402.Upto || evm.IsPermit2(q.payload)
}

// verifyPermit2 is the reference facilitator's list for payments by Permit2, in its order
// (x402 2.27: exact by Permit2, upto), and its simulation of all that was signed for.
func (s *Sandbox) verifyPermit2(q *submission) (p permit2Call, err error) {
	asset := s.evm.asset
	upto := q.terms.Scheme == x402.Upto
	if q.version != 2 || (!upto && q.terms.ExtraString("assetTransferMethod") != x402.Permit2) {
		return p, reason("invalid_payload")
	}
	_, a, errSigned := evm.RecoverPermit2(asset.Network, q.payload)
	if errSigned != nil && !errors.Is(errSigned, evm.ErrSignature) {
		return p, reason("invalid_payload")
	}
	p = permit2Call{Permit2Authorization: a, sender: s.Settler, signature: signatureIn(q.payload)}
	now := s.now().Unix()
	switch {
	case a.IsUpto() != upto:
		return p, reason("invalid_permit2_spender")
	case !strings.EqualFold(a.To, q.terms.PayTo):
		return p, reason("invalid_permit2_recipient_mismatch")
	case upto && !strings.EqualFold(a.Facilitator, s.Settler):
		return p, reason("upto_facilitator_mismatch")
	case a.Deadline < now+youngest:
		return p, reason("permit2_deadline_expired")
	case a.ValidAfter > now:
		return p, reason("permit2_not_yet_valid")
	case a.Amount != q.ceiling:
		return p, reason("permit2_amount_mismatch")
	case !strings.EqualFold(a.Token, q.terms.Asset):
		return p, reason("permit2_token_mismatch")
	case !strings.EqualFold(a.Token, asset.Address):
		return p, reason("asset_not_deployed_contract")
	case errSigned != nil:
		return p, reason("invalid_permit2_signature")
	}
	p.approval, err = s.readApproval(q, a)
	if err != nil {
		return p, err
	}
	p.moves, _ = q.ceiling.Uint64()
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return p, s.evm.checkPermit2(p)
}

// readApproval reads the approval that comes with a payment, if there is one.
func (s *Sandbox) readApproval(q *submission, a evm.Permit2Authorization) (*permit, error) {
	raw := q.extensions[x402.EIP2612Sponsoring]
	var said struct{ Info json.RawMessage }
	_ = json.Unmarshal(raw, &said) // without it there is none
	signature := signatureIn(said.Info)
	if len(signature) == 0 {
		return nil, nil // none, or what the seller declared, sent back
	}
	p, err := evm.RecoverPermit(s.evm.asset, raw)
	switch {
	case err != nil:
		return nil, reason("invalid_eip2612_extension")
	case !strings.EqualFold(p.Owner, a.From):
		return nil, reason("eip2612_from_mismatch")
	case p.Deadline < s.now().Unix()+youngest:
		return nil, reason("eip2612_deadline_expired")
	}
	return &permit{Permit: p, signature: signature}, nil
}

// signatureIn is the member "signature" of an object that was read before.
func signatureIn(object json.RawMessage) []byte {
	var said struct{ Signature string }
	_ = json.Unmarshal(object, &said) // see above
	signature, _ := hex.DecodeString(strings.TrimPrefix(said.Signature, "0x"))
	return slices.Clip(signature)
}

// settlePermit2 brings a payment to the chain: at upto for what the seller says that it comes to, which is
// nothing at all where that is 0.
func (s *Sandbox) settlePermit2(q *submission) (done Settlement, err error) {
	p, err := s.verifyPermit2(q)
	if err != nil {
		return done, err
	}
	if q.terms.Amount.Cmp(q.ceiling) > 0 {
		return done, reason("invalid_upto_evm_payload_settlement_exceeds_amount")
	}
	if q.terms.Amount.IsZero() {
		return Settlement{Network: s.evm.asset.Network, Payer: p.From, Signer: p.From, PayTo: p.To}, nil
	}
	p.moves, _ = q.terms.Amount.Uint64()
	s.evm.mu.Lock()
	defer s.evm.mu.Unlock()
	return s.evm.executePermit2(p)
}
