package batch

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What a call takes of an owner's channel: its price counts, unless a voucher that was refused promised as
// much; the owner's deposit counts as there when it is signed.
func TestPlanOfAnOwnersChannel(t *testing.T) {
	signed := &x402.OwnersDeposit{Value: units(4000), Signature: "0x01"}
	has := func(funds uint64) history.BatchBook { return history.BatchBook{Funds: units(funds)} }
	for name, c := range map[string]struct {
		promised, charged uint64
		book              history.BatchBook
		ceiling           uint64 // 0: refused
		isFree, brings    bool
		left              string
	}{
		"the first":       {book: has(1000), ceiling: 1000},
		"another":         {promised: 2000, charged: 2000, book: has(3000), ceiling: 3000},
		"after a refusal": {promised: 3000, charged: 2000, book: has(3000), ceiling: 3000, isFree: true},
		"partly promised": {promised: 2500, charged: 2000, book: has(3000), ceiling: 3000},
		"open ones count": {promised: 3000, charged: 2000, book: history.BatchBook{Funds: units(4000),
			Vouchers: []history.BatchOpen{{}}}, ceiling: 4000},
		"a unit is missing": {promised: 2000, charged: 2000, book: has(2999), left: "999"},
		"a deposit waits":   {book: history.BatchBook{Owners: signed}, ceiling: 1000, brings: true},
		"and is too little": {promised: 3001, charged: 3001, book: history.BatchBook{Owners: signed},
			left: "999"},
		"one that nobody signed": {book: history.BatchBook{Owners: &x402.OwnersDeposit{
			Value: units(4000)}}, left: "0"},
		"all is claimed": {promised: 9000, charged: 9000, book: has(9000), left: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			of := channelOf(t, b, testFunder, c.promised, c.book)
			of.Claimed = units(c.charged)
			call := asked("0xSeller")
			state := of.state()
			state.price = call.Amount
			use, err := b.proposeOwners(call, of, state)
			if c.ceiling == 0 {
				require.Equal(t, x402.InsufficientFunds, x402.AsError(err).Code)
				require.Equal(t, c.left, x402.AsError(err).Details["available"].(money.Amount).String())
				require.Contains(t, x402.AsError(err).Hint, "channel deposit "+testURL+" --owner "+testFunder+
					" --network "+testNetwork+" --amount 0.01")
				return
			}
			require.NoError(t, err)
			require.Equal(t, units(c.ceiling), use.Order.Ceiling)
			require.Equal(t, c.isFree, use.Prepaid)
			require.Equal(t, []money.Amount{units(1000), units(1000)}, []money.Amount{use.Price, use.Amount})
			p := history.Payment{Scheme: b.Name(), Source: use.Funds.Source, Price: 1000}
			require.Equal(t, of.ID, p.Source)
			require.True(t, p.FromOwners())
			require.Equal(t, c.brings, use.Order.Owners != nil)
			require.True(t, use.Order.Deposit.IsZero())
		})
	}
}

// What is left in an owner's channel the chain says, before each call.
func TestAnOwnersChannelIsReadFromTheChain(t *testing.T) {
	now := time.Now()
	has := func(funds uint64) onchain.ChannelBalance { return onchain.ChannelBalance{Balance: units(funds)} }
	for name, c := range map[string]struct {
		chain          onchain.ChannelBalance
		promise        uint64 // 0: 2000
		open           []history.BatchOpen
		used           bool
		until          time.Duration
		funds, charged uint64
		stopped        string
		waits          bool
	}{
		"as it was":  {chain: has(7000), until: time.Hour, funds: 7000, charged: 2000, waits: true},
		"taken back": {until: time.Hour, charged: 2000, waits: true},
		"claimed more": {chain: onchain.ChannelBalance{Balance: units(7000), Claimed: units(5000)},
			until: time.Hour, funds: 7000, charged: 5000, waits: true},
		"claimed what it refused": {chain: onchain.ChannelBalance{Balance: units(7000), Claimed: units(5000)},
			promise: 5000, until: time.Hour, funds: 7000, charged: 5000, waits: true,
			stopped: "the seller claimed more than it says it charged"},
		"claimed what nobody knows": {chain: onchain.ChannelBalance{Balance: units(7000),
			Claimed: units(5000)},
			promise: 5000, open: []history.BatchOpen{{Amount: units(5000)}}, until: time.Hour, funds: 7000,
			charged: 5000, waits: true},
		"asked back": {chain: onchain.ChannelBalance{Balance: units(7000), WithdrawBegan: now},
			until: time.Hour, funds: 7000, charged: 2000, stopped: withdrawn, waits: true},
		"it was made": {chain: has(7000), used: true, until: time.Hour, funds: 7000, charged: 2000},
		"too old":     {chain: has(7000), until: -time.Second, funds: 7000, charged: 2000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.chain.state, b.chain.used = c.chain, c.used
			of := channelOf(t, b, testFunder, 2000, history.BatchBook{Funds: units(9000), Vouchers: c.open,
				Owners: &x402.OwnersDeposit{Value: units(1), ValidBefore: b.Now().Add(c.until).Unix()}})
			of.Amount = units(cmp.Or(c.promise, 2000))
			of = must.Get(b.readOwners(t.Context(), of))(t)
			require.Equal(t, units(c.funds), of.book.Funds)
			require.Equal(t, units(c.charged), of.Claimed)
			require.Equal(t, c.stopped, of.book.Stopped)
			require.Equal(t, c.waits, of.book.Owners != nil)
		})
	}
}

// A seller's word that it has an owner's deposit puts nothing into the book, or it could be promised to it
// where the node is behind.
func TestAnOwnersDepositIsThereWhenTheChainHasIt(t *testing.T) {
	c := channel{book: history.BatchBook{Funds: units(100), Owners: &x402.OwnersDeposit{Value: units(4000),
		Signature: "0x01"}}}
	p := history.Payment{Scheme: x402.BatchSettlement, Source: fmt.Sprintf("0x%064x", 1)}
	c = c.counted(p, scheme.CountCharged, units(1000), nil)
	require.Equal(t, history.BatchBook{Funds: units(100)}, c.book)
}

// A channel that its owner writes down again begins with what the chain has claimed.
func TestALostOwnersChannelBeginsWithWhatWasClaimed(t *testing.T) {
	o := asked("0xSeller")
	config, id, err := (&playChain{}).Config(o.Requirement, o.Token, testFunder, "")
	require.NoError(t, err)
	c := newChannel(testHost, testNetwork, id, config, onchain.ChannelBalance{Balance: units(9000),
		Claimed: units(4000)})
	require.Equal(t, []string{id, testAgent, "4000", "4000"}, []string{c.Source, c.Key, c.Amount.String(),
		c.Claimed.String()})
}

// What the chain has is the book's, unless a deposit may be in it that is not proven.
func TestWhatTheChainHasIsTheBooks(t *testing.T) {
	open := history.BatchOpen{Payment: "pay_1", Amount: units(3000)}
	for name, c := range map[string]struct {
		book  history.BatchBook
		funds uint64
	}{
		"nothing is open":       {history.BatchBook{}, 7000},
		"one is on its way":     {history.BatchBook{Deposit: &open}, 9000},
		"the seller says it is": {history.BatchBook{Taken: []history.BatchOpen{open}}, 9000},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.chain.state = onchain.ChannelBalance{Balance: units(7000), Claimed: units(2000)}
			c.book.Funds = units(9000)
			of := channelOf(t, b, "", 0, c.book)
			must.Get(b.sync(t.Context(), of))(t)
			of = known(t, b, of.ID)
			require.Equal(t, []money.Amount{units(c.funds), units(2000)},
				[]money.Amount{of.book.Funds, of.Claimed})
		})
	}
}
