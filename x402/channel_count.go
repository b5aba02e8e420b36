package x402

import (
	"encoding/json"
	"errors"
	"strconv"

	"x402-wallet/x402/money"
)

// ChannelCount is what a seller says of a channel. Nothing of it is proven but the voucher, by its signature.
type ChannelCount struct {
	ID          string
	Charged     *money.Amount   // in all; nil: not said
	ChargedNow  *money.Amount   // by this call; nil: not said
	Balance     *money.Amount   // after a refund
	Voucher     *ChannelVoucher // the newest one that it has; nil: none was shown
	WithdrawsAt int64           // Unix seconds of a withdrawal that it knows of; 0: none
}

// ChannelCount is what a receipt says of a channel; nil, without error: nothing.
func (s Settlement) ChannelCount() (*ChannelCount, error) {
	var top object
	err := json.Unmarshal(s.Raw, &top)
	if err != nil {
		return nil, err
	}
	extra, err := top.object("extra")
	if err != nil {
		return nil, err
	}
	return readChannelCount(extra)
}

// CorrectiveCount is what a seller that counts otherwise says in the option of its new challenge (reference
// server: channelState and voucherState in extra); nil: nothing.
func (c Challenge) CorrectiveCount(network string) (*ChannelCount, error) {
	for _, r := range c.Accepts {
		if r.Scheme != BatchSettlement || r.Network != network {
			continue
		}
		if n, err := readChannelCount(r.Extra); n != nil || err != nil {
			return n, err
		}
	}
	return nil, nil
}

// readChannelCount reads {channelState: {…}, voucherState: {…}, chargedAmount: "…"}.
func readChannelCount(extra object) (*ChannelCount, error) {
	state, err := extra.object("channelState")
	if err != nil || state == nil {
		return nil, err
	}
	var n ChannelCount
	at := object(state)
	n.ID, err = at.identifier("channelId")
	if err != nil && at.has("channelId") {
		return nil, errors.New("channelId is not an id")
	}
	for _, field := range []struct {
		of   object
		key  string
		into **money.Amount
	}{{at, "chargedCumulativeAmount", &n.Charged}, {extra, "chargedAmount", &n.ChargedNow},
		{at, "balance", &n.Balance}} {
		*field.into, err = field.of.optionalAmount(field.key)
		if err != nil {
			return nil, err
		}
	}
	if at.has("withdrawRequestedAt") {
		n.WithdrawsAt, err = strconv.ParseInt(string(at["withdrawRequestedAt"]), 10, 64)
		if err != nil || n.WithdrawsAt < 0 {
			return nil, errors.New("withdrawRequestedAt is not a time")
		}
	}
	n.Voucher, err = readShownVoucher(extra)
	return &n, err
}

// readShownVoucher reads voucherState, in which a seller that has no voucher yet shows "0" and no signature.
func readShownVoucher(extra object) (*ChannelVoucher, error) {
	shown, err := extra.object("voucherState")
	if err != nil || shown == nil {
		return nil, err
	}
	of := object(shown)
	ceiling, err := of.optionalAmount("signedMaxClaimable")
	signature, errText := of.text("signature")
	if err := errors.Join(err, errText); err != nil {
		return nil, err
	}
	if ceiling == nil || ceiling.IsZero() || signature == "" || signature == "0x" {
		return nil, nil
	}
	return &ChannelVoucher{Ceiling: *ceiling, Signature: signature}, nil
}
