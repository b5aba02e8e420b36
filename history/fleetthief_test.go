package history

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// thief has stolen an agent's login, and says to the ledger what no wallet would.
type thief struct {
	t    *testing.T
	pool *postgres.Pool
	said int
}

func newThief(t *testing.T, f Fleet, name string) *thief {
	pool, err := postgres.New(postgres.Options{URL: login(t, f, name, "team:research").URL})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &thief{t: t, pool: pool}
}

func (a *thief) run(sql string) error {
	return a.pool.With(a.t.Context(), func(c *postgres.Conn) error {
		return c.Run(context.Background(), sql)
	})
}

// number is what a question of one row and column is answered with.
func (a *thief) number(sql string) (n int64) {
	a.t.Helper()
	require.NoError(a.t, a.pool.With(a.t.Context(), func(c *postgres.Conn) error {
		return queryRow(context.Background(), fleetConn{c}, sql).Scan(&n)
	}))
	return n
}

func asked(t *testing.T, function string, q map[string]any, more string) string {
	data, err := json.Marshal(q)
	require.NoError(t, err)
	return fmt.Sprintf(`SELECT x402.%s($j$%s$j$::jsonb%s)`, function, data, more)
}

// hold holds money for an agent, by as little as reserve has to be told.
func (a *thief) hold(id string, usd int, session string, payment, more map[string]any) error {
	p := map[string]any{"id": id, "fingerprint": `\x00`, "method": "GET", "url": "u", "target": "",
		"host": "h", "network": "n", "scheme": "exact", "dialect": "", "asset": "a", "symbol": "s",
		"amount": "1", "pay_to": "p", "source": "s", "record": `\x00`, "lease_owner": "", "prefix_length": 1,
		"agent": "research-1", "usd": usd}
	maps.Copy(p, payment)
	q := map[string]any{"writer": "home_thief", "payment": p, "session": session, "newSession": "ses_" + id,
		"sessionDetail": "{}", "clock": 0, "tolerance": int64(9e18), "resume": false, "caps": []any{},
		"rates": []any{}, "maxFailures": 0, "failuresSince": 0, "detail": "{}", "seller": map[string]any{},
		"funds": map[string]any{}, "approval": map[string]any{},
		"prepaid": false, "sessionIdle": budget.SessionIdle.Microseconds()} // as wallets before format 5 said
	maps.Copy(q, more)
	return a.run(asked(a.t, "reserve", q, ""))
}

func (a *thief) submit(id string, more map[string]any) error {
	a.said++
	q := map[string]any{"writer": "home_thief", "operation": fmt.Sprint("op_s", a.said), "id": id,
		"unique": hex.EncodeToString([]byte(id)), "record": "AA==", "detail": "{}"}
	maps.Copy(q, more)
	return a.run(asked(a.t, "submit", q, ""))
}

func (a *thief) finish(id, state string, more map[string]any) error {
	a.said++
	q := map[string]any{"writer": "home_thief", "operation": fmt.Sprint("op_f", a.said), "id": id,
		"state": state, "proof": "", "note": "", "detail": "{}", "contentDetail": "{}"}
	maps.Copy(q, more)
	return a.run(asked(a.t, "finish", q, `, 'poison'::bytea`))
}

// rolesFleet is a fleet with two teams, and the login of one of them, which pays for agents lab-*.
func rolesFleet(t *testing.T, rules budget.Rules) (owner *Store, f Fleet, lab *Store) {
	owner, f = newFleet(t)
	applyRules(t, owner, 2, rules)
	return owner, f, openFleet(t, login(t, f, "lab", "team:lab"))
}

// setFleetClock sets the ledger's clock of a database.
func setFleetClock(t *testing.T, f Fleet, at time.Time) {
	pgtest.SQL(t, f.URL, fmt.Sprintf(`CREATE OR REPLACE FUNCTION x402.clock() RETURNS BIGINT LANGUAGE sql
		VOLATILE AS $$ SELECT %d::bigint $$`, at.UnixMicro()))
}

// What a hold counts for is the ledger's to say: a payment that its caller calls prepaid is counted, and so
// nothing is given back that was never counted.
func TestOnlyWhatWasCountedIsGivenBack(t *testing.T) {
	_, f, lab := rolesFleet(t, rolesRules())
	p, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 45))
	require.NoError(t, err)
	used := func() string {
		return pgtest.SQL(t, f.URL, `SELECT budget, win, used FROM x402.counters ORDER BY 1, 2`)
	}
	thief := newThief(t, f, "thief_prepaid")
	require.NoError(t, thief.hold("pay_1", 10, p.Session, nil, nil))
	before := used()
	err = thief.hold("pay_2", 10, p.Session, nil, map[string]any{"prepaid": true})
	require.ErrorContains(t, err, `"cap"`, "20 of 10 a day")
	require.Equal(t, before, used())
}

// A session is over when nothing was paid for as long as package budget says, whoever asks with another time.
func TestNobodyEndsASessionEarly(t *testing.T) {
	r := rolesRules()
	r.Session = new(money.Dollars(20))
	_, f, lab := rolesFleet(t, r)
	_, err := reserveBy(lab, r, holdOf("lab-1", 20))
	require.NoError(t, err)
	err = newThief(t, f, "thief_session").hold("pay_1", 0, "", nil, map[string]any{"sessionIdle": 0})
	require.ErrorContains(t, err, "a session began or ended")
	_, err = reserveBy(lab, r, holdOf("lab-1", 1))
	require.True(t, x402.HasCode(err, x402.BudgetExceeded), "%v", err)
	require.Equal(t, "1", pgtest.SQL(t, f.URL, `SELECT count(*) FROM x402.sessions`))
	require.Regexp(t, fmt.Sprintf(`_idle CONSTANT BIGINT := %d;`, budget.SessionIdle.Microseconds()),
		fleetFunctions)
}

// No step of a payment is taken by another team's login, also where it knows the payment's id: none is ended,
// submitted, named or taken over, and a hold that has its id is not told of it.
func TestNoStepOfAnotherTeamsPayment(t *testing.T) {
	owner, f, lab := rolesFleet(t, rolesRules())
	held, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 40))
	require.NoError(t, err)
	signed, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 40))
	require.NoError(t, err)
	require.NoError(t, lab.Submit(t.Context(), signed, signedOf(signed), testKeyholder()))
	all := func() string {
		return pgtest.SQL(t, f.URL, `SELECT * FROM x402.payments ORDER BY seq`,
			`SELECT budget, win, used FROM x402.counters ORDER BY 1, 2`, `SELECT count(*) FROM x402.contents`)
	}
	before := all()
	thief := newThief(t, f, "thief_steps")
	none := "there is no such payment"
	content := map[string]any{"content": map[string]any{"status": 200, "type": "text/plain", "truncated": 0},
		"proof": "chain"}
	require.ErrorContains(t, thief.finish(signed.ID, "failed", nil), none)
	require.ErrorContains(t, thief.finish(signed.ID, "settled", content), none)
	require.ErrorContains(t, thief.finish(held.ID, "failed", map[string]any{"release": true}), none)
	require.ErrorContains(t, thief.submit(held.ID, nil), none)
	for _, q := range []map[string]any{
		{"do": "key", "key": "mine"},
		{"do": "acquire", "from": held.LeaseOwner, "by": "run_x"},
		{"do": "release", "by": held.LeaseOwner},
		{"do": "clear"},
		{"do": "deliver"},
	} {
		q["id"], q["writer"], q["operation"] = held.ID, "home_thief", fmt.Sprint("op ", q["do"])
		require.Zero(t, thief.number(asked(t, "lease", q, "")), q["do"])
	}
	err = thief.hold(held.ID, 1, held.Session, nil, nil)
	require.ErrorContains(t, err, "another login's payment has this id")
	require.Equal(t, before, all())
	_, err = owner.Verify(t.Context(), Head{})
	require.NoError(t, err)
}

// A payment that came to nothing takes its own idempotency key out of what is remembered, and no other entry.
func TestAFailedPaymentForgetsItsKeyAlone(t *testing.T) {
	_, f, lab := rolesFleet(t, rolesRules())
	h := holdOf("lab-1", 40)
	h.Payment.IdempotencyKey = "order-1"
	p, err := reserveBy(lab, rolesRules(), h)
	require.NoError(t, err)
	require.NoError(t, lab.Submit(t.Context(), p, signedOf(p), testKeyholder()))
	entry := func(key []byte) string {
		return pgtest.SQL(t, f.URL, fmt.Sprintf(`SELECT count(*) FROM x402.memory WHERE key = '\x%x'`, key))
	}
	payee, key := payeeKey(p.Network, p.PayTo), idempotencyKey("lab-1", "order-1")
	require.Equal(t, []string{"1", "1"}, []string{entry(payee), entry(key)})
	thief := newThief(t, f, "thief_memory")
	for i, theirs := range [][]byte{payee, key} {
		id := fmt.Sprint("pay_", i)
		require.NoError(t, thief.hold(id, 1, p.Session, map[string]any{"idempotency_key": id}, nil))
		require.NoError(t, thief.submit(id, nil))
		require.NoError(t, thief.finish(id, "failed", map[string]any{"keyEntry": hex.EncodeToString(theirs),
			"forgetKey": true}))
	}
	require.Equal(t, []string{"1", "1"}, []string{entry(payee), entry(key)})
	_, err = finish(lab, p.ID, Outcome{State: Failed})
	require.NoError(t, err)
	require.Equal(t, []string{"1", "0"}, []string{entry(payee), entry(key)})
}

// Freezes are numbered by the ledger: with the largest number taken a lift would lift all to come. Nor does a
// login write one that is in no chain.
func TestAFreezesNumberIsTheLedgers(t *testing.T) {
	_, f, _ := rolesFleet(t, rolesRules())
	thief := newThief(t, f, "thief_freezes")
	const freeze = `INSERT INTO x402.freezes (%snetwork, account, at, by, why) %s
		VALUES (%s'', '', 1, 'agent', 'x')`
	require.ErrorContains(t, thief.run(fmt.Sprintf(freeze, "seq, ", "OVERRIDING SYSTEM VALUE",
		"9223372036854775807, ")), "permission denied")
	require.ErrorContains(t, thief.run(fmt.Sprintf(freeze, "", "", "")), "permission denied")
}

// What is no number of atomic units is refused: it would be a row that nobody can read, or free what is held
// of a source.
func TestAnAmountIsANumber(t *testing.T) {
	_, f, lab := rolesFleet(t, rolesRules())
	h := holdOf("lab-1", 1)
	p, err := reserveBy(lab, rolesRules(), h)
	require.NoError(t, err)
	thief := newThief(t, f, "thief_amount")
	of := func(amount string) map[string]any {
		return map[string]any{"amount": amount, "source": p.Source, "asset": p.Asset, "network": p.Network}
	}
	most := new(big.Int).Lsh(big.NewInt(1), 256)
	for i, amount := range []string{"x", "", "-1000", "+1", "01", "1.5", "1e3", "NaN", "1\n", most.String()} {
		err := thief.hold(fmt.Sprint("pay_", i), 0, p.Session, of(amount), nil)
		require.ErrorContains(t, err, "(X4V01)", "%q", amount)
	}
	most.Sub(most, big.NewInt(1))
	require.NoError(t, thief.hold("pay_most", 0, p.Session, of(most.String()), nil))
	_, err = lab.Unfinished(t.Context(), "", 10)
	require.NoError(t, err)
}

// An approval is used up by a payment of the agent that it was given to.
func TestAnApprovalIsOneAgents(t *testing.T) {
	_, f, _ := rolesFleet(t, rolesRules())
	for _, agent := range []string{"lab-1", "research-1"} {
		pgtest.SQL(t, f.URL, fmt.Sprintf(`INSERT INTO x402.approvals SELECT 'apr_%[1]s', '%[1]s', 'approved',
			1, 9000000000000000, 0, '', '', '', '', '', '', '', 1, '', '', '%[1]s', '', 0, NULL`, agent))
	}
	thief := newThief(t, f, "thief_approval")
	by := func(agent string) error {
		return thief.hold("pay_"+agent, 0, "", nil, map[string]any{"approval": map[string]any{
			"id": "apr_" + agent, "expires": int64(9e15), "seal": "", "detail": "{}"}})
	}
	require.ErrorContains(t, by("lab-1"), "the approval was used up or taken back")
	require.NoError(t, by("research-1"))
}

// whileHeld runs f while a hold of a store is made and not committed yet.
func whileHeld(t *testing.T, s *Store, r budget.Rules, h Hold, at time.Time, f func()) {
	_, err := decide(s, r, &h)
	require.NoError(t, err)
	_, q := s.fleet.toReserve(h, "run_x")
	q["clock"] = micros(at)
	require.NoError(t, s.fleet.pool.With(t.Context(), func(c *postgres.Conn) error {
		if err := c.Run(t.Context(), `BEGIN; `+asked(t, "reserve", q, "")); err != nil {
			return err
		}
		f()
		return c.Run(t.Context(), `COMMIT`)
	}))
}

// Of two that are held at once one is above the rate, also where they lie on both sides of the border of a
// day or a month, or cost nothing.
func TestARateHoldsAtOnce(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, at := range map[string]struct {
		time        time.Time
		first, both uint64
	}{
		"at a day's end":                {time.Date(2026, 11, 29, 23, 59, 59, 0, time.UTC), 1, 1},
		"at a month's end":              {time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC), 1, 1},
		"of what costs nothing":         {noon, 1, 0},
		"of what costs nothing, before": {noon, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, f := newFleet(t)
			now := at.time
			setFleetClock(t, f, now)
			clock := func() time.Time { return now }
			s := openFleetWith(t, f, Options{Now: clock})
			f.Writer = "home_b"
			other := openFleetWith(t, f, Options{Now: clock})
			r := fleetRules
			r.Rate = 2
			applyRules(t, s, 2, r)
			_, err := reserveBy(s, r, testHold(at.first))
			require.NoError(t, err)
			second := make(chan error, 1)
			whileHeld(t, s, r, testHold(at.both), at.time, func() {
				now = now.Add(2 * time.Second)
				setFleetClock(t, f, now)
				go func() { _, err := reserveBy(other, r, testHold(at.both)); second <- err }()
				for len(second) == 0 && pgtest.SQL(t, f.URL, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "0" {
					time.Sleep(time.Millisecond)
				}
			})
			require.Error(t, <-second, "3 of 2 a minute")
			require.Equal(t, "2", pgtest.SQL(t, f.URL, `SELECT count(*) FROM x402.payments`))
		})
	}
}

// A machine's own day that is tighter than the owner's holds on a month's first day, too, whose month begins
// at the same time.
func TestATighterDayOnAMonthsFirst(t *testing.T) {
	for _, day := range []int{1, 2} {
		t.Run(fmt.Sprint(day), func(t *testing.T) {
			s, c := newFleetStore(t)
			c.set(time.Date(2026, 12, day, 12, 0, 0, 0, time.UTC))
			rules := func(day money.Dollars) budget.Rules {
				r := fleetRules
				r.Agents = map[string]budget.Agent{"ann": {Day: &day}}
				return r
			}
			rulesAre(t, s, rules(10))
			own := rules(5) // this machine's config.toml
			first, second := holdOf("ann", 3), holdOf("ann", 3)
			_, err := reserveBy(s, own, holdOf("ann", 0)) // there is a session
			require.NoError(t, err)
			for _, h := range []*Hold{&first, &second} {
				_, err = decide(s, own, h)
				require.NoError(t, err)
			}
			_, err = s.Reserve(t.Context(), first)
			require.NoError(t, err)
			_, err = s.Reserve(t.Context(), second)
			require.ErrorIs(t, err, ErrMoved, "6 of 5")
		})
	}
}
