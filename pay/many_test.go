package pay

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// street is many sellers: what each of them does is by its URL.
type street struct {
	*scriptedSeller

	mu    sync.Mutex
	price map[string]string // by URL; "": scriptedSeller's
	asks  map[string]func(ctx context.Context) (*seller.Answer, error)
	pays  map[string]script
	busy  int // sellers that are being asked
	most  int // of these at a time
}

func (s *street) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	s.mu.Lock()
	s.busy++
	s.most = max(s.most, s.busy)
	asks, price := s.asks[r.URL], cmp.Or(s.price[r.URL], s.scriptedSeller.price)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.busy--
		s.mu.Unlock()
	}()
	if asks != nil {
		return asks(ctx)
	}
	s.scriptedSeller.mu.Lock()
	s.asked++
	one := scriptedSeller{t: s.t, price: price, header: s.header, network: s.network, payee: s.payee}
	s.scriptedSeller.mu.Unlock()
	if price == "free" {
		return &seller.Answer{Status: 200, Content: []byte("free"), ContentType: "text/plain"}, nil
	}
	return one.asks(), nil
}

func (s *street) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	s.mu.Lock()
	pays := s.pays[r.URL]
	s.mu.Unlock()
	if pays == nil {
		return s.scriptedSeller.Present(ctx, r, with)
	}
	other := scriptedSeller{t: s.t, chain: s.chain, price: s.scriptedSeller.price, header: s.header,
		script: pays}
	return other.Present(ctx, r, with)
}

func onStreet(t *testing.T) (*bench, *street) {
	t.Helper()
	b := newBench(t, "10000", honest)
	s := &street{scriptedSeller: b.seller, price: map[string]string{},
		asks: map[string]func(context.Context) (*seller.Answer, error){},
		pays: map[string]script{}}
	b.Transport = s
	return b, s
}

func shop(n int) string { return fmt.Sprintf("https://shop%d.example/item", n) }

func order(n int, most string) Many {
	q := Many{MaxAmount: most}
	for i := range n {
		q.Requests = append(q.Requests, get(shop(i)))
	}
	return q
}

// statuses are what became of the rows: a status, or a code.
func statuses(b Bought) (list []string) {
	for _, row := range b.Rows {
		if row.Err != nil {
			list = append(list, string(x402.AsError(row.Err).Code))
		} else {
			list = append(list, row.Result.Status)
		}
	}
	return list
}

func (b *bench) rows(t *testing.T) []history.Payment {
	t.Helper()
	return must.Get(b.store.Recent(t.Context(), 200))(t)
}

func TestABatchBuysEachByItself(t *testing.T) {
	b, s := onStreet(t)
	s.price[shop(1)] = "free"
	got := must.Get(b.PayMany(t.Context(), order(3, "$0.05")))(t)
	require.Equal(t, []string{StatusPaid, StatusFree, StatusPaid}, statuses(got))
	require.Equal(t, "sunny", got.Rows[0].Result.Content)
	require.Equal(t, "free", got.Rows[1].Result.Content)
	require.Equal(t, shop(2), got.Rows[2].URL)
	require.Equal(t, money.Dollars(20_000), got.Spent)
	require.True(t, got.Complete)
	require.Equal(t, RepeatBuys, got.Repeat)
	require.Equal(t, 2, b.chain.settlements())
	require.Len(t, b.rows(t), 2, "each has its own payment")

	b.DeliveredMany(t.Context(), got)
	again := must.Get(b.PayMany(t.Context(), order(3, "$0.05")))(t)
	require.Equal(t, []string{StatusPaid, StatusFree, StatusPaid}, statuses(again))
	require.Equal(t, 4, b.chain.settlements(), "a whole batch that was delivered is bought again")
}

func TestABatchIsRefusedBeforeAnybodyIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		q    Many
		says string
	}{
		"nothing in it":   {Many{MaxAmount: "$1"}, "empty"},
		"101 requests":    {order(101, "$1"), "101 requests"},
		"no ceiling":      {order(2, ""), "maxAmount in dollars"},
		"atomic units":    {order(2, "50000"), "maxAmount in dollars"},
		"no sum":          {order(2, "$x"), "maxAmount"},
		"a sum too large": {order(2, "$99999999999999999999"), "maxAmount"},
		"one network unknown": {Many{MaxAmount: "$1",
			Requests: []Request{get(shop(0)), {Network: "moon"}}}, "request 2"},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := onStreet(t)
			_, err := b.PayMany(t.Context(), c.q)
			require.Contains(t, code(t, x402.InvalidArgument, err).Message, c.says)
			require.Zero(t, s.asked)
		})
	}
}

func TestABatchAboveItsCeilingBuysNothing(t *testing.T) {
	b, s := onStreet(t)
	s.price[shop(1)] = "30000"
	e := code(t, x402.AmountExceedsMax, must.Err(b.PayMany(t.Context(), order(4, "$0.045"))))
	require.Equal(t, 2, e.Details["wouldPass"])
	require.Equal(t, "$0.06", e.Details["requested"])
	require.Empty(t, b.rows(t), "nothing is held, not even for a moment")
	require.Zero(t, b.chain.signed)

	s.price[shop(1)] = "50000" // above the ceiling by itself: its own trouble
	got := must.Get(b.PayMany(t.Context(), order(4, "$0.045")))(t)
	require.Equal(t, []string{StatusPaid, "AMOUNT_EXCEEDS_MAX", StatusPaid, StatusPaid}, statuses(got))
}

// No sum of prices passes as a small one because it is too large for its number.
func TestTheSumOfABatchCannotOverflow(t *testing.T) {
	b, s := onStreet(t)
	b.Rules.PerCall, b.Rules.Day, b.Rules.Month = money.MaxDollars, money.MaxDollars, money.MaxDollars
	b.Rules.ApproveAbove = money.MaxDollars
	b.chain.balance = 1 << 63
	for i := range 100 {
		s.price[shop(i)] = "900000000000000000" // a hundred of them are above int64 and uint64
	}
	_, err := b.PayMany(t.Context(), order(100, "$999999999999.99"))
	require.Equal(t, 1, code(t, x402.AmountExceedsMax, err).Details["wouldPass"])
	require.Zero(t, b.chain.signed)
}

func TestABatchIsHeldWholeOrNotAtAll(t *testing.T) {
	session := money.Dollars(25_000)
	for name, c := range map[string]struct {
		with   func(b *bench)
		code   x402.Code
		passes int
	}{
		"the day's budget": {func(b *bench) { b.Rules.Day = 35_000 }, x402.BudgetExceeded, 3},
		"the session":      {func(b *bench) { b.Rules.Session = &session }, x402.BudgetExceeded, 2},
		"a host's day": {func(b *bench) {
			b.Rules.HostDay = map[string]money.Dollars{"*.example": 40_000}
		}, x402.BudgetExceeded, 4},
		"the rate":           {func(b *bench) { b.Rules.Rate = 4 }, x402.RateLimited, 4},
		"what the chain has": {func(b *bench) { b.chain.balance = 29_999 }, x402.InsufficientFunds, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := onStreet(t)
			c.with(b)
			e := code(t, c.code, must.Err(b.PayMany(t.Context(), order(5, "$1"))))
			require.Equal(t, c.passes, e.Details["wouldPass"], "%v", e)
			require.Contains(t, e.Hint, fmt.Sprintf("the first %d", c.passes))
			require.Empty(t, b.rows(t))
			require.Zero(t, b.chain.signed)

			got := must.Get(b.PayMany(t.Context(), order(c.passes, "$1")))(t)
			require.Equal(t, c.passes, b.chain.settlements(), "%v", statuses(got))
		})
	}
}

func TestOneSellerOfABatchMisbehaves(t *testing.T) {
	hang := func(ctx context.Context) (*seller.Answer, error) {
		<-ctx.Done()
		return nil, x402.Errorf(x402.Timeout, "the seller did not answer")
	}
	dearer := func(s *scriptedSeller, _ string, _ uint64) (*seller.Answer, error) {
		other := scriptedSeller{t: s.t, price: "900000", header: s.header}
		return other.asks(), nil
	}
	for name, c := range map[string]struct {
		with func(s *street)
		code x402.Code
		held int // whose money is out of reach
	}{
		"hangs": {func(s *street) { s.asks[shop(1)] = hang }, x402.Timeout, 0},
		"redirects elsewhere": {func(s *street) {
			s.asks[shop(1)] = func(context.Context) (*seller.Answer, error) {
				return nil, x402.Errorf(x402.RedirectRefused, "elsewhere")
			}
		}, x402.RedirectRefused, 0},
		"raises its price when it is paid": {func(s *street) { s.pays[shop(1)] = dearer },
			x402.PriceChanged, 1},
		"takes the payment and is silent": {func(s *street) { s.pays[shop(1)] = silent },
			x402.OutcomeUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := onStreet(t)
			if name == "hangs" {
				b.Policy.Deadline = 3 * time.Second
			}
			c.with(s)
			got := must.Get(b.PayMany(t.Context(), order(12, "$0.12")))(t)
			for i, status := range statuses(got) {
				want := map[bool]string{true: string(c.code), false: StatusPaid}[i == 1]
				require.Equal(t, want, status, "row %d: %v", i, got.Rows[i].Err)
			}
			require.Equal(t, 11, b.chain.settlements())
			require.Equal(t, money.Dollars((11+c.held)*10_000), got.Spent)
			require.LessOrEqual(t, s.most, manyAtOnce)
		})
	}
}

func TestTheSameRequestTwiceIsOnePurchase(t *testing.T) {
	b, _ := onStreet(t)
	q := order(2, "$0.02")
	q.Requests = append(q.Requests, get("https://SHOP0.example:443/item"), get(shop(0)+"?other"))
	_, err := b.PayMany(t.Context(), q)
	require.Equal(t, 2, code(t, x402.AmountExceedsMax, err).Details["wouldPass"])
	q.MaxAmount = "$0.03"
	got := must.Get(b.PayMany(t.Context(), q))(t)
	require.Equal(t, 3, b.chain.settlements())
	for i, same := range []int{-1, -1, 0, -1} {
		require.Equal(t, same, got.Rows[i].SameAs)
	}
	require.Equal(t, got.Rows[0].Result.PaymentID, got.Rows[2].Result.PaymentID)
}

func TestARepeatedBatchBuysWhatIsMissing(t *testing.T) {
	for _, key := range []string{"", "tuesday"} {
		t.Run("key "+key, func(t *testing.T) {
			b, s := onStreet(t)
			s.asks[shop(1)] = func(context.Context) (*seller.Answer, error) {
				return nil, x402.Errorf(x402.NetworkError, "not now")
			}
			s.pays[shop(2)] = silent
			q := order(4, "$0.04")
			q.IdempotencyKey = key
			got := must.Get(b.PayMany(t.Context(), q))(t)
			require.Equal(t, []string{StatusPaid, "NETWORK_ERROR", "OUTCOME_UNKNOWN", StatusPaid},
				statuses(got))
			require.False(t, got.Complete)
			require.Equal(t, RepeatIs, got.Repeat)
			b.DeliveredMany(t.Context(), got)

			delete(s.asks, shop(1))
			delete(s.pays, shop(2))
			got = must.Get(b.PayMany(t.Context(), q))(t)
			require.Equal(t, []string{StatusReplayed, StatusPaid, StatusPaid, StatusReplayed}, statuses(got))
			require.Equal(t, 4, b.chain.settlements())
			require.Equal(t, 4, b.chain.signed, "the same bytes were shown again")
			require.True(t, got.Complete)
			b.DeliveredMany(t.Context(), got)

			got = must.Get(b.PayMany(t.Context(), q))(t)
			if key != "" {
				require.Equal(t, 4, b.chain.settlements(), "a key is one purchase for ever")
				q.Requests = q.Requests[1:3] // a part of it is the same purchases
				must.Get(b.PayMany(t.Context(), q))(t)
				require.Equal(t, 4, b.chain.settlements())
			} else {
				require.Equal(t, 8, b.chain.settlements(), "%v", statuses(got))
			}
		})
	}
}

// What was bought by an earlier call of the same batch counts towards its ceiling.
func TestTheCeilingIsForAllCallsOfABatch(t *testing.T) {
	b, s := onStreet(t)
	s.asks[shop(2)] = func(context.Context) (*seller.Answer, error) {
		return nil, x402.Errorf(x402.NetworkError, "not now")
	}
	q := order(3, "$0.03")
	got := must.Get(b.PayMany(t.Context(), q))(t)
	b.DeliveredMany(t.Context(), got)
	delete(s.asks, shop(2))
	s.price[shop(2)] = "10001"
	got = must.Get(b.PayMany(t.Context(), q))(t)
	require.Equal(t, []string{StatusReplayed, StatusReplayed, "AMOUNT_EXCEEDS_MAX"}, statuses(got))
	require.Equal(t, "$0.030001", code(t, x402.AmountExceedsMax, got.Rows[2].Err).Details["requested"])
	require.Equal(t, 2, b.chain.settlements())
}

// closedDoor is a chain that shows at the signature alone that a payee cannot be paid: as on Solana, whose
// payee may close its token account meanwhile.
type closedDoor struct {
	*chain
	payTo string
}

func (c closedDoor) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	if o.Requirement.PayTo == c.payTo {
		return onchain.Authorization{}, x402.Errorf(x402.InvalidRequirement, "the payee has no token account")
	}
	return c.chain.Authorize(ctx, o)
}

// Where what is held of a purchase cannot be signed for, the next option is taken, and never a dearer one:
// the others of the batch have what is left of the ceiling.
func TestTheCeilingHoldsForTheNextOption(t *testing.T) {
	const closed = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
	for price, status := range map[string]string{"10000": StatusPaid, "10001": "INVALID_REQUIREMENT"} {
		b, s := onStreet(t)
		b.Schemes = map[SchemeKey]Scheme{exactEVM: closedDoor{b.chain, closed}}
		s.asks[shop(0)] = func(context.Context) (*seller.Answer, error) {
			first := scriptedSeller{t: t, price: "10000", header: s.header, payee: closed}
			second := scriptedSeller{t: t, price: price, header: s.header}
			a, next := first.asks(), second.asks().Challenge.Accepts[0]
			next.Index = 1
			a.Challenge.Accepts = append(a.Challenge.Accepts, next)
			return a, nil
		}
		s.price[shop(1)] = "50000"
		got := must.Get(b.PayMany(t.Context(), order(2, "$0.06")))(t)
		require.Equal(t, []string{status, StatusPaid}, statuses(got))
		require.LessOrEqual(t, got.Spent, money.Dollars(60_000))
	}
}

// storeBetween is a ledger in which something happens before a batch is held there.
type storeBetween struct {
	Store
	happens func()
}

func (s *storeBetween) ReserveAll(ctx context.Context, holds []history.Hold) ([]history.Payment, error) {
	happens := s.happens
	s.happens = func() {}
	happens()
	return s.Store.ReserveAll(ctx, holds)
}

// What another call of the same batch pays for, while this one is decided on, counts towards its ceiling at
// what that call paid.
func TestTheCeilingCountsWhatAnotherCallPays(t *testing.T) {
	for dear, status := range map[string]string{"30000": StatusPaid, "30001": "AMOUNT_EXCEEDS_MAX"} {
		b, s := onStreet(t)
		other := openBench(t, b.home, b.chain, dear, honest)
		s.price[shop(0)], s.price[shop(1)] = "20000", "30000"
		q := order(2, "$0.06")
		q.IdempotencyKey = "k"
		b.Engine.Store = &storeBetween{Store: b.store, happens: func() {
			first := q
			first.Requests = q.Requests[:1]
			got := must.Get(other.PayMany(t.Context(), first))(t)
			require.Equal(t, []string{StatusPaid}, statuses(got))
		}}
		got := must.Get(b.PayMany(t.Context(), q))(t)
		require.Equal(t, status, statuses(got)[1])
		var sum money.Dollars
		for _, p := range b.rows(t) {
			sum = sum.Add(p.Price)
		}
		require.LessOrEqual(t, sum, money.Dollars(60_000))
	}
}

func TestACancelledBatchBeginsNothingNew(t *testing.T) {
	b, s := onStreet(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	serve := make(chan struct{})
	slow := func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		<-serve
		return honest(s, nonce, amount)
	}
	for i := range 20 {
		s.pays[shop(i)] = slow
	}
	for i := range manyAtOnce {
		at := shop(i)
		s.pays[at] = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
			leave()
			return slow(s, nonce, amount)
		}
	}
	context.AfterFunc(ctx, func() { close(serve) })
	got := must.Get(b.PayMany(ctx, order(20, "$1")))(t)
	paid, untried := 0, 0
	for _, row := range got.Rows {
		switch {
		case row.Err == nil:
			paid++
		case x402.AsError(row.Err).Details["tried"] == false:
			untried++
		}
	}
	require.Equal(t, b.chain.settlements(), paid, "what was sent was brought to its end")
	require.Positive(t, paid)
	require.GreaterOrEqual(t, untried, 20-2*manyAtOnce)
	for _, p := range b.rows(t) {
		require.False(t, p.State.Unfinished(), "%s", p.State)
	}
	require.False(t, got.Complete)
}

type lockedKey struct {
	historytest.Guard
	asked *int
}

func (g lockedKey) VerifySeals(context.Context) error {
	*g.asked++
	return x402.Errorf(x402.WalletLocked, "the wallet is locked")
}

func TestALockedWalletIsUnlockedOnceForABatch(t *testing.T) {
	b, _ := onStreet(t)
	asked := 0
	b.Guard = lockedKey{historytest.Guard{Store: b.store}, &asked}
	code(t, x402.WalletLocked, must.Err(b.PayMany(t.Context(), order(20, "$1"))))
	require.Equal(t, 1, asked)
	require.Empty(t, b.rows(t), "nothing is held before")
}

// One question lists all, whichever of them needs it; a yes is for each of them once, and on these terms
// alone.
func TestOneApprovalForABatch(t *testing.T) {
	b, s := onStreet(t)
	b.Rules.ApproveAbove = 20_000
	s.price[shop(1)], s.price[shop(3)] = "30000", "40000"
	q := order(5, "$0.20")
	e := code(t, x402.ApprovalRequired, must.Err(b.PayMany(t.Context(), q)))
	require.Equal(t, "$0.10", e.Details["sum"])
	require.Equal(t, 5, e.Details["payments"])
	require.Empty(t, b.rows(t), "nothing is held while the person thinks")
	id := e.Details["approvalId"].(string)
	shown := must.Get(b.store.Asked(t.Context(), id))(t)
	require.Len(t, shown.Together, 5)
	require.Equal(t, shop(3), shown.Together[3].URL)
	require.Contains(t, shown.Why, "above what is paid without asking")

	_, err := b.PayMany(t.Context(), q)
	require.Equal(t, id, code(t, x402.ApprovalRequired, err).Details["approvalId"], "asked once")
	require.NoError(t, b.Accept(t.Context(), id, "client"))
	s.price[shop(3)] = "40001"
	other := code(t, x402.ApprovalRequired, must.Err(b.PayMany(t.Context(), q)))
	require.NotEqual(t, id, other.Details["approvalId"], "another price is another question")
	require.Zero(t, b.chain.signed)

	s.price[shop(3)] = "40000"
	got := must.Get(b.PayMany(t.Context(), q))(t)
	require.True(t, got.Complete, "%v", statuses(got))
	require.Equal(t, 5, b.chain.settlements())
	require.NotEmpty(t, got.Rows[1].Result.ApprovedAt)
	require.Empty(t, got.Rows[0].Result.ApprovedAt)
	b.DeliveredMany(t.Context(), got)

	code(t, x402.ApprovalRequired, must.Err(b.PayMany(t.Context(), q)))
}

func TestADeniedBatchBuysNothing(t *testing.T) {
	b, s := onStreet(t)
	b.Rules.ApproveAbove = 20_000
	s.price[shop(1)] = "30000"
	q := order(3, "$0.20")
	_, err := b.PayMany(t.Context(), q)
	id := code(t, x402.ApprovalRequired, err).Details["approvalId"].(string)
	must.Get(b.store.Deny(t.Context(), id, "owner"))(t)
	code(t, x402.ApprovalDeclined, must.Err(b.PayMany(t.Context(), q)))
	require.Zero(t, b.chain.signed, "not even what needs no approval")
}

func TestNobodyIsAskedAboutABatchThatDoesNotFit(t *testing.T) {
	for name, with := range map[string]func(b *bench){
		"the day":   func(b *bench) { b.Rules.Day = 65_000 },
		"the chain": func(b *bench) { b.chain.balance = 59_999 },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := onStreet(t)
			b.Rules.ApproveAbove = 5_000
			with(b)
			_, err := b.PayMany(t.Context(), order(7, "$1"))
			refusals := []x402.Code{x402.BudgetExceeded, x402.InsufficientFunds}
			require.Contains(t, refusals, x402.AsError(err).Code)
			require.Empty(t, must.Get(report.OpenApprovals(t.Context(), b.store))(t))
		})
	}
}
