package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/locks"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/scheme/batch"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

const (
	testAgent  = "0xAgent"
	testFunder = "0xOwner"
	testHost   = "api.example"
)

func units(n uint64) money.Amount { return money.NewAmount(n) }

func pointer(a money.Amount) *money.Amount { return &a }

// playChannels knows channels by their parts, and what a chain says of them.
type playChannels struct {
	batch.Chain
	chain onchain.ChannelBalance
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
	config, id, err := b.channels().Chain.Config(o.Requirement, o.asset, owner, "")
	require.NoError(t, err)
	row := history.Channel{Service: id, Key: testAgent, Server: testHost, Network: testNetwork, Source: id,
		ID: id, Amount: units(amount), Claimed: units(amount)}
	row = row.WithSigned(history.BatchSigned{Config: config}).WithBook(book)
	require.NoError(t, b.store.SaveChannel(t.Context(), row))
	return row
}

// withChannels sets up the channels of a chain.
func (b *bench) withChannels(c batch.Chain) *batch.Channels {
	all := &batch.Channels{Chain: c, Ledger: locks.New(b.store), Guard: b.Guard, Sellers: b.Transport,
		Engine: b.Engine, Assets: b.Assets, Now: b.Now, Log: b.Log}
	b.Ways[len(b.Ways)-1] = all
	return all
}

func (b *bench) channels() *batch.Channels { return b.Ways[len(b.Ways)-1].(*batch.Channels) }

func ownersBench(t *testing.T) (*bench, *playChannels) {
	t.Helper()
	b, channels := newBench(t, "1000", nil), &playChannels{}
	b.withChannels(channels)
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
			require.Equal(t, c.isOne, options[0].channel == row.ID)
		})
	}
}

func TestOfTwoOwnersOneHasRoom(t *testing.T) {
	b, _ := ownersBench(t)
	ownersRow(t, b, testFunder, 5000, history.BatchBook{Funds: units(5999)})
	full := ownersRow(t, b, "0xSecond", 5000, history.BatchBook{Funds: units(6000)})
	options := []option{batchAsked("0xSeller")}
	require.NoError(t, b.keepToOwners(t.Context(), testHost, options))
	require.Equal(t, full.ID, options[0].channel)
}

// fixedUse is a way whose calls take always the same of their channel.
type fixedUse struct {
	*batch.Channels
	use scheme.ChannelUse
}

func (f fixedUse) Propose(context.Context, scheme.ChannelCall, bool) (*scheme.ChannelUse, error) {
	return &f.use, nil
}

// What is held of what a call takes of its channel, and what the owner's rules are asked: a voucher that was
// counted before counts nothing again, and all rules but the windows are asked about its price.
func TestWhatIsHeldOfAChannel(t *testing.T) {
	for name, c := range map[string]struct {
		amount    uint64
		isPrepaid bool
		price     money.Dollars // of the payment
	}{
		"a voucher":               {1000, false, 1000},
		"one that was counted":    {1000, true, 0},
		"a deposit and a voucher": {9000, false, 9000},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := ownersBench(t)
			o := batchAsked("0xSeller")
			way := fixedUse{b.channels(), scheme.ChannelUse{Channel: "0x01", Price: units(1000),
				Amount: units(c.amount), Prepaid: c.isPrepaid, AlwaysAsk: "it is another one",
				Funds: x402.Funds{Source: "0x01"}}}
			w, err := b.proposeThrough(t.Context(), way, intent{host: testHost}, &o, true)
			require.NoError(t, err)
			require.Equal(t, []any{units(c.amount), c.price, "0x01"},
				[]any{w.hold.Payment.Amount, w.hold.Payment.Price, w.hold.Payment.Source})
			require.Equal(t, []any{money.Dollars(c.amount), c.isPrepaid, "it is another one"},
				[]any{w.ask.Price, w.ask.Prepaid, w.ask.Always})
			must.Get(b.proposeThrough(t.Context(), way, intent{host: testHost}, &o, true))(t)
			require.Equal(t, units(c.amount), o.Amount, "it is decided on anew, from the price of the call")
		})
	}
}

func TestUnitsOfALimit(t *testing.T) {
	dollar := money.Dollars(1_000_000)
	asset := x402.AssetInfo{Decimals: 6, USD: dollar}
	require.Nil(t, limit{}.units(asset))
	require.Equal(t, units(7), *limit{atomic: pointer(units(7))}.units(asset))
	require.Equal(t, units(1_000_000), *limit{dollars: &dollar}.units(asset))
}

type signingChannels struct {
	playChannels
	chain *chain
}

func (*signingChannels) Payable(x402.Requirement, x402.AssetInfo) error { return nil }

func (c *signingChannels) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds,
	error) {
	f, err := c.chain.Funds(ctx, network, asset)
	f.Source = testAgent
	return f, err
}

func (c *signingChannels) DepositFunds(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (
	x402.Funds, error) {
	return c.Funds(ctx, r.Network, asset)
}

func (*signingChannels) Status(context.Context, x402.Evidence) (x402.Status, error) {
	return x402.Status{}, nil
}

func (c *signingChannels) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	a, err := c.chain.Authorize(ctx, o)
	if err != nil {
		return a, err
	}
	of := o.Channel
	_, a.Evidence.Channel, err = c.Config(o.Requirement, o.Asset, "", of.Salt)
	a.Evidence.Payer, a.Evidence.Ceiling, a.Evidence.Number = testAgent, of.Ceiling, of.Number
	a.Voucher = &x402.ChannelVoucher{Ceiling: of.Ceiling, Signature: a.Evidence.Nonce}
	if of.Deposit.IsZero() {
		a.Evidence.Nonce, a.Evidence.ExpiresAt = "", time.Time{}
	} else {
		a.Evidence.Amount = of.Deposit
	}
	return a, err
}

type channelSeller struct {
	*street
	price, least string
}

func (s *channelSeller) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	if r.URL != testURL {
		return s.street.Ask(ctx, r)
	}
	s.scriptedSeller.mu.Lock()
	one := scriptedSeller{t: s.t, price: s.price, header: s.header, network: s.network, payee: s.payee}
	s.scriptedSeller.mu.Unlock()
	one.rewrite = strings.NewReplacer(`"exact"`, `"batch-settlement"`, `"paymentFlow":""`,
		`"receiverAuthorizer":"0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC","withdrawDelay":900,"minDeposit":"`+
			s.least+`"`)
	return one.asks(), nil
}

// channelBench is a wallet that has deposited 100,000 with the seller at testURL, of which 1,000 are
// promised. The seller asks 190,000 now, and for the smallest deposit: 91,000 are missing.
func channelBench(t *testing.T) *bench {
	t.Helper()
	b, st := onStreet(t)
	st.price[shop(0)] = "10000"
	c, s := &signingChannels{chain: b.chain}, &channelSeller{street: st, price: "1000", least: "100000"}
	b.Transport = s
	b.withChannels(c).MaxDeposit = 1_000_000
	b.Schemes[SchemeKey{Scheme: x402.BatchSettlement, Family: "eip155"}] = c
	b.Policy.Schemes = append(b.Policy.Schemes, x402.BatchSettlement)
	b.seller.script = func(*scriptedSeller, string, uint64) (*seller.Answer, error) {
		return &seller.Answer{Status: 200, Content: []byte("sunny"), ContentType: "text/plain",
			Settlement: &wire.Settlement{Success: true, Raw: json.RawMessage(`{"success":true}`)}}, nil
	}
	r := b.mustPay(t, testURL)
	b.Delivered(t.Context(), r.Status, r.PaymentID)
	require.Equal(t, units(100_000), b.only(t).Amount)
	s.price, s.least = "190000", "1"
	return b
}

// A deposit of a little carries no voucher past a rule that its price would not pass, and past no ceiling.
func TestASmallDepositCarriesNoDearVoucher(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*bench)
		code    x402.Code
	}{
		"approve_above":   {func(b *bench) { b.Rules.ApproveAbove = 100_000 }, x402.ApprovalRequired},
		"per_call":        {func(b *bench) { b.Rules.PerCall = 100_000 }, x402.BudgetExceeded},
		"channel_deposit": {func(b *bench) { b.channels().MaxDeposit = 288_999 }, x402.PolicyDenied},
		"nothing":         {func(b *bench) { b.channels().MaxDeposit = 289_000 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := channelBench(t)
			c.prepare(b)
			_, err := b.Pay(t.Context(), get(testURL))
			if c.code != "" {
				code(t, c.code, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, units(190_000), b.rows(t)[0].Amount)
		})
	}
	t.Run("a batch's ceiling", func(t *testing.T) {
		b := channelBench(t)
		q := Many{Requests: []Request{get(testURL), get(shop(0))}, MaxAmount: "$0.199999"}
		code(t, x402.AmountExceedsMax, must.Err(b.PayMany(t.Context(), q)))
		q.MaxAmount = "$0.20"
		must.Get(b.PayMany(t.Context(), q))(t)
	})
}

// batchRow writes down a channel that the agent funds with testHost.
func batchRow(t *testing.T, b *bench, book history.BatchBook) history.Channel {
	t.Helper()
	o := batchAsked("0xSeller")
	config, id, err := b.channels().Chain.Config(o.Requirement, o.asset, "", "")
	require.NoError(t, err)
	row := history.Channel{Service: id, Key: testAgent, Server: testHost, Network: testNetwork,
		Source: testAgent, ID: id}
	row = row.WithSigned(history.BatchSigned{Config: config}).WithBook(book)
	require.NoError(t, b.store.SaveChannel(t.Context(), row))
	return row
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
	b.channels().Ledger = log
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
