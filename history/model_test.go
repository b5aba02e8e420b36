package history

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The model: what the ledger must be, as plain rows and arithmetic. It shares nothing with the
// store but the names of states.

type modelRow struct {
	id, session, host, key, body string
	agent                        string
	payTo                        string
	state                        State
	proof                        Proof
	price                        money.Dollars
	created, updated             time.Time
	request                      byte
	content                      int // its status; 0: none
	leaseOwner, waiter           string
	delivered                    bool
	agentSigned                  string // what the agent signed, until it is submitted
	sequence                     string
}

type model struct {
	rows             []*modelRow // of this sequence, oldest first
	now, newest      time.Time
	session          string // the one that is open, unless it has been idle
	last             time.Time
	limit, caps      *money.Dollars // of the session that is open; and the owner's, for every session
	day, month, host money.Dollars
	agents           map[string]budget.Agent // with a day and a month of their own
	tree             modelTree
	rate             int         // payments in a minute
	newPayee, change budget.Rule // allow, or refuse
	jump             int64       // a person is asked at this many times the last price; 0: never
	sessionCaps      map[string]*money.Dollars
	alive            map[string]bool
	free             uint64 // the chain's figure
	readAt           time.Time
	traces           map[string]bool
	inOrder          []*modelRow // that were signed, in this sequence
}

func (m *model) at() time.Time {
	if m.newest.After(m.now) {
		return m.newest
	}
	return m.now
}

func (m *model) sum(which func(*modelRow) bool) (u budget.Use) {
	for _, r := range m.rows {
		if which(r) {
			switch r.state {
			case Settled:
				u.Spent += r.price
			case Failed:
			default:
				u.Held += r.price
			}
		}
	}
	return u
}

// on reports whether a payment's host is one that the owner's entry covers: itself, on any port.
func on(entry, host string) bool { return host == entry || strings.HasPrefix(host, entry+":") }

func (m *model) living(agent, key string) *modelRow {
	for _, r := range m.rows {
		if key != "" && r.agent == agent && r.key == key && r.state != Failed {
			return r
		}
	}
	return nil
}

// open is the session that a payment made now falls into; "": it begins one.
func (m *model) open() string {
	if m.at().Sub(m.last) >= 8*time.Hour {
		return ""
	}
	return m.session
}

// basis is what a decision was made on.
type basis struct {
	session string
	limit   *money.Dollars // of the session
	at      time.Time
}

func (m *model) basis(delegated *money.Dollars) basis {
	b := basis{session: m.open(), limit: m.limit, at: m.at()}
	if b.session == "" {
		b.limit = delegated
	}
	if m.caps != nil {
		b.limit = m.caps
	}
	return b
}

// fits reports whether no window that a decision looked at is over its limit with one more payment.
func (m *model) fits(r *modelRow, b basis) bool {
	fits, day := true, b.at.Truncate(24*time.Hour)
	month := time.Date(b.at.Year(), b.at.Month(), 1, 0, 0, 0, 0, time.UTC)
	within := func(limit money.Dollars, which func(*modelRow) bool) {
		u := m.sum(which)
		fits = fits && u.Spent+u.Held+r.price <= limit
	}
	if b.limit != nil {
		within(*b.limit, func(o *modelRow) bool { return b.session != "" && o.session == b.session })
	}
	within(m.day, func(o *modelRow) bool { return !o.created.Before(day) })
	within(m.month, func(o *modelRow) bool { return !o.created.Before(month) })
	entry, _, _ := strings.Cut(r.host, ":")
	within(m.host, func(o *modelRow) bool { return on(entry, o.host) && !o.created.Before(day) })
	if own, has := m.agents[r.agent]; has {
		within(*own.Day, func(o *modelRow) bool { return o.agent == r.agent && !o.created.Before(day) })
		within(*own.Month, func(o *modelRow) bool { return o.agent == r.agent && !o.created.Before(month) })
	}
	m.fitsTeams(r.agent, day, month, within)
	return fits
}

// busy reports whether the rate is reached, or that of a team of the agent's.
func (m *model) busy(agent string) bool {
	n := 0
	for _, o := range m.rows {
		if o.created.After(m.at().Add(-time.Minute)) {
			n++
		}
	}
	return n >= m.rate || m.busyTeam(agent)
}

// seller says what the rules about payees and prices find: "payee", "ask" or nothing.
func (m *model) seller(r *modelRow) string {
	known, here, others, last := false, false, false, money.Dollars(0)
	for _, o := range m.inOrder { // that it was signed counts, whatever became of it
		samePayee, sameHost := o.payTo == r.payTo, o.host == r.host
		if samePayee {
			known = true
			here = here || sameHost
		}
		if !samePayee && sameHost {
			others = true
		}
		if sameHost {
			last = o.price
		}
	}
	changed := others && !here
	switch {
	case changed && m.change == budget.RuleRefuse, !known && m.newPayee == budget.RuleRefuse:
		return "payee"
	case m.jumps(r.price, last):
		return "ask"
	}
	return ""
}

// jumps reports whether a price is so many times the last one that the owner is asked.
func (m *model) jumps(price, last money.Dollars) bool {
	return m.jump > 0 && last > 0 && price > last && int64(price) >= m.jump*int64(last)
}

// decide says what the rules have to answer: "" or "taken", "payee", "over", "rate" or "ask".
func (m *model) decide(r *modelRow, b basis) string {
	seller := m.seller(r)
	switch {
	case m.living(r.agent, r.key) != nil:
		return "taken"
	case seller == "payee":
		return seller
	case !m.fits(r, b):
		return "over"
	case m.busy(r.agent):
		return "rate"
	}
	return seller
}

// reserve says what Reserve has to answer to a decision that was made on b: "held", "taken",
// "moved" or "short".
func (m *model) reserve(r *modelRow, b basis) string {
	late := m.sum(func(o *modelRow) bool { return o.state != Settled || !o.updated.Before(m.readAt) })
	switch {
	case m.living(r.agent, r.key) != nil:
		return "taken"
	case m.open() != b.session, b.at.Truncate(24 * time.Hour).After(m.at()), !m.fits(r, b), m.busy(r.agent),
		m.seller(r) != "":
		return "moved"
	case uint64(late.Spent+late.Held+r.price) > m.free:
		return "short"
	}
	return "held"
}

var mayFollow = map[State]map[State]bool{
	Reserved:  {Submitted: true, Failed: true},
	Submitted: {Settled: true, Failed: true, Unknown: true},
	Unknown:   {Unknown: true, Settled: true, Failed: true},
	Settled:   {Settled: true, Failed: true},
}

func (m *model) move(r *modelRow, to State) bool {
	if !mayFollow[r.state][to] || (r.proof == Chain && to == Failed) { // what the chain proved stays proven
		return false
	}
	r.state, r.updated = to, m.now
	return true
}

// The machine: the same operations on the model and on two processes' stores.

type machine struct {
	model
	home   string
	url    string // of a ledger in PostgreSQL
	stores [2]*Store
	name   string // of this sequence: what it makes is told from what other sequences left
	nested bool   // something happens between a decision and its hold
	steps  int
	signed []modelSigned // in this ledger, of all sequences, in the order of signing
}

func (m *machine) clock() time.Time { return m.now }

func (m *machine) open(t require.TestingT, i int) {
	open := Open
	if m.url != "" {
		open = func(ctx context.Context, home string, o Options) (*Store, error) {
			return OpenPostgres(ctx, home, postgres.Server{URL: m.url}, o)
		}
	}
	s, err := open(context.Background(), m.home, Options{Contents: Keeper, Now: m.clock})
	require.NoError(t, err)
	m.stores[i] = s
}

// begin is a new sequence on the ledger: another month, another source of money, nobody's session.
func (m *machine) begin(t *rapid.T, n int) {
	later := m.at()
	dollars := func(most int64, what string) money.Dollars {
		return money.Dollars(rapid.Int64Range(0, most).Draw(t, what))
	}
	old := m.alive
	m.model = model{now: time.Date(later.Year(), later.Month()+1, 28, 12, 0, 0, 0, time.UTC),
		alive: map[string]bool{}, traces: map[string]bool{}, sessionCaps: map[string]*money.Dollars{}}
	for id, is := range old {
		if is {
			m.alive[id] = true
		}
	}
	m.name, m.readAt = fmt.Sprint("seq", n), m.now
	m.day, m.month, m.host = dollars(60, "day"), dollars(90, "month"), dollars(40, "host")
	if rapid.Bool().Draw(t, "sessions have a cap") {
		session := dollars(50, "session")
		m.caps = &session
	}
	m.rate, m.newPayee, m.change, m.jump = 1<<30, budget.RuleAllow, budget.RuleAllow, 0
	if rapid.IntRange(0, 3).Draw(t, "rate") == 0 {
		m.rate = rapid.IntRange(1, 4).Draw(t, "a minute")
	}
	if rapid.IntRange(0, 3).Draw(t, "payees") == 0 {
		rules := rapid.SampledFrom([]budget.Rule{budget.RuleAllow, budget.RuleRefuse})
		m.newPayee, m.change, m.jump = rules.Draw(t, "new payee"), rules.Draw(t, "payee change"),
			rapid.Int64Range(0, 3).Draw(t, "jump")
	}
	m.agents = map[string]budget.Agent{}
	for _, name := range agentNames[1:] {
		m.agents[name] = budget.Agent{Day: new(dollars(40, name+"'s day")),
			Month: new(dollars(60, name+"'s month"))}
	}
	m.drawTree(t, dollars)
	m.free = uint64(rapid.IntRange(0, 40).Draw(t, "free"))
	if rapid.Bool().Draw(t, "only the chain is short") {
		m.day, m.month, m.host, m.caps = 1000, 1000, 1000, nil
		for name := range m.agents {
			m.agents[name] = budget.Agent{Day: &m.day, Month: &m.month}
		}
		m.unlimitedTeams(1000)
	}
}

// agentNames are who pays: a caller without a name, and three agents.
var agentNames = []string{"", "ann", "amy", "bob"}

func (m *machine) store(t *rapid.T) *Store {
	return m.stores[rapid.IntRange(0, 1).Draw(t, "process")]
}

func (m *machine) row(t *rapid.T) *modelRow {
	if len(m.rows) == 0 {
		t.Skip("nothing there yet")
	}
	return m.rows[rapid.IntRange(0, len(m.rows)-1).Draw(t, "payment")]
}

func (m *machine) rules() budget.Rules {
	return budget.Rules{
		PerCall: 1 << 40, ApproveAbove: 1 << 40, Rate: m.rate, Session: m.caps, Day: m.day, Month: m.month,
		HostDay:  map[string]money.Dollars{"a.example": m.host, "b.example": m.host},
		NewPayee: m.newPayee, PayeeChange: m.change, PriceJump: float64(m.jump), Agents: m.agents,
		Teams: m.tree.budgetTeams(),
	}
}

// Reserve decides on a payment, on one process's facts, and holds its money in another. In between,
// anything may happen.
func (m *machine) Reserve(t *rapid.T) {
	h := testHold(uint64(rapid.IntRange(1, 20).Draw(t, "price")))
	r := &modelRow{
		host:    rapid.SampledFrom([]string{"a.example", "a.example:8443", "b.example"}).Draw(t, "host"),
		payTo:   fmt.Sprint(m.name, " payee ", rapid.IntRange(0, 1).Draw(t, "payee")),
		request: byte(rapid.IntRange(0, 2).Draw(t, "request")), price: h.Payment.Price, state: Reserved,
		sequence: m.name, agent: rapid.SampledFrom(agentNames).Draw(t, "agent"),
	}
	if k := rapid.IntRange(0, 4).Draw(t, "key"); k < 2 {
		r.key = fmt.Sprint(m.name, " key ", k)
	}
	if rapid.Bool().Draw(t, "delegated") {
		d := money.Dollars(rapid.Int64Range(0, 50).Draw(t, "delegation"))
		h.SessionCap = &d
	}
	p := &h.Payment
	p.Host, p.IdempotencyKey, p.Fingerprint, p.PayTo = r.host, r.key, m.fingerprint(r.request), r.payTo
	p.Agent = r.agent
	p.URL, p.Source, p.Asset, h.Funds.Source = "https://api.example/"+m.name, m.name, m.name, m.name
	h.Funds.Free, h.Funds.ReadAt = money.NewAmount(m.free), m.readAt

	b := m.basis(h.SessionCap)
	want := m.decide(r, b)
	facts, err := decide(m.store(t), m.rules(), &h)
	require.Equal(t, want, m.answer(t, r, err))
	require.True(t, facts.Now.Equal(b.at), "the ledger's time: %s, not %s", facts.Now, b.at)
	if want != "" {
		return
	}
	if !m.nested && rapid.IntRange(0, 2).Draw(t, "meanwhile") == 0 {
		m.nested = true
		m.meanwhile(t)
		m.nested = false
		h.Funds.Free, h.Funds.ReadAt = money.NewAmount(m.free), m.readAt
	}
	m.hold(t, h, r, b)
}

// hold compares Reserve with the model.
func (m *machine) hold(t *rapid.T, h Hold, r *modelRow, b basis) {
	s, at, want := m.store(t), m.at(), m.reserve(r, b)
	p, err := s.Reserve(context.Background(), h)
	m.alive[s.Self()] = true
	got := m.answer(t, r, err)
	if got == "" {
		got = "held"
	}
	require.Equal(t, want, got, "%v", err)
	if got != "held" {
		return
	}
	if b.session == "" {
		require.NotEqual(t, m.session, p.Session)
		m.session, m.limit, m.sessionCaps[p.Session] = p.Session, h.SessionCap, h.SessionCap
	}
	r.id, r.session, r.created, r.updated, r.leaseOwner, r.waiter = p.ID, m.session, at, at, s.Self(),
		s.Self()
	m.last, m.newest = at, at
	m.rows = append(m.rows, r)
	m.reportOn(t, p, r)
}

// answer names what the rules or the ledger said to a payment.
func (m *machine) answer(t *rapid.T, r *modelRow, err error) string {
	var taken *AlreadyPaying
	var short *ShortOfFunds
	switch {
	case err == nil:
		return ""
	case errors.As(err, &taken):
		require.Equal(t, m.living(r.agent, r.key).id, taken.Payment.ID)
		return "taken"
	case errors.As(err, &short):
		return "short"
	case errors.Is(err, ErrMoved):
		return "moved"
	}
	code := x402.AsError(err).Code
	name := map[x402.Code]string{
		x402.BudgetExceeded: "over", x402.RateLimited: "rate", x402.ApprovalRequired: "ask",
		x402.PayeeChanged: "payee", x402.PolicyDenied: "payee",
	}[code]
	require.NotEmpty(t, name, "%v", err)
	return name
}

// meanwhile is what happens between a decision and its hold.
func (m *machine) meanwhile(t *rapid.T) {
	steps := []func(*rapid.T){m.Reserve, m.NewSession, m.Clock, m.Chain}
	if len(m.rows) > 0 {
		steps = append(steps, m.Submit, m.Finish, m.Release)
	}
	steps[rapid.IntRange(0, len(steps)-1).Draw(t, "what happens meanwhile")](t)
}

func (m *machine) fingerprint(request byte) (f [32]byte) {
	copy(f[1:], m.name)
	f[0] = request
	return f
}

func (m *machine) NewSession(t *rapid.T) {
	limit := money.Dollars(rapid.Int64Range(0, 50).Draw(t, "limit"))
	session := must.Get(m.store(t).NewSession(context.Background(), &limit,
		func(budget.Session) ([]byte, error) { return []byte("the owner"), nil }))(t)
	m.session, m.last, m.limit, m.sessionCaps[session.ID] = session.ID, m.at(), &limit, &limit
}

func (m *machine) Submit(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	trace := fmt.Sprint(m.name, " trace ", rapid.IntRange(0, 9).Draw(t, "trace"))
	p, err := s.Payment(context.Background(), r.id)
	require.NoError(t, err)
	signed := Signed{Payload: []byte(`{"signed":true}`), Requirement: []byte(`{}`), UniqueKey: trace}
	byAgent := rapid.IntRange(0, 3).Draw(t, "by the agent") == 0
	if byAgent { // who does not ask whose lease it is, and learns no payload
		err = s.Sign(context.Background(), p, signed, signed.Payload, m.keyholder())
	} else {
		err = s.Submit(context.Background(), p, signed, m.keyholder())
		if m.another(t, r, s, err) {
			return
		}
	}
	switch {
	case m.traces[trace] && !byAgent && r.agentSigned == trace && r.state == Submitted:
		// the rest of what the agent began
		require.NoError(t, err)
		r.agentSigned = ""
		return
	case m.traces[trace]:
		require.ErrorIs(t, err, ErrSignedBefore)
		return
	case r.state == Reserved && m.tooLate(r):
		require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
		return
	}
	if !m.agree(t, err, m.move(r, Submitted)) {
		return
	}
	m.traces[trace] = true
	if byAgent {
		r.agentSigned = trace
	}
	m.signed = append(m.signed,
		modelSigned{id: r.id, key: r.key, session: r.session, created: r.created, row: r})
	m.inOrder = append(m.inOrder, r)
}

// modelSigned is a signature that the sealed sums know of.
type modelSigned struct {
	id, key, session string
	created          time.Time
	row              *modelRow
	over             bool // it had failed when the owner accepted the ledger: its windows are forgotten
}

// counted are the signatures whose windows are known.
func (m *machine) counted() (list []modelSigned) {
	for _, g := range m.signed {
		if !g.over {
			list = append(list, g)
		}
	}
	return list
}

func (m *machine) keyholder() Keyholder {
	k := testKeyholder()
	k.Query = m.queryOf
	k.OwnSession = func(budget.Session, []byte) (bool, error) { return true, nil }
	return k
}

// newestTwo are the newest two of the beginnings of the signatures' days or months, oldest first.
func (m *machine) newestTwo(begin func(time.Time) time.Time) (list []time.Time) {
	for _, g := range m.counted() {
		if at := begin(g.created); !slices.Contains(list, at) {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, time.Time.Compare)
	return list[max(0, len(list)-2):]
}

func beginOfDay(at time.Time) time.Time { return at.Truncate(24 * time.Hour) }

func beginOfMonth(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// tooLate: nobody knows any more what was signed in its windows, or its session was followed by
// another one, in which something was signed.
func (m *machine) tooLate(r *modelRow) bool {
	for _, begin := range []func(time.Time) time.Time{beginOfDay, beginOfMonth} {
		if known := m.newestTwo(begin); len(known) == 2 && begin(r.created).Before(known[0]) {
			return true
		}
	}
	list := m.counted()
	return len(list) > 0 && list[len(list)-1].session != r.session && m.session != r.session
}

// CheckSealed: what is sealed is what the model adds up, and the memory is what was signed.
func (m *machine) CheckSealed(t *rapid.T) {
	s := m.stores[m.steps%2]
	require.NoError(t, s.view(context.Background(), func(tx *tx) error {
		last := must.Get(tx.lastSealed(testKeyholder(), nil))(t)
		stands := func(which func(modelSigned) bool) (sum money.Dollars) {
			for _, g := range m.signed {
				if g.row.state != Failed && which(g) {
					sum += g.row.price
				}
			}
			return sum
		}
		windows := func(list []seals.WindowSum, begin func(time.Time) time.Time, hosts bool) {
			known := m.newestTwo(begin)
			require.Len(t, list, len(known))
			for i, at := range known {
				require.Equal(t, sqldb.DayNumber(at), list[i].Day)
				require.Equal(t, stands(func(g modelSigned) bool { return begin(g.created).Equal(at) }),
					list[i].Sum)
				for j, host := range list[i].Hosts {
					require.Equal(t, stands(func(g modelSigned) bool {
						return g.row.host == host && begin(g.created).Equal(at)
					}), list[i].Paid[j])
				}
				require.Equal(t, hosts, list[i].Hosts != nil)
				for j, agent := range list[i].Agents {
					require.Equal(t, stands(func(g modelSigned) bool {
						return g.row.agent == agent && begin(g.created).Equal(at)
					}), list[i].Spent[j])
				}
				for _, g := range m.counted() {
					if g.row.agent != "" && begin(g.created).Equal(at) {
						require.Contains(t, list[i].Agents, g.row.agent)
					}
				}
			}
		}
		windows(last.Days, beginOfDay, true)
		windows(last.Months, beginOfMonth, false)
		if list := m.counted(); len(list) > 0 {
			session := list[len(list)-1].session
			require.Equal(t, session, last.Session.ID)
			require.Equal(t, stands(func(g modelSigned) bool { return g.session == session }),
				last.Session.Sum)
		}
		return m.checkMemory(t, tx, last.memory)
	}))
}

func (m *machine) checkMemory(t *rapid.T, tx *tx, mem *memory.Memory) error {
	want := map[string][]byte{}
	for _, g := range m.signed {
		p, r := testHold(1).Payment, g.row
		resource := Payment{
			Method: p.Method,
			URL:    "https://api.example/" + r.sequence,
			Host:   r.host,
		}.Resource()
		yes := []byte{1}
		want[string(memory.Key("payee", p.Network, r.payTo))] = yes
		want[string(memory.Key("paid here", r.host, p.Network, r.sequence, r.payTo))] = yes
		want[string(memory.Key("seller", r.host, p.Network, r.sequence))] = []byte(r.payTo)
		want[string(memory.Key("price", resource))] = binary.BigEndian.AppendUint64(nil, uint64(r.price))
		if r.state == Failed {
			want[string(memory.Key("expired", g.id))] = yes
		}
		if g.key != "" && r.state != Failed {
			want[string(memory.Key("idempotency key", g.key, g.row.agent))] = []byte(g.id)
		}
	}
	var n int
	require.NoError(t, tx.Row(`SELECT count(*) FROM memory`).Scan(&n))
	require.Equal(t, len(want), n)
	for key, value := range want {
		require.Equal(t, value, must.Get(mem.Get([]byte(key)))(t))
	}
	return nil
}

// agree compares an answer with the model's: changed, or refused by the table of states.
func (m *machine) agree(t *rapid.T, err error, changed bool) bool {
	if changed {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, ErrTransition)
	}
	return changed
}

// another: only the process that drives a payment may send it or let go of it.
func (m *machine) another(t *rapid.T, r *modelRow, s *Store, err error) bool {
	if r.leaseOwner != "" && r.leaseOwner == s.Self() {
		return false
	}
	require.ErrorIs(t, err, ErrNotLeaseOwner)
	return true
}

func (m *machine) Finish(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	o := anOutcome(t)
	if o.State == Failed {
		_, err := s.Finish(context.Background(), r.id, o)
		require.ErrorIs(t, err, ErrUnsealed, "who holds no key frees nothing")
		if r.state == Reserved || !m.wasSigned(r) { // nothing of it could expire
			_, err := finish(s, r.id, o)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt) || errors.Is(err, ErrTransition), "%v", err)
			return
		}
	}
	p, err := finish(s, r.id, o)
	if r.state != Settled || o.State != Unknown { // a late shrug takes no proof away
		proof := o.Proof
		if r.proof == Chain {
			proof = Chain
		}
		if !m.agree(t, err, m.move(r, o.State)) {
			return
		}
		r.proof = proof
	}
	require.NoError(t, err)
	require.Equal(t, r.state, p.State)
	if o.ReleaseLease {
		r.leaseOwner = ""
		if o.ClearWaiter {
			r.waiter = ""
		}
	}
	if o.Content != nil && (r.content == 0 || r.content == 402 || o.Content.Status == 200) {
		// what was bought is kept
		r.content, r.body = o.Content.Status, string(o.Content.Body)
	}
}

func anOutcome(t *rapid.T) Outcome {
	o := Outcome{ReleaseLease: rapid.Bool().Draw(t, "rest"), ClearWaiter: rapid.Bool().Draw(t, "abandon")}
	switch rapid.IntRange(0, 3).Draw(t, "outcome") {
	case 0:
		o.State = Unknown
	case 1:
		o.State, o.Proof = Settled, Claimed
	case 2:
		o.State, o.Proof = Settled, Chain
	case 3:
		o.State = Failed
	}
	if rapid.Bool().Draw(t, "content") {
		o.Content = &Content{Status: rapid.SampledFrom([]int{200, 402}).Draw(t, "status")}
		if rapid.Bool().Draw(t, "body") {
			o.Content.Body = []byte("body")
		}
	}
	return o
}

func (m *machine) wasSigned(r *modelRow) bool { return slices.Contains(m.inOrder, r) }

func (m *machine) Release(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	err := s.Release(context.Background(), r.id, "nothing left")
	if m.another(t, r, s, err) {
		return
	}
	if m.agree(t, err, r.state == Reserved && m.move(r, Failed)) {
		r.leaseOwner, r.waiter = "", ""
	}
}

func (m *machine) ClearWaiter(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	require.NoError(t, s.ClearWaiter(context.Background(), r.id))
	r.waiter = ""
}

func (m *machine) Rest(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	require.NoError(t, s.ReleaseLease(context.Background(), r.id))
	if r.leaseOwner == s.Self() {
		r.leaseOwner = ""
	}
}

func (m *machine) Deliver(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	require.NoError(t, s.Deliver(context.Background(), r.id))
	r.waiter, r.delivered = "", true
}

func (m *machine) AcquireLease(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	from := r.leaseOwner
	if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
		from = "run_somebody"
	}
	mine := must.Get(s.AcquireLease(context.Background(), r.id, from))(t)
	require.Equal(t, from == r.leaseOwner, mine)
	m.alive[s.Self()] = true
	if mine {
		r.leaseOwner, r.waiter = s.Self(), s.Self()
	}
}

func (m *machine) Name(t *rapid.T) {
	r, s := m.row(t), m.store(t)
	key := fmt.Sprint(m.name, " key ", rapid.IntRange(0, 1).Draw(t, "key"))
	named, err := s.AttachIdempotencyKey(context.Background(), r.id, key)
	var taken *AlreadyPaying
	if other := m.living(r.agent, key); other != nil && other != r {
		require.ErrorAs(t, err, &taken)
		require.Equal(t, other.id, taken.Payment.ID)
		return
	}
	require.NoError(t, err)
	if r.key == "" && r.state != Failed {
		r.key = key
	}
	require.Equal(t, r.key == key && r.state != Failed, named)
}

// End is what happens seldom: a session begun by hand, a ledger verified, a process that ends,
// politely or not, and is followed by another one.
func (m *machine) End(t *rapid.T) {
	switch what := rapid.IntRange(0, 9).Draw(t, "what ends"); {
	case what < 4:
		m.NewSession(t)
		return
	case what < 5:
		m.Verify(t)
		return
	case what < 6:
		m.Seal(t)
		return
	case what < 9:
		m.now = m.now.Truncate(24*time.Hour).AddDate(0, 0, 1) // the day
		return
	}
	i := rapid.IntRange(0, 1).Draw(t, "process")
	id := m.stores[i].Self()
	require.NoError(t, m.stores[i].Close())
	if id != "" {
		m.alive[id] = false
		// then its file stays, and nobody holds its lock
		if rapid.Bool().Draw(t, "killed") && m.url == "" {
			require.NoError(t, os.WriteFile(filepath.Join(m.home, "run", id), nil, 0o600))
		}
	}
	m.open(t, i)
}

func (m *machine) Clock(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int64{1, 1e3, 1e6, 60e6, 3600e6, 8*3600e6 - 1,
		8 * 3600e6, 24 * 3600e6, -1e6, -3600e6, -48 * 3600e6}).Draw(t, "µs")) * time.Microsecond)
}

func (m *machine) Chain(t *rapid.T) {
	m.free = uint64(rapid.IntRange(0, 40).Draw(t, "free"))
	m.readAt = m.now.Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "lag")) * time.Second)
}

// Look compares what the engine asks a ledger.
func (m *machine) Look(t *rapid.T) {
	ctx, s := context.Background(), m.store(t)
	for id, alive := range m.alive {
		require.Equal(t, alive, s.Alive(id))
	}
	ids := func(list []Payment, err error) (ids []string) {
		require.NoError(t, err)
		for _, p := range list {
			if p.Source == m.name {
				ids = append(ids, p.ID)
			}
		}
		return ids
	}
	var unfinished, claimed []string
	var open [3][]string
	since := m.now.Add(-time.Hour)
	for _, r := range m.rows {
		if r.state.Unfinished() {
			unfinished = append(unfinished, r.id)
		}
		if r.state == Settled && r.proof == Claimed && !r.created.Before(since) {
			claimed = append(claimed, r.id)
		}
		if r.state.Unfinished() || (r.state == Settled && !r.delivered) {
			open[r.request] = append([]string{r.id}, open[r.request]...)
		}
	}
	require.Equal(t, unfinished, ids(s.Unfinished(ctx, "", 1<<20)))
	require.Equal(t, claimed, ids(s.Claimed(ctx, since, "", 1<<20)))
	for request := range open {
		require.Equal(t, open[request], ids(s.ByRequest(ctx, m.fingerprint(byte(request)))))
	}
	for k := range 2 {
		key := fmt.Sprint(m.name, " key ", k)
		for _, agent := range agentNames {
			p, err := s.ByKey(ctx, agent, key)
			if r := m.living(agent, key); r != nil {
				require.NoError(t, err)
				require.Equal(t, r.id, p.ID)
			} else {
				require.ErrorIs(t, err, ErrNotFound)
			}
		}
	}
	for _, r := range m.rows {
		c, err := s.Content(ctx, r.id)
		if r.content == 0 {
			require.ErrorIs(t, err, ErrNotFound)
		} else {
			require.NoError(t, err)
			require.Equal(t, r.content, c.Status)
			require.Equal(t, r.body, string(c.Body))
		}
	}
}

// Seal is the owner's seal over the rules, who accepts the ledger as it is, or does not.
func (m *machine) Seal(t *rapid.T) {
	s, ctx := m.store(t), context.Background()
	last := must.Get(s.Rules(ctx))(t)
	rules := SealedRules{Version: last.Version + 1, Config: []byte(m.name), Seal: []byte("s")}
	if !rapid.Bool().Draw(t, "accept") {
		require.NoError(t, s.SealRules(ctx, rules, "/home", false, m.keyholder()))
		return
	}
	require.NoError(t, s.SealRules(ctx, rules, "/home", true, m.keyholder()))
	// what failed is forgotten with its windows
	for i, g := range m.signed {
		m.signed[i].over = g.over || g.row.state == Failed
	}
}

func (m *machine) Verify(t *rapid.T) {
	must.Get(m.store(t).VerifySealed(context.Background(), testKeyholder()))(t)
}

func (m *machine) reportOn(t require.TestingT, p Payment, r *modelRow) {
	got := modelRow{id: p.ID, session: p.Session, host: p.Host, payTo: p.PayTo, key: p.IdempotencyKey,
		body: r.body, state: p.State, proof: p.Proof, price: p.Price,
		created: p.Created.UTC(), updated: p.Updated.UTC(), request: p.Fingerprint[0], content: r.content,
		leaseOwner: p.LeaseOwner, waiter: p.Waiter, delivered: p.Delivered, agentSigned: r.agentSigned,
		sequence: r.sequence, agent: p.Agent}
	require.Equal(t, *r, got)
}

// Now checks after every fourth step: each step compares its own answer, and reading everything
// costs as much as the steps.
func (m *machine) Now(t *rapid.T) {
	m.steps++
	if m.steps%4 == 0 {
		m.Check(t)
	}
}

// Check: the ledger is the model, to the row and to the sum, and no window is over its cap.
func (m *machine) Check(t *rapid.T) {
	if m.steps%16 == 0 { // it costs as much as all the rest
		m.CheckSealed(t)
	}
	s := m.stores[len(m.rows)%2]
	list := must.Get(s.many(context.Background(), ` WHERE source = ? ORDER BY seq`, m.name))(t)
	require.Len(t, list, len(m.rows))
	for i, p := range list {
		m.reportOn(t, p, m.rows[i])
	}
	m.checkReport(t, s)
	require.NoError(t, s.view(context.Background(), func(tx *tx) error {
		m.checkTeams(t, tx)
		window := func(w budget.Window, limit money.Dollars, which func(*modelRow) bool) {
			got := must.Get(tx.used(w))(t)
			want := m.sum(which)
			require.Equal(t, want, got, "%+v", w)
			require.LessOrEqual(t, want.Spent+want.Held, limit, "%+v", w)
		}
		for id, limit := range m.sessionCaps {
			most := money.Dollars(1 << 40)
			if m.caps != nil {
				most = *m.caps
			} else if limit != nil {
				most = *limit
			}
			window(budget.Window{Session: id}, most, func(r *modelRow) bool { return r.session == id })
		}
		for day := m.newest.Truncate(24 * time.Hour); !m.newest.IsZero() && day.After(m.newest.AddDate(0, 0,
			-1).Add(-time.Second)); day = day.AddDate(0, 0, -1) {
			since := func(r *modelRow) bool { return !r.created.Before(day) }
			// a window that is open to the end is the owner's only on the newest day
			most := money.Dollars(1 << 40)
			if day.Equal(m.newest.Truncate(24 * time.Hour)) {
				most = m.day
			}
			window(budget.Window{Since: day}, most, since)
			for _, host := range []string{"a.example", "b.example"} {
				window(budget.Window{Since: day, Host: host}, min(most, 1<<40), func(r *modelRow) bool {
					return on(host, r.host) && since(r)
				})
			}
		}
		return nil
	}))
}

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.Now, "reserve": m.Reserve, "hold": m.Reserve, "take": m.Reserve, "submit": m.Submit,
		"send": m.Submit, "finish": m.Finish, "prove": m.Finish, "release": m.Release,
		"abandon": m.ClearWaiter,
		"rest":    m.Rest, "deliver": m.Deliver, "drive": m.AcquireLease, "name": m.Name, "clock": m.Clock,
		"chain": m.Chain, "end": m.End,
	}
}

// How many sequences each of two workers tries unless -rapid.checks says otherwise, and how long
// they are on average.
const (
	modelChecks = 200
	modelSteps  = 8
)

// TestTheLedgerIsItsModel: `make model` tries a hundred thousand sequences.
func TestTheLedgerIsItsModel(t *testing.T) {
	byDefault(t, "rapid.checks", modelChecks)
	byDefault(t, "rapid.steps", modelSteps)
	template := t.TempDir()
	require.NoError(t, Create(t.Context(), template, Options{}))
	empty := must.Get(os.ReadFile(filepath.Join(template, FileName)))(t)
	makeFile := func(t require.TestingT, m *machine) {
		require.NoError(t, os.WriteFile(filepath.Join(m.home, FileName), empty, 0o600))
	}
	server := pgtest.Shared(t)
	makeSchema := func(rt require.TestingT, m *machine) {
		m.url = server.Database(t)
		makePostgres(rt, m.url)
	}
	workers := []func(require.TestingT, *machine){makeFile, makeSchema}
	for _, makeLedger := range workers {
		t.Run("worker", func(t *testing.T) {
			t.Parallel()
			const perLedger = 100 // sequences, so that Verify stays cheap
			m, n := &machine{model: model{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}}, 0
			end := func(t require.TestingT) {
				for i, s := range m.stores {
					if s != nil {
						_, err := s.VerifySealed(context.Background(), testKeyholder())
						require.NoError(t, err)
						s.Close()
						m.stores[i] = nil
					}
				}
				os.RemoveAll(m.home)
			}
			defer end(t)
			rapid.Check(t, func(rt *rapid.T) {
				if n%perLedger == 0 || m.stores[0] == nil {
					end(rt)
					m.home = scratch(t)
					makeLedger(rt, m)
					m.alive, m.signed = nil, nil
					m.open(rt, 0)
					m.open(rt, 1)
				}
				n++
				m.begin(rt, n)
				rt.Repeat(m.actions())
				m.Check(rt)
				if n%4 == 0 {
					m.Look(rt)
				}
			})
		})
	}
}

// byDefault sets a flag for this test unless it was given.
func byDefault(t *testing.T, name string, value int) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	was := flag.Lookup(name).Value.String()
	require.NoError(t, flag.Set(name, fmt.Sprint(value)))
	t.Cleanup(func() { flag.Set(name, was) })
}

// scratch is a directory in memory where there is one: these tests are about what is written, not
// about the disk.
func scratch(t testing.TB) string {
	if dir, err := os.MkdirTemp("/dev/shm", "x402-model-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}
