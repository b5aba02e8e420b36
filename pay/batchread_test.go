package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// batchRow writes down a channel that the agent funds with testHost.
func batchRow(t *testing.T, b *bench, book history.BatchBook) history.Channel {
	t.Helper()
	o := batchAsked("0xSeller")
	config, id, err := b.Channels.Config(o.Requirement, o.asset, "", "")
	require.NoError(t, err)
	row := newBatchRow(testHost, testNetwork, id, config, onchain.ChannelBalance{}).WithBook(book)
	require.NoError(t, b.store.SaveChannel(t.Context(), row))
	return row
}

func bookOf(t *testing.T, b *bench, id string) (history.Channel, history.BatchBook) {
	t.Helper()
	row := must.Get(b.store.Channel(t.Context(), id, testAgent))(t)
	_, book, err := row.Batch()
	require.NoError(t, err)
	return row, book
}

// What a node says of a channel is the book's from the block on that the book rests on; what it says was
// claimed is true of any block.
func TestWhatANodeSaysOfAChannel(t *testing.T) {
	for block, c := range map[uint64]struct {
		isNewer bool
		funds   uint64
	}{99: {false, 9000}, 100: {true, 7000}, 101: {true, 7000}} {
		row, book, isNewer := seen(history.Channel{Claimed: units(1000)},
			history.BatchBook{Funds: units(9000), Block: 100},
			onchain.ChannelBalance{Block: block, Balance: units(7000), Claimed: units(2000)})
		require.Equal(t, c.isNewer, isNewer)
		require.Equal(t, history.BatchBook{Funds: units(c.funds), Block: max(100, block)}, book)
		require.Equal(t, units(2000), row.Claimed)
	}
	row, _, _ := seen(history.Channel{Claimed: units(3000)}, history.BatchBook{},
		onchain.ChannelBalance{Claimed: units(2000)})
	require.Equal(t, units(3000), row.Claimed, "more is known to be charged")
}

// A deposit whose transaction is in a block is in no state of the chain before it: a node that is behind
// makes the book forget nothing, so that nothing is deposited in its place.
func TestANodeThatIsBehindForgetsNoDeposit(t *testing.T) {
	b, channels := ownersBench(t)
	b.seller.script = honest
	b.chain.block = 100
	b.mustPay(t, testURL)
	row := batchRow(t, b, history.BatchBook{Deposit: &history.BatchOpen{Payment: b.only(t).ID,
		Amount: units(1000)}})
	b.reconcile(t)
	_, book, err := row.Batch()
	require.NoError(t, err)
	row, book, err = b.updateBook(t.Context(), row, book)
	require.NoError(t, err)
	require.Equal(t, history.BatchBook{Funds: units(1000), Block: 100}, book)
	require.NoError(t, b.store.SaveChannel(t.Context(), row.WithBook(book)))

	withdraw := func() (steps []BatchWithdrawal, err error) {
		err = b.WithdrawBatch(t.Context(), testHost, false, func(w BatchWithdrawal) error {
			steps = append(steps, w)
			return nil
		})
		return steps, err
	}
	channels.chain = onchain.ChannelBalance{Block: 99}
	steps, err := withdraw()
	require.ErrorIs(t, err, errBehind)
	require.True(t, x402.HasCode(err, x402.RPCError))
	require.Empty(t, steps)
	_, after := bookOf(t, b, row.ID)
	require.Equal(t, book, after)

	channels.chain = onchain.ChannelBalance{Block: 100, Balance: units(1000)}
	steps = must.Get(withdraw())(t)
	require.Len(t, steps, 1)
	require.Equal(t, units(1000), steps[0].Amount)

	// of a transaction that was made meanwhile it says nothing
	channels.chain.Block = 150
	must.Get(withdraw())(t)
	before := channels.chain
	require.NoError(t, b.WithdrawBatch(t.Context(), testHost, false, func(BatchWithdrawal) error {
		channels.chain = onchain.ChannelBalance{Block: 149}
		return nil
	}), "what was sent is sent")
	_, after = bookOf(t, b, row.ID)
	require.Equal(t, []any{before.Balance, withdrawn}, []any{after.Funds, after.Stopped})
}

// A node that is behind says neither that an owner's channel holds what they had back, nor that what they
// asked back was not.
func TestANodeThatIsBehindFundsNoOwnersChannel(t *testing.T) {
	b, channels := ownersBench(t)
	row := ownersRow(t, b, testFunder, 0, history.BatchBook{Funds: units(500), Block: 100,
		Stopped: withdrawn})
	_, book, err := row.Batch()
	require.NoError(t, err)
	signed, _, err := row.Batch()
	require.NoError(t, err)
	found := OwnersChannel{Server: testHost, Network: testNetwork, Channel: row.ID, Agent: testAgent,
		Config: signed.Config, IsKnown: true, row: row}

	channels.chain = onchain.ChannelBalance{Block: 99, Balance: units(9000)}
	_, book, err = b.readOwners(t.Context(), row, book)
	require.NoError(t, err)
	require.Equal(t, units(500), book.Funds)
	err = b.FundOwners(t.Context(), found, nil, nil)
	code(t, x402.PolicyDenied, err)
	channels.chain.WithdrawBegan = time.Unix(1, 0)
	book.Stopped = ""
	_, book, err = b.readOwners(t.Context(), row, book)
	require.NoError(t, err)
	require.Empty(t, book.Stopped, "they have it back already")

	channels.chain = onchain.ChannelBalance{Block: 101, Balance: units(9000)}
	require.NoError(t, b.FundOwners(t.Context(), found, nil, nil))
	_, book = bookOf(t, b, row.ID)
	require.Equal(t, history.BatchBook{Funds: units(9000), Block: 101}, book)
}

type endsAll struct{ Guard }

func (endsAll) Expire(_ context.Context, p history.Payment, _ x402.Status) (history.Payment, error) {
	p.State = history.Failed
	return p, nil
}

// A channel is as empty before a deposit as after it was taken back: what it shows of a voucher it shows in
// a block that has the deposits.
func TestAChannelBeforeItsDepositEndsNoVoucher(t *testing.T) {
	for name, c := range map[string]struct {
		block uint64 // of the channel that is empty
		book  func(deposit history.BatchOpen) history.BatchBook
		ends  bool
	}{
		"before the deposit": {block: 99, book: func(d history.BatchOpen) history.BatchBook {
			return history.BatchBook{Taken: []history.BatchOpen{d}}
		}},
		"after it": {block: 100, ends: true, book: func(d history.BatchOpen) history.BatchBook {
			return history.BatchBook{Taken: []history.BatchOpen{d}}
		}},
		"before what is in the book": {block: 199, book: func(history.BatchOpen) history.BatchBook {
			return history.BatchBook{Funds: units(1000), Block: 200}
		}},
		"with one that nobody knows": {block: 300, book: func(history.BatchOpen) history.BatchBook {
			return history.BatchBook{Deposit: &history.BatchOpen{Payment: "pay_none"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := ownersBench(t)
			b.seller.script = honest
			b.chain.block = 100
			b.mustPay(t, testURL)
			b.reconcile(t)
			row := batchRow(t, b, c.book(history.BatchOpen{Payment: b.only(t).ID, Amount: units(1000)}))
			b.Guard = endsAll{}
			voucher := history.Payment{Scheme: x402.BatchSettlement, State: history.Unknown,
				Evidence: x402.Evidence{Channel: row.ID}}
			now := b.learn(t.Context(), voucher, x402.Status{State: x402.Expired, Block: c.block})
			require.Equal(t, c.ends, now.State == history.Failed)
		})
	}
}

type ownVouchers struct{ playChannels }

func (*ownVouchers) OwnVoucher(string, string, x402.ChannelVoucher) bool { return true }

// A seller that shows a voucher as charged which it refused before gets none for the next call: the call that
// the voucher was for may have another one by now.
func TestNoteCount_RefusedVoucherIsCharged(t *testing.T) {
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
			b, _ := ownersBench(t)
			b.seller.script = honest
			must.Get(b.Pay(t.Context(), get(testURL)))(t)
			b.Channels = &ownVouchers{}
			p := b.only(t)
			book := history.BatchBook{Vouchers: []history.BatchOpen{{Payment: p.ID, Amount: units(30_000)}}}
			if c.open > 0 {
				book.Vouchers = append(book.Vouchers, history.BatchOpen{Payment: p.ID, Amount: units(c.open)})
			}
			o := batchAsked("0xSeller")
			config, id, err := b.Channels.Config(o.Requirement, o.asset, "", "")
			require.NoError(t, err)
			row := newBatchRow(testHost, testNetwork, id, config,
				onchain.ChannelBalance{Claimed: units(40_000)})
			row.Claimed = units(20_000)
			require.NoError(t, b.store.SaveChannel(t.Context(), row.WithBook(book)))
			p.Evidence.Channel, p.Evidence.Ceiling = row.ID, units(c.own)
			extra := map[string]json.RawMessage{
				"channelState": fmt.Appendf(nil, `{"channelId":%q,"chargedCumulativeAmount":"%d"}`, row.ID, c.shown),
				"voucherState": fmt.Appendf(nil, `{"signedMaxClaimable":"%d","signature":"0x12"}`, c.shown)}
			asks := &wire.Challenge{Accepts: []x402.Requirement{{Scheme: x402.BatchSettlement,
				Network: testNetwork, Extra: extra}}}
			must.Get(b.noteCount(t.Context(), p, facts{again: c.own == c.shown,
				answer: &seller.Answer{Status: 402, Challenge: asks}}))(t)
			after, now := bookOf(t, b, row.ID)
			require.Equal(t, units(max(c.shown, 20_000)), after.Claimed)
			require.Equal(t, c.stopped, now.Stopped)
		})
	}
}

type oneAccount struct{ Channels }

func (oneAccount) Address() string { return "0xagent" }

// A channel is used by one call at a time, whichever of its seller's hosts it is for; and so are all of a
// host.
func TestAChannelOfTwoHostsIsUsedByOneCallAtATime(t *testing.T) {
	b := newBench(t, "1000", honest)
	b.Channels, b.ChannelBook = oneAccount{}, locks.New(b.store)
	unlock := must.Get(b.lockChannels(t.Context(), testNetwork, "a.example", "0x01"))(t)
	defer unlock()
	try := func(limit time.Duration, host, id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		unlock, err := b.lockChannels(ctx, testNetwork, host, id)
		if err == nil {
			unlock()
		}
		return err
	}
	code(t, x402.Timeout, try(50*time.Millisecond, "b.example", "0x01"))
	code(t, x402.Timeout, try(50*time.Millisecond, "a.example", "0x02"))
	require.NoError(t, try(time.Minute, "b.example", "0x02"))
	unlock()
	require.NoError(t, try(time.Minute, "b.example", "0x01"))
	require.NoError(t, try(time.Minute, "a.example", "0x01"))
}

// diary notes who has the channels of the host, and is told who wants them.
type diary struct {
	*locks.Book
	wanted chan struct{}

	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) LockChannel(ctx context.Context, service, key string) (func(), error) {
	isHost := strings.HasPrefix(service, "batch-settlement ")
	if isHost {
		d.wanted <- struct{}{}
	}
	unlock, err := d.Book.LockChannel(ctx, service, key)
	if err != nil || !isHost {
		return unlock, err
	}
	d.note("locked")
	return func() { d.note("unlocked"); unlock() }, nil
}

// A seller that counts from another sum refuses a voucher. Until the call has had its second try, no other
// call uses the channel.
func TestBuyRecounted_KeepsTheChannel(t *testing.T) {
	b := channelBench(t)
	asked := b.Transport.(*channelSeller)
	asked.price, asked.least = "1000", "100000"
	rows := must.Get(b.store.BatchChannels(t.Context()))(t)
	count := fmt.Appendf(nil, `{"channelId":%q,"chargedCumulativeAmount":"1000"}`, rows[0].ID)
	refusal := &wire.Challenge{Accepts: []x402.Requirement{{Scheme: x402.BatchSettlement,
		Network: testNetwork, Extra: map[string]json.RawMessage{"channelState": count}}}}
	log := &diary{Book: locks.New(b.store), wanted: make(chan struct{}, 9)}
	b.ChannelBook = log
	serve, other := b.seller.script, make(chan error, 1)
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		log.note("presented")
		if len(s.sent()) > 2 { // the bench's own is the first
			return serve(s, nonce, amount)
		}
		<-log.wanted
		go func() {
			_, err := b.Pay(t.Context(), Request{Request: get(testURL).Request, IdempotencyKey: "other"})
			other <- err
		}()
		<-log.wanted
		return &seller.Answer{Status: 402, Challenge: refusal}, nil
	}
	r := must.Get(b.Pay(t.Context(), Request{Request: get(testURL).Request, IdempotencyKey: "one"}))(t)
	require.Equal(t, StatusPaid, r.Status)
	require.NoError(t, <-other)
	require.Equal(t, []string{"locked", "presented", "presented", "unlocked", "locked", "presented",
		"unlocked"}, log.lines)
}
