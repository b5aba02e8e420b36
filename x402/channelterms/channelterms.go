// Package channelterms reads what a seller asks of a channel of the scheme batch-settlement. What must stay
// true: a delay outside the contract's own bounds is no term.
package channelterms

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The contract's own bounds of a channel's withdrawDelay.
const (
	MinWithdrawDelay = 15 * time.Minute
	MaxWithdrawDelay = 30 * 24 * time.Hour
)

// Terms is what a seller asks of a channel.
type Terms struct {
	ReceiverAuthorizer string
	WithdrawDelay      time.Duration
	MinDeposit         money.Amount // 0: it names none
}

// Of reads extra of an option of the scheme batch-settlement. Its error says what is wrong, without a word
// of the seller's.
func Of(r x402.Requirement) (t Terms, err error) {
	extra := x402.Object(r.Extra)
	t.ReceiverAuthorizer, err = extra.Identifier("receiverAuthorizer")
	if err != nil {
		return t, errors.New("extra.receiverAuthorizer is not an address")
	}
	seconds, err := strconv.ParseInt(string(extra["withdrawDelay"]), 10, 64)
	if err != nil || seconds < int64(MinWithdrawDelay/time.Second) ||
		seconds > int64(MaxWithdrawDelay/time.Second) {
		return t, fmt.Errorf("extra.withdrawDelay is not a number of seconds from %d to %d",
			MinWithdrawDelay/time.Second, MaxWithdrawDelay/time.Second)
	}
	t.WithdrawDelay = time.Duration(seconds) * time.Second
	if extra.Has("minDeposit") {
		least, err := extra.OptionalAmount("minDeposit")
		if err != nil {
			return t, err
		}
		t.MinDeposit = *least
	}
	return t, nil
}

// ForOwners says why an owner cannot deposit into a channel on a seller's terms, or nil. An owner signs by
// EIP-3009.
func ForOwners(r x402.Requirement) error {
	if !r.ByPermit2() {
		return nil
	}
	return x402.Errorf(x402.InvalidRequirement, "the seller takes deposits by Permit2 "+
		"(extra.assetTransferMethod), and an owner's deposit is by EIP-3009 alone").
		WithHint("the agent's own account can pay this seller by Permit2")
}
