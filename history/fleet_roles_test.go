package history

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// login makes an agent's login that pays for a team, and is that fleet as it sees it. Roles belong to the
// whole server, so the role is named by its database, too.
func login(t *testing.T, f Fleet, name, team string) Fleet {
	u, err := url.Parse(f.URL)
	require.NoError(t, err)
	role := name + "_" + path.Base(u.Path)
	pgtest.SQL(t, f.URL, fmt.Sprintf(`CREATE ROLE %s LOGIN`, role), fmt.Sprintf(`SELECT x402.let_in('%s', '%s')`, role, team))
	q := u.Query()
	q.Set("user", role)
	u.RawQuery = q.Encode()
	f.URL, f.Writer = u.String(), "home_"+name
	return f
}

func rolesRules() budget.Rules {
	return budget.Rules{
		PerCall:      50,
		ApproveAbove: 50,
		Rate:         1000,
		Day:          100,
		Month:        100,
		AgentsOpen:   true,
		Teams: budget.Teams{
			"research": {
				Agents: []string{"research-*"},
				Day:    new(money.Dollars(10)),
			},
			"lab": {Agents: []string{"lab-*"}},
		},
	}
}

// An agent's login pays within its team's budget, and sees its team's payments alone.
func TestAnAgentsLoginPays(t *testing.T) {
	owner, f := newFleet(t)
	applyRules(t, owner, 2, rolesRules())
	research := openFleet(t, login(t, f, "pays_research", "team:research"))
	lab := openFleet(t, login(t, f, "pays_lab", "team:lab"))
	p, err := reserveBy(research, rolesRules(), holdOf("research-1", 4))
	require.NoError(t, err)
	require.NoError(
		t,
		research.Submit(
			t.Context(),
			p,
			Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: "a"},
			testKeyholder(),
		),
	)
	_, err = research.Finish(
		t.Context(),
		p.ID,
		Outcome{State: Settled, Proof: Claimed, Content: &Content{Status: 200, Body: []byte("x")}},
	)
	require.NoError(t, err)
	_, err = reserveBy(research, rolesRules(), holdOf("research-2", 7))
	require.True(t, x402.HasCode(err, x402.BudgetExceeded), "%v", err)

	proposal, err := research.Propose(t.Context(), Proposal{Agent: "research-1", URL: "u"})
	require.NoError(t, err)
	require.NoError(t, owner.EndProposal(t.Context(), proposal.ID))
	run := SubscriptionRun{Slot: p.Created, State: RunDone}
	alert := &SubscriptionAlert{Window: "w"}
	require.NoError(t, research.NoteRun(t.Context(), testSubscription(), run, alert))

	_, err = reserveBy(lab, rolesRules(), holdOf("research-1", 1))
	require.True(t, x402.HasCode(err, x402.PolicyUnsealed), "%v", err)
	_, err = lab.Payment(t.Context(), p.ID)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = lab.Content(t.Context(), p.ID)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = reserveBy(lab, rolesRules(), holdOf("lab-1", 50))
	require.NoError(t, err)
	require.NoError(t, lab.Freeze(t.Context(), Freeze{By: "agent", Why: "anybody may stop it"}))
	_, err = reserveBy(research, rolesRules(), holdOf("research-1", 1))
	require.True(t, x402.HasCode(err, x402.WalletFrozen), "%v", err)
	_, err = research.Unfreeze(t.Context(), nil)
	require.Error(t, err, "but the owner alone lets it go on")
}

// What a thief of an agent's login cannot do.
func TestAThiefsLogin(t *testing.T) {
	owner, f := newFleet(t)
	applyRules(t, owner, 2, rolesRules())
	p, err := reserve(owner, holdOf("research-1", 4))
	require.NoError(t, err)
	thief, err := postgres.New(postgres.Options{URL: login(t, f, "thief", "team:research").URL})
	require.NoError(t, err)
	t.Cleanup(thief.Close)
	payment := func(id, more string) string {
		return fmt.Sprintf(`SELECT
			x402.reserve('{"writer": "home_thief", "payment": {"id": "%s", "fingerprint": "\\x00",
			"method": "GET", "url": "u",
			"target": "", "host": "h", "network": "n", "scheme": "exact", "dialect": "", "asset": "a",
			"symbol": "s", "amount": "1", "pay_to": "p",
			"source": "s", "record": "\\x00", "lease_owner": "run_x", "prefix_length": 1, "agent":
			"research-1", %s}, "session": "%s",
			"newSession": "ses_x", "clock": 0, "tolerance": 9000000000000000000, "resume": false,
			"caps": [], "rates": [], "maxFailures": 0, "failuresSince": 0, "detail": "{}", "seller": {},
			"funds": {}, "approval": {}}'::jsonb)`,
			id, more, p.Session)
	}
	for what, statement := range map[string]string{
		"more than the cap":  payment("pay_1", `"usd": 7`),
		"more than one call": payment("pay_2", `"usd": 51`),
		"a negative price":   payment("pay_3", `"usd": -7`),
		"for another team":   payment("pay_4", `"usd": 1, "agent": "lab-1"`),
		"a raised cap":       `UPDATE x402.counters SET cap = 1000000`,
		"an emptied counter": `UPDATE x402.counters SET used = 0`,
		"a raised budget":    `UPDATE x402.budgets SET day = 1000000`,
		"a budget of its own": `INSERT INTO x402.budgets VALUES ('agent:thief', NULL, '{}', NULL, NULL,
			NULL, NULL, NULL, 1)`,
		"rules":               `SELECT x402.policy_apply('{}'::jsonb)`,
		"rules by hand":       `INSERT INTO x402.rules VALUES (9, 1, '', '')`,
		"a payment by hand":   `INSERT INTO x402.payments SELECT * FROM x402.payments`,
		"a payment gone":      `DELETE FROM x402.payments`,
		"a payment changed":   `UPDATE x402.payments SET state = 'failed'`,
		"all payments gone":   `TRUNCATE x402.payments`,
		"a link of the chain": `INSERT INTO x402.audit SELECT * FROM x402.audit`,
		"a chain cut":         `DELETE FROM x402.audit`,
		"another's chain":     `SELECT x402.note('home_a', 1, 0, 'approval asked', '{}')`,
		"a payment's event":   `SELECT x402.note('home_thief', 1, 1, 'settled', '{}')`,
		"any event":           `SELECT x402.append('home_thief', 1, 0, 'sealed', '{}')`,
		"a lift":              `INSERT INTO x402.lifts VALUES (1, 1, '')`,
		"a session": `INSERT INTO x402.sessions (id, started_at, last_at) VALUES ('ses_x', 1,
			1)`,
		"the owner's yes": `INSERT INTO x402.approvals SELECT 'apr_x', '', 'approved', 1, 1, 0, '',
			'', '', '', '', '', '', 1, '', '', 'research-1', '', 0, '\x01'`,
		"another team's question": `INSERT INTO x402.approvals SELECT 'apr_x', '', 'pending', 1, 1, 0, '',
			'', '', '', '', '', '', 1, '', '', 'lab-1', '', 0, NULL`,
		"what is remembered":     `INSERT INTO x402.memory VALUES ('\x00', '\x01')`,
		"to be let into a team":  `INSERT INTO x402.logins VALUES ('thief', 'team:lab')`,
		"to let somebody in":     `SELECT x402.let_in('thief', '')`,
		"another name of a lock": `UPDATE x402.locks SET name = 'x'`,
		"the owner's role":       `SET ROLE postgres`,
		"the owner's session":    `SET SESSION AUTHORIZATION postgres`,
		"a function": `CREATE FUNCTION x402.clock2() RETURNS BIGINT LANGUAGE sql AS $$ SELECT
			1::bigint $$`,
		"a mark of a move": `INSERT INTO x402.meta VALUES ('move', '{}')`,
		"a mark made of a proposal": `INSERT INTO x402.meta VALUES ('proposal x', '{}');
			UPDATE x402.meta SET key = 'move' WHERE key = 'proposal x'`,
		"windows added up anew":     `SELECT x402.recount(0)`,
		"a table":                   `CREATE TABLE x402.t (i INT)`,
		"a failed payment's money":  `SELECT x402.give_back(p, 4) FROM x402.payments p`,
		"a counter through the add": `SELECT x402.add_to('org', 'day', 0, 1000, -4)`,
	} {
		err := thief.With(
			t.Context(),
			func(c *postgres.Conn) error { return c.Run(context.Background(), statement) },
		)
		require.Error(t, err, what)
	}
	require.NoError(
		t,
		thief.With(
			t.Context(),
			func(c *postgres.Conn) error { return c.Run(context.Background(), payment("pay_9", `"usd": 6`)) },
		),
		"and what its team may pay",
	)
	require.NoError(t, thief.With(t.Context(), func(c *postgres.Conn) error {
		return c.Run(context.Background(), `DELETE FROM x402.meta`)
	}), "of what it may write itself")
	for _, table := range []string{"payments", "audit", "budgets", "counters", "meta"} {
		require.NotEmpty(t, pgtest.SQL(t, f.URL, `SELECT * FROM x402.`+table))
	}
	_, err = owner.Verify(t.Context(), Head{})
	require.NoError(t, err)
}

// A session is all teams': one that paid nothing for as long as a session may be idle pays in the session
// that the others kept open.
func TestATeamPaysInTheSessionOfOthers(t *testing.T) {
	_, f, lab := rolesFleet(t, rolesRules())
	now := time.Date(2026, 11, 25, 1, 0, 0, 0, time.UTC)
	lab.now, lab.fleet.now = func() time.Time { return now }, func() time.Time { return now }
	research := openFleetWith(t, login(t, f, "session_research", "team:research"), Options{Now: lab.now})
	later := func(d time.Duration) {
		now = now.Add(d)
		setFleetClock(t, f, now)
	}
	later(0)
	first, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 1))
	require.NoError(t, err)
	for range 3 {
		later(3 * time.Hour)
		_, err = reserveBy(research, rolesRules(), holdOf("research-1", 1))
		require.NoError(t, err)
	}
	later(time.Minute)
	for _, s := range []*Store{lab, research} {
		f, err := s.Facts(t.Context(), Question{})
		require.NoError(t, err)
		require.Equal(t, first.Session, f.Session.ID)
		require.WithinDuration(t, now.Add(-time.Minute), f.Session.Last, 0)
		opened, err := read(t.Context(), s, (*tx).session)
		require.NoError(t, err)
		require.Equal(t, first.Session, opened.ID)
	}
	h := holdOf("lab-1", 1)
	_, err = decide(lab, rolesRules(), &h)
	require.NoError(t, err)
	p, err := lab.Reserve(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, first.Session, p.Session)
}

// Whoever asks, a sound ledger is sound: a team's login compares what it sees, its own chain and its team's
// windows, and finds what is wrong there.
func TestATeamsLoginChecksWhatItSees(t *testing.T) {
	rules := rolesRules()
	rules.Teams["lab"] = budget.Team{Agents: []string{"lab-*"}, Rate: 1000, Day: new(money.Dollars(50))}
	rules.Teams["bench"] = budget.Team{Agents: []string{"bench-*"}, Parent: "lab",
		Day: new(money.Dollars(20))}
	rules.Agents = map[string]budget.Agent{"lab-1": {Day: new(money.Dollars(30))}}
	owner, f, lab := rolesFleet(t, rules)
	f.Writer = "home_all"
	all := openFleet(t, login(t, f, "checks_all", ""))
	research := openFleet(t, login(t, f, "checks_research", "team:research"))
	for s, agents := range map[*Store][]string{lab: {"lab-1", "lab-2", "bench-1"}, research: {"research-1"}} {
		for _, agent := range agents {
			_, err := reserveBy(s, rules, holdOf(agent, 1))
			require.NoError(t, err)
		}
	}
	check := func(s *Store) (found int) {
		_, verified := s.Verify(t.Context(), Head{})
		_, sampled := s.Sample(t.Context())
		_, part := read(t.Context(), s, func(t *tx) (Sampled, error) { return t.sampleFleet(0) })
		for _, err := range []error{verified, s.CheckSealed(t.Context(), testKeyholder()), sampled, part} {
			if err != nil {
				require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
				found++
			}
		}
		return found
	}
	sees := func(s *Store) []string {
		list, err := read(t.Context(), s, func(t *tx) ([]string, error) {
			return collect(t, func(row scanner) (id string, err error) { return id, row.Scan(&id) },
				`SELECT DISTINCT budget FROM counters WHERE sees_all_of(budget) ORDER BY budget`)
		})
		require.NoError(t, err)
		return list
	}
	require.Equal(t, []string{"agent:lab-1", "team:bench", "team:lab"}, sees(lab))
	require.Equal(t, []string{"team:research"}, sees(research))
	require.Equal(t, []string{"agent:lab-1", "org", "team:bench", "team:lab", "team:research"}, sees(all))
	require.Equal(t, sees(all), sees(owner))
	for _, s := range []*Store{owner, lab, research, all} {
		require.Zero(t, check(s))
	}
	for _, forged := range []struct {
		edit             string
		owner, lab, them int
	}{
		{`UPDATE x402.counters SET used = used + %d WHERE budget = 'team:research'`, 4, 0, 4},
		{`UPDATE x402.counters SET used = used + %d WHERE budget = 'team:bench'`, 4, 4, 0},
		{`UPDATE x402.counters SET used = used + %d WHERE budget = 'agent:lab-1'`, 4, 4, 0},
		{`UPDATE x402.counters SET used = used + %d WHERE budget = 'org'`, 4, 0, 0},
		{`UPDATE x402.made SET n = n + %d WHERE budget = 'team:lab'`, 4, 4, 0},
		{`UPDATE x402.audit SET at = at + %d WHERE writer = 'home_checks_research' AND seq = 1`, 3, 0, 3},
	} {
		pgtest.SQL(t, f.URL, fmt.Sprintf(forged.edit, 1))
		require.Equal(t, []int{forged.owner, forged.lab, forged.them},
			[]int{check(owner), check(lab), check(research)}, forged.edit)
		pgtest.SQL(t, f.URL, fmt.Sprintf(forged.edit, -1))
	}
	// what came from an owner's ledger without a name is hidden from the team that it counts for
	pgtest.SQL(t, f.URL, `INSERT INTO x402.meta VALUES ('moved as', 'lab-1'), ('moved up to', '1')`,
		`UPDATE x402.payments SET agent = '' WHERE agent = 'lab-1'`)
	require.Equal(t, []string{"team:bench"}, sees(lab))
	require.Zero(t, check(owner)+check(lab))
}

// The quota of content is of all teams, and so is what is added up for it, whoever does that.
func TestContentOfAllTeamsIsAddedUp(t *testing.T) {
	_, f, lab := rolesFleet(t, rolesRules())
	research := openFleet(t, login(t, f, "content_research", "team:research"))
	for s, agent := range map[*Store]string{lab: "lab-1", research: "research-1"} {
		p, err := reserveBy(s, rolesRules(), holdOf(agent, 1))
		require.NoError(t, err)
		require.NoError(t, s.Submit(t.Context(), p, signedOf(p), testKeyholder()))
		_, err = s.Finish(t.Context(), p.ID, Outcome{State: Settled, Proof: Claimed,
			Content: &Content{Status: 200, Body: []byte("1234567890")}})
		require.NoError(t, err)
	}
	for _, s := range []*Store{lab, research} {
		s.contentQuota = 1000
		require.NoError(t, s.fleetTidy(t.Context()))
		require.Equal(t, "20|20", pgtest.SQL(t, f.URL, `SELECT stored, owed FROM x402.content_use`))
		use, err := s.ContentUse(t.Context())
		require.NoError(t, err)
		require.Equal(t, ContentUse{Stored: 20, Owed: 20, Quota: 1000}, use)
	}
}
