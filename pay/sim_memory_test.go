//go:build !race

package pay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// memLedger is the ledger in plain Go, thirty times as fast as SQLite, so that most seeds can be run
// on it. That it is the same ledger is tested below, operation for operation against history.Store.
// Nobody is asked and nothing frozen in it. Every realEvery-th seed runs on the real one.
type memLedger struct {
	mu sync.Mutex
	memState
	// signedBefore: in another session, before the first of signed
	signedBefore bool
	alive        map[string]bool
	approves     bool // a person says yes to whatever they are asked
	approvals    approvalsByAgent
	made         int
	now          func() time.Time
}

// memState is what is in it.
type memState struct {
	rows     []*history.Payment
	traces   map[string]bool
	contents map[string]history.Content
	session  budget.Session
	signed   []*history.Payment // in their order
	days     []time.Time        // the newest two in which anything was signed
	months   []time.Time
	channels map[channelName]history.Channel
}

func (s memState) copy() memState {
	to := map[*history.Payment]*history.Payment{}
	renewed := func(list []*history.Payment) (fresh []*history.Payment) {
		for _, p := range list {
			if to[p] == nil {
				row := *p
				to[p] = &row
			}
			fresh = append(fresh, to[p])
		}
		return fresh
	}
	s.rows, s.signed = renewed(s.rows), renewed(s.signed)
	s.traces, s.contents = maps.Clone(s.traces), maps.Clone(s.contents)
	s.days, s.months = slices.Clone(s.days), slices.Clone(s.months)
	s.channels = maps.Clone(s.channels)
	return s
}

// memStore is one process's way to it.
type memStore struct {
	*memLedger
	self string
}

// ledger is what both are for the simulation: with what a Guard does with it.
type ledger interface {
	Store
	Submit(ctx context.Context, p history.Payment, signed history.Signed) error
	Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error)
	Charge(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error)
	Channel(ctx context.Context, service, key string) (history.Channel, error)
	BatchChannels(ctx context.Context) ([]history.Channel, error)
	BatchChannelsWith(ctx context.Context, host string) ([]history.Channel, error)
	SaveChannel(ctx context.Context, c history.Channel) error
	Close() error
}

// sqlLedger is the real one.
type sqlLedger struct{ *history.Store }

func (l sqlLedger) Submit(ctx context.Context, p history.Payment, signed history.Signed) error {
	return historytest.Guard{Store: l.Store}.Submit(ctx, p, signed, false)
}

func (l sqlLedger) Expire(ctx context.Context, p history.Payment, status x402.Status) (
	history.Payment, error) {
	return historytest.Guard{Store: l.Store}.Expire(ctx, p, status)
}

func (l sqlLedger) Charge(ctx context.Context, p history.Payment, status x402.Status) (
	history.Payment, error) {
	return historytest.Guard{Store: l.Store}.Charge(ctx, p, status)
}

func newMemLedger(now func() time.Time) *memLedger {
	return &memLedger{memState: memState{traces: map[string]bool{}, contents: map[string]history.Content{},
		channels: map[channelName]history.Channel{}},
		alive: map[string]bool{}, now: now}
}

func (l *memLedger) id(prefix string) string {
	l.made++
	return fmt.Sprintf("%s%04x%028x", prefix, l.made, 0)
}

// begin is the beginning of a transaction; the returned function ends it.
func (l *memLedger) begin(ctx context.Context) (func(), error) {
	if ctx.Err() != nil {
		return nil, x402.Errorf(x402.LedgerUnavailable, "begin: %w", ctx.Err())
	}
	l.mu.Lock()
	return l.mu.Unlock, nil
}

func (l *memLedger) find(id string) *history.Payment {
	for _, p := range l.rows {
		if p.ID == id {
			return p
		}
	}
	return nil
}

func (l *memLedger) living(agent, key string) *history.Payment {
	for _, p := range l.rows {
		if key != "" && p.Agent == agent && p.IdempotencyKey == key && p.State != history.Failed {
			return p
		}
	}
	return nil
}

func (l *memLedger) time() time.Time {
	at := l.now().UTC().Truncate(time.Microsecond)
	for _, p := range l.rows {
		if p.Created.After(at) {
			at = p.Created
		}
	}
	return at
}

// used sums a window.
func (l *memLedger) used(w budget.Window) (u budget.Use) {
	for _, p := range l.rows {
		host := w.Host == "" || p.Host == w.Host || strings.HasPrefix(p.Host, w.Host+":")
		other := w.Session != "" && p.Session != w.Session
		if !host || !w.Has(p.Agent) || other || p.Created.Before(w.Since) {
			continue
		}
		switch p.State {
		case history.Settled:
			u.Spent += p.Worth()
		case history.Failed:
		default:
			u.Held += p.Price
		}
	}
	return u
}

// count counts the payments of a node, or all, made after a time.
func (l *memLedger) count(since time.Time, of budget.Window) (n int) {
	for _, p := range l.rows {
		if p.Created.After(since) && of.Has(p.Agent) {
			n++
		}
	}
	return n
}

// newest is when the nth newest payment of a node, or of all, was made.
func (l *memLedger) newest(n int, of budget.Window) time.Time {
	var times []time.Time
	for _, p := range l.rows {
		if of.Has(p.Agent) {
			times = append(times, p.Created)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[len(times)-n]
}

// nodeUsage is what a node's day and month hold.
func (l *memLedger) nodeUsage(of budget.Window, day, month time.Time) (u budget.NodeUsage) {
	of.Since = day
	u.Day = l.used(of)
	of.Since = month
	u.Month = l.used(of)
	return u
}

// open is the session that a payment made at a time falls into; its ID is empty when it begins one.
func (l *memLedger) open(at time.Time) budget.Session {
	if l.session.ID == "" || at.Sub(l.session.Last) >= budget.SessionIdle {
		return budget.Session{Started: at, Last: at}
	}
	return l.session
}

// seller is what is known of a payee and a price.
func (l *memLedger) seller(host string, to budget.Payee) (h budget.PayeeHistory) {
	for _, p := range l.signed {
		same := p.Network == to.Network && strings.EqualFold(p.PayTo, to.PayTo)
		here := p.Host == host && p.Network == to.Network && p.Asset == to.Asset
		if here {
			h.Other = p.PayTo
		}
		h.Paid, h.PaidHere = h.Paid || same, h.PaidHere || (same && here)
		if p.Resource() == to.Resource {
			h.LastPrice = &p.Price
		}
	}
	if h.PaidHere {
		h.Other = ""
	}
	return h
}

// purchase is the payment that another one would be again.
func (l *memLedger) purchase(p history.Payment, resume bool) *history.Payment {
	if other := l.living(p.Agent, p.IdempotencyKey); other != nil {
		return other
	}
	for _, o := range l.rows {
		if resume && o.Fingerprint == p.Fingerprint && o.Waiter == "" && !o.Delivered &&
			o.State != history.Failed {
			return o
		}
	}
	return nil
}

func (s *memStore) Facts(ctx context.Context, q history.Question) (f history.Facts, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return f, err
	}
	defer end()
	if p := s.purchase(q.Payment, q.Resume); p != nil {
		found := *p
		f.Purchase = &found
	}
	at := s.time()
	windows := at
	if !q.Rules.At.IsZero() {
		windows = q.Rules.At
	}
	day, session := budget.DayOf(windows), s.open(at)
	f.Facts = budget.Facts{
		Now: at, Behind: at.Sub(s.now().UTC()), Session: session,
		LastMinute: s.count(at.Add(-budget.RateWindow), budget.Window{}),
		NodeRates:  map[string]budget.RateUse{},
		Used: budget.Usage{
			Day:     s.used(budget.Window{Since: day}),
			Month:   s.used(budget.Window{Since: budget.MonthOf(windows)}),
			HostDay: map[string]budget.Use{},
		},
	}
	if q.Rules.Payee.PayTo != "" {
		f.Payee = s.seller(q.Rules.Host, q.Rules.Payee)
	}
	if session.ID != "" {
		f.Used.Session = s.used(budget.Window{Session: session.ID})
	}
	for _, host := range q.Rules.HostEntries {
		f.Used.HostDay[host] = s.used(budget.Window{Host: host, Since: day})
	}
	if name := q.Rules.Agent; name != "" {
		f.Used.Agent = s.nodeUsage(budget.Window{Agent: name}, day, budget.MonthOf(windows))
	}
	if len(q.Rules.Teams) > 0 {
		f.Used.Teams = map[string]budget.NodeUsage{}
	}
	for _, name := range q.Rules.Teams {
		f.Used.Teams[name] = s.nodeUsage(budget.Window{Team: name, Teams: q.Rules.Tree}, day,
			budget.MonthOf(windows))
	}
	for _, limit := range q.Rules.NodeRates {
		use := budget.RateUse{LastMinute: s.count(limit.Since(at), limit.Window)}
		if use.LastMinute >= limit.Max {
			use.Since = s.newest(limit.Max, limit.Window)
		}
		f.NodeRates[limit.Window.Node()] = use
	}
	if s.approves && len(q.Quotes) > 0 {
		f.Approvals = []history.Approval{s.approvals.of(q.Quotes[0], q.Payment.Agent)}
	}
	if nth := max(q.Rules.Rate, 1); f.LastMinute >= nth {
		f.RateSince = s.newest(nth, budget.Window{})
	}
	return f, nil
}

func (s *memStore) NotFrozen(ctx context.Context, _, _ string) error { return ctx.Err() }

// AskApproval, Accept, ApprovedBy and Freeze: nobody is asked, and nothing frozen, in the simulation; nor is
// anybody told.
func (s *memStore) AskApproval(context.Context, history.Approval) (history.Approval, error) {
	return history.Approval{}, errors.ErrUnsupported
}

func (s *memStore) AskApprovals(context.Context, []history.Approval) ([]history.Approval, error) {
	return nil, errors.ErrUnsupported
}

func (s *memStore) AskedTogether(context.Context, string) ([]history.Approval, error) {
	return nil, errors.ErrUnsupported
}

func (s *memStore) Accept(context.Context, string, string) (history.Approval, error) {
	return history.Approval{}, errors.ErrUnsupported
}

func (s *memStore) ApprovedBy(context.Context, history.Payment) (*history.Approver, error) {
	return nil, nil
}

func (s *memStore) Freeze(context.Context, history.Freeze) error { return errors.ErrUnsupported }

func (s *memStore) AlertOverdue(context.Context, history.Payment) error { return nil }

func (s *memStore) AlertDamage(context.Context, string) error { return nil }

func (s *memStore) Self() string { return s.self }

func (s *memStore) me() string {
	if s.self == "" {
		s.self = s.id("run_")
		s.alive[s.self] = true
	}
	return s.self
}

func (s *memStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, s.self)
	s.self = ""
	return nil
}

func (s *memStore) Alive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive[id]
}

// holdsStill reports whether what a decision rests on is so.
func (l *memLedger) holdsStill(d budget.Decision, p history.Payment, at time.Time) bool {
	for _, c := range d.Caps {
		if c.Window.Since.After(at) || l.used(c.Window).Total().Add(p.Price) > c.Limit {
			return false
		}
	}
	for _, limit := range d.Rates {
		if l.count(limit.Since(at), limit.Window) >= limit.Max {
			return false
		}
	}
	known := l.seller(p.Host, budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo,
		Resource: p.Resource()})
	if (d.PayeeKnown && !known.Paid) || (d.PayeeUnchanged && known.Changed()) {
		return false
	}
	return d.MinLastPrice == nil || known.LastPrice == nil || *known.LastPrice >= *d.MinLastPrice
}

// held is what payments out of a source hold of it, or took since it was read, up to p where that is one of
// them.
func (l *memLedger) held(p history.Payment, source string, readAt time.Time) (held money.Amount) {
	for _, o := range l.rows {
		same := o.Source == source && o.Asset == p.Asset && o.Network == p.Network
		if same && !o.Prepaid() && (o.State.Unfinished() || (o.State == history.Settled &&
			!o.Updated.Before(readAt.Truncate(time.Microsecond)))) {
			held, _ = held.Add(o.Amount)
		}
		if o.ID == p.ID {
			break
		}
	}
	return held
}

func (s *memStore) HeldUpTo(ctx context.Context, p history.Payment, readAt time.Time) (held money.Amount,
	err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return held, err
	}
	defer end()
	return s.held(p, p.Source, readAt), nil
}

func (s *memStore) OpenFrom(ctx context.Context, network, source string) ([]history.Payment, error) {
	return s.list(ctx, func(p *history.Payment) bool {
		return p.Network == network && p.Source == source && p.State.Unfinished()
	})
}

func (s *memStore) Reserve(ctx context.Context, h history.Hold) (p history.Payment, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return p, err
	}
	defer end()
	return s.reserve(h)
}

// ReserveAll takes all back where one is refused.
func (s *memStore) ReserveAll(ctx context.Context, holds []history.Hold) (held []history.Payment, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	session, rows := s.session, len(s.rows)
	for i, h := range holds {
		if i > 0 && h.Decision.Session == "" {
			h.Decision = inSession(h.Decision, held[0].Session)
		}
		p, err := s.reserve(h)
		if err != nil {
			s.session, s.rows = session, s.rows[:rows]
			return nil, &history.NotHeld{At: i, Err: err}
		}
		held = append(held, p)
	}
	return held, nil
}

// inSession is a decision that was made before there was a session, in the one that began since.
func inSession(d budget.Decision, id string) budget.Decision {
	d.Session, d.Caps = id, slices.Clone(d.Caps)
	for i := range d.Caps {
		if w := &d.Caps[i].Window; w.Session != "" {
			w.Session = id
		}
	}
	return d
}

func (s *memStore) reserve(h history.Hold) (p history.Payment, err error) {
	me, at := s.me(), s.time()
	p = h.Payment
	if len(h.Decision.Caps) == 0 && (!h.Decision.Prepaid || !p.Prepaid()) {
		return p, errors.New("a hold needs a decision with caps")
	}
	if other := s.purchase(p, h.Resume); other != nil {
		return p, &history.AlreadyPaying{Payment: *other}
	}
	session := s.open(at)
	mayHold := s.holdsStill(h.Decision, p, at) && (h.Approval == nil || s.approves)
	if session.ID != h.Decision.Session || !mayHold {
		return p, history.ErrMoved
	}
	if session.ID == "" {
		session = budget.Session{ID: s.id("ses_"), Started: at, Last: at, Cap: h.SessionCap}
	}
	held := s.held(p, h.Funds.Source, h.Funds.ReadAt)
	if wanted, ok := held.Add(p.Amount); !p.ByVoucher() && (!ok || wanted.Cmp(h.Funds.Free) > 0) {
		return p, &history.ShortOfFunds{Free: h.Funds.Free, Held: held, Wanted: p.Amount}
	}
	s.approvals.use(h.Approval, p.Agent)
	session.Last = at
	s.session = session
	p.ID, p.Session, p.State, p.Created, p.Updated, p.LeaseOwner, p.Waiter = cmp.Or(p.ID, s.id("pay_")),
		session.ID, history.Reserved, at, at, me, me
	row := p
	s.rows = append(s.rows, &row)
	return p, nil
}

func (s *memStore) move(p *history.Payment, to history.State) error {
	next := map[history.State][]history.State{
		history.Reserved:  {history.Submitted, history.Failed},
		history.Submitted: {history.Settled, history.Failed, history.Unknown},
		history.Unknown:   {history.Unknown, history.Settled, history.Failed},
		history.Settled:   {history.Settled, history.Failed},
	}
	if !slices.Contains(next[p.State], to) || (p.Proof == history.Chain && to == history.Failed) {
		return history.ErrTransition
	}
	p.State, p.Updated = to, s.now().UTC().Truncate(time.Microsecond)
	return nil
}

// driven finds a payment that this process drives.
func (s *memStore) driven(id string) (*history.Payment, error) {
	p := s.find(id)
	if s.self == "" || p.LeaseOwner != s.self {
		return nil, history.ErrNotLeaseOwner
	}
	return p, nil
}

func (s *memStore) Submit(ctx context.Context, asSigned history.Payment, signed history.Signed) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := s.goesOn(signed.Channel); err != nil {
		return err
	}
	p, err := s.driven(asSigned.ID)
	if err != nil {
		return err
	}
	if s.traces[signed.UniqueKey] {
		return history.ErrSignedBefore
	}
	if p.State != history.Reserved {
		return history.ErrTransition
	}
	if err := s.inTime(p); err != nil {
		return err
	}
	if err := s.move(p, history.Submitted); err != nil {
		return err
	}
	s.traces[signed.UniqueKey] = true
	s.signed = append(s.signed, p)
	p.Payload, p.Requirement, p.Evidence = signed.Payload, signed.Requirement, signed.Evidence
	if signed.Channel != nil {
		s.put(*signed.Channel)
	}
	return nil
}

// inTime refuses a signature whose session is over, or whose windows are.
func (l *memLedger) inTime(p *history.Payment) error {
	isLast := !l.signedBefore
	isOver := p.Session != l.session.ID
	if n := len(l.signed); n > 0 {
		newest := slices.MaxFunc(l.signed,
			func(a, b *history.Payment) int { return a.Created.Compare(b.Created) })
		isLast = p.Session == l.signed[n-1].Session
		isOver = isOver || p.Created.Before(newest.Created)
	}
	if isOver && !isLast {
		return history.ErrTooLate
	}
	days, ok := kept(l.days, budget.DayOf(p.Created))
	months, okMonth := kept(l.months, budget.MonthOf(p.Created))
	if !ok || !okMonth {
		return history.ErrTooLate
	}
	l.days, l.months = days, months
	return nil
}

// kept puts a window's beginning among the newest two; false: it is older.
func kept(list []time.Time, at time.Time) ([]time.Time, bool) {
	if slices.ContainsFunc(list, at.Equal) {
		return list, true
	}
	if len(list) == 2 && at.Before(list[0]) {
		return list, false
	}
	list = append(slices.Clone(list), at)
	slices.SortFunc(list, time.Time.Compare)
	return list[max(0, len(list)-2):], true
}

// Expire is what a Guard does with the ledger.
func (s *memStore) Expire(ctx context.Context, p history.Payment, status x402.Status) (
	history.Payment, error) {
	return s.finish(ctx, p.ID, history.Expiry(p, status))
}

func (s *memStore) Charge(ctx context.Context, p history.Payment, status x402.Status) (
	saved history.Payment, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return saved, err
	}
	defer end()
	row := s.find(p.ID)
	if status.Amount.Cmp(row.Amount) >= 0 || row.Proof == history.Chain {
		return *row, history.ErrTransition
	}
	if err := s.apply(row, history.Settlement(status)); err != nil {
		return *row, err
	}
	units, _ := status.Amount.Uint64()
	row.Charged, row.Returned = status.Amount, row.Price-money.Dollars(units)
	return *row, nil
}

func (s *memStore) Release(ctx context.Context, id, why string) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	p, err := s.driven(id)
	if err != nil {
		return err
	}
	if p.State != history.Reserved {
		return history.ErrTransition
	}
	if err := s.move(p, history.Failed); err != nil {
		return err
	}
	p.Note, p.LeaseOwner, p.Waiter = why, "", ""
	return nil
}

// apply writes an outcome into its row.
func (s *memStore) apply(p *history.Payment, o history.Outcome) error {
	if p.Proof == history.Chain && o.State == history.Settled {
		o.Proof, o.Transaction = history.Chain, ""
	}
	refuted := p.State == history.Settled && o.State == history.Failed
	if err := s.move(p, o.State); err != nil {
		return err
	}
	p.Proof, p.Note = o.Proof, o.Note
	p.FalseReceipt = p.FalseReceipt || o.FalseReceipt || refuted
	if o.Transaction != "" {
		p.Transaction = o.Transaction
	}
	if o.Facilitator != "" {
		p.Facilitator = o.Facilitator
	}
	if o.Receipt != nil {
		p.Receipt = o.Receipt
	}
	if o.ChainProof != nil {
		p.ChainProof, _ = json.Marshal(o.ChainProof)
	}
	return nil
}

func (s *memStore) Finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error) {
	if o.State == history.Failed {
		return history.Payment{}, history.ErrUnsealed
	}
	return s.finish(ctx, id, o)
}

func (s *memStore) finish(ctx context.Context, id string, o history.Outcome) (history.Payment, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return history.Payment{}, err
	}
	defer end()
	p := s.find(id)
	if p.State != history.Settled || o.State != history.Unknown {
		if err := s.apply(p, o); err != nil {
			return *p, err
		}
	}
	was := *p
	if o.ReleaseLease {
		p.LeaseOwner = ""
		if o.ClearWaiter {
			p.Waiter = ""
		}
	}
	if o.Content != nil {
		ok := func(status int) bool { return status >= 200 && status <= 299 }
		if old, there := s.contents[id]; !there || !ok(old.Status) || ok(o.Content.Status) {
			kept := *o.Content
			digest := sha256.Sum256(kept.Body)
			kept.Size, kept.SHA256 = int64(len(kept.Body)), hex.EncodeToString(digest[:])
			s.contents[id] = kept
		}
	}
	return was, nil
}

func (s *memStore) change(ctx context.Context, id string, do func(*history.Payment)) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	do(s.find(id))
	return nil
}

func (s *memStore) AcquireLease(ctx context.Context, id, from string) (mine bool, err error) {
	err = s.change(ctx, id, func(p *history.Payment) {
		me := s.me()
		mine = p.LeaseOwner == from
		if mine {
			p.LeaseOwner, p.Waiter = me, me
		}
	})
	return mine, err
}

func (s *memStore) AttachIdempotencyKey(ctx context.Context, id, key string) (named bool, err error) {
	var taken error
	err = s.change(ctx, id, func(p *history.Payment) {
		if other := s.living(p.Agent, key); other != nil && other != p {
			taken = &history.AlreadyPaying{Payment: *other}
			return
		}
		if p.IdempotencyKey == "" && p.State != history.Failed {
			p.IdempotencyKey = key
		}
		named = p.IdempotencyKey == key && p.State != history.Failed
	})
	return named, errors.Join(err, taken)
}

func (s *memStore) ReleaseLease(ctx context.Context, id string) error {
	return s.change(ctx, id, func(p *history.Payment) {
		if p.LeaseOwner == s.self {
			p.LeaseOwner = ""
		}
	})
}

func (s *memStore) ClearWaiter(ctx context.Context, id string) error {
	return s.change(ctx, id, func(p *history.Payment) { p.Waiter = "" })
}

func (s *memStore) Deliver(ctx context.Context, id string) error {
	return s.change(ctx, id, func(p *history.Payment) { p.Waiter, p.Delivered = "", true })
}

func (s *memStore) Payment(ctx context.Context, id string) (found history.Payment, err error) {
	list, err := s.list(ctx, func(p *history.Payment) bool { return p.ID == id })
	return one(list, err)
}

func (s *memStore) ByKey(ctx context.Context, agent, key string) (history.Payment, error) {
	list, err := s.list(ctx, func(p *history.Payment) bool {
		return p.Agent == agent && p.IdempotencyKey == key && p.State != history.Failed
	})
	return one(list, err)
}

func one(list []history.Payment, err error) (history.Payment, error) {
	if err == nil && len(list) == 0 {
		err = history.ErrNotFound
	}
	if err != nil {
		return history.Payment{}, err
	}
	return list[0], nil
}

func (s *memStore) list(ctx context.Context, which func(*history.Payment) bool) (list []history.Payment,
	err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, p := range s.rows {
		if which(p) {
			list = append(list, *p)
		}
	}
	return list, nil
}

func (s *memStore) ByRequest(ctx context.Context, fingerprint [32]byte) ([]history.Payment, error) {
	list, err := s.list(ctx, func(p *history.Payment) bool {
		return p.Fingerprint == fingerprint && (p.State.Unfinished() || (p.State == history.Settled &&
			!p.Delivered))
	})
	slices.Reverse(list)
	return list, err
}

func (s *memStore) Recent(ctx context.Context, limit int) ([]history.Payment, error) {
	list, err := s.list(ctx, func(*history.Payment) bool { return true })
	slices.Reverse(list)
	return list[:min(len(list), limit)], err
}

func (s *memStore) Bought(ctx context.Context, agent, url, resource string) (history.Payment, error) {
	list, err := s.list(ctx, func(p *history.Payment) bool {
		isWanted := (agent == "" || p.Agent == agent) && p.State == history.Settled && !p.IsSignIn()
		return isWanted && p.Resource() == resource && strings.HasPrefix(p.URL, url)
	})
	slices.Reverse(list)
	return one(list, err)
}

func (s *memStore) Earlier(ctx context.Context, p history.Payment, limit int) ([]history.Payment, error) {
	list, err := s.list(ctx, func(was *history.Payment) bool {
		return was.State == history.Settled && was.Host == p.Host && was.Number < p.Number && !was.IsSignIn()
	})
	slices.Reverse(list)
	return list[:min(len(list), limit)], err
}

func (s *memStore) Expired(ctx context.Context, network string, since time.Time) ([]history.Payment, error) {
	return s.list(ctx, func(p *history.Payment) bool {
		return p.State == history.Failed && p.Network == network && !p.Created.Before(since) &&
			p.Evidence.Payer != ""
	})
}

func (s *memStore) Unfinished(ctx context.Context, after string, limit int) ([]history.Payment, error) {
	list, err := s.list(ctx, behind(after, func(p *history.Payment) bool { return p.State.Unfinished() }))
	return list[:min(len(list), limit)], err
}

// behind passes over payments up to one; "" is none.
func behind(after string, which func(*history.Payment) bool) func(*history.Payment) bool {
	met := after == ""
	return func(p *history.Payment) bool {
		if !met {
			met = p.ID == after
			return false
		}
		return which(p)
	}
}

func (s *memStore) Claimed(ctx context.Context, since time.Time, after string, limit int) ([]history.Payment,
	error) {
	list, err := s.list(ctx, behind(after, func(p *history.Payment) bool {
		return p.State == history.Settled && p.Proof == history.Claimed &&
			!p.Created.Before(since.Truncate(time.Microsecond))
	}))
	return list[:min(len(list), limit)], err
}

func (s *memStore) Content(ctx context.Context, id string) (history.Content, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return history.Content{}, err
	}
	defer end()
	c, there := s.contents[id]
	if !there {
		return c, history.ErrNotFound
	}
	return c, nil
}

// How many sequences are tried unless -rapid.checks says otherwise, and in how many the ledger gets another
// file, because it would be slower and slower.
const (
	twinsChecks        = 500
	sequencesPerLedger = 500
)

// TestMemoryLedgerMatchesStore: whatever is done to both, both answer the same.
func TestMemoryLedgerMatchesStore(t *testing.T) {
	isGiven := false
	flag.Visit(func(f *flag.Flag) { isGiven = isGiven || f.Name == "rapid.checks" })
	if was := flag.Lookup("rapid.checks").Value.String(); !isGiven {
		require.NoError(t, flag.Set("rapid.checks", fmt.Sprint(twinsChecks)))
		defer func() { require.NoError(t, flag.Set("rapid.checks", was)) }()
	}
	dir, err := os.MkdirTemp("/dev/shm", "x402-sim-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var now time.Time
	clock := func() time.Time { return now }
	var real [2]sqlLedger
	closeAll := func() {
		for _, l := range real {
			if l.Store != nil {
				l.Close()
			}
		}
	}
	defer func() { closeAll() }()
	sequence, signed := 0, false
	renew := func(t *rapid.T) {
		closeAll()
		home := filepath.Join(dir, "ledger")
		require.NoError(t, os.RemoveAll(home))
		require.NoError(t, os.Mkdir(home, 0o700))
		require.NoError(t, history.Create(context.Background(), home, history.Options{Now: clock}))
		for i := range real {
			store, err := history.Open(context.Background(), home, history.Options{Now: clock})
			require.NoError(t, err)
			real[i] = sqlLedger{store}
		}
		signed = false
	}
	rapid.Check(t, func(t *rapid.T) {
		// each in months of its own: it goes on for 11 days, or back for 2 into the month before
		now = firstMonth.AddDate(0, 3*(sequence%sequencesPerLedger), rapid.IntRange(0, 30).Draw(t, "day"))
		if sequence%sequencesPerLedger == 0 {
			renew(t)
		}
		sequence++
		l := newMemLedger(clock)
		l.signedBefore = signed
		w := &twins{t: t, ctx: context.Background(), now: &now,
			sequence: sequence, source: fmt.Sprint("seq", sequence),
			real: real, mem: [2]*memStore{{memLedger: l}, {memLedger: l}},
			names: map[string]string{"": ""}}
		w.drawRules()
		earlier, err := real[0].Recent(w.ctx, 1)
		require.NoError(t, err)
		for _, p := range earlier {
			w.before = p.ID
		}
		for range 3 + w.draw(25, "steps") {
			i := w.draw(1, "process")
			if what := w.draw(18, "what"); what < 4 || len(w.ids) == 0 {
				if !w.reserve(i) {
					continue
				}
			} else {
				w.change(i, what)
			}
			now = now.Add(time.Duration(rapid.SampledFrom([]int64{1, 1e6, 30e6, 3600e6, 9 * 3600e6,
				-3600e6}).Draw(t, "µs")) * time.Microsecond)
			w.compareLists(i)
			w.compareChannels(i)
			if len(w.ids) > 0 {
				w.comparePayment(i, w.ids[w.draw(len(w.ids)-1, "looked at")])
			}
			signed = signed || len(l.signed) > 0
		}
		for _, id := range w.ids {
			w.comparePayment(0, id)
		}
	})
}

// twins are the ledger and the ledger in memory, each of two processes, to which the same is done.
type twins struct {
	t        *rapid.T
	ctx      context.Context
	now      *time.Time
	sequence int
	source   string
	rules    budget.Rules
	real     [2]sqlLedger
	mem      [2]*memStore
	ids      [][2]string       // of the same payment in both
	names    map[string]string // of payments, sessions and processes, the same for both
	earlier  [2]budget.Decision
	before   string // the real ledger's last payment of earlier sequences
}

func (w *twins) draw(most int, what string) int { return rapid.IntRange(0, most).Draw(w.t, what) }

func (w *twins) drawRules() {
	limit := money.Dollars(w.draw(60, "session"))
	w.rules = budget.Rules{PerCall: 1000, ApproveAbove: 1000, Rate: 1 + w.draw(6, "rate"),
		Day: money.Dollars(w.draw(90, "day")), Month: 1000, Session: &limit,
		HostDay: map[string]money.Dollars{w.source: money.Dollars(w.draw(60, "host"))},
		Agents: map[string]budget.Agent{"ann": {Day: new(money.Dollars(w.draw(60, "ann"))), Month: &limit},
			"bob": {}}}
	if w.draw(3, "payees") == 0 {
		w.rules.NewPayee, w.rules.PayeeChange = budget.RuleAllow, budget.RuleRefuse
		w.rules.PriceJump = float64(w.draw(3, "jump"))
	}
	if w.draw(2, "the session's cap alone") == 0 {
		w.rules.Day, w.rules.Rate, w.rules.HostDay = 1000, 1000, nil
	}
	if w.draw(1, "teams") == 1 {
		w.rules.Teams = budget.Teams{
			"all": {Day: new(money.Dollars(w.draw(90, "day of all"))), Rate: w.draw(4, "rate of all")},
			"a": {Agents: []string{"a*"}, Parent: "all",
				Month: new(money.Dollars(w.draw(60, "month of a")))},
			"b": {Agents: []string{"bob"}, Parent: []string{"", "all", "a"}[w.draw(2, "above b")]}}
		w.rules.EachAgent = map[string]budget.EachAgent{"b*": {Rate: w.draw(3, "rate of bob"),
			Day: new(money.Dollars(w.draw(60, "day of bob")))}}
	}
}

// name gives what both made, under an ID of its own in each, one name.
func (w *twins) name(a, b, as string) { w.names[a], w.names[b] = as, as }

// same requires that both have the same payment but for IDs.
func (w *twins) same(a, b history.Payment) {
	for _, p := range []*history.Payment{&a, &b} {
		p.ID, p.Number, p.Session = w.names[p.ID], 0, w.names[p.Session]
		p.LeaseOwner, p.Waiter = w.names[p.LeaseOwner], w.names[p.Waiter]
	}
	a.Created = a.Created.UTC().Truncate(time.Microsecond)
	a.Updated = a.Updated.UTC().Truncate(time.Microsecond)
	require.Equal(w.t, a, b)
}

// agree requires that both fail in the same way, and reports whether both succeeded.
func (w *twins) agree(a, b error) bool {
	require.Equal(w.t, w.kind(a), w.kind(b), "%v; in memory: %v", a, b)
	return a == nil
}

// kind is what a caller can tell of an error.
func (w *twins) kind(err error) string {
	var none *history.NotHeld
	var taken *history.AlreadyPaying
	var short *history.ShortOfFunds
	switch {
	case err == nil:
		return ""
	case errors.As(err, &none):
		return fmt.Sprint(none.At, ": ", w.kind(none.Err))
	case errors.As(err, &taken):
		return "taken by " + w.names[taken.Payment.ID]
	case errors.As(err, &short):
		return short.Error()
	}
	for _, known := range []error{history.ErrMoved, history.ErrTransition, history.ErrSignedBefore,
		history.ErrNotFound, history.ErrNotLeaseOwner, history.ErrTooLate, history.ErrUnsealed} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return x402.AsError(err).Error()
}

// decide reads the facts from both, which have to be the same, and decides on each.
func (w *twins) decide(i int, h history.Hold) (decisions [2]budget.Decision, passes bool) {
	var facts [2]history.Facts
	var errs [2]error
	for k, s := range []Store{w.real[i], w.mem[i]} {
		ask := budgetAsk(h.Payment)
		question := history.Question{Rules: w.rules.Query(ask), Payment: h.Payment, Resume: h.Resume}
		f, err := s.Facts(w.ctx, question)
		require.NoError(w.t, err)
		facts[k] = f
		errs[k] = f.Refusal()
		if errs[k] == nil {
			decisions[k], errs[k] = w.rules.Decide(ask, f.Facts)
		}
	}
	for k := range facts {
		facts[k].Session.ID = w.names[facts[k].Session.ID]
	}
	require.Equal(w.t, facts[0].Facts, facts[1].Facts)
	return decisions, w.agree(errs[0], errs[1])
}

// reserve makes a payment in both, or several in one step; it reports false where both refused to decide for
// one.
func (w *twins) reserve(i int) bool {
	var holds [2][]history.Hold
	for range 1 + w.draw(5, "several")/4*w.draw(2, "more") {
		h := w.drawHold()
		decisions, passes := w.decide(i, h)
		if !passes {
			return false
		}
		if len(w.earlier[0].Caps) > 0 && w.draw(3, "made before") == 0 { // what it rests on may have changed
			decisions, w.earlier = w.earlier, decisions
		} else {
			w.earlier = decisions
		}
		for k := range holds {
			h.Decision = decisions[k]
			holds[k] = append(holds[k], h)
		}
	}
	var held [2][]history.Payment
	var errs [2]error
	for k, s := range []Store{w.real[i], w.mem[i]} {
		if len(holds[k]) > 1 {
			held[k], errs[k] = s.ReserveAll(w.ctx, holds[k])
			continue
		}
		p, err := s.Reserve(w.ctx, holds[k][0])
		held[k], errs[k] = []history.Payment{p}, err
	}
	w.name(w.real[i].Self(), w.mem[i].Self(), fmt.Sprint("process ", i))
	if w.agree(errs[0], errs[1]) {
		require.Len(w.t, held[1], len(held[0]))
		for n, p := range held[0] {
			q := held[1][n]
			w.name(p.ID, q.ID, fmt.Sprint("payment ", len(w.ids)))
			w.name(p.Session, q.Session, fmt.Sprint("session of ", w.names[p.Session], w.names[q.Session]))
			w.ids = append(w.ids, [2]string{p.ID, q.ID})
			w.same(p, q)
		}
	}
	return true
}

func (w *twins) drawHold() history.Hold {
	price := uint64(1 + w.draw(20, "price"))
	key := ""
	if k := w.draw(3, "key"); k < 2 {
		key = fmt.Sprint(w.source, k)
	}
	h := history.Hold{
		Payment: history.Payment{Fingerprint: Request{}.fingerprint("", ""), IdempotencyKey: key,
			Agent: []string{"", "ann", "bob"}[w.draw(2, "agent")],
			Host:  w.source, PayTo: fmt.Sprint(w.source, w.draw(1, "payee")), Network: testNetwork,
			Asset: testUSDC, Amount: money.NewAmount(price), Price: money.Dollars(price), Source: w.source,
			Requirement: json.RawMessage("{}")},
		Funds: x402.Funds{Source: w.source, Free: money.NewAmount(uint64(w.draw(80, "free"))),
			ReadAt: w.now.Add(-time.Duration(w.draw(2, "read")) * time.Second)},
		Resume: w.draw(5, "resume") == 0,
	}
	h.Payment.Fingerprint[0] = byte(w.sequence)
	h.Payment.Fingerprint[1] = byte(w.sequence >> 8)
	h.Payment.Fingerprint[2] = byte(w.draw(1, "request"))
	return h
}

// change does one thing to a payment in both.
func (w *twins) change(i, what int) {
	a, b := w.real[i], w.mem[i]
	id := w.ids[w.draw(len(w.ids)-1, "payment")]
	p, err := a.Payment(w.ctx, id[0])
	require.NoError(w.t, err)
	switch what {
	case 4, 5:
		trace := fmt.Sprint(w.source, w.draw(9, "trace"))
		signed := history.Signed{Payload: json.RawMessage(`{"a":1}`),
			Requirement: json.RawMessage(`{"b":2}`), UniqueKey: trace, Evidence: x402.Evidence{Payer: "0xd"}}
		signed.Channel = w.drawVoucher(i)
		w.agree(a.Submit(w.ctx, p, signed), b.Submit(w.ctx, *b.find(id[1]), signed))
	case 6, 7:
		o := w.drawOutcome()
		p, errA := a.Finish(w.ctx, id[0], o)
		q, errB := b.Finish(w.ctx, id[1], o)
		if o.State == history.Failed {
			w.agree(errA, errB)
			w.expire(i, id)
			return
		}
		if w.agree(errA, errB) {
			// as it was read, or as it was written: nobody asks
			p.Updated, q.Updated = time.Time{}, time.Time{}
			w.same(p, q)
		}
	case 8:
		w.agree(a.Release(w.ctx, id[0], "why"), b.Release(w.ctx, id[1], "why"))
	case 9:
		mine, errA := a.AcquireLease(w.ctx, id[0], p.LeaseOwner)
		also, errB := b.AcquireLease(w.ctx, id[1], b.find(id[1]).LeaseOwner)
		w.name(a.Self(), b.Self(), fmt.Sprint("process ", i))
		w.agree(errA, errB)
		require.Equal(w.t, mine, also)
	case 10:
		key := fmt.Sprint(w.source, w.draw(1, "key"))
		named, errA := a.AttachIdempotencyKey(w.ctx, id[0], key)
		also, errB := b.AttachIdempotencyKey(w.ctx, id[1], key)
		w.agree(errA, errB)
		require.Equal(w.t, named, also)
	case 11:
		w.agree(a.Deliver(w.ctx, id[0]), b.Deliver(w.ctx, id[1]))
	case 12:
		w.agree(a.ClearWaiter(w.ctx, id[0]), b.ClearWaiter(w.ctx, id[1]))
	case 13:
		w.agree(a.ReleaseLease(w.ctx, id[0]), b.ReleaseLease(w.ctx, id[1]))
	case 14:
		c := w.drawChannel()
		w.agree(a.SaveChannel(w.ctx, c), b.SaveChannel(w.ctx, c))
	case 15, 16:
		w.charge(i, id)
	case 17, 18:
		w.expire(i, id)
	}
}

// charge records in both that what was signed settled for less.
func (w *twins) charge(i int, id [2]string) {
	a, b := w.real[i], w.mem[i]
	p, err := a.Payment(w.ctx, id[0])
	require.NoError(w.t, err)
	if p.Payload == nil {
		return
	}
	status := x402.Status{State: x402.Settled, Transaction: "0xc",
		Amount: new(money.NewAmount(uint64(w.draw(20, "charged"))))}
	p, errA := a.Charge(w.ctx, p, status)
	q, errB := b.Charge(w.ctx, *b.find(id[1]), status)
	if w.agree(errA, errB) {
		p.Updated, q.Updated = time.Time{}, time.Time{}
		w.same(p, q)
	}
}

// expire records in both that what was signed can never settle.
func (w *twins) expire(i int, id [2]string) {
	a, b := w.real[i], w.mem[i]
	p, err := a.Payment(w.ctx, id[0])
	require.NoError(w.t, err)
	if p.Payload == nil { // the guard is never asked about what was not signed
		return
	}
	status := x402.Status{State: x402.Expired, Note: "n"}
	p, errA := a.Expire(w.ctx, p, status)
	q, errB := b.Expire(w.ctx, *b.find(id[1]), status)
	if w.agree(errA, errB) {
		p.Updated, q.Updated = time.Time{}, time.Time{}
		w.same(p, q)
	}
}

func (w *twins) drawOutcome() history.Outcome {
	o := history.Outcome{State: history.Unknown, ReleaseLease: w.draw(1, "rest") == 1,
		ClearWaiter: w.draw(1, "abandon") == 1, Note: "n", FalseReceipt: w.draw(3, "false") == 0}
	switch w.draw(3, "outcome") {
	case 0:
		o.State, o.Proof = history.Settled, history.Claimed
		o.Transaction, o.Receipt = "0xa", json.RawMessage(`{}`)
	case 1:
		o.State, o.Proof = history.Settled, history.Chain
		o.Transaction, o.ChainProof = "0xb", x402.Status{State: x402.Settled}
	case 2:
		o.State = history.Failed
	}
	if status := w.draw(3, "content"); status > 0 {
		o.Content = &history.Content{Status: []int{200, 402, 204}[status-1], Type: "t", Body: []byte("x")}
	}
	return o
}

// comparePayment requires that a payment, its content, its lease and what is held up to it are the same in
// both.
func (w *twins) comparePayment(i int, id [2]string) {
	a, b := w.real[i], w.mem[i]
	p, errA := a.Payment(w.ctx, id[0])
	q, errB := b.Payment(w.ctx, id[1])
	w.agree(errA, errB)
	w.same(p, q)
	c, errA := a.Content(w.ctx, id[0])
	d, errB := b.Content(w.ctx, id[1])
	w.agree(errA, errB)
	require.Equal(w.t, c, d)
	require.Equal(w.t, a.Alive(p.LeaseOwner), b.Alive(q.LeaseOwner))
	since := w.now.Add(-2 * time.Hour)
	held, errA := a.HeldUpTo(w.ctx, p, since)
	same, errB := b.HeldUpTo(w.ctx, q, since)
	w.agree(errA, errB)
	require.Equal(w.t, held, same)
	if p.IdempotencyKey != "" {
		p, errA = a.ByKey(w.ctx, p.Agent, p.IdempotencyKey)
		q, errB = b.ByKey(w.ctx, q.Agent, q.IdempotencyKey)
		w.agree(errA, errB)
		w.same(p, q)
	}
}

// compareLists requires that both list the same payments, in the same order.
func (w *twins) compareLists(i int) {
	a, b := w.real[i], w.mem[i]
	lists := func(a, b []history.Payment, errA, errB error) {
		w.agree(errA, errB)
		require.Len(w.t, b, len(a))
		for k := range a {
			w.same(a[k], b[k])
		}
	}
	after := [2]string{w.before, ""} // or behind one of these
	var f [32]byte
	if n := w.draw(len(w.ids), "behind"); n > 0 {
		after = w.ids[n-1]
		f = b.find(after[1]).Fingerprint
	}
	since := w.now.Add(-2 * time.Hour)
	x, errA := a.ByRequest(w.ctx, f)
	y, errB := b.ByRequest(w.ctx, f)
	lists(x, y, errA, errB)
	x, errA = a.Recent(w.ctx, len(w.ids))
	y, errB = b.Recent(w.ctx, len(w.ids))
	lists(x, y, errA, errB)
	x, errA = a.Expired(w.ctx, testNetwork, since) // in no order
	y, errB = b.Expired(w.ctx, testNetwork, since)
	for _, list := range [][]history.Payment{x, y} {
		slices.SortFunc(list, func(p, q history.Payment) int {
			return cmp.Compare(w.names[p.ID], w.names[q.ID])
		})
	}
	lists(x, y, errA, errB)
	x, errA = a.Unfinished(w.ctx, after[0], 1<<20)
	y, errB = b.Unfinished(w.ctx, after[1], 1<<20)
	lists(x, y, errA, errB)
	x, errA = a.Claimed(w.ctx, since, after[0], 1<<20)
	y, errB = b.Claimed(w.ctx, since, after[1], 1<<20)
	lists(x, y, errA, errB)
	x, errA = a.OpenFrom(w.ctx, testNetwork, w.source)
	y, errB = b.OpenFrom(w.ctx, testNetwork, w.source)
	lists(x, y, errA, errB)
}
