package schemes

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// The seller at paths that are sold by batch-settlement: it counts what it charged in each channel, as the
// reference server does (x402 2.27), and asks again with what it counted where a voucher is for another sum.

// leastDeposit is what a deposit has to be, as the reference server has it: ten calls.
const leastDeposit = 10 * mill

// channelRecord is the seller's memory of a channel. It forgets one whose rest it gave back.
type channelRecord struct {
	config  x402.ChannelConfig
	id      string
	charged uint64
	newest  voucher
	state   channelState // as the facilitator said last
	busy    bool         // a request is under way
}

// voucher promises up to a ceiling in all.
type voucher struct {
	ceiling   uint64
	signature string
}

// chargeable is what is charged for a payload: nothing for one that asks the rest back.
func (s *sale) chargeable(p *batchPayload) uint64 {
	if p.Type == batchRefund {
		return 0
	}
	return s.Price()
}

// collectBatch takes a voucher, with a deposit or without, or gives a channel's rest back.
func (s *sale) collectBatch(submission []byte, payload json.RawMessage) {
	p, err := readBatch(payload)
	switch {
	case err != nil:
		s.Refuse(err.Error(), 1)
		return
	case p.Type == batchDeposit && p.deposit.amount < leastDeposit:
		s.Refuse(refusesBatch("deposit_below_min_deposit").Error(), 1)
		return
	}
	if record, fits := s.expects(p); !fits {
		s.recount(record)
		return
	}
	verdict, ok := s.verified(submission)
	if !ok {
		return
	}
	record, why := s.reserve(p, verdict)
	switch {
	case errors.Is(why, errMismatch):
		s.recount(record)
		return
	case why != nil:
		s.Refuse(why.Error(), 1)
		return
	}
	defer s.unreserve(p)
	switch p.Type {
	case batchVoucher:
		s.After(s.charge(p, map[string]any{"success": true, "payer": p.Config.Payer, "transaction": "",
			"network": s.world.chain.Asset.Network, "amount": "", "extra": map[string]any{
				"channelState": record.state.said(p.Voucher.ID)}}))
	case batchDeposit:
		if receipt, ok := s.settled(submission); ok {
			s.After(s.charge(p, receipt))
		}
	case batchRefund:
		s.giveBack(submission, *record)
	}
}

var errMismatch = refusesBatch("cumulative_amount_mismatch")

// expects reports whether a voucher is for what was charged and the price; record is the seller's count. Of
// a channel that it does not remember it believes the voucher.
func (s *sale) expects(p *batchPayload) (record *channelRecord, fits bool) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return s.expectsLocked(p)
}

func (s *sale) expectsLocked(p *batchPayload) (record *channelRecord, fits bool) {
	price := s.chargeable(p)
	if known := s.world.records[p.Voucher.ID]; known != nil {
		copied := *known
		return &copied, p.ceiling == known.charged+price
	}
	provisional := &channelRecord{config: p.Config, id: p.Voucher.ID,
		newest: voucher{p.ceiling, p.Voucher.Signature}}
	if p.ceiling >= price {
		provisional.charged = p.ceiling - price
	}
	return provisional, p.ceiling == provisional.charged+price
}

// reserve makes the channel this request's until unreserve.
func (s *sale) reserve(p *batchPayload, said channelState) (record *channelRecord, why error) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	record, fits := s.expectsLocked(p)
	switch {
	case record.busy:
		return record, refusesBatch("channel_busy")
	case !fits:
		return record, errMismatch
	}
	record.newest, record.state, record.busy = voucher{p.ceiling, p.Voucher.Signature}, said, true
	kept := *record
	s.world.records[p.Voucher.ID] = &kept
	return record, nil
}

func (s *sale) unreserve(p *batchPayload) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if record := s.world.records[p.Voucher.ID]; record != nil {
		record.busy = false
	}
}

// charge writes down that a call was paid for, and puts that into its receipt.
func (s *sale) charge(p *batchPayload, receipt map[string]any) (encoded string) {
	s.world.mu.Lock()
	record := s.world.records[p.Voucher.ID]
	record.charged += s.Price()
	if p.Type == batchDeposit {
		record.state.balance += p.deposit.amount
	}
	charged := record.charged
	s.world.shown(p.Voucher.ID, p.Config.Payer).Charged += s.Price()
	s.world.mu.Unlock()
	extra := receipt["extra"].(map[string]any)
	extra["channelState"].(map[string]any)["chargedCumulativeAmount"] = fmt.Sprint(charged)
	extra["chargedAmount"] = fmt.Sprint(s.Price())
	text, _ := json.Marshal(receipt) // of maps of strings: cannot fail
	return base64.StdEncoding.EncodeToString(text)
}

// recount is the 402 that says what was counted, and shows the newest voucher.
func (s *sale) recount(record *channelRecord) {
	state := record.state.said(record.id)
	state["chargedCumulativeAmount"] = fmt.Sprint(record.charged)
	s.correction = map[string]any{"channelState": state, "voucherState": map[string]any{
		"signedMaxClaimable": fmt.Sprint(record.newest.ceiling), "signature": record.newest.signature}}
	s.Refuse(errMismatch.Error(), 1)
}

// verified has the facilitator verify, and is what it says of the channel; without ok the answer is given.
func (s *sale) verified(submission []byte) (said channelState, ok bool) {
	var verdict struct {
		IsValid       bool
		InvalidReason string
		Extra         struct{ Balance, TotalClaimed, RefundNonce string }
	}
	if !s.Facilitate("/verify", submission, &verdict) {
		return said, false
	}
	if !verdict.IsValid {
		s.Refuse(verdict.InvalidReason, 1)
		return said, false
	}
	isRead := sandbox.IsUnits(verdict.Extra.Balance, &said.balance) &&
		sandbox.IsUnits(verdict.Extra.TotalClaimed, &said.claimed) &&
		sandbox.IsUnits(verdict.Extra.RefundNonce, &said.refunds)
	if !isRead {
		http.Error(s.W, "the facilitator said nothing of the channel", http.StatusBadGateway)
	}
	return said, isRead
}

// settled has the facilitator settle; without ok the answer is given.
func (s *sale) settled(submission []byte) (receipt map[string]any, ok bool) {
	var answer json.RawMessage
	if !s.Facilitate("/settle", submission, &answer) {
		return nil, false
	}
	_ = json.Unmarshal(answer, &receipt) // it is JSON; what is no object is no success
	if receipt["success"] != true {
		s.Finish(answer)
		return nil, false
	}
	return receipt, true
}

// giveBack closes a channel: its authorizer signs that what was charged is claimed and the rest goes back.
func (s *sale) giveBack(submission []byte, record channelRecord) {
	if record.state.balance <= record.charged {
		s.Refuse(refusesBatch("refund_no_balance").Error(), 1)
		return
	}
	receipt, ok := s.settled(s.authorizesRefund(submission, record))
	if !ok {
		return
	}
	s.world.mu.Lock()
	delete(s.world.records, record.id)
	s.world.mu.Unlock()
	receipt["extra"].(map[string]any)["channelState"].(map[string]any)["chargedCumulativeAmount"] =
		fmt.Sprint(record.charged)
	text, _ := json.Marshal(receipt) // of maps of strings: cannot fail
	s.Receipt(base64.StdEncoding.EncodeToString(text))
	s.writeJSON(map[string]any{"message": "Refund acknowledged", "channelId": record.id})
}

// authorizesRefund is a buyer's request with what the facilitator needs to bring it to the chain.
func (s *sale) authorizesRefund(submission []byte, record channelRecord) []byte {
	claims := []channelClaim{record.claim()}
	amount := record.state.balance - record.charged
	var request, payment, payload map[string]json.RawMessage
	set := func(in map[string]json.RawMessage, name string, value any) {
		in[name], _ = json.Marshal(value) // of strings, and of what was JSON: cannot fail
	}
	_ = json.Unmarshal(submission, &request) // the seller made it, of JSON that it has read
	_ = json.Unmarshal(request["paymentPayload"], &payment)
	_ = json.Unmarshal(payment["payload"], &payload)
	var claimed claimedBatch
	claimed.Voucher.Channel, claimed.Signature = record.config, record.newest.signature
	claimed.Voucher.Ceiling, claimed.Total = fmt.Sprint(record.newest.ceiling), fmt.Sprint(record.charged)
	set(payload, "amount", strconv.FormatUint(amount, 10))
	set(payload, "refundNonce", strconv.FormatUint(record.state.refunds, 10))
	set(payload, "claims", []claimedBatch{claimed})
	data := s.world.chain.batchData()
	set(payload, "claimAuthorizerSignature", signedBy(s.world.authorizer, data.claims(claims)))
	set(payload, "refundAuthorizerSignature", signedBy(s.world.authorizer,
		data.refund(record.id, record.state.refunds, amount)))
	set(payment, "payload", payload)
	set(request, "paymentPayload", payment)
	text, _ := json.Marshal(request)
	return text
}

// claim is what the seller can have of a channel: all that it charged.
func (r channelRecord) claim() channelClaim {
	return channelClaim{config: r.config, id: r.id, ceiling: r.newest.ceiling, signature: r.newest.signature,
		total: r.charged}
}

func (s *sale) writeJSON(v any) {
	s.W.Header().Set("Content-Type", "application/json")
	json.NewEncoder(s.W).Encode(v)
}
