package pay

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// hold is another program that takes the ledger for itself, until end.
func (b *bench) hold(t *testing.T) (end func()) {
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

func (h held) Authorize(ctx context.Context, o x402.Order) (x402.Authorization, error) {
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
