package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
)

// What whoever has an agent's login, but no key, cannot do to other teams and to the owner.

// loginOf runs statements by an agent's login of its own.
func loginOf(t *testing.T, f Fleet, name, team string) (run func(statement string, args ...any) error) {
	pool, err := postgres.New(postgres.Options{URL: login(t, f, name, team).URL})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return func(statement string, args ...any) error {
		return pool.With(t.Context(), func(c *postgres.Conn) error {
			return c.Run(context.Background(), fmt.Sprintf(statement, args...))
		})
	}
}

// A freeze stops payments, whatever locks another login keeps.
func TestNoLoginKeepsAFreezeOff(t *testing.T) {
	owner, f := newFleet(t)
	applyRules(t, owner, 2, rolesRules())
	lab := openFleet(t, login(t, f, "keeps_lab", "team:lab"))
	held, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 1))
	require.NoError(t, err)
	thief := login(t, f, "keeps_thief", "team:research")
	pgtest.Hold(t, thief.URL, `SELECT FROM x402.locks WHERE name IN ('ledger', 'freeze') FOR SHARE`,
		`SELECT x402.freeze('{"writer": "home_thief", "freeze": {"network": "n", "account": "a", "by": "agent",
			"why": ""}, "detail": "{}"}'::jsonb)`,
		`LOCK TABLE x402.alerts, x402.operations, x402.approvals IN ACCESS EXCLUSIVE MODE`)
	begun := time.Now()
	require.NoError(t, owner.Freeze(t.Context(), Freeze{Network: "n", Account: "b", By: "breaker"}))
	require.NoError(t, owner.Freeze(t.Context(), Freeze{By: byOwner, Why: "stop"}))
	require.Less(t, time.Since(begun), 2*(freezeWaits+3*time.Second))
	require.Equal(t, "2", pgtest.SQL(t, f.URL, `SELECT count(*) FROM x402.audit WHERE event = 'frozen'`))
	_, err = reserveBy(lab, rolesRules(), holdOf("lab-1", 1))
	require.True(t, x402.HasCode(err, x402.WalletFrozen), "held in spite of it: %v", err)
	err = lab.Submit(t.Context(), held, signedOf(held), testKeyholder())
	require.True(t, x402.HasCode(err, x402.WalletFrozen), "signed in spite of it: %v", err)
}

// A login says of its own processes alone that they live, or not, and that for a minute at most.
func TestWhoseProcessesALoginSpeaksFor(t *testing.T) {
	owner, f := newFleet(t)
	applyRules(t, owner, 2, rolesRules())
	lab := openFleet(t, login(t, f, "speaks_lab", "team:lab"))
	p, err := reserveBy(lab, rolesRules(), holdOf("lab-1", 20))
	require.NoError(t, err)
	other := openFleet(t, f)
	run := loginOf(t, f, "speaks_thief", "team:research")
	require.Error(t, run(`SELECT x402.beat('%s', '', '', -1)`, p.LeaseOwner))
	require.True(t, other.Alive(p.LeaseOwner), "it is said to be dead")

	require.NoError(t, lab.fleet.sayEnded(p.LeaseOwner))
	require.Error(t, run(`SELECT x402.beat('%s', '', '', 1000000000000000000)`, p.LeaseOwner))
	require.False(t, other.Alive(p.LeaseOwner), "it is said to live")
	// also when it has been dead for long
	pgtest.SQL(t, f.URL, `UPDATE x402.instances SET until = 1`)
	require.NoError(t, run(`SELECT x402.beat('run_thief', '', '', 1000000000000000000)`))
	require.Error(t, run(`SELECT x402.beat('%s', '', '', 1000)`, p.LeaseOwner))
	require.Equal(t, "t", pgtest.SQL(t, f.URL, `SELECT until < x402.real_clock() + 60000001 FROM x402.instances
		WHERE id = 'run_thief'`))
}

// An unfreeze lifts what it has seen: of a freeze that is being written it waits for the end.
func TestNoFreezeIsLiftedUnseen(t *testing.T) {
	owner, f := newFleet(t)
	freeze := `SELECT x402.freeze('{"writer": "home_b", "freeze": {"network": "n", "account": "%s", "by": "agent",
		"why": "w"}, "detail": "{}"}'::jsonb)`
	begun := loginOf(t, f, "unseen_b", "")
	meanwhile := make(chan error, 1)
	go func() { meanwhile <- begun(`BEGIN; `+freeze+`; SELECT pg_sleep(2); COMMIT`, "first") }()
	require.Eventually(t, func() bool {
		return pgtest.SQL(t, f.URL, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'
			AND datname = current_database()`) == "1"
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, owner.Freeze(t.Context(), Freeze{By: byOwner, Why: "a later one"}))
	lifted, err := owner.Unfreeze(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, <-meanwhile)
	require.Len(t, lifted, 2)
}
