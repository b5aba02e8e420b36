package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall/book"
)

// What is not as it was asked is refused before anything runs, in the reference's words; most of it whatever
// the facilitator says.
func TestWhatAVoucherMayNotBe(t *testing.T) {
	l, other := newBatchLab(t, nil), newSigningKey(t)
	strict := l.paywall.options.Facilitators
	for name, c := range map[string]struct {
		change       func(b *channelBuyer)
		spoil        func(p map[string]any)
		kind, want   string
		byChainAlone bool // the facilitator has to look
	}{
		"another receiver": {change: func(b *channelBuyer) { b.config.Receiver = other.address },
			want: "receiver_mismatch"},
		"another authorizer": {change: func(b *channelBuyer) { b.config.ReceiverAuthorizer = other.address },
			want: "receiver_authorizer_mismatch"},
		"another token": {change: func(b *channelBuyer) { b.config.Token = other.address },
			want: "token_mismatch"},
		"another delay": {change: func(b *channelBuyer) { b.config.WithdrawDelay-- },
			want: "withdraw_delay_mismatch"},
		"another's voucher": {change: func(b *channelBuyer) { b.key.sign = other.sign },
			want: "voucher_signature"},
		"a contract's voucher": {change: func(b *channelBuyer) { b.config.PayerAuthorizer = zeroAddress },
			want: "voucher_signature"},
		"a small deposit": {change: func(b *channelBuyer) { b.deposit = 9_999 },
			want: "deposit_below_min_deposit"},
		"more than is there": {change: func(b *channelBuyer) { b.deposit = 1_000_001 },
			want: "insufficient_balance", byChainAlone: true},
		"another id": {spoil: func(p map[string]any) {
			p["voucher"].(map[string]any)["channelId"] = fmt.Sprintf("0x%064x", 7)
		}, want: "channel_id_mismatch"},
		"another type": {spoil: func(p map[string]any) { p["type"] = "claim" }, want: "payload_type"},
		"no deposit":   {spoil: func(p map[string]any) { delete(p, "deposit") }, want: "payload_type"},
		"a deposit by permit": {spoil: func(p map[string]any) {
			p["deposit"].(map[string]any)["authorization"] = map[string]any{"permit2Authorization": 1}
		}, want: "erc3009_authorization_required"},
		"no channel": {kind: "voucher", want: "channel_not_found", byChainAlone: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asked := range []Facilitators{strict, gullible{newFacilitators(l.Sandbox)}} {
				if asked != strict && c.byChainAlone {
					continue
				}
				l.paywall.options.Facilitators = asked
				b := l.newBuyer(t)
				if c.change != nil {
					c.change(b)
				}
				p := b.payload(cmp.Or(c.kind, "deposit"), 1000)
				if c.spoil != nil {
					c.spoil(p)
				}
				g := l.call(t, nil, b.shown(p, nil))
				require.Contains(t, g.challenge().Error, "invalid_batch_settlement_evm_"+c.want)
				l.nothingMoved(t, g)
			}
		})
	}
	require.Zero(t, l.runs.Load())
	require.Zero(t, l.owed(t))
	l.paywall.options.Facilitators = strict
}

// A deposit that will have expired, and one that says no time, are not taken.
func TestADepositsTime(t *testing.T) {
	l := newBatchLab(t, nil)
	for before, want := range map[string]string{fmt.Sprint(time.Now().Unix() + 5): "expired",
		"soon": "not a time", "-1": "not a time"} {
		b := l.newBuyer(t)
		p := b.payload("deposit", 1000)
		authorization := p["deposit"].(map[string]any)["authorization"].(map[string]any)
		authorization["erc3009Authorization"].(map[string]any)["validBefore"] = before
		require.Contains(t, fmt.Sprint(l.call(t, nil, b.shown(p, nil))), want)
	}
	require.Zero(t, l.runs.Load())
}

// A voucher for more than the chain shows is not served, even if the facilitator finds it good.
func TestAVoucherIsCovered(t *testing.T) {
	l := newBatchLab(t, func(l *lab, o *Options) { o.Facilitators = gullible{newFacilitators(l.Sandbox)} })
	b := l.newBuyer(t)
	require.Equal(t, batchShort, b.pay("voucher", 1_000_001).challenge().Error)
	require.Zero(t, l.runs.Load())
	require.Equal(t, product, b.pay("voucher", 1_000_000).text, "its buyer counts, of a lost book")
	l.paywall.options.Facilitators = newFacilitators(l.Sandbox)
	require.NoError(t, l.paywall.options.Store.UpdateSoldChannel(t.Context(), sandbox.EVM, b.id(), "",
		func(c *book.SoldChannel) { c.OwedSince = time.Time{} })) // there is no such channel
}

// What cannot be sold by batch-settlement is refused when the paywall is made.
func TestWhatCannotBeSoldByBatchSettlement(t *testing.T) {
	l := newBatchLab(t, nil)
	for name, c := range map[string]struct {
		change func(o *Options, option *Option)
		want   string
	}{
		"upfront":     {func(o *Options, _ *Option) { o.Tools[0].Upfront = true }, "not paid upfront"},
		"verify only": {func(o *Options, _ *Option) { o.VerifyOnly = true }, "verified only"},
		"two books":   {func(o *Options, _ *Option) { o.SharedPayTo = true }, "in one book"},
		"Solana":      {func(_ *Options, a *Option) { a.Network = sandbox.Solana }, "for EVM networks"},
		"version 1":   {func(o *Options, _ *Option) { o.Version = 1 }, "version 1 has no batch-settlement"},
		"Permit2":     {func(_ *Options, a *Option) { a.Permit2 = true }, "by EIP-3009"},
		"a short delay": {func(_ *Options, a *Option) { a.WithdrawDelay = 14 * time.Minute },
			"15m0s to 720h"},
		"a long call": {func(o *Options, a *Option) {
			a.WithdrawDelay, o.Tools[0].MaxTimeout = 15*time.Minute, 6*time.Minute
		}, "three times"},
		"a deposit below the price": {func(_ *Options, a *Option) { a.MinDeposit = "0.0009" },
			"does not cover"},
		"a delay for exact": {func(_ *Options, a *Option) { a.Scheme, a.WithdrawDelay = "", time.Hour },
			"are for"},
		"late claims": {func(o *Options, _ *Option) { o.ClaimAfter = 13 * time.Hour }, "within 12h"},
		"no sum":      {func(o *Options, _ *Option) { o.ClaimAbove = "0" }, "it is nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			option := Option{Network: "84532", PayTo: l.PayToEVM, Price: "0.001", Scheme: "batch-settlement"}
			o := Options{Facilitators: newFacilitators(l.Sandbox), Store: testBook,
				Tools: []Tool{{Name: "search"}}}
			c.change(&o, &option)
			if option.Network == sandbox.Solana {
				option.PayTo = l.PayToSolana
			}
			o.Tools[0].Accepts = []Option{option}
			require.ErrorContains(t, must.Err(New(o)), c.want)
		})
	}
}

type authorizerless struct {
	*facilitator.Client
	extra map[string]json.RawMessage
}

func (a authorizerless) Supported(context.Context, string) ([]facilitator.Kind, error) {
	return []facilitator.Kind{{Version: 2, Scheme: "batch-settlement", Network: sandbox.EVM,
		Extra: a.extra}}, nil
}

func TestNoChannelWithoutAnAuthorizer(t *testing.T) {
	l := newBatchLab(t, nil)
	require.NoError(t, l.paywall.CheckChannels(t.Context()))
	for name, extra := range map[string]map[string]json.RawMessage{"nobody": nil,
		"the zero address": {"receiverAuthorizer": jsonOf(zeroAddress)},
		"no address":       {"receiverAuthorizer": jsonOf("me")}} {
		t.Run(name, func(t *testing.T) {
			without := newBatchLab(t, func(l *lab, o *Options) {
				o.Facilitators = authorizerless{newFacilitators(l.Sandbox), extra}
			})
			require.ErrorContains(t, without.paywall.CheckChannels(t.Context()), "receiverAuthorizer")
			without.call(t, nil, nil).asksNothing()
		})
	}
}
