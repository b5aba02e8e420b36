package wire

import (
	"encoding/json"
	"errors"
	"strconv"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// ChannelCount is what a seller says of a channel. Nothing of it is proven but the voucher, by its
// signature.
type ChannelCount struct {
	ID          string
	Charged     *money.Amount        // in all; nil: not said
	ChargedNow  *money.Amount        // by this call; nil: not said
	Balance     *money.Amount        // after a refund
	Voucher     *x402.ChannelVoucher // the newest one that it has; nil: none was shown
	WithdrawsAt int64                // Unix seconds of a withdrawal that it knows of; 0: none
}

// CountOf reads what a receipt says of a channel. It returns nil, without an error, if it says nothing.
func CountOf(s Settlement) (*ChannelCount, error) {
	var top x402.Object
	err := json.Unmarshal(s.Raw, &top)
	if err != nil {
		return nil, err
	}
	extra, err := top.Object("extra")
	if err != nil {
		return nil, err
	}
	return readChannelCount(extra)
}

// CorrectiveCount is what a seller that counts otherwise says in the option of its new challenge (reference
// server: channelState and voucherState in extra); nil: nothing.
func (c Challenge) CorrectiveCount(network string) (*ChannelCount, error) {
	for _, r := range c.Accepts {
		if r.Scheme != x402.BatchSettlement || r.Network != network {
			continue
		}
		if n, err := readChannelCount(r.Extra); n != nil || err != nil {
			return n, err
		}
	}
	return nil, nil
}

// readChannelCount reads {channelState: {…}, voucherState: {…}, chargedAmount: "…"}.
func readChannelCount(extra x402.Object) (*ChannelCount, error) {
	state, err := extra.Object("channelState")
	if err != nil || state == nil {
		return nil, err
	}
	var n ChannelCount
	at := x402.Object(state)
	n.ID, err = at.Identifier("channelId")
	if err != nil && at.Has("channelId") {
		return nil, errors.New("channelId is not an id")
	}
	for _, field := range []struct {
		of   x402.Object
		key  string
		into **money.Amount
	}{{at, "chargedCumulativeAmount", &n.Charged}, {extra, "chargedAmount", &n.ChargedNow},
		{at, "balance", &n.Balance}} {
		*field.into, err = field.of.OptionalAmount(field.key)
		if err != nil {
			return nil, err
		}
	}
	if at.Has("withdrawRequestedAt") {
		n.WithdrawsAt, err = strconv.ParseInt(string(at["withdrawRequestedAt"]), 10, 64)
		if err != nil || n.WithdrawsAt < 0 {
			return nil, errors.New("withdrawRequestedAt is not a time")
		}
	}
	n.Voucher, err = readShownVoucher(extra)
	return &n, err
}

// readShownVoucher reads voucherState, in which a seller that has no voucher yet shows "0" and no signature.
func readShownVoucher(extra x402.Object) (*x402.ChannelVoucher, error) {
	shown, err := extra.Object("voucherState")
	if err != nil || shown == nil {
		return nil, err
	}
	of := x402.Object(shown)
	ceiling, err := of.OptionalAmount("signedMaxClaimable")
	signature, errText := of.Text("signature")
	if err := errors.Join(err, errText); err != nil {
		return nil, err
	}
	if ceiling == nil || ceiling.IsZero() || signature == "" || signature == "0x" {
		return nil, nil
	}
	return &x402.ChannelVoucher{Ceiling: *ceiling, Signature: signature}, nil
}
