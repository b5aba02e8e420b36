package pay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

const (
	testAgent  = "0xAgent"
	testFunder = "0xOwner"
	testHost   = "api.example"
)

// playChannels knows channels by their parts, and what a chain says of them.
type playChannels struct {
	Channels
	chain onchain.ChannelBalance
	used  bool
}

func (*playChannels) Address() string { return testAgent }

func (*playChannels) Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (
	x402.ChannelConfig, string, error) {
	if payer == "" {
		payer = testAgent
	}
	c := x402.ChannelConfig{Payer: payer, PayerAuthorizer: testAgent, Receiver: r.PayTo, Token: asset.Address,
		ReceiverAuthorizer: r.ExtraString("receiverAuthorizer"), Salt: salt}
	sum := fnv.New64()
	fmt.Fprint(sum, c, r.Network)
	return c, fmt.Sprintf("0x%064x", sum.Sum64()), nil
}

func (c *playChannels) ReadChannel(context.Context, string, string) (onchain.ChannelBalance, error) {
	return c.chain, nil
}

func (*playChannels) Withdrawal(context.Context, string, string, x402.ChannelConfig, onchain.ChannelBalance) (
	t onchain.OwnerTransaction, err error) {
	return t, nil
}

func (c *playChannels) OwnersUsed(context.Context, string, x402.ChannelConfig, x402.OwnersDeposit) (bool,
	error) {
	return c.used, nil
}

func batchAsked(authorizer string) option {
	return option{Requirement: x402.Requirement{Version: 2, Scheme: x402.BatchSettlement,
		Network: testNetwork, Amount: units(1000), PayTo: testPayee,
		Extra: map[string]json.RawMessage{"receiverAuthorizer": json.RawMessage(`"` + authorizer + `"`)}},
		asset: x402.AssetInfo{Network: testNetwork, Address: testUSDC, Decimals: 6, Symbol: "USDC",
			USD: 1_000_000},
		price: 1000}
}

// ownersRow writes down a channel that an owner funds with testHost.
func ownersRow(t *testing.T, b *bench, owner string, amount uint64, book history.BatchBook) history.Channel {
	t.Helper()
	o := batchAsked("0xSeller")
	config, id, err := b.Channels.Config(o.Requirement, o.asset, owner, "")
	require.NoError(t, err)
	row := history.Channel{Service: id, Key: testAgent, Server: testHost, Network: testNetwork, Source: id,
		ID: id, Amount: units(amount), Claimed: units(amount)}
	row = row.WithSigned(history.BatchSigned{Config: config}).WithBook(book)
	require.NoError(t, b.store.SaveChannel(t.Context(), row))
	return row
}

func ownersBench(t *testing.T) (*bench, *playChannels) {
	t.Helper()
	b, channels := newBench(t, "1000", nil), &playChannels{}
	b.Channels, b.ChannelBook = channels, locks.New(b.store)
	return b, channels
}

func TestAHostIsPaidThroughItsOwnersChannelAlone(t *testing.T) {
	exact := batchAsked("0xSeller")
	exact.Scheme = x402.Exact
	elsewhere := batchAsked("0xSeller")
	elsewhere.Network = "eip155:8453"
	for name, c := range map[string]struct {
		book   history.BatchBook
		host   string
		option option
		why    string // "": it stays
		isOne  bool   // it is paid through the channel
	}{
		"its own":             {option: batchAsked("0xSeller"), isOne: true},
		"another authorizer":  {option: batchAsked("0xOther"), why: "was 0xSeller and is 0xOther"},
		"on another network":  {option: elsewhere, why: "it asks to be paid on"},
		"in another way":      {option: exact, why: "in another way"},
		"at another host":     {option: exact, host: "other.example"},
		"that is over":        {option: exact, book: history.BatchBook{Over: true}},
		"over, and batch":     {option: batchAsked("0xSeller"), book: history.BatchBook{Over: true}},
		"without money in it": {option: batchAsked("0xSeller"), book: history.BatchBook{}, isOne: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := ownersBench(t)
			row := ownersRow(t, b, testFunder, 0, c.book)
			host := testHost
			if c.host != "" {
				host = c.host
			}
			options := []option{c.option}
			require.NoError(t, b.keepToOwners(t.Context(), host, options))
			if c.why != "" {
				require.Equal(t, x402.PolicyDenied, options[0].why.Code)
				require.Contains(t, options[0].why.Message, c.why)
				return
			}
			require.Nil(t, options[0].why)
			require.Equal(t, c.isOne, options[0].owners == row.ID)
		})
	}
}

func TestOfTwoOwnersOneHasRoom(t *testing.T) {
	b, _ := ownersBench(t)
	ownersRow(t, b, testFunder, 5000, history.BatchBook{Funds: units(5999)})
	full := ownersRow(t, b, "0xSecond", 5000, history.BatchBook{Funds: units(6000)})
	options := []option{batchAsked("0xSeller")}
	require.NoError(t, b.keepToOwners(t.Context(), testHost, options))
	require.Equal(t, full.ID, options[0].owners)
}

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
			b, _ := ownersBench(t)
			row := ownersRow(t, b, testFunder, c.promised, c.book)
			row.Claimed = units(c.charged)
			o := batchAsked("0xSeller")
			w, err := b.proposeOwners(intent{host: testHost, shownURL: testURL}, &o, row, batchState{
				price: o.Amount, promised: row.Amount, charged: row.Claimed, book: c.book})
			if c.ceiling == 0 {
				code(t, x402.InsufficientFunds, err)
				require.Equal(t, c.left, x402.AsError(err).Details["available"].(money.Amount).String())
				require.Contains(t, x402.AsError(err).Hint, "channel deposit "+testURL+" --owner "+testFunder+
					" --network "+testNetwork+" --amount 0.01")
				return
			}
			require.NoError(t, err)
			p := w.hold.Payment
			require.Equal(t, units(c.ceiling), o.batch.order.Ceiling)
			require.Equal(t, c.isFree, p.Prepaid())
			require.Equal(t, c.isFree, w.ask.Prepaid)
			require.Equal(t, money.Dollars(1000), w.ask.Price)
			require.Equal(t, row.ID, p.Source)
			require.True(t, p.FromOwners())
			require.Equal(t, c.brings, o.batch.order.Owners != nil)
			require.True(t, o.batch.order.Deposit.IsZero())
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
			b, channels := ownersBench(t)
			channels.chain, channels.used = c.chain, c.used
			row := ownersRow(t, b, testFunder, 2000, history.BatchBook{Funds: units(9000), Vouchers: c.open,
				Owners: &x402.OwnersDeposit{Value: units(1), ValidBefore: b.Now().Add(c.until).Unix()}})
			_, book, err := row.Batch()
			require.NoError(t, err)
			row.Amount = units(cmp.Or(c.promise, 2000))
			row, book, err = b.readOwners(t.Context(), row, book)
			require.NoError(t, err)
			require.Equal(t, units(c.funds), book.Funds)
			require.Equal(t, units(c.charged), row.Claimed)
			require.Equal(t, c.stopped, book.Stopped)
			require.Equal(t, c.waits, book.Owners != nil)
		})
	}
}

// A seller's word that it has an owner's deposit puts nothing into the book, or it could be promised to it
// where the node is behind.
func TestAnOwnersDepositIsThereWhenTheChainHasIt(t *testing.T) {
	book := history.BatchBook{Funds: units(100), Owners: &x402.OwnersDeposit{Value: units(4000),
		Signature: "0x01"}}
	p := history.Payment{Scheme: x402.BatchSettlement, Source: fmt.Sprintf("0x%064x", 1)}
	book = counted(book, p, countCharged, units(1000), units(1000), nil)
	require.Equal(t, history.BatchBook{Funds: units(100)}, book)
}

// A channel that its owner writes down again begins with what the chain has claimed.
func TestALostOwnersChannelBeginsWithWhatWasClaimed(t *testing.T) {
	o := batchAsked("0xSeller")
	config, id, err := (&playChannels{}).Config(o.Requirement, o.asset, testFunder, "")
	require.NoError(t, err)
	row := newBatchRow(testHost, testNetwork, id, config, onchain.ChannelBalance{Balance: units(9000),
		Claimed: units(4000)})
	require.Equal(t, []string{id, testAgent, "4000", "4000"}, []string{row.Source, row.Key,
		row.Amount.String(), row.Claimed.String()})
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
			b, channels := ownersBench(t)
			channels.chain = onchain.ChannelBalance{Balance: units(7000), Claimed: units(2000)}
			o := batchAsked("0xSeller")
			config, id, err := b.Channels.Config(o.Requirement, o.asset, "", "")
			require.NoError(t, err)
			c.book.Funds = units(9000)
			row := newBatchRow(testHost, testNetwork, id, config, onchain.ChannelBalance{}).WithBook(c.book)
			must.Get(b.syncBatch(t.Context(), BatchReport{Network: testNetwork, Channel: id, row: row}))(t)
			row = must.Get(b.store.Channel(t.Context(), id, testAgent))(t)
			_, book, err := row.Batch()
			require.NoError(t, err)
			require.Equal(t, []money.Amount{units(c.funds), units(2000)},
				[]money.Amount{book.Funds, row.Claimed})
		})
	}
}
