package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

var fleetRules = budget.Rules{Day: 1 << 40, Month: 1 << 40, Rate: 1 << 20, PerCall: 1 << 40,
	ApproveAbove: 1 << 40}

// signedOf is what a payment in a test is signed as.
func signedOf(p Payment) Signed {
	return Signed{Payload: []byte(`{"signed":true}`), Requirement: []byte(`{}`), UniqueKey: p.ID}
}

// decideOn is decide, with its grounds.
func decideOn(s *Store, rules budget.Rules, h *Hold) (*Grounds, error) {
	f, err := decide(s, rules, h)
	return &Grounds{Query: rules.Query(askOf(h.Payment)), Facts: f.Facts, ReadAt: time.Now()}, err
}

// holderOf is a keyholder that asks what a payment is to be signed by, as the engine's does.
func holderOf(rules budget.Rules) Keyholder {
	k := testKeyholder()
	k.Query = func(p Payment) budget.Query { return rules.Query(askOf(p)) }
	return k
}

// A step is one call: the facts of a decision, and each step that the same process takes with it at once.
// Another process asks for the facts of a signature before, with the payment as it stands.
func TestRoundTripsOfAPayment(t *testing.T) {
	_, f := newFleet(t)
	wire := pgtest.NewProxy(t, f.URL)
	f.URL = wire.URL()
	s := openFleet(t, f)
	pay := func(each func(step, part string, do func())) {
		h := testHold(1)
		_, err := s.instance()
		require.NoError(t, err)
		var grounds *Grounds
		each("facts", "", func() { grounds, err = decideOn(s, fleetRules, &h); require.NoError(t, err) })
		var p Payment
		each("reserve", "reserve(", func() { p, err = s.Reserve(t.Context(), h); require.NoError(t, err) })
		each("submit", "submit(", func() {
			signed := signedOf(p)
			signed.Grounds = grounds
			require.NoError(t, s.Submit(t.Context(), p, signed, holderOf(fleetRules)))
		})
		each("finish", "finish(", func() {
			_, err := s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true,
				Content: &Content{Status: 200, Body: []byte("bought")}})
			require.NoError(t, err)
		})
		each("deliver", "lease(", func() { require.NoError(t, s.Deliver(t.Context(), p.ID)) })
	}
	for range 2 { // there is a connection, and a session, and its statements are prepared
		pay(func(_, _ string, do func()) { do() })
	}
	trips, binds := map[string]int{}, map[string]int{}
	pay(func(step, _ string, do func()) {
		sync, bind := wire.Count('S')+wire.Count('Q'), wire.Count('B')
		do()
		trips[step], binds[step] = wire.Count('S')+wire.Count('Q')-sync, wire.Count('B')-bind
	})
	require.Equal(t, map[string]int{"facts": 1, "reserve": 1, "submit": 1, "finish": 1, "deliver": 1}, trips)
	for _, step := range []string{"reserve", "submit", "finish", "deliver"} {
		require.Equal(t, 1, binds[step], step)
	}
}

// Who signs what it has just held is permitted by the facts of the decision, with the payment's session; by
// facts that are asked for anew where they answer another question, are old or of another day.
func TestTheGroundsOfASignature(t *testing.T) {
	_, f := newFleet(t)
	s := openFleet(t, f)
	pay(t, s, testHold(1), Settled)
	for name, c := range map[string]struct {
		change func(*Grounds)
		asks   bool
	}{
		"as it was decided": {func(*Grounds) {}, false},
		"another question":  {func(g *Grounds) { g.Query.MaxFailures++ }, true},
		"old":               {func(g *Grounds) { g.ReadAt = g.ReadAt.Add(-groundsAge) }, true},
		"of yesterday":      {func(g *Grounds) { g.Facts.Now = g.Facts.Now.Add(-24 * time.Hour) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHold(1)
			grounds, err := decideOn(s, fleetRules, &h)
			require.NoError(t, err)
			p, err := s.Reserve(t.Context(), h)
			require.NoError(t, err)
			c.change(grounds)
			grounds.Facts.LastMinute = 12_345
			signed := signedOf(p)
			signed.Grounds = grounds
			k, asked := holderOf(fleetRules), 0
			k.Permit = func(of Payment, facts budget.Facts) error {
				asked++
				require.Equal(t, c.asks, facts.LastMinute != 12_345)
				require.Equal(t, p.Session, facts.Session.ID)
				require.True(t, facts.Now.Equal(p.Created))
				require.Equal(t, p.ID, of.ID)
				return nil
			}
			require.NoError(t, s.Submit(t.Context(), p, signed, k))
			require.Equal(t, 1, asked)
		})
	}
}

// What came in between the hold and the signature is not passed over: a freeze, an end, an idempotency key
// that another call gave it.
func TestGroundsThatAreNoLongerSo(t *testing.T) {
	_, f := newFleet(t)
	s, other := openFleet(t, f), openFleet(t, f)
	held := func(t *testing.T) (Payment, Signed) {
		h := testHold(1)
		grounds, err := decideOn(s, fleetRules, &h)
		require.NoError(t, err)
		p, err := s.Reserve(t.Context(), h)
		require.NoError(t, err)
		signed := signedOf(p)
		signed.Grounds = grounds
		return p, signed
	}
	t.Run("a key", func(t *testing.T) {
		p, signed := held(t)
		named, err := other.AttachIdempotencyKey(t.Context(), p.ID, "a name")
		require.NoError(t, err)
		require.True(t, named)
		k, asked := holderOf(fleetRules), 0
		k.Permit = func(Payment, budget.Facts) error { asked++; return nil }
		require.NoError(t, s.Submit(t.Context(), p, signed, k))
		require.Equal(t, 1, asked)
		_, err = s.Verify(t.Context(), Head{})
		require.NoError(t, err)
		detail := pgtest.SQL(t, f.URL, `SELECT detail->>'key' FROM x402.audit WHERE event = 'signed' ORDER BY at DESC LIMIT 1`)
		require.Equal(t, "a name", detail)
	})
	for name, change := range map[string]func(*Payment){
		"another price":   func(p *Payment) { p.Price++ },
		"another amount":  func(p *Payment) { p.Amount = money.NewAmount(2) },
		"another payee":   func(p *Payment) { p.PayTo = "0xsomebody" },
		"another host":    func(p *Payment) { p.Host = "other.example" },
		"another agent":   func(p *Payment) { p.Agent = "somebody" },
		"another session": func(p *Payment) { p.Session = "ses_another" },
		"another time":    func(p *Payment) { p.Created = p.Created.Add(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			p, signed := held(t)
			is := p
			change(&p)
			k := holderOf(fleetRules)
			signed.Grounds.Query = k.Query(p)
			err := s.Submit(t.Context(), p, signed, k)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			require.NoError(t, s.Release(t.Context(), is.ID, "it was not signed"))
		})
	}
	t.Run("nobody who holds the key", func(t *testing.T) {
		p, signed := held(t)
		err := s.Submit(t.Context(), p, signed, Keyholder{})
		require.True(t, x402.HasCode(err, x402.WalletLocked), "%v", err)
	})
	t.Run("an end", func(t *testing.T) {
		p, signed := held(t)
		require.NoError(t, s.Release(t.Context(), p.ID, "nobody waits"))
		require.ErrorIs(t, s.Submit(t.Context(), p, signed, holderOf(fleetRules)), ErrNotLeaseOwner)
	})
	t.Run("a freeze", func(t *testing.T) {
		p, signed := held(t)
		require.NoError(t, other.Freeze(t.Context(), Freeze{By: "owner", Why: "a test"}))
		err := s.Submit(t.Context(), p, signed, holderOf(fleetRules))
		require.True(t, x402.HasCode(err, x402.WalletFrozen), err)
	})
}

// What a decision rests on is of one moment, also what functions read for it: a payment that is made while
// the question is answered is in none of it.
func TestFactsAreOfOneMoment(t *testing.T) {
	_, f := newFleet(t)
	s, other := openFleet(t, f), openFleet(t, f)
	pay(t, other, testHold(1), Settled)
	var made, counted int64
	number := func(into *int64) func(scanner) error {
		return func(row scanner) error { return row.Scan(into) }
	}
	done := make(chan error, 1)
	go func() {
		done <- s.fleet.read(context.Background(), momentOf(budget.Query{}, nil), []reading{
			{`SELECT 1 FROM pg_sleep(2)`, nil, number(new(int64))},
			{`SELECT count(*) FROM payments`, nil, number(&counted)},
			{`SELECT made_since(upto - 60000000, 9223372036854775807, 'org', '') FROM moment`, nil,
				number(&made)},
		})
	}()
	for len(done) == 0 && pgtest.SQL(t, f.URL, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND
		datname = current_database()`) == "0" {
		time.Sleep(time.Millisecond)
	}
	for range 2 {
		pay(t, other, testHold(1), Settled)
	}
	require.NoError(t, <-done)
	require.Equal(t, []int64{1, 1}, []int64{counted, made})
	require.Empty(t, pgtest.SQL(t, f.URL, `SELECT proname FROM pg_proc
		WHERE pronamespace = 'x402'::regnamespace AND provolatile = 'v'
			AND proname IN ('ledger_now', 'newest_of', 'sees_all_of', 'chained', 'made_since', 'made_within',
				'made_between', 'made_first', 'failures_since', 'is_mine')`))
}

// A hold is not waited for, and what makes it safe is: that it was signed, and what became of it, whatever
// the login says. Here nobody acknowledges a commit, so who waits for it waits.
func TestWhichCommitsAreWaitedFor(t *testing.T) {
	c := pgtest.Start(t)
	url := c.Database(t)
	f := Fleet{URL: url, Writer: "home_a"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	name := c.SQL(t, "postgres", `SELECT datname FROM pg_database WHERE datname LIKE 't%' AND NOT
		datistemplate`)
	c.SQL(t, "postgres", `ALTER DATABASE `+name+` SET synchronous_commit = off`) // as a login may say
	s := openFleet(t, f)
	applyRules(t, s, 1, fleetRules)
	f.Writer = "home_b"
	other := openFleet(t, f)
	submitted, err := reserveBy(s, fleetRules, testHold(1))
	require.NoError(t, err)
	require.NoError(t, s.Submit(t.Context(), submitted, signedOf(submitted), testKeyholder()))
	for step, take := range map[string]func() error{
		"submit": func() error {
			p, err := reserveBy(s, fleetRules, testHold(1))
			if err != nil {
				return err
			}
			return s.Submit(context.Background(), p, signedOf(p), testKeyholder())
		},
		"finish": func() error {
			_, err := s.Finish(context.Background(), submitted.ID, Outcome{State: Unknown})
			return err
		},
		"freeze": func() error {
			return s.Freeze(context.Background(),
				Freeze{Network: "n", Account: NewID(time.Now()), By: "owner"})
		},
	} {
		t.Run(step, func(t *testing.T) {
			c.Set(t, "synchronous_standby_names = 'ANY 1 (nobody)'")
			done := make(chan error, 1)
			late := time.Now().Add(time.Minute)
			for isWaiting := false; !isWaiting; { // the server needs a moment to know that it has to wait
				require.True(t, time.Now().Before(late), "it waits for nobody")
				go func() { done <- take() }()
				isWaiting = waitsForReplica(t, url, done)
			}
			for range 3 {
				p, err := reserveBy(other, fleetRules, testHold(1))
				require.NoError(t, err, "a hold waits for nobody")
				require.Equal(t, Reserved, p.State)
			}
			c.Set(t, "synchronous_standby_names = ''")
			require.NoError(t, <-done)
		})
	}
}

// waitsForReplica reports whether a step waits until a replica has its commit, and not, whether it is done.
func waitsForReplica(t *testing.T, url string, done <-chan error) bool {
	t.Helper()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return false
		case <-time.After(10 * time.Millisecond):
		}
		if pgtest.SQL(t, url, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) != "0" {
			return true
		}
	}
}

// After a freeze has returned, no signature gets on disk, on whatever machine: and none whose commit is
// later than what its caller writes then.
func TestNothingIsSubmittedBehindAFreeze(t *testing.T) {
	c := pgtest.Start(t, "track_commit_timestamp = on")
	f := Fleet{URL: c.Database(t), Writer: "home_a"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	a := openFleet(t, f)
	applyRules(t, a, 1, fleetRules)
	f.Writer = "home_b"
	b := openFleet(t, f)
	const rounds = 100
	var slowest time.Duration
	for round := range rounds {
		var held [2]Payment
		for i := range held {
			held[i], err = reserveBy(b, fleetRules, testHold(1))
			require.NoError(t, err)
		}
		meanwhile := make(chan error, 1)
		for _, p := range held[:1] {
			go func() { meanwhile <- b.Submit(context.Background(), p, signedOf(p), testKeyholder()) }()
		}
		begin := time.Now()
		require.NoError(t, a.Freeze(t.Context(), Freeze{By: "owner", Why: fmt.Sprint("round ", round)}))
		slowest = max(slowest, time.Since(begin))
		require.NoError(t, a.tx(t.Context(), func(t *tx) error { return t.audit(0, "returned", round) }))
		for _, p := range held[1:] {
			err := b.Submit(t.Context(), p, signedOf(p), testKeyholder())
			require.ErrorContains(t, err, fmt.Sprint("round ", round))
		}
		if err := <-meanwhile; err != nil {
			require.ErrorContains(t, err, fmt.Sprint("round ", round))
		}
		_, err := a.Unfreeze(t.Context(), nil)
		require.NoError(t, err)
	}
	t.Logf("the slowest freeze took %v", slowest)
	// what was signed in a round has a commit before that round's freeze returned, or behind its lift
	require.Empty(t, pgtest.SQL(t, f.URL, `WITH told AS (SELECT event, payment,
		pg_xact_commit_timestamp(xmin) AS at FROM x402.audit)
		SELECT s.payment FROM told s WHERE s.event = 'signed' AND (
			SELECT t.event FROM told t WHERE t.event IN ('returned', 'unfrozen') AND t.at <= s.at
			ORDER BY t.at DESC LIMIT 1) = 'returned'`))
	require.Equal(t, fmt.Sprint(rounds), pgtest.SQL(t, f.URL, `SELECT count(*) FROM x402.audit WHERE event =
		'frozen'`))
	requireSound(t, f.URL)
}
