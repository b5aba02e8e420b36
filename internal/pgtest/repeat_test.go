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
