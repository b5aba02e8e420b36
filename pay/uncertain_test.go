package pay

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

type uncertainGuard struct {
	historytest.Guard
	ledger *historytest.Uncertain
}

func (g uncertainGuard) Submit(ctx context.Context, p history.Payment, signed history.Signed,
	here bool) error {
	return g.ledger.Write("Submit", func() error { return g.Guard.Submit(ctx, p, signed, here) })
}

func (g uncertainGuard) Expire(ctx context.Context, p history.Payment, status x402.Status) (
	saved history.Payment, err error) {
	err = g.ledger.Write("Expire", func() error { saved, err = g.Guard.Expire(ctx, p, status); return err })
	if err != nil {
		saved = history.Payment{}
	}
	return saved, err
}

// attempts are ways of one purchase: what happens before each call that its client makes for it. The last
// one is served, unless a write fails.
var attempts = map[string][]func(b *bench){
	"a first call":                 {answers(honest)},
	"an open outcome":              {answers(silent), answers(honest)},
	"settled, and the answer lost": {answers(cutAfterSettling), answers(servesSettled)},
	"settled, and not looked after": {answers(cutAfterSettling),
		func(b *bench) { b.Guard = unsealed{b.Guard} },
		func(b *bench) {
			b.seller.script = servesSettled
			if g, is := b.Guard.(unsealed); is {
				b.Guard = g.Guard
			}
		},
	},
	"refused with an answer": {answers(asksAgain), answers(honest)},
	"expired": {answers(silent), func(b *bench) {
		b.expire(min(b.chain.signed, 1))
		b.seller.script = honest
	}},
	"locked": {
		func(b *bench) { b.Schemes = map[SchemeKey]Scheme{exactEVM: locked{b.chain}} },
		func(b *bench) { b.Schemes = map[SchemeKey]Scheme{exactEVM: b.chain} },
	},
	"the wallet settles": {func(b *bench) { b.walletSettles() }},
	"the wallet settles, and the seller is away": {
		func(b *bench) { b.walletSettles(); b.seller.script = unreachable },
		func(b *bench) { b.walletSettles() },
	},
}

func answers(by script) func(*bench) { return func(b *bench) { b.seller.script = by } }

func servesSettled(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
	s.chain.settle(nonce, amount)
	return served(nonce), nil
}

func asksAgain(s *scriptedSeller, _ string, _ uint64) (*seller.Answer, error) { return s.asks(), nil }

type locked struct{ *chain }

func (locked) Authorize(context.Context, onchain.Order) (onchain.Authorization, error) {
	return onchain.Authorization{}, x402.Errorf(x402.WalletLocked, "locked")
}

func (b *bench) walletSettles() {
	b.seller.header, b.seller.settleFirst = "X-Payment-Required", true
	b.seller.script = func(_ *scriptedSeller, proof string, _ uint64) (*seller.Answer, error) {
		if proof == "0xsettled" || strings.HasPrefix(proof, "0xchain") {
			return &seller.Answer{Status: 200, Content: []byte("sunny"), ContentType: "text/plain"}, nil
		}
		return &seller.Answer{Status: 402}, nil
	}
}

// expire has the first n signatures that are not settled be over, by the chain and by this process's clocks.
func (b *bench) expire(n int) {
	b.chain.mu.Lock()
	for n := range n {
		if nonce := fmt.Sprintf("0x%064x", n+1); !b.chain.settled[nonce] {
			b.chain.dead[nonce] = true
		}
	}
	b.chain.mu.Unlock()
	b.later()
}

// Whichever write to the ledger answers with an error, whether or not it took effect, the purchase is paid
// once, also when its client goes on at another process at once, and nothing stays held.
func TestEachWriteMayFail(t *testing.T) {
	for name, calls := range attempts {
		for _, key := range []string{"", "mine"} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, key %q, after %t", name, key, after), func(t *testing.T) {
					t.Parallel()
					for nth := 1; ; nth++ {
						failed := oneWriteFails(t, calls, key, nth, after)
						if failed == "" {
							require.Greater(t, nth, 4, "the sweep ended early")
							return
						}
					}
				})
			}
		}
	}
}

// oneWriteFails makes a purchase whose nth write fails, and reports which one that was.
func oneWriteFails(t *testing.T, calls []func(*bench), key string, nth int, after bool) (failed string) {
	b := newBench(t, "10000", honest)
	ledger := &historytest.Uncertain{Store: b.store, Nth: nth, After: after}
	b.Store, b.Guard = ledger, uncertainGuard{historytest.Guard{Store: b.store}, ledger}
	other := openBench(t, b.home, b.chain, "10000", honest)
	q := get(testURL)
	q.IdempotencyKey = key
	last := calls[len(calls)-1]
	done, story := false, []string(nil)
	for _, prepare := range calls {
		prepare(b)
		r, err := b.Pay(t.Context(), q)
		story = append(story, fmt.Sprint(r.Status, " ", err))
		if err == nil {
			b.Delivered(t.Context(), r.Status, r.PaymentID)
			done = true
			break
		}
		if ledger.Failed() != "" {
			break
		}
	}
	about := func() string {
		return fmt.Sprintf("write %d (%s) of %q fails, after it took effect: %t\n%s", nth, ledger.Failed(),
			ledger.Writes(), after, strings.Join(story, "\n"))
	}
	givesUp := ledger.Failed() == "ReleaseLease" || ledger.Failed() == "ClearWaiter"
	if !done && givesUp && !after {
		_, _ = b.Reconcile(t.Context()) // only this process can say it, and does as soon as it can
	}
	for range 3 {
		if done {
			break
		}
		last(other)
		r, err := other.Pay(t.Context(), q)
		story = append(story, fmt.Sprint("elsewhere: ", r.Status, " ", err))
		if err == nil {
			other.Delivered(t.Context(), r.Status, r.PaymentID)
			done = true
		}
	}
	require.True(t, done, about())
	require.Equal(t, 1, b.chain.settlements(), about())
	last(b)
	b.expire(b.chain.signed)
	other.later()
	for _, process := range []*bench{b, other} {
		require.NoError(t, must.Err(process.Reconcile(t.Context())), about())
	}
	require.Empty(t, must.Get(b.store.Unfinished(t.Context(), "", 10))(t), about())
	facts := b.facts(t)
	require.Equal(t, budget.Use{Spent: 10_000}, facts.Used.Day, about())
	return ledger.Failed()
}

// hold is another program that takes the ledger for itself, until end.
func (b *bench) hold(t *testing.T) (end func()) {
	t.Helper()
	db := must.Get(sql.Open("sqlite", filepath.Join(b.home, history.FileName)))(t)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	must.Get(db.Exec(`BEGIN EXCLUSIVE`))(t)
	return func() { must.Get(db.Exec(`ROLLBACK`))(t) }
}

type held struct {
	*chain
	take func()
}

func (h held) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	h.take()
	return h.chain.Authorize(ctx, o)
}

// However long another program holds the ledger, and from whichever step on, a call ends with its
// time: a wait of history's own would be longer by itself.
func TestTheDeadlineHoldsWhileTheLedgerIsHeld(t *testing.T) {
	const bound = 4500 * time.Millisecond // of history's lockWait, 5 s, which each write would take
	for name, c := range map[string]struct {
		from  func(t *testing.T, b *bench, take func())
		code  x402.Code // "": what was bought is given out all the same
		state history.State
	}{
		"from the beginning": {func(_ *testing.T, _ *bench, take func()) { take() },
			x402.LedgerUnavailable, ""},
		"from the signature": {func(_ *testing.T, b *bench, take func()) {
			b.Schemes = map[SchemeKey]Scheme{exactEVM: held{chain: b.chain, take: take}}
		}, x402.LedgerUnavailable, history.Failed},
		"from the seller's answer": {func(_ *testing.T, b *bench, take func()) {
			b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
				take()
				return honest(s, nonce, amount)
			}
		}, "", history.Settled},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			b.Policy.Deadline = time.Second // and detachedWait twice for what is written then
			var end func()
			var begun time.Time
			c.from(t, b, func() { end, begun = b.hold(t), time.Now() })
			r, err := b.Pay(t.Context(), get(testURL))
			require.Less(t, time.Since(begun), bound)
			if c.code == "" {
				require.NoError(t, err)
				require.Equal(t, StatusPaid, r.Status)
			} else {
				e := code(t, c.code, err)
				require.NotEmpty(t, e.Hint)
				require.Empty(t, b.seller.sent(), "nothing left that is not on disk")
			}
			end()
			b.reconcile(t)
			if c.state == "" {
				require.Empty(t, must.Get(b.store.Unfinished(t.Context(), "", 10))(t))
				return
			}
			require.Equal(t, c.state, b.only(t).State, "and what could not be noted is found later")
		})
	}
}
