package history

import (
	"encoding/json"

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

// BatchSigned is the channel, and the last voucher that was signed in it.
type BatchSigned struct {
	Config  x402.ChannelConfig   `json:"config"`
	Voucher *x402.ChannelVoucher `json:"voucher,omitempty"` // nil: none yet
	Payment string               `json:"payment,omitempty"` // that it was signed for
}

// BatchBook is what is known of a channel beside what was signed. It changes without a signature.
type BatchBook struct {
	Funds    money.Amount         `json:"funds"`              // deposited; on the chain as far as is known
	Deposit  *BatchOpen           `json:"deposit,omitempty"`  // on its way; nil: none is
	Vouchers []BatchOpen          `json:"vouchers,omitempty"` // shown to the seller, and their end not known
	Charged  *x402.ChannelVoucher `json:"charged,omitempty"`  // the last voucher that was charged in full
	// a voucher of ours that the seller showed and this ledger does not know; nil: none
	Shown   *x402.ChannelVoucher `json:"shown,omitempty"`
	Stopped string               `json:"stopped,omitempty"` // why nothing more is signed; "": it goes on
}

// BatchOpen is a payment whose end is not known: Amount is the deposit, or the voucher's ceiling.
type BatchOpen struct {
	Payment string       `json:"payment"`
	Amount  money.Amount `json:"amount"`
}

// Batch reads what is in the row of a channel of batch-settlement.
func (c Channel) Batch() (signed BatchSigned, book BatchBook, err error) {
	if json.Unmarshal(c.Signed, &signed) != nil || json.Unmarshal(c.PendingCall, &book) != nil {
		return signed, book, corrupt("the channel %s cannot be read", c.ID)
	}
	return signed, book, nil
}

// WithSigned is the row of a channel in which nothing was signed yet.
func (c Channel) WithSigned(s BatchSigned) Channel {
	c.Signed = json.RawMessage(toJSON(s))
	return c
}

// WithBook is the channel's row with another book.
func (c Channel) WithBook(b BatchBook) Channel {
	c.PendingCall = json.RawMessage(toJSON(b))
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
	c.Signed = json.RawMessage(toJSON(signed))
	return c.WithBook(book), nil
}

// Prepaid reports whether a payment counts nothing in the owner's windows, because what it spends was
// counted when it was deposited: a voucher of batch-settlement.
func (p Payment) Prepaid() bool { return p.Scheme == x402.BatchSettlement && p.Price == 0 }
