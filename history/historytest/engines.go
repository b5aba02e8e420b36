// Package historytest is for tests of packages that use a ledger.
package historytest

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Clock is a time that a test sets.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// Now is a microsecond later each time, so that no two payments are made at once.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond)
	return c.at
}

func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// Options are those of a Store that can pay: all content is kept.
func Options() history.Options { return history.Options{Contents: content.Keeper{}} }

// withContents is o with Options' keeper of content, if it has none.
func withContents(o history.Options) history.Options {
	if o.Contents == nil {
		o.Contents = content.Keeper{}
	}
	return o
}

// EachEngine runs a test on an empty ledger in SQLite, and on one in PostgreSQL. Its time is the clock's, and
// not o.Now, and it keeps all content unless o.Contents says otherwise. Packages that use it have a TestMain
// of pgtest.Main.
func EachEngine(t *testing.T, o history.Options, test func(t *testing.T, s *history.Store, c *Clock)) {
	t.Helper()
	o = withContents(o)
	t.Run("SQLite", func(t *testing.T) {
		s, c, _ := SQLite(t, o)
		test(t, s, c)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		c := newClock()
		o.Now = c.Now
		p := postgres.Server{URL: pgtest.Shared(t).Database(t)}
		_, err := ledgers.MakePostgres(t.Context(), p)
		require.NoError(t, err)
		test(t, open(t, func() (*history.Store, error) {
			return ledgers.OpenPostgres(t.Context(), t.TempDir(), p, o)
		}), c)
	})
}

// SQLite is an empty ledger in SQLite, whose time is the clock's, and its home. Of o it takes what EachEngine
// does.
func SQLite(t *testing.T, o history.Options) (*history.Store, *Clock, string) {
	t.Helper()
	home, c := t.TempDir(), newClock()
	o = withContents(o)
	o.Now = c.Now
	require.NoError(t, ledgers.Create(t.Context(), home, o))
	s := open(t, func() (*history.Store, error) { return ledgers.Open(t.Context(), home, o) })
	return s, c, home
}

// openers open the ledgers of Stores once more, each as another process does.
var openers sync.Map

func open(t *testing.T, opener func() (*history.Store, error)) *history.Store {
	t.Helper()
	s, err := opener()
	require.NoError(t, err)
	openers.Store(s, opener)
	t.Cleanup(func() {
		openers.Delete(s)
		require.NoError(t, s.Close())
	})
	return s
}

// Besides is the Store of another process at the ledger of one that EachEngine or SQLite made.
func Besides(t *testing.T, s *history.Store) *history.Store {
	t.Helper()
	opener, _ := openers.Load(s)
	return open(t, opener.(func() (*history.Store, error)))
}

func newClock() *Clock { return &Clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

// Hold is for a payment of so many units of USDC, each worth a millionth of a dollar.
func Hold(atomic uint64) history.Hold {
	return history.Hold{
		Payment: history.Payment{
			Method: "GET", URL: "https://api.example/weather", Host: "api.example", Network: "eip155:84532",
			Scheme: "exact", Dialect: x402.DialectV2Header,
			Asset: "0xasset", Symbol: "USDC", Amount: money.NewAmount(atomic), Price: money.Dollars(atomic),
			PayTo: "0xpayee", Source: "0xagent",
		},
		Funds: x402.Funds{Source: "0xagent", Free: money.NewAmount(1 << 40)},
	}
}

func Pay(t *testing.T, s *history.Store, h history.Hold, to history.State) history.Payment {
	t.Helper()
	p, err := Reserve(t.Context(), s, h)
	require.NoError(t, err)
	if to == history.Reserved {
		return p
	}
	require.NoError(t, s.Submit(t.Context(), p, history.Signed{Payload: []byte(`{"signed":true}`),
		Requirement: []byte(`{}`), UniqueKey: p.ID}, Keyholder()))
	o := history.Outcome{State: to, Transaction: "0xtx"}
	switch to {
	case history.Submitted:
		return p
	case history.Failed:
		p, err = s.Expire(t.Context(), p, o, Keyholder())
	case history.Settled:
		o.Proof = history.Claimed
		fallthrough
	default:
		p, err = s.Finish(t.Context(), p.ID, o)
	}
	require.NoError(t, err)
	return p
}

// Open opens a home's ledger: the file in it, or the one in PostgreSQL that url names. It keeps all
// content unless o.Contents says otherwise.
func Open(ctx context.Context, home, url string, o history.Options) (*history.Store, error) {
	o = withContents(o)
	if url == "" {
		return ledgers.Open(ctx, home, o)
	}
	return ledgers.OpenPostgres(ctx, home, postgres.Server{URL: url}, o)
}

// Reserve holds money without asking any rules, and uses up a person's approval of a quote where
// one is named and there is one. What others do meanwhile does not matter to it.
func Reserve(ctx context.Context, s *history.Store, h history.Hold,
	quotes ...[sha256.Size]byte) (history.Payment, error) {
	for {
		facts, err := s.Facts(ctx, history.Question{Quotes: quotes})
		if err != nil {
			return history.Payment{}, err
		}
		h.Decision = budget.Decision{Session: facts.Session.ID, Caps: []budget.Cap{{Limit: math.MaxInt64}}}
		covers := func(a history.Approval) bool { return a.Covers(h.Payment) }
		if len(facts.Approvals) > 0 {
			h.Approval = &facts.Approvals[max(0, slices.IndexFunc(facts.Approvals, covers))]
		}
		p, err := s.Reserve(ctx, h)
		if !errors.Is(err, history.ErrMoved) {
			return p, err
		}
	}
}
