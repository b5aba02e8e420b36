package agent

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What the unlock agent signs for channels of batch-settlement: the voucher of a payment that is reserved,
// in a channel that the ledger knows with its host, for no more than was promised in it before and the price;
// and with it a deposit that is the whole of what is reserved. In a channel that an owner funds it signs
// vouchers alone, and only where the ledger has the owner's seal that they do (history.Keyholder.OwnChannel).

// ChannelRequest is a message.Channel without what the agent looks up itself.
type ChannelRequest struct {
	Config  x402.ChannelConfig   `json:"config"`
	Ceiling money.Amount         `json:"ceiling"`
	Deposit *DepositRequest      `json:"deposit,omitempty"`
	Shown   *x402.ChannelVoucher `json:"shown,omitempty"`
}

type DepositRequest struct {
	ValidBefore int64  `json:"validBefore"`
	Salt        []byte `json:"salt"`
}

// signChannel signs a voucher that adds the payment's price to what was promised in its channel.
func (s *Server) signChannel(ctx context.Context, q Request) ([]byte, error) {
	rules, p, asset, by, err := s.reserved(ctx, q.Payment, x402.BatchSettlement)
	if err != nil {
		return nil, err
	}
	if q.Channel == nil {
		return nil, refuse("it cannot be read")
	}
	of := q.Channel
	id, err := message.ChannelID(p.Network, of.Config)
	if err != nil {
		return nil, refuse("it cannot be read")
	}
	row, err := s.Store.Channel(ctx, id.Hex(), by.EVM.Address())
	if errors.Is(err, history.ErrNotFound) {
		return nil, refuse("the ledger has no such channel")
	}
	if err != nil {
		return nil, err
	}
	m := message.Channel{Payment: p.ID, Asset: asset, Config: of.Config, Number: row.Nonce + 1,
		Ceiling: of.Ceiling, Amount: p.Amount}
	if d := of.Deposit; d != nil && len(d.Salt) == len(message.Deposit{}.Salt) {
		m.Deposit = &message.Deposit{Value: p.Amount, ValidBefore: d.ValidBefore, Salt: [32]byte(d.Salt)}
	}
	if err := s.ofChannel(rules, by.EVM.Address(), p, row, m, of.Shown); err != nil {
		return nil, err
	}
	signatures, err := by.EVM.SignChannel(ctx, m)
	if err != nil {
		return nil, err
	}
	next, err := nextChannel(row, m, signatures)
	if err != nil {
		return nil, err
	}
	evidence, err := m.Evidence()
	if err != nil {
		return nil, err
	}
	object, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	both := signatures.Voucher[:]
	if m.Deposit != nil {
		both = append(both, signatures.Deposit[:]...)
	}
	return s.recorded(ctx, rules, p, history.Signed{Evidence: evidence, Channel: &next}, object, both)
}

// ofChannel compares what the account self is to sign with the payment and the channel's row.
func (s *Server) ofChannel(rules Rules, self string, p history.Payment, row history.Channel,
	m message.Channel, shown *x402.ChannelVoucher) error {
	known, book, err := row.Batch()
	if err != nil {
		return err
	}
	asked, err := x402.DecodeRequirement(p.Requirement, 2)
	if err != nil {
		return refuse("what the seller asked cannot be read")
	}
	promised, now := row.Amount, s.Now().Unix()
	id, err := message.ChannelID(p.Network, m.Config)
	if err != nil {
		return err
	}
	if shown != nil && shown.Ceiling.Cmp(promised) > 0 && message.IsOwnVoucher(p.Network, id, *shown, self) {
		promised = shown.Ceiling
	}
	most, fits := promised.Add(asked.Amount)
	isDeposit, source, mayDeposit := m.Deposit != nil, self, !p.Prepaid()
	if m.Config.Payer != self {
		source, mayDeposit = id.Hex(), false
	}
	return compare([]field{
		{name: "scheme", same: p.Scheme == x402.BatchSettlement && asked.Scheme == p.Scheme},
		{name: "payer", same: m.Config.PayerAuthorizer == self},
		{name: "payee", same: strings.EqualFold(m.Config.Receiver, p.PayTo)},
		{name: "asset", same: strings.EqualFold(m.Config.Token, p.Asset)},
		{name: "channel", same: known.Config == m.Config && row.Network == p.Network &&
			row.Server == p.Host && row.ID == id.Hex() && book.Stopped == ""},
		{name: "delay", same: time.Duration(m.Config.WithdrawDelay)*time.Second <= rules.ChannelDelay},
		{name: "source", same: p.Source == source && mayDeposit == isDeposit},
		{name: "amount", same: p.Amount == asked.Amount || (isDeposit && p.Amount.Cmp(asked.Amount) > 0)},
		{name: "sum", same: fits && m.Ceiling.Cmp(most) <= 0},
		{name: "validity", same: !isDeposit || (m.Deposit.ValidBefore > now &&
			m.Deposit.ValidBefore <= now+int64(rules.MaxTimeout/time.Second))},
	})
}

// nextChannel is a channel's row with what was signed.
func nextChannel(row history.Channel, m message.Channel, s message.Signatures) (history.Channel,
	error) {
	var deposit money.Amount
	if m.Deposit != nil {
		deposit = m.Deposit.Value
	}
	return row.WithVoucher(m.Payment, x402.ChannelVoucher{Ceiling: m.Ceiling,
		Signature: "0x" + hex.EncodeToString(s.Voucher[:])}, deposit)
}
