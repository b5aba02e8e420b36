//go:build !race

package pay

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402/money"
)

// The same worlds with a fleet's ledger, in a real PostgreSQL: the processes are those of two machines, and
// each lives as long as it says so. All of it is in virtual time, heartbeats and pauses before another try
// among them, and the server's clock is the world's. What fails besides are the wires to the server: cut
// before a statement or behind it, or late. A seed is the same whenever it is run, but for the milliseconds
// that the ledger waits before it says something again.

// simServer is a database for the worlds of one goroutine, which come one after the other.
type simServer struct {
	fleet  history.Fleet
	homes  [2]string
	own    *postgres.Pool // of the tests, in real time
	clock  *os.File       // which the server's clock reads
	shows  string         // what it says
	dialer func() (net.Conn, error)

	mu   sync.Mutex
	idle []*session
}

// newServer makes a fleet's ledger in a database of its own. Nothing there has to outlive the server.
func newServer(t *testing.T, c *pgtest.Cluster, n int) *simServer {
	d := &simServer{fleet: history.Fleet{URL: c.Database(t)}}
	_, err := history.CreateFleet(t.Context(), d.fleet)
	require.NoError(t, err)
	socket, err := filepath.Glob(filepath.Join(c.Dir(), ".s.PGSQL.*[0-9]"))
	require.NoError(t, err)
	require.Len(t, socket, 1)
	d.dialer = func() (net.Conn, error) { return net.Dial("unix", socket[0]) }
	d.own, err = postgres.New(postgres.Options{URL: d.fleet.URL})
	require.NoError(t, err)
	t.Cleanup(d.own.Close)
	path := filepath.Join(c.Dir(), fmt.Sprint("clock", n))
	d.clock, err = os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { d.clock.Close() })
	require.NoError(t, os.Chmod(path, 0o644))
	d.homes = [2]string{t.TempDir(), t.TempDir()}
	for i, clock := range []string{"clock", "real_clock"} {
		d.run(t, fmt.Sprintf(`CREATE OR REPLACE FUNCTION %s() RETURNS BIGINT LANGUAGE sql VOLATILE AS
			$$ SELECT pg_read_file('%s', %d, 20)::bigint $$`, clock, path, 20*i))
	}
	d.run(t, historytest.EmptyLedger)
	t.Cleanup(func() {
		for _, to := range d.idle {
			to.conn.Close()
		}
	})
	return d
}

func (d *simServer) run(t *testing.T, words string) {
	require.NoError(t, d.own.With(context.Background(), func(c *postgres.Conn) error {
		return c.Run(context.Background(), words)
	}))
}

// show sets the server's clock, and the one by which processes live. Nobody sets that one, which would only
// let the dead live for longer, and the living be dead until they say something.
func (d *simServer) show(at, real time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf("%020d%020d", at.UnixMicro(), real.UnixMicro())
	if text == d.shows {
		return
	}
	if _, err := d.clock.WriteAt([]byte(text), 0); err != nil {
		panic(err)
	}
	d.shows = text
}

// session is one that nobody has, or a new one.
func (d *simServer) session() (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last := len(d.idle) - 1; last >= 0 {
		to := d.idle[last]
		d.idle = d.idle[:last]
		return to, nil
	}
	conn, err := d.dialer()
	if err != nil {
		return nil, err
	}
	return &session{conn: conn, from: bufio.NewReader(conn)}, nil
}

// keep takes a session back, if it can be used again.
func (d *simServer) keep(to *session) {
	if to.failed || to.hello == nil {
		to.conn.Close()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, to)
}

// tellTime sets the server's clock, which may be apart from the wallets'.
func (s *sim) tellTime() { s.g.server.show(s.wallet().Add(s.apart), s.now()) }

// openFleet opens the ledger for a process of one of two machines; nil: for the umpire, on the owner's.
func (s *sim) openFleet(p *process) *history.Store {
	f := s.g.server.fleet
	f.Writer = "home_owner"
	if p != nil {
		f.Writer, f.Home = fmt.Sprint("home_", p.machine()), s.g.server.homes[p.machine()]
	}
	f.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, p) }
	store, err := history.OpenFleet(f, history.Options{Now: s.wallet})
	if err != nil {
		panic(err)
	}
	return store
}

// machine is which of the two machines of a fleet a process is on.
func (p *process) machine() int { return p.id % 2 }

// silence is how long others take a process for alive that has said nothing, and a little more.
const silence = 31 * time.Second

// canCall reports whether a purchase's next call can be made in a process: where it was made before. In a
// fleet it can be made on another machine once all know that the one before is dead; else it would be
// another purchase there, unless it has a key.
func (s *sim) canCall(pu *purchase, p *process) bool {
	return s.g.server == nil || pu.home == nil || pu.key != "" || pu.home.machine() == p.machine() ||
		s.now().Sub(pu.home.died) > silence
}

// callable is where a purchase's next call can be made.
func (s *sim) callable(pu *purchase) []*process {
	return slices.DeleteFunc(s.living(), func(p *process) bool { return !s.canCall(pu, p) })
}

// signRules makes the world's rules those of the ledger. What the umpire asks for and nobody bounds has a
// limit that stops nothing, because a fleet's ledger counts only what has one.
func (s *sim) signRules() {
	rules := s.rules
	unlimited := new(money.Dollars(1 << 40))
	list := history.BudgetsOf(rules)
	for i := range list {
		if list[i].Day == nil && !strings.HasPrefix(list[i].ID, "each:") {
			list[i].Day = unlimited
		}
	}
	for n := range 2 {
		if _, bounded := rules.HostDay[s.host(n)]; !bounded {
			list = append(list, history.Budget{ID: "host:" + s.host(n), Day: unlimited})
		}
	}
	store := s.eye.(sqlLedger).Store
	err := store.ApplyRules(context.Background(),
		history.SealedRules{Version: 1, Config: []byte("rules"), Seal: []byte("seal")}, list)
	if err != nil {
		panic(err)
	}
}

// drawWires draws how the wires to the server fail.
func (s *sim) drawWires(some func(percent, weight int) int) {
	s.mix.save = append(s.mix.save, choice{cutBefore, some(60, 15)}, choice{cutAfter, some(60, 15)},
		choice{late, some(60, 10)}, choice{diesAt, min(s.mix.kill, 2)}, choice{diesAfter, min(s.mix.kill, 2)})
	s.mix.wire, s.mix.away = some(60, 15), some(30, 2)
	if s.chance(30) {
		s.apart = []time.Duration{-time.Minute, time.Second, time.Minute}[s.rng.IntN(3)]
	}
}

// part takes a process the way to the server, or gives it back: what it has begun it goes on with, and nobody
// hears that it lives.
func (s *sim) part(p *process) {
	p.away = !p.away
	s.say("process %d is cut off: %v", p.id, p.away)
	p.wasCut = true
	if p.away {
		s.cutWires(p)
	}
}

// onWire lets a change fail on its way to the server, if that was drawn.
func (s *sim) onWire(ctx context.Context, p *process, drawn string) (over func()) {
	switch drawn {
	case cutBefore, cutAfter, late, diesAt, diesAfter:
		p.fault = wireFault{what: drawn, nth: 1 + s.rng.IntN(3), ctx: ctx}
		return func() { p.fault = wireFault{} }
	}
	// or one of the next statements, which may only read
	if s.mix.wire > 0 && !s.calm && p.fault.nth == 0 && s.chance(s.mix.wire) {
		p.fault = wireFault{what: []string{cutBefore, cutAfter}[s.rng.IntN(2)], nth: 1 + s.rng.IntN(20)}
	}
	return func() {}
}

// asking is a hold that was asked for.
type asking struct {
	call *call
	at   time.Time
	held bool // and the umpire knows
}

// asksFor notes a hold that is asked for, and names its payment: whoever asks for it may never hear of it.
func (s *sim) asksFor(id string, c *call) string {
	if s.g.server == nil {
		return id // nobody hears of what the ledger has said before
	}
	id = cmp.Or(id, history.NewID(s.wallet()))
	s.holds[id] = &asking{call: c, at: s.wallet()}
	return id
}

// isHeld tells the umpire of a hold, once.
func (s *sim) isHeld(p history.Payment) {
	a := s.holds[p.ID]
	if !a.held {
		a.held = true
		s.reserved(p, a.call, a.at)
	}
}

// hear tells the umpire of holds whose answers were lost.
func (s *sim) hear() {
	list, err := s.eye.Recent(context.Background(), 1000)
	if err != nil {
		s.fail("the umpire cannot read: %v", err)
	}
	for _, p := range slices.Backward(list) {
		s.isHeld(p)
	}
}

// heldAt is when a payment was made by the umpire's clock: when its hold was asked for, or later if its
// answer was. In a fleet it is made in between, by the server's.
func (s *sim) heldAt(created, asked time.Time) time.Time {
	at := s.wallet().Truncate(time.Microsecond)
	if s.g.server == nil {
		return at
	}
	at, asked = at.Add(s.apart), asked.Add(s.apart).Truncate(time.Microsecond)
	if created.Before(asked) || (created.After(at) && created.After(s.newest)) {
		s.fail("a payment of %s was made at %s", asked, created)
	}
	return created
}

// verifyFleet asks the ledger whether it is whole, and adds up what its counters should hold.
func (s *sim) verifyFleet() {
	if s.g.server == nil || s.wrong != "" {
		return
	}
	if _, err := s.eye.(sqlLedger).Verify(context.Background(), history.Head{}); err != nil {
		s.fail("the ledger does not verify: %v", err)
	}
}

// isIn reports whether what was made at a time falls into what the ledger says of a day: in a fleet that day
// alone, else what came since, too.
func (s *sim) isIn(day, made time.Time) bool {
	return !made.Before(day) && (s.g.server == nil || made.Before(budget.DayOf(day).AddDate(0, 0, 1)))
}
