package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// What a node says of a channel is the book's from the block on that the book rests on; what it says was
// claimed is true of any block.
func TestWhatANodeSaysOfAChannel(t *testing.T) {
	for block, c := range map[uint64]struct {
		isNewer bool
		funds   uint64
	}{99: {false, 9000}, 100: {true, 7000}, 101: {true, 7000}} {
		was := channel{Channel: history.Channel{Claimed: units(1000)},
			book: history.BatchBook{Funds: units(9000), Block: 100}}
		now, isNewer := was.seen(onchain.ChannelBalance{Block: block, Balance: units(7000),
			Claimed: units(2000)})
		require.Equal(t, c.isNewer, isNewer)
		require.Equal(t, history.BatchBook{Funds: units(c.funds), Block: max(100, block)}, now.book)
		require.Equal(t, units(2000), now.Claimed)
	}
	now, _ := channel{Channel: history.Channel{Claimed: units(3000)}}.
		seen(onchain.ChannelBalance{Claimed: units(2000)})
	require.Equal(t, units(3000), now.Claimed, "more is known to be charged")
}

// A deposit whose transaction is in a block is in no state of the chain before it: a node that is behind
// makes the book forget nothing, so that nothing is deposited in its place.
func TestANodeThatIsBehindForgetsNoDeposit(t *testing.T) {
	b := newBench(t)
	b.payments.put(history.Payment{ID: "pay_1", State: history.Settled, Proof: history.Chain,
		ChainProof: must.Get(json.Marshal(x402.Status{Block: 100}))(t)})
	c := must.Get(b.updateBook(t.Context(), channelOf(t, b, "", 0, history.BatchBook{
		Deposit: &history.BatchOpen{Payment: "pay_1", Amount: units(1000)}})))(t)
	require.Equal(t, history.BatchBook{Funds: units(1000), Block: 100}, c.book)
	require.NoError(t, b.save(t.Context(), c))

	withdraw := func() (steps []Withdrawal, err error) {
		err = b.Withdraw(t.Context(), testHost, false, func(w Withdrawal) error {
			steps = append(steps, w)
			return nil
		})
		return steps, err
	}
	b.chain.state = onchain.ChannelBalance{Block: 99}
	steps, err := withdraw()
	require.ErrorIs(t, err, errBehind)
	require.True(t, x402.HasCode(err, x402.RPCError))
	require.Empty(t, steps)
	require.Equal(t, c.book, known(t, b, c.ID).book)

	b.chain.state = onchain.ChannelBalance{Block: 100, Balance: units(1000)}
	steps = must.Get(withdraw())(t)
	require.Len(t, steps, 1)
	require.Equal(t, units(1000), steps[0].Amount)

	// of a transaction that was made meanwhile it says nothing
	b.chain.state.Block = 150
	must.Get(withdraw())(t)
	before := b.chain.state
	require.NoError(t, b.Withdraw(t.Context(), testHost, false, func(Withdrawal) error {
		b.chain.state = onchain.ChannelBalance{Block: 149}
		return nil
	}), "what was sent is sent")
	after := known(t, b, c.ID).book
	require.Equal(t, []any{before.Balance, withdrawn}, []any{after.Funds, after.Stopped})
}

// A node that is behind says neither that an owner's channel holds what they had back, nor that what they
// asked back was not.
func TestANodeThatIsBehindFundsNoOwnersChannel(t *testing.T) {
	b := newBench(t)
	c := channelOf(t, b, testFunder, 0, history.BatchBook{Funds: units(500), Block: 100,
		Stopped: withdrawn})
	found := OwnersChannel{Server: testHost, Network: testNetwork, Channel: c.ID, Agent: testAgent,
		Config: c.signed.Config, IsKnown: true, of: c}

	b.chain.state = onchain.ChannelBalance{Block: 99, Balance: units(9000)}
	c = must.Get(b.readOwners(t.Context(), c))(t)
	require.Equal(t, units(500), c.book.Funds)
	err := b.FundOwners(t.Context(), found, nil, nil)
	require.Equal(t, x402.PolicyDenied, x402.AsError(err).Code)
	b.chain.state.WithdrawBegan = time.Unix(1, 0)
	c.book.Stopped = ""
	c = must.Get(b.readOwners(t.Context(), c))(t)
	require.Empty(t, c.book.Stopped, "they have it back already")

	b.chain.state = onchain.ChannelBalance{Block: 101, Balance: units(9000)}
	require.NoError(t, b.FundOwners(t.Context(), found, nil, nil))
	require.Equal(t, history.BatchBook{Funds: units(9000), Block: 101}, known(t, b, c.ID).book)
}

type ownVouchers struct{ playChain }

func (*ownVouchers) OwnVoucher(string, string, x402.ChannelVoucher) bool { return true }

// A seller that shows a voucher as charged which it refused before gets none for the next call: the call that
// the voucher was for may have another one by now.
func TestCount_RefusedVoucherIsCharged(t *testing.T) {
	const refused = "the seller charged a voucher that it had refused"
	for name, c := range map[string]struct {
		shown   uint64 // the voucher that the seller shows as charged; 40,000 was refused
		open    uint64 // another call's
		own     uint64 // this call's, which is presented now
		stopped string
	}{
		"refused before":            {shown: 40_000, own: 30_000, stopped: refused},
		"refused, presented again":  {shown: 40_000, own: 40_000},
		"of another call under way": {shown: 40_000, open: 40_000},
		"of a ledger that was lost": {shown: 50_000},
		"charged before":            {shown: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Chain = &ownVouchers{}
			p := history.Payment{ID: "pay_1", Network: testNetwork, State: history.Settled,
				Requirement: fmt.Appendf(nil, `{"scheme":"batch-settlement","network":%q,"amount":"1000",`+
					`"asset":%q,"payTo":%q,"maxTimeoutSeconds":60}`, testNetwork, testUSDC, testPayee)}
			book := history.BatchBook{Vouchers: []history.BatchOpen{{Payment: p.ID, Amount: units(30_000)}}}
			if c.open > 0 {
				book.Vouchers = append(book.Vouchers, history.BatchOpen{Payment: p.ID, Amount: units(c.open)})
			}
			of := channelOf(t, b, "", 40_000, book)
			of.Claimed = units(20_000)
			require.NoError(t, b.save(t.Context(), of))
			p.Evidence.Channel, p.Evidence.Ceiling = of.ID, units(c.own)
			extra := map[string]json.RawMessage{
				"channelState": fmt.Appendf(nil, `{"channelId":%q,"chargedCumulativeAmount":"%d"}`, of.ID, c.shown),
				"voucherState": fmt.Appendf(nil, `{"signedMaxClaimable":"%d","signature":"0x12"}`, c.shown)}
			asks := &wire.Challenge{Accepts: []x402.Requirement{{Scheme: x402.BatchSettlement,
				Network: testNetwork, Extra: extra}}}
			must.Get(b.Count(t.Context(), p, scheme.ChannelAnswer{Again: c.own == c.shown,
				Challenge: asks}))(t)
			of = known(t, b, of.ID)
			require.Equal(t, units(max(c.shown, 20_000)), of.Claimed)
			require.Equal(t, c.stopped, of.book.Stopped)
		})
	}
}

// A channel is used by one call at a time, whichever of its seller's hosts it is for; and so are all of a
// host.
func TestAChannelOfTwoHostsIsUsedByOneCallAtATime(t *testing.T) {
	b := newBench(t)
	unlock := must.Get(b.Lock(t.Context(), testNetwork, "a.example", "0x01"))(t)
	defer unlock()
	try := func(limit time.Duration, host, id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		unlock, err := b.Lock(ctx, testNetwork, host, id)
		if err == nil {
			unlock()
		}
		return err
	}
	for host, id := range map[string]string{"b.example": "0x01", "a.example": "0x02"} {
		require.Equal(t, x402.Timeout, x402.AsError(try(50*time.Millisecond, host, id)).Code)
	}
	require.NoError(t, try(time.Minute, "b.example", "0x02"))
	unlock()
	require.NoError(t, try(time.Minute, "b.example", "0x01"))
	require.NoError(t, try(time.Minute, "a.example", "0x01"))
}
