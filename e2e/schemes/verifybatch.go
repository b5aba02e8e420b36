package schemes

import (
	"encoding/json"
	"strconv"
	"strings"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// The facilitator's part of batch-settlement: what it refuses, in the reference's order and words (x402
// 2.27).

// refusesBatch is a reason of the scheme's, which all begin alike.
func refusesBatch(why string) sandbox.Reason {
	return sandbox.Reason("invalid_batch_settlement_evm_" + why)
}

// The payload's types that buyers send.
const (
	batchDeposit = "deposit"
	batchVoucher = "voucher"
	batchRefund  = "refund"
)

// batchPayload is a payload of the scheme's, with what the seller adds to a refund that it has settled.
type batchPayload struct {
	Type    string             `json:"type"`
	Config  x402.ChannelConfig `json:"channelConfig"`
	Voucher signedVoucher      `json:"voucher"`
	Deposit *signedDeposit     `json:"deposit,omitempty"`

	Amount           string         `json:"amount,omitempty"`
	RefundNonce      string         `json:"refundNonce,omitempty"`
	Claims           []claimedBatch `json:"claims,omitempty"`
	RefundAuthorized string         `json:"refundAuthorizerSignature,omitempty"`
	ClaimsAuthorized string         `json:"claimAuthorizerSignature,omitempty"`

	ceiling uint64
	deposit channelDeposit
}

type signedVoucher struct {
	ID        string `json:"channelId"`
	Ceiling   string `json:"maxClaimableAmount"`
	Signature string `json:"signature"`
}

type signedDeposit struct {
	Amount        string `json:"amount"`
	Authorization struct {
		By3009 *struct {
			ValidAfter  string `json:"validAfter"`
			ValidBefore string `json:"validBefore"`
			Salt        string `json:"salt"`
			Signature   string `json:"signature"`
		} `json:"erc3009Authorization"`
	} `json:"authorization"`
}

type claimedBatch struct {
	Voucher struct {
		Channel x402.ChannelConfig `json:"channel"`
		Ceiling string             `json:"maxClaimableAmount"`
	} `json:"voucher"`
	Signature string `json:"signature"`
	Total     string `json:"totalClaimed"`
}

// readBatch reads what a buyer sends: who names it a channel's must spell it as one.
func readBatch(payload json.RawMessage) (p *batchPayload, err error) {
	p = &batchPayload{}
	isKnown := x402.DecodeStrict(payload, x402.MaxBody, p) == nil &&
		(p.Type == batchVoucher || p.Type == batchRefund || (p.Type == batchDeposit && p.Deposit != nil))
	if !isKnown {
		return nil, refusesBatch("payload_type")
	}
	if !isHex(p.Voucher.ID, 32) {
		return nil, refusesBatch("channel_id_invalid")
	}
	p.Voucher.ID = strings.ToLower(p.Voucher.ID)
	c := p.Config
	for _, address := range []string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		if _, err := message.Address(address); err != nil {
			return nil, refusesBatch("payload_type")
		}
	}
	isSpelled := isHex(c.Salt, 32) && c.WithdrawDelay >= 0 && sandbox.IsUnits(p.Voucher.Ceiling, &p.ceiling)
	if p.Type == batchDeposit && isSpelled {
		isSpelled = p.readDeposit()
	}
	if !isSpelled {
		return nil, refusesBatch("payload_type")
	}
	return p, nil
}

func (p *batchPayload) readDeposit() bool {
	p.deposit = channelDeposit{config: p.Config, id: p.Voucher.ID}
	by := p.Deposit.Authorization.By3009
	if by == nil {
		// verified later, in the reference's order
		return sandbox.IsUnits(p.Deposit.Amount, &p.deposit.amount)
	}
	p.deposit.salt, p.deposit.signature = by.Salt, by.Signature
	after, errAfter := strconv.ParseInt(by.ValidAfter, 10, 64)
	before, errBefore := strconv.ParseInt(by.ValidBefore, 10, 64)
	p.deposit.validAfter, p.deposit.validBefore = after, before
	return sandbox.IsUnits(p.Deposit.Amount, &p.deposit.amount) && isHex(by.Salt, 32) && errAfter == nil &&
		errBefore == nil && after >= 0 && before >= 0
}

// verifyBatch is the reference facilitator's verify.
func (s *World) verifyBatch(q *sandbox.Submission) (p *batchPayload, err error) {
	p, err = readBatch(q.Payload)
	if err != nil {
		return nil, err
	}
	s.chain.Lock()
	defer s.chain.Unlock()
	if err := s.checkConfig(p, q.Terms); err != nil {
		return p, err
	}
	if p.Type == batchDeposit {
		if err := s.checkAuthorization(p, q.Terms); err != nil {
			return p, err
		}
	}
	if !isBy(p.Config.PayerAuthorizer, s.chain.batchData().voucher(p.Voucher.ID, p.ceiling),
		p.Voucher.Signature) {
		return p, refusesBatch("voucher_signature")
	}
	at := s.chain.channel(p.Voucher.ID)
	balance := at.balance + p.deposit.amount
	switch {
	case p.Type == batchDeposit && s.chain.Balance(p.Config.Payer) < p.deposit.amount:
		return p, refusesBatch("insufficient_balance")
	case balance == 0:
		return p, refusesBatch("channel_not_found")
	case p.ceiling > balance:
		return p, refusesBatch("cumulative_exceeds_balance")
	case p.ceiling < at.claimed, p.ceiling == at.claimed && p.Type != batchRefund:
		return p, refusesBatch("cumulative_below_claimed")
	}
	if p.Type == batchDeposit && s.chain.checkDeposit(p.deposit) != nil {
		return p, refusesBatch("deposit_simulation_failed")
	}
	return p, nil
}

func (s *World) checkConfig(p *batchPayload, terms x402.Requirement) error {
	c := p.Config
	var asked struct{ WithdrawDelay int64 }
	if json.Unmarshal(terms.Extra["withdrawDelay"], &asked.WithdrawDelay) != nil {
		asked.WithdrawDelay = c.WithdrawDelay // it asks for none
	}
	switch {
	case !strings.EqualFold(s.chain.batchData().channelID(c), p.Voucher.ID):
		return refusesBatch("channel_id_mismatch")
	case !strings.EqualFold(c.Receiver, terms.PayTo):
		return refusesBatch("receiver_mismatch")
	case !strings.EqualFold(c.ReceiverAuthorizer, terms.ExtraString("receiverAuthorizer")):
		return refusesBatch("receiver_authorizer_mismatch")
	case !strings.EqualFold(c.Token, terms.Asset):
		return refusesBatch("token_mismatch")
	case c.WithdrawDelay != asked.WithdrawDelay:
		return refusesBatch("withdraw_delay_mismatch")
	case c.WithdrawDelay < leastDelay || c.WithdrawDelay > mostDelay:
		return refusesBatch("withdraw_delay_out_of_range")
	}
	return nil
}

// checkAuthorization judges what the payer signed for the token.
func (s *World) checkAuthorization(p *batchPayload, terms x402.Requirement) error {
	now, d := s.Now().Unix(), p.deposit
	switch {
	case d.salt == "":
		return refusesBatch("erc3009_authorization_required")
	case terms.ExtraString("name") == "" || terms.ExtraString("version") == "":
		return refusesBatch("missing_eip712_domain")
	case d.validBefore < now+youngest:
		return refusesBatch("payload_authorization_valid_before")
	case d.validAfter > now:
		return refusesBatch("payload_authorization_valid_after")
	case !s.chain.isSigned(d):
		return refusesBatch("receive_authorization_signature")
	}
	return nil
}

// settleBatch brings a deposit, or a refund that the seller authorized, to the chain. answer is what the
// facilitator says of it besides. Vouchers are not settled: their seller claims them.
func (s *World) settleBatch(q *sandbox.Submission) (done sandbox.Settlement, answer map[string]any,
	err error) {
	if done, isSellers, err := s.settleForSeller(q); isSellers {
		return done, nil, err
	}
	p, err := s.verifyBatch(q)
	if err != nil {
		return done, nil, err
	}
	s.chain.Lock()
	defer s.chain.Unlock()
	switch {
	case p.Type == batchDeposit:
		done, err = s.chain.executeDeposit(s.Settler, p.deposit)
		if err != nil {
			return done, nil, refusesBatch("deposit_transaction_failed")
		}
	case p.Type == batchRefund && p.RefundNonce != "":
		done, err = s.settleRefund(p)
		if err != nil {
			return done, nil, err
		}
	default:
		return done, nil, refusesBatch("payload_type")
	}
	return done, map[string]any{"amount": strconv.FormatUint(done.Amount, 10),
		"extra": map[string]any{"channelState": s.chain.channel(p.Voucher.ID).said(p.Voucher.ID)}}, nil
}

// settleRefund gives a channel's rest back, as its receiver's authorizer signed.
func (s *World) settleRefund(p *batchPayload) (done sandbox.Settlement, err error) {
	r := channelRefund{config: p.Config, id: p.Voucher.ID, signature: p.RefundAuthorized,
		claimsSignature: p.ClaimsAuthorized}
	isRead := sandbox.IsUnits(p.Amount, &r.amount) && sandbox.IsUnits(p.RefundNonce, &r.nonce)
	for _, c := range p.Claims {
		claim := channelClaim{config: c.Voucher.Channel, signature: c.Signature}
		isRead = isRead && sandbox.IsUnits(c.Voucher.Ceiling, &claim.ceiling) &&
			sandbox.IsUnits(c.Total, &claim.total) && c.Voucher.Channel == p.Config
		claim.id = p.Voucher.ID
		r.claims = append(r.claims, claim)
	}
	if !isRead {
		return done, refusesBatch("refund_payload")
	}
	if r.signature == "" { // its seller has no authorizer of its own
		data := s.chain.batchData()
		r.signature = signedBy(s.authorizer, data.refund(r.id, r.nonce, r.amount))
		r.claimsSignature = signedBy(s.authorizer, data.claims(r.claims))
	}
	transaction, refunded, err := s.chain.executeRefund(s.Settler, r)
	if err != nil {
		return done, refusesBatch("refund_simulation_failed")
	}
	return sandbox.Settlement{Network: s.chain.Asset.Network, Transaction: transaction,
		Signer: p.Config.Payer, PayTo: p.Config.Payer, Amount: refunded}, nil
}

// batchVerdict is what the facilitator's verify says: of a good payment how its channel stands, too.
func (s *World) batchVerdict(q *sandbox.Submission) (signer string, extra map[string]any, err error) {
	p, err := s.verifyBatch(q)
	if p == nil {
		return "", nil, err
	}
	s.chain.Lock()
	defer s.chain.Unlock()
	state := s.chain.channel(p.Voucher.ID).said(p.Voucher.ID)
	return p.Config.Payer, map[string]any{"extra": state}, err
}
