package pgtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("pgtest.seed", 0, "of the faults, to repeat what failed; 0: another each time")

// hold once is a step as the ledger's are: the same call again does nothing again, and waits for the first.
const holdOnce = `CREATE FUNCTION hold_once(which TEXT) RETURNS TEXT LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO payments VALUES (which) ON CONFLICT DO NOTHING;
	IF FOUND THEN UPDATE budget SET used = used + 1; END IF;
	RETURN which; END $$`

// Clients that repeat the same call until they have an answer are right in the end, whatever happens to them:
// also when a call that they gave up arrives after its repetition.
func TestWhoRepeatsIsRight(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-pgtest.seed=%d", *seed)
	url := Shared(t).Database(t)
	SQL(t, url, "CREATE TABLE payments (id TEXT PRIMARY KEY)", "CREATE TABLE budget (used INT NOT NULL)",
		"INSERT INTO budget VALUES (0)", holdOnce)

	const clients, steps = 6, 20
	payers := make([]*payer, clients)
	var all sync.WaitGroup
	for i := range payers {
		p := &payer{t: t, proxy: NewProxy(t, url), rand: rand.New(rand.NewPCG(*seed, uint64(i)))}
		payers[i] = p
		all.Go(func() {
			for step := range steps {
				p.pay(fmt.Sprintf("%d/%d", i, step))
			}
		})
	}
	ended := 0
	for range 5 {
		HoldFor(t, 20*time.Millisecond, url, "SELECT used FROM budget FOR UPDATE")
		if EndRandom(t, url) {
			ended++
		}
	}
	all.Wait()
	waitFor(t, url, "1", sessions) // what was given up has arrived, or never will
	total := 0
	for _, p := range payers {
		total += p.calls
	}
	t.Logf("%d steps in %d calls; %d backends ended besides", clients*steps, total, ended)
	require.Equal(t, "120|120", SQL(t, url, "SELECT (SELECT count(*) FROM payments), used FROM budget"))
	require.Greater(t, total, clients*steps, "some call was repeated")
}

// payer is a client that has a fault before each call.
type payer struct {
	t     *testing.T
	proxy *Proxy
	rand  *rand.Rand
	calls int
}

// pay repeats the call until it is answered. At first it waits for less than a silence.
func (p *payer) pay(id string) {
	wait, silence := 50*time.Millisecond, 150*time.Millisecond
	fault := Faults[p.rand.IntN(len(Faults))].Do
	if fault.what == beSilent {
		fault = Silent(silence)
	}
	p.proxy.At("hold_once", fault)
	for answered := false; !answered && !p.t.Failed(); wait *= 2 {
		answered = p.call(id, wait)
		p.calls++
	}
}

func (p *payer) call(id string, wait time.Duration) (answered bool) {
	c, err := tryConnect(p.t, p.proxy.URL())
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(wait))
	value, err := c.query("SELECT hold_once('" + id + "')")
	if err == nil && value != id {
		p.t.Errorf("%q is no answer to %q", value, id)
	}
	return err == nil
}

// timeline is the server's history: another after each promotion.
const timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"

// With a quorum a commit is acknowledged when one of the replicas has it, and not before; so the one that has
// it loses nothing when the server dies.
func TestQuorum(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)")
	one, other := c.Replica(t), c.Replica(t)
	c.Quorum(t, one, other)
	one.StopReceiver(t, time.Hour)
	SQL(t, url, "INSERT INTO x VALUES (1)")

	other.StopReceiver(t, time.Hour)
	writer := connect(t, url)
	require.NoError(t, writer.send([]byte("QINSERT INTO x VALUES (2)\x00")))
	waitFor(t, url, "1", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	require.Equal(t, "1", SQL(t, url, "SELECT max(n) FROM x"))
	other.StopReceiver(t, time.Millisecond) // no longer than that
	_, err := writer.answer()
	require.NoError(t, err)

	c.CaughtUp(t, other)
	require.Equal(t, "2", SQL(t, other.Same(t, url), "SELECT max(n) FROM x"))
	_, err = psql(other.Same(t, url), "INSERT INTO x VALUES (0)")
	require.ErrorContains(t, err, "read-only transaction")
	require.Equal(t, "00000001", c.SQL(t, superuser, timeline))
	c.Kill(t)
	other.Promote(t)
	require.Equal(t, "00000002", other.SQL(t, superuser, timeline))
	require.Equal(t, "2", SQL(t, other.Same(t, url), "INSERT INTO x VALUES (0)", "SELECT max(n) FROM x"))
}

// Without a quorum, what a replica had not got when the server died is lost.
func TestReplicaThatHungHasLostTheTail(t *testing.T) {
	c := Start(t)
	url := c.Database(t)
	SQL(t, url, "CREATE TABLE x (n INT)", "INSERT INTO x VALUES (1)")
	r := c.Replica(t)
	c.Quorum(t, r)
	c.CaughtUp(t, r)
	r.StopReceiver(t, time.Hour)
	c.Quorum(t) // nobody is waited for
	SQL(t, url, "INSERT INTO x VALUES (2)")
	require.Equal(t, "2", SQL(t, url, "SELECT max(n) FROM x"))
	c.Kill(t)
	r.wire.Resume() // too late
	r.Promote(t)
	require.Equal(t, "1", SQL(t, r.Same(t, url), "SELECT max(n) FROM x"))
}
