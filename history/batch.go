package history

import (
	"encoding/json"

	"x402-wallet/history/internal/audit"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Channels of batch-settlement have rows beside those of other channels, each under its own name:
//
//	service, channel   the channel's id           key, source   the agent's address
//	server             the host it was met at     nonce         how many vouchers were signed
//	amount             the highest one of them    claimed       what the seller has charged, as far as it
//	                                                            said so in a way that binds us
//	signed             BatchSigned                call          BatchBook
//
// What a deposit takes from the owner's windows it takes when it is signed for, as any payment: no voucher
// can move more than was deposited. So a payment by a voucher alone counts nothing more (Payment.Prepaid).
//
// In a channel that an owner funds the source is the channel, by its id, and nothing was counted when it was
// funded. There a voucher counts at its price when it promises more than the highest one did, for good; one
// that does not, because an earlier one was refused, counts nothing. So what counts is never less than what
// can be claimed, whatever a seller says was charged.

// BatchSigned is the channel, and the last voucher that was signed in it.
type BatchSigned struct {
	Config  x402.ChannelConfig   `json:"config"`
	Voucher *x402.ChannelVoucher `json:"voucher,omitempty"` // nil: none yet
	Payment string               `json:"payment,omitempty"` // that it was signed for
	// the owner's seal, that they fund this channel with its host (Channel.Server); nil: it is the agent's
	Seal []byte `json:"seal,omitempty"`
}

// IsOwners reports whether an owner funds the channel: its payer is not the agent, who signs its vouchers.
func (s BatchSigned) IsOwners() bool { return s.Config.Payer != s.Config.PayerAuthorizer }

// BatchBook is what is known of a channel beside what was signed. It changes without a signature.
type BatchBook struct {
	Funds    money.Amount         `json:"funds"`              // deposited; on the chain as far as is known
	Block    uint64               `json:"block,omitempty"`    // the newest one that Funds rests on; 0: none
	Taken    []BatchOpen          `json:"taken,omitempty"`    // deposits that are there by the seller's word alone
	Deposit  *BatchOpen           `json:"deposit,omitempty"`  // on its way; nil: none is
	Vouchers []BatchOpen          `json:"vouchers,omitempty"` // shown to the seller, and their end not known
	Charged  *x402.ChannelVoucher `json:"charged,omitempty"`  // the last voucher that was charged in full
	// a voucher of ours that the seller showed and this ledger does not know; nil: none
	Shown   *x402.ChannelVoucher `json:"shown,omitempty"`
	Stopped string               `json:"stopped,omitempty"` // why nothing more is signed; "": it goes on

	// Of a channel that an owner funds: their deposit, which the next call brings, or which waits for their
	// signature; nil: there is none. Over: they had all of it back.
	Owners *x402.OwnersDeposit `json:"owners,omitempty"`
	Over   bool                `json:"over,omitempty"`
}

// IsProven reports whether the chain showed what became of each deposit.
func (b BatchBook) IsProven() bool { return b.Deposit == nil && len(b.Taken) == 0 }

// Holds is what lies in the channel, the seller's word for deposits included.
func (b BatchBook) Holds() money.Amount {
	all := b.Funds
	for _, d := range b.Taken {
		all, _ = all.Add(d.Amount)
	}
	return all
}

// BatchOpen is a payment whose end is not known: Amount is the deposit, or the voucher's ceiling.
type BatchOpen struct {
	Payment string       `json:"payment"`
	Amount  money.Amount `json:"amount"`
}

// Batch reads what is in the row of a channel of batch-settlement.
func (c Channel) Batch() (signed BatchSigned, book BatchBook, err error) {
	if json.Unmarshal(c.Signed, &signed) != nil || json.Unmarshal(c.PendingCall, &book) != nil {
		return signed, book, audit.Corrupt("the channel %s cannot be read", c.ID)
	}
	return signed, book, nil
}

// WithSigned is the row of a channel in which nothing was signed yet.
func (c Channel) WithSigned(s BatchSigned) Channel {
	c.Signed = json.RawMessage(audit.JSON(s))
	return c
}

// WithBook is the channel's row with another book.
func (c Channel) WithBook(b BatchBook) Channel {
	c.PendingCall = json.RawMessage(audit.JSON(b))
	return c
}

// WithVoucher is the channel's row after a voucher was signed for a payment.
func (c Channel) WithVoucher(payment string, v x402.ChannelVoucher, deposit money.Amount) (Channel, error) {
	signed, book, err := c.Batch()
	if err != nil {
		return c, err
	}
	signed.Voucher, signed.Payment = &v, payment
	book.Vouchers = append(book.Vouchers, BatchOpen{Payment: payment, Amount: v.Ceiling})
	if !deposit.IsZero() {
		book.Deposit = &BatchOpen{Payment: payment, Amount: deposit}
	}
	c.Nonce++
	if book.Shown != nil && book.Shown.Ceiling.Cmp(c.Amount) > 0 {
		c.Amount = book.Shown.Ceiling
	}
	book.Shown = nil
	if v.Ceiling.Cmp(c.Amount) > 0 {
		c.Amount = v.Ceiling
	}
	c.Signed = json.RawMessage(audit.JSON(signed))
	return c.WithBook(book), nil
}

// Prepaid reports whether a payment counts nothing in the owner's windows, because what it spends was
// counted before, with the deposit or with a voucher that was refused: a voucher of batch-settlement.
func (p Payment) Prepaid() bool { return p.Scheme == x402.BatchSettlement && p.Price == 0 }

// channelIDLength is that of a channel's id, 0x and 64 hex digits, which no account's address has.
const channelIDLength = 66

// FromOwners reports whether a payment is by a voucher in a channel that an owner funds.
func (p Payment) FromOwners() bool {
	return p.Scheme == x402.BatchSettlement && len(p.Source) == channelIDLength
}

// ByVoucher reports whether a payment is by a voucher alone, without a deposit of the agent's.
func (p Payment) ByVoucher() bool { return p.Prepaid() || p.FromOwners() }
