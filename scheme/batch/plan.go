package batch

import (
	"errors"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// fewCalls is how many calls a deposit is for where the seller names no least one.
const fewCalls = 10

// channelState is what a plan is made of.
type channelState struct {
	price      money.Amount
	minDeposit money.Amount
	most       money.Amount // that may be deposited now, in the token's atomic units
	promised   money.Amount // the highest voucher that was signed
	charged    money.Amount // what the seller has charged, as far as that binds us
	book       history.BatchBook
}

var (
	errDepositOpen = errors.New("a deposit is on its way")
	errTooLittle   = errors.New("what may be deposited is too little")
)

// plan is the next voucher and deposit. It is pure. While it is not known whether earlier vouchers were
// charged, they count as charged: of two the higher one says so. With errTooLittle deposit is the least that
// would do.
//
// A deposit is the price at least, also where less is missing: the owner's rules and a batch's ceiling are
// asked about the deposit, and the voucher beside it is worth the price.
func (s channelState) plan() (ceiling, deposit money.Amount, err error) {
	ceiling, fits := s.base().Add(s.price)
	if !fits {
		return ceiling, deposit, errTooLittle
	}
	holds := s.book.Holds()
	if ceiling.Cmp(holds) <= 0 {
		return ceiling, deposit, nil
	}
	if s.book.Deposit != nil {
		return ceiling, deposit, errDepositOpen
	}
	least := ceiling.SubFloor(holds)
	for _, other := range []money.Amount{s.minDeposit, s.price} {
		if other.Cmp(least) > 0 {
			least = other
		}
	}
	deposit = least
	if s.minDeposit.IsZero() {
		for range fewCalls - 1 {
			more, fits := deposit.Add(s.price)
			if !fits || more.Cmp(s.most) > 0 {
				break
			}
			deposit = more
		}
	}
	if least.Cmp(s.most) > 0 {
		return ceiling, least, errTooLittle
	}
	return ceiling, deposit, nil
}

// state is that of a channel, without what a call wants.
func (c channel) state() channelState {
	return channelState{promised: c.Amount, charged: c.Claimed, book: c.book}
}

// base is what counts as charged.
func (s channelState) base() money.Amount {
	if len(s.book.Vouchers) > 0 && s.promised.Cmp(s.charged) > 0 {
		return s.promised
	}
	return s.charged
}
