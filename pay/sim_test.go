//go:build !race

package pay

// Not under the race detector: the scheduler hands values from goroutine to goroutine by
// synctest.Wait, which it does not see.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/scheme/batch"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The simulation: the real engine on the real ledger, in a world that fails, lies and delays. A
// seed is one such world: which faults it has, what everybody does, who runs when. It is the same
// whenever it is run:
//
//	go test ./pay -run Simulation -sim.seed 4711
//
// Every call that leaves the engine (store, seller, facilitator, node, signer) parks its goroutine;
// a scheduler lets one go on at a time and draws what becomes of it. Time is testing/synctest's: it
// stands still until the scheduler lets it pass. The ledger is real: what is between two of its transactions
// is simulated, what is within one is SQLite's, or PostgreSQL's. A process that dies is one whose goroutines
// end where they stand, and that no other takes for alive.
//
// sim_world_test.go is who the engine talks to, sim_umpire_test.go what must stay true.

var (
	simSeeds = flag.Uint64("sim.seeds", 0, "simulate seeds 1 to this one; 0 means the default")
	simFirst = flag.Uint64("sim.first", 1, "the first seed")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this one seed and tell what happens")
	simAll   = flag.Bool("sim.all", false, "go on after a failure, and count the kinds of them")
)

// Seeds by default: for half a minute on two cores; -sim.seeds for more.
const (
	seedsLong  = 1_000
	seedsShort = 200
)

// TestSimulation plays all seeds up to the last one, or those that flags name: on PostgreSQL one of twenty.
func TestSimulation(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { simulate(t, nil, 1) })
	t.Run("PostgreSQL", func(t *testing.T) { simulate(t, pgtest.Start(t, "fsync = off"), 20) })
}

// simulate plays one of so many seeds. Ledgers are in databases of the server, or in SQLite if it is nil.
func simulate(t *testing.T, server *pgtest.Cluster, oneOf uint64) {
	if *simSeed != 0 {
		g := &ground{server: server}
		defer g.clear(t)
		s := g.run(t, *simSeed)
		t.Log(s.story())
		return
	}
	last := uint64(seedsLong)
	if testing.Short() {
		last = seedsShort
	}
	if *simSeeds != 0 {
		last = *simSeeds
	}
	began := time.Now()
	var next, steps, payments, settled, calls atomic.Uint64
	next.Store(*simFirst - oneOf)
	var stop atomic.Bool
	kinds := kindsOfFailures{}
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				g := &ground{server: server}
				defer g.clear(t)
				for !stop.Load() {
					seed := next.Add(oneOf)
					if seed > last {
						break
					}
					s := g.run(t, seed)
					steps.Add(uint64(s.steps))
					payments.Add(uint64(len(s.sigs)))
					calls.Add(uint64(s.made))
					settled.Add(uint64(s.moved))
					if s.wrong != "" && !*simAll {
						stop.Store(true)
					}
					if s.wrong != "" {
						kinds.add(s)
					}
				}
			})
		}
	})
	for kind, of := range kinds.first {
		t.Logf("%5d × %s, first in seed %d", kinds.count[kind], kind, of)
	}
	took := time.Since(began).Round(time.Millisecond)
	t.Logf("%d seeds, %d calls, %d signatures, %d settled, %d steps in %s", (last-*simFirst)/oneOf+1,
		calls.Load(), payments.Load(), settled.Load(), steps.Load(), took)
}

// ground is what seeds are run on one after the other: a ledger. Each seed has a month, hosts, keys and a
// source of money of its own, so that none sees what another left; making a ledger costs more than a payment.
type ground struct {
	server *pgtest.Cluster // with the ledger's database; nil for SQLite
	home   string
	url    string
	epoch  time.Time // the month that a seed begins in
	used   int
	cur    *sim
	eye    *history.Store // the umpire's own
}

// firstMonth is when the first worlds are.
var firstMonth = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

const (
	seedsPerLedger = 100
	maxProcesses   = 4 // that may be begun in one seed
)

func (g *ground) clear(t *testing.T) {
	if g.home != "" {
		require.NoError(t, os.RemoveAll(g.home))
	}
}

// prepare makes sure that a seed finds what it needs.
func (g *ground) prepare(t *testing.T) {
	if g.used%seedsPerLedger == 0 {
		g.clear(t)
		home, err := os.MkdirTemp("/dev/shm", "x402-sim-")
		if err != nil {
			home, err = os.MkdirTemp("", "x402-sim-")
		}
		require.NoError(t, err)
		g.home, g.epoch = home, firstMonth
		if g.server == nil {
			require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
		} else {
			g.url = g.server.Database(t)
			must.Get(ledgers.MakePostgres(t.Context(), postgres.Server{URL: g.url}))(t)
		}
	}
	g.used++
	g.epoch = g.epoch.AddDate(0, 2, 0)
}

// open opens the ledger as another process. The server does not know how time passes in a seed, so a process
// lives there until it says that it ended.
func (g *ground) open() *history.Store {
	s, err := historytest.Open(context.Background(), g.home, g.url, history.Options{Alerts: alerts.Writer{},
		AliveFor: 365 * 24 * time.Hour, Now: func() time.Time {
			if g.cur == nil { // the first seed is about to be run
				return g.epoch
			}
			return g.cur.wallet()
		}})
	if err != nil {
		panic(err)
	}
	return s
}

// run plays one seed.
func (g *ground) run(t *testing.T, seed uint64) (s *sim) {
	g.prepare(t)
	synctest.Test(t, func(t *testing.T) {
		g.eye = g.open()
		defer g.eye.Close()
		s = newSim(g, seed)
		s.play()
		if g.used%seedsPerLedger == 0 && s.wrong == "" {
			if _, err := verify.Ledger(t.Context(), g.eye, history.Head{}); err != nil {
				s.wrong = "the ledger does not verify: " + err.Error()
			}
		}
	})
	if s.wrong != "" && *simAll {
		t.Fail()
	} else if s.wrong != "" {
		t.Errorf("seed %d: %s\n%s\nagain: go test ./pay -run Simulation -sim.seed %d", seed, s.wrong,
			s.story(), seed)
	}
	if s.wrong != "" {
		g.used = 0 // the next one gets a ledger for itself
	}
	return s
}

// kindsOfFailures counts failures that differ in names and numbers only.
type kindsOfFailures struct {
	mu    sync.Mutex
	count map[string]int
	first map[string]uint64
}

func (k *kindsOfFailures) add(s *sim) {
	kind := regexp.MustCompile(`(pay_)?[0-9a-f]{4,}|[0-9]+|seed [^"]*`).ReplaceAllString(s.wrong, "…")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.count == nil {
		k.count, k.first = map[string]int{}, map[string]uint64{}
	}
	k.count[kind]++
	if first, ok := k.first[kind]; !ok || s.seed < first {
		k.first[kind] = s.seed
	}
}

// sim is the world of one seed. What is in it is touched by one goroutine at a time: the scheduler, or
// the one that it let go on.
type sim struct {
	g    *ground
	seed uint64
	rng  *rand.Rand
	mix  mix

	base  time.Duration // from synctest's time to the world's
	skew  atomic.Int64  // the wallet's clock minus the world's
	blind atomic.Bool   // no process can tell whether another one lives
	calm  bool          // the end: nothing fails any more
	steps int
	made  int // calls
	moved int // settled

	mu     sync.Mutex // parked and trace: a tick of the clock may wake several at once
	parked []*parked
	trace  []string

	procs     []*process
	calls     []*call
	purchases []*purchase
	actors    int
	running   int
	rules     budget.Rules
	teams     simTeams
	eye       ledger // the umpire's own

	world
	umpire
	reads int // of contents, and when the first one of a payment was stored
}

// process is an engine with its own way to the ledger.
type process struct {
	id       int
	engine   *Engine
	channels *batch.Channels
	raw      ledger
	dead     atomic.Bool
}

// parked is a goroutine that waits for the scheduler.
type parked struct {
	actor  int
	what   string
	p      *process
	may    []choice
	resume chan string
}

// choice is one thing that may happen, and how often it does.
type choice struct {
	name   string
	weight int
}

func (s *sim) now() time.Time    { return time.Now().Add(s.base).UTC() }
func (s *sim) wallet() time.Time { return s.now().Add(time.Duration(s.skew.Load())) }

func (s *sim) say(format string, args ...any) {
	s.mu.Lock()
	s.trace = append(s.trace, s.now().Format("02 15:04:05.000 ")+fmt.Sprintf(format, args...))
	s.mu.Unlock()
}

func (s *sim) story() string { return strings.Join(s.trace, "\n") }

func (s *sim) fail(format string, args ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, args...)
		s.say("WRONG: %s", s.wrong)
	}
}

func (s *sim) pick(may []choice) string {
	sum := 0
	for _, c := range may {
		sum += c.weight
	}
	if sum == 0 {
		return may[0].name
	}
	n := s.rng.IntN(sum)
	for _, c := range may {
		n -= c.weight
		if n < 0 {
			return c.name
		}
	}
	panic("unreachable")
}

func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

type actorKey struct{}

type actor struct {
	id   int
	call *call // nil: a reconciliation
}

func actorOf(ctx context.Context) *actor { return ctx.Value(actorKey{}).(*actor) }

// at parks the goroutine until the scheduler lets it go on, and says what it drew. In the calm the
// first choice happens.
func (s *sim) at(ctx context.Context, p *process, what string, may ...choice) string {
	p.survive()
	who := actorOf(ctx)
	w := &parked{actor: who.id, what: what, p: p, may: may, resume: make(chan string)}
	if who.call != nil && what != "Content" && what != "Abandon" { // which its client's leaving does
		who.call.looked = 0
	}
	s.mu.Lock()
	s.parked = append(s.parked, w)
	s.mu.Unlock()
	drawn := <-w.resume
	p.survive()
	return drawn
}

// survive ends the goroutine of a process that is dead.
func (p *process) survive() {
	if p.dead.Load() {
		runtime.Goexit()
	}
}

// sleep lets time pass and everybody get as far as they get.
func (s *sim) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// step lets one parked goroutine go on.
func (s *sim) step() {
	sort.Slice(s.parked, func(i, j int) bool {
		a, b := s.parked[i], s.parked[j]
		return a.actor < b.actor || (a.actor == b.actor && a.what < b.what)
	})
	i := 0
	if !s.calm {
		i = s.rng.IntN(len(s.parked))
	}
	w := s.parked[i]
	s.parked = append(s.parked[:i:i], s.parked[i+1:]...)
	drawn := ""
	if len(w.may) > 0 {
		drawn = w.may[0].name
		if !s.calm {
			drawn = s.pick(w.may)
		}
	}
	if !w.p.dead.Load() {
		s.say("%d/%d %s %s", w.actor, w.p.id, w.what, drawn)
	}
	s.steps++
	w.resume <- drawn
	synctest.Wait()
}

// simDeadline is no multiple of what the engine polls by.
const simDeadline = 30*time.Second + 7*time.Millisecond

// start begins a process.
func (s *sim) start() {
	p := &process{id: len(s.procs) + 1, raw: ledger{s.g.open()}}
	store := &simStore{Store: p.raw, s: s, p: p}
	channels := &simChannels{simScheme: simScheme{s, p}}
	p.channels = &batch.Channels{Chain: channels, Ledger: store, Guard: simGuard{store},
		Sellers: &simSeller{s, p}, Assets: simAssets, MaxDeposit: money.Dollars(s.most),
		Deadline: simDeadline, Now: s.wallet, Log: slog.New(slog.DiscardHandler)}
	ways := testWays(nil, everybody)
	ways[len(ways)-1] = p.channels
	p.engine = &Engine{
		ofRow: ofRow,
		Rules: s.rules, Policy: Policy{Schemes: []string{x402.Exact, x402.MPP, x402.Permit2, x402.Upto,
			x402.BatchSettlement}, Networks: []string{testNetwork},
			MaxTimeout: 300 * time.Second, Deadline: simDeadline},
		Assets: simAssets, Schemes: map[SchemeKey]Scheme{exactEVM: &simScheme{s, p},
			{Scheme: x402.MPP, Family: "eip155"}:             &simScheme{s, p},
			{Scheme: x402.Permit2, Family: "eip155"}:         &simPermits{simScheme{s, p}},
			{Scheme: x402.Upto, Family: "eip155"}:            &simScheme{s, p},
			{Scheme: x402.BatchSettlement, Family: "eip155"}: channels},
		SignIns: &simSignIns{s, p}, Ways: ways, Floats: &simFloats{s: s, p: p},
		Statuses: map[SchemeKey]StatusReader{
			{Scheme: x402.Allowance, Family: "eip155"}: &simFloats{s: s, p: p}},
		Transport: &simSeller{s, p}, Settler: &simSettler{s, p},
		Store: store, Asker: store, Guard: simGuard{store}, Now: s.wallet,
		Log: slog.New(slog.DiscardHandler),
	}
	p.channels.Engine = p.engine
	s.procs = append(s.procs, p)
	s.say("process %d begins", p.id)
}

// kill is kill -9: nothing of the process goes on, the kernel lets go of its lock.
func (s *sim) kill(p *process) {
	s.say("process %d dies", p.id)
	p.dead.Store(true)
	id := p.raw.Self()
	s.unlockAll(p)
	p.raw.Close()
	if id != "" && !p.raw.Shared() { // Close tidies up, a kill does not
		_ = os.WriteFile(filepath.Join(s.g.home, "run", id), nil, 0o600)
	}
	for _, c := range s.calls {
		if c.p == p && !c.over {
			c.ended = true
			c.of.call = nil // its client will hear that the process is gone
		}
	}
}

// cutPower ends all processes at once. The disk keeps every change: the ledger waits for it with each.
func (s *sim) cutPower() {
	s.say("the power is cut")
	for _, p := range s.living() {
		s.kill(p)
	}
}

func (s *sim) living() (list []*process) {
	for _, p := range s.procs {
		if !p.dead.Load() {
			list = append(list, p)
		}
	}
	return list
}

// purchase is what a client wants: it makes the same call until it has an answer, or gives up.
type purchase struct {
	n        int
	agent    string
	url      string
	key      string
	begun    bool
	done     bool
	gaveUp   bool
	tries    int
	call     *call // the one whose answer it waits for
	home     *process
	lastCode x402.Code
}

type call struct {
	actor
	of        *purchase
	p         *process
	client    *Call
	began     time.Time
	cancelled bool
	returned  bool
	recorded  bool // what became of it is written down: nothing more is seen of a batch's row
	written   bool // its answer
	over      bool
	ended     bool        // its process died
	sent      string      // the payment whose bytes left in this call
	stops     *simChannel // whose seller said in it that it charged too much
	unsaved   bool        // what is known of a channel could not be written down
	drafted   time.Time   // when it wrote the text of a sign-in, by the wallet's clock
	letIn     bool        // a seller served who signed in
	unlimited bool        // Permit2 might move what it saw the price of
	batch     []*call     // all of the batch that it is one of; nil: none
	ceiling   uint64      // of that
	looked    int         // s.reads, when it last looked for content, if that was the last thing it did
}

// newCall is a purchase's next call, at its home.
func (s *sim) newCall(pu *purchase, client *Call) *call {
	s.actors++
	c := &call{of: pu, p: pu.home, began: s.now(), client: client}
	c.actor.id, c.actor.call = s.actors, c
	pu.call, pu.tries = c, pu.tries+1
	if !pu.begun {
		pu.begun = true
		s.begins(pu)
	}
	s.calls = append(s.calls, c)
	s.made++
	return c
}

// begin makes a purchase's next call: where it was made before, as long as that process lives.
func (s *sim) begin(pu *purchase) {
	if pu.home == nil || pu.home.dead.Load() {
		alive := s.living()
		pu.home = alive[s.rng.IntN(len(alive))]
	}
	c := s.newCall(pu, new(Call))
	s.running++
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), actorKey{}, &c.actor))
	ctx = WithAgent(WithCall(ctx, c.client), pu.agent)
	s.say("%d/%d %s", c.actor.id, c.p.id, pu.told())
	go func() {
		defer func() { c.over = true; s.running--; cancel() }()
		q := get(pu.url)
		q.IdempotencyKey = pu.key
		r, err := c.p.engine.Pay(ctx, q)
		c.p.survive()
		s.returns(c, r, err)
		if pu.call == c && err == nil { // the answer is on its way to the client
			s.at(ctx, c.p, "written")
			c.written = true
			if c.cancelled {
				c.p.engine.Lost(ctx, r.PaymentID)
			} else {
				c.client.Deliver()
				pu.done = r.Status != StatusUnserved
				c.p.engine.Delivered(ctx, r.Status, r.PaymentID)
			}
		}
		c.ends(err)
	}()
}

// returns tells of an answer, and judges it.
func (s *sim) returns(c *call, r Result, err error) {
	c.returned = true
	if err != nil {
		s.say("%d/%d answer: %v", c.actor.id, c.p.id, err)
	} else {
		s.say("%d/%d answer: %s %s %q", c.actor.id, c.p.id, r.Status, r.PaymentID, r.Content)
	}
	s.answered(c, r, err)
}

// ends is when its client has the answer.
func (c *call) ends(err error) {
	if c.of.call != c {
		return
	}
	c.of.call, c.of.lastCode = nil, ""
	if err != nil {
		c.of.lastCode = x402.AsError(err).Code
	}
}

// leave is the client's going away; it may make the same call again at once.
func (s *sim) leave(c *call) {
	s.say("%d/%d its client leaves", c.actor.id, c.p.id)
	for _, one := range append(c.batch, c) {
		one.cancelled = true
		one.of.call = nil
	}
	c.client.Cancel()
}

func (s *sim) reconcile(p *process) {
	s.actors++
	a := &actor{id: s.actors}
	s.running++
	s.say("%d/%d reconcile", a.id, p.id)
	go func() {
		defer func() { s.running-- }()
		report, err := p.engine.Reconcile(context.WithValue(context.Background(), actorKey{}, a))
		p.survive()
		s.say("%d/%d reconciled %+v %v", a.id, p.id, report, err)
	}()
}

// move is one thing that may happen next; the heavier, the likelier.
type move struct {
	weight int
	do     func()
}

// act is one move of the world.
func (s *sim) act() {
	moves := s.moves()
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := s.rng.IntN(sum)
	for _, m := range moves {
		n -= m.weight
		if n < 0 {
			m.do()
			break
		}
	}
	synctest.Wait()
}

// moves is all that may happen now.
//
//nolint:gocyclo // a table
func (s *sim) moves() []move {
	var moves []move
	may := func(weight int, do func()) {
		if weight > 0 {
			moves = append(moves, move{weight, do})
		}
	}
	if len(s.parked) > 0 {
		may(40, s.step)
	} else {
		may(20, func() { s.sleep(s.mix.ticks[s.rng.IntN(len(s.mix.ticks))]) })
	}
	may(s.mix.tick, func() { s.sleep(s.mix.ticks[s.rng.IntN(len(s.mix.ticks))]) })
	alive := s.living()
	for _, pu := range s.purchases {
		if pu.call == nil && !pu.done && !pu.gaveUp && len(alive) > 0 {
			may(8, func() { s.begin(pu) })
			if pu.tries > 3 {
				may(4, func() { pu.gaveUp = true })
			}
		}
	}
	if list := s.batchable(); len(list) > 1 {
		may(s.mix.many, func() { s.beginMany(list) })
	}
	for _, c := range s.calls {
		waits := !c.returned || (c.of.call == c && !c.written)
		if waits && !c.cancelled && !c.p.dead.Load() {
			may(s.mix.leave, func() { s.leave(c) })
		}
	}
	for _, p := range alive {
		may(s.mix.kill, func() { s.kill(p) })
		may(s.mix.power, s.cutPower)
		may(s.mix.reconcile, func() { s.reconcile(p) })
	}
	switch {
	case len(alive) == 0 && len(s.procs) < maxProcesses:
		may(20, func() { s.start() })
	case len(alive) < s.mix.processes && len(s.procs) < maxProcesses:
		may(3, func() { s.start() })
	}
	s.channelMoves(alive, may)
	may(s.mix.clock, func() { s.setClock() })
	may(s.mix.node, func() { s.changeNode() })
	if s.waiting() {
		may(10, s.mine)
	}
	if s.floats {
		may(s.mix.node, s.approve)
	}
	may(s.mix.blind, func() { s.say("blind: %v", !s.blind.Load()); s.blind.Store(!s.blind.Load()) })
	if list := s.takeable(); len(list) > 0 {
		may(s.mix.thief, func() { s.take(list[s.rng.IntN(len(list))], "somebody who kept it") })
	}
	if list := s.approvable(); len(list) > 0 {
		may(s.mix.approval, func() { s.takeApproval(list[s.rng.IntN(len(list))]) })
	}
	return moves
}

func (s *sim) setClock() {
	skews := []time.Duration{0, 0, time.Second, -time.Second, 90 * time.Second, -90 * time.Second, time.Hour,
		-time.Hour, 24 * time.Hour, -24 * time.Hour}
	d := skews[s.rng.IntN(len(skews))]
	s.skew.Store(int64(d))
	s.say("the wallet's clock is %s off", d)
}

func (s *sim) busy() bool {
	for _, pu := range s.purchases {
		if !pu.done && !pu.gaveUp {
			return true
		}
	}
	return false
}

// play is the life of one seed: trouble, then calm, then the reckoning.
func (s *sim) play() {
	for range s.mix.processes {
		s.start()
	}
	for n := 0; n < s.mix.steps && s.busy() && s.wrong == "" && !(len(s.living()) == 0 &&
		len(s.procs) == maxProcesses); n++ {
		s.act()
		s.check()
	}
	s.quiet()
	s.drain()
	if s.wrong == "" {
		s.reckon()
	}
	for _, p := range s.procs {
		switch {
		case p.dead.Load():
		case s.wrong == "":
			p.raw.Close()
		default:
			s.kill(p)
		}
	}
	s.drain() // after something went wrong: let the goroutines end
}

// quiet ends all faults.
func (s *sim) quiet() {
	s.say("from here on nothing fails")
	s.calm = true
	s.skew.Store(0)
	s.blind.Store(false)
	s.node.down, s.node.lag = false, 0
	s.mine()
}

// drain lets everything that runs come to its end, and finds what does not.
func (s *sim) drain() {
	synctest.Wait()
	const patience = 5 * time.Minute // more than a call's two deadlines and the recording after them
	began, polls := s.now(), 0
	for s.running > 0 || len(s.parked) > 0 {
		if len(s.parked) > 0 {
			s.step()
		} else {
			s.sleep(50 * time.Millisecond)
			polls++
		}
		if s.wrong == "" {
			s.check()
			if s.now().Sub(began) > patience {
				s.fail("a call hangs")
			}
		}
		if s.wrong != "" && s.now().Sub(began) > time.Hour {
			panic("a goroutine does not end\n" + s.story())
		}
		if s.wrong != "" {
			for _, p := range s.procs {
				if !p.dead.Load() {
					s.kill(p)
				}
			}
		}
	}
}

// reckon asks the chain about everything once time has run out for what is open, and compares.
func (s *sim) reckon() {
	if len(s.living()) == 0 {
		s.start()
	}
	s.bringAll()
	// by the wallet's own clocks too: the one that may have been behind when it signed, and the one
	// that nobody sets
	life := s.living()[0].engine.Policy.MaxTimeout + 2*maxSkew
	s.sleep(max(life, s.lastBreath().Add(2*maxSkew).Sub(s.now())) + time.Second)
	s.say("everything is over")
	s.check()
	s.reconcileAll()
	if len(s.channels) > 0 && s.wrong == "" {
		s.compareBooks()
		s.closeChannels()
		s.reconcileAll()
	}
	if s.wrong == "" {
		s.compare()
	}
}

// reconcileAll has each process ask the chain, as it does from time to time.
func (s *sim) reconcileAll() {
	for _, p := range s.living() {
		s.reconcile(p)
		s.drain()
	}
}

// drawRules sets limits within reach of what is bought.
func (s *sim) drawRules() budget.Rules {
	dollars := func(list ...int64) money.Dollars { return money.Dollars(list[s.rng.IntN(len(list))]) }
	r := budget.Rules{PerCall: 1000, ApproveAbove: 1000, Rate: 1 << 20, Month: dollars(40, 1000),
		Day: dollars(20, 30, 1000)}
	if s.chance(60) {
		session := dollars(10, 20, 30)
		r.Session = &session
	}
	if s.chance(40) {
		r.HostDay = map[string]money.Dollars{s.host(0): dollars(10, 20)}
	}
	return r
}
