package agent

import (
	"context"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Recorder records what this process signs, before it gives a signature away: as a sealed row of the
// ledger's audit chain, if the owner's rules let the payment pass by what is sealed and by what this
// process has signed itself, whatever the ledger's tables say. Whoever holds the key has one: the
// unlock agent, and a wallet that is unlocked in its own process.
type Recorder struct {
	Store *history.Store
	Guard *seal.Guard
	// Rules are those that were checked against their seal before a payment was signed here. The
	// unlock agent reads them anew each time.
	Rules Rules
	Now   func() time.Time
	Tally *Tally // of this process
}

// oldest is how long after its reservation a payment may be signed: a person may have to type a
// passphrase in between. early is how far its time may be ahead of this process's clock.
const (
	oldest = 30 * time.Minute
	early  = budget.ClockTolerance
)

// Locked reports whether this process has no key at hand.
func (r *Recorder) Locked() bool { return r.Guard.Key.Locked() }

// keyholder is what this process brings to a row that it seals. here says that a person at this
// process's client approved the payment.
//
// signed is what is to be recorded; zero where that is no signature.
func (r *Recorder) keyholder(ctx context.Context, rules Rules, signed x402.Evidence, here bool) (
	history.Keyholder, error) {
	k, err := r.Guard.Keyholder(ctx)
	always := whyAlwaysAsked(ctx, rules, signed)
	ask := func(p history.Payment) budget.Ask {
		asset, _ := rules.Assets.Asset(p.Network, p.Asset)
		return askOf(p, asset)
	}
	k.Query = func(p history.Payment) budget.Query { return rules.Budget.Query(ask(p)) }
	k.Permit = func(p history.Payment, sealed budget.Facts) error {
		wanted := ask(p)
		wanted.Always = always
		return r.permit(ctx, rules, p, wanted, sealed, here)
	}
	return k, err
}

// whyAlwaysAsked is why a person has to have approved what is signed, whatever it costs; "": for no such
// reason.
func whyAlwaysAsked(ctx context.Context, rules Rules, signed x402.Evidence) string {
	isKnown := signed.Way != x402.Upto || (rules.KnowsFacilitator != nil &&
		rules.KnowsFacilitator(ctx, signed.Network, signed.Facilitator))
	if isKnown {
		return ""
	}
	return x402.StrangeFacilitator(signed.Facilitator)
}

// askOf is what the rules are asked about a payment. Of one that is prepaid the price is what it is worth.
func askOf(p history.Payment, asset x402.AssetInfo) budget.Ask {
	if p.IsSignIn() {
		return budget.Ask{Agent: p.Agent, Host: p.Host, SignIn: true}
	}
	ask := budget.Ask{Agent: p.Agent, Price: p.Price, Host: p.Host, Key: p.IdempotencyKey,
		Request: p.Fingerprint, Payee: budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo,
			Resource: p.Resource()}}
	if p.Prepaid() {
		ask.Price, ask.Prepaid = asset.Dollars(p.Amount), true
	}
	return ask
}

// permit asks the owner's rules about a payment by what is sealed, and once more by what this
// process has signed, and counts it as signed. It is asked last, inside the transaction that records
// the signature.
func (r *Recorder) permit(ctx context.Context, rules Rules, p history.Payment, ask budget.Ask,
	sealed budget.Facts, here bool) error {
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	isWorth := worth(p, asset) == p.Price
	if p.IsSignIn() {
		known, isWorth = true, isFree(p)
	}
	age := r.Now().Sub(p.Created)
	switch {
	case !known:
		return refuse("the owner does not know its asset")
	case !isWorth:
		return refuse("its price in the ledger is not what its amount is worth")
	case age > oldest:
		return refuse("it was reserved at %s, too long ago", p.Created.Format(time.RFC3339))
	case age < -early:
		return x402.Errorf(x402.ClockSuspect, "the payment is dated %s, which is ahead of this "+
			"computer's clock", p.Created.Format(time.RFC3339)).
			WithHint("the person sets the clock or, if it is right now, looks and accepts it in a " +
				"terminal: x402-wallet policy seal")
	}
	r.Tally.mu.Lock()
	defer r.Tally.mu.Unlock()
	if r.Tally.has(p.ID) {
		return refuse("it has signed this payment already")
	}
	if p.Scheme == x402.Allowance {
		if err := r.permitPull(ctx, rules, p, asset); err != nil {
			return err
		}
		r.Tally.add(p, r.Now())
		return nil
	}
	query := rules.Budget.Query(ask)
	for _, facts := range []budget.Facts{sealed, r.Tally.facts(sealed, query, r.Now())} {
		_, err := rules.Budget.Decide(ask, facts)
		if x402.HasCode(err, x402.ApprovalRequired) && !ask.Approved {
			if err = r.approved(ctx, p, here, err); err == nil {
				ask.Approved = true
				_, err = rules.Budget.Decide(ask, facts)
			}
		}
		if err != nil {
			return err
		}
	}
	r.Tally.add(p, r.Now())
	return nil
}

// approved reports why a payment that needs a person has none's approval: the owner's, which is sealed,
// or one that was given at this process's own client; required is the error where there is none at all.
func (r *Recorder) approved(ctx context.Context, p history.Payment, here bool, required error) error {
	a, approved, err := r.Store.ApprovalUsedBy(ctx, p)
	switch {
	case err != nil:
		return err
	case !approved:
		return required
	case here && len(a.Seal) == 0:
		return nil
	}
	return r.Guard.Approved(ctx, p, a)
}

// Submit records a signature of this process with its payload: see history.Store.Submit. Only when
// it returns nil may a byte of it leave.
func (r *Recorder) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	k, err := r.keyholder(ctx, r.Rules, signed.Evidence, here)
	if err != nil {
		return err
	}
	if err := r.Store.Submit(ctx, p, signed, k); err != nil {
		return err
	}
	r.Tally.noteEnd(p.ID, signed.Evidence.ExpiresAt.Sub(r.Now()))
	return r.Guard.Checkpoint(ctx)
}

// RecordVoucher does the same for a payment channel: see history.Store.RecordVoucher.
func (r *Recorder) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	k, err := r.keyholder(ctx, r.Rules, signed.Evidence, here)
	if err != nil {
		return history.Payment{}, err
	}
	p, err = r.Store.RecordVoucher(ctx, p, signed, c, o, k)
	if err != nil {
		return p, err
	}
	return p, r.Guard.Checkpoint(ctx)
}

// sign records a signature before it is handed out: see history.Store.Sign.
func (r *Recorder) sign(ctx context.Context, rules Rules, p history.Payment, signed history.Signed,
	message []byte) error {
	if rules.MayPay != nil {
		if err := rules.MayPay(ctx, p); err != nil {
			return err
		}
	}
	k, err := r.keyholder(ctx, rules, signed.Evidence, false)
	if err != nil {
		return err
	}
	if err := r.Store.Sign(ctx, p, signed, message, k); err != nil {
		return err
	}
	r.Tally.noteEnd(p.ID, signed.Evidence.ExpiresAt.Sub(r.Now()))
	return r.Guard.Checkpoint(ctx)
}

// lateness is how long after its end a payment is believed to be over: the chain's clock may be behind
// ours by that much, when a payment is signed.
const lateness = budget.ClockTolerance

// Expire records that what was signed can never settle: see history.Store.Expire. The chain's word,
// which is a node's, is not enough: the payment has to be past its end by this machine's clock, and
// where this process signed it by the time that has passed since.
func (r *Recorder) Expire(ctx context.Context, id string, asked x402.Evidence,
	o history.Outcome) (history.Payment, error) {
	end := asked.ExpiresAt
	if r.Now().Before(end.Add(lateness)) || r.Tally.lives(id) {
		return history.Payment{}, x402.Errorf(x402.PolicyDenied,
			"by this machine's clock payment %s has not expired: it is good until %s", id,
			end.UTC().Format(time.RFC3339)).WithHint("ask again later")
	}
	k, err := r.keyholder(ctx, r.Rules, x402.Evidence{}, false)
	if err != nil {
		return history.Payment{}, err
	}
	p, err := r.Store.Expire(ctx, id, asked, o, k)
	if err != nil {
		return p, err
	}
	r.Tally.takeBack(id)
	return p, r.Guard.Checkpoint(ctx)
}

// Charge records that the chain showed a payment to have settled for less than was signed for: see
// history.Store.Charge. As with an expiry a node's word is not enough while the payment could still settle:
// for as long, all of it counts.
func (r *Recorder) Charge(ctx context.Context, rules Rules, p history.Payment,
	status x402.Status) (history.Payment, error) {
	end := p.Evidence.ExpiresAt
	if r.Now().Before(end.Add(lateness)) || r.Tally.lives(p.ID) {
		return history.Payment{}, x402.Errorf(x402.PolicyDenied,
			"by this machine's clock payment %s is good until %s: until then all that was signed for counts",
			p.ID, end.UTC().Format(time.RFC3339)).WithHint("ask again later")
	}
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	if !known || status.State != x402.Settled || status.Amount == nil {
		return history.Payment{}, refuse("its asset is not known, or what it came to is not proven")
	}
	k, err := r.keyholder(ctx, rules, x402.Evidence{}, false)
	if err != nil {
		return history.Payment{}, err
	}
	c := history.Charge{Amount: *status.Amount, Worth: min(asset.Dollars(*status.Amount), p.Price)}
	p, err = r.Store.Charge(ctx, p.ID, p.Evidence, c, history.Settlement(status), k)
	if err != nil {
		return p, err
	}
	r.Tally.lower(p.ID, c.Worth)
	return p, r.Guard.Checkpoint(ctx)
}

// Tally is what this process has signed and did not itself find to have expired. It bounds what can
// be got out of the process by whoever writes to the ledger and to its checkpoint: never more than the
// owner's windows allow.
type Tally struct {
	mu       sync.Mutex
	items    map[string]item // by payment
	days     map[time.Time]money.Dollars
	months   map[time.Time]money.Dollars
	hosts    map[hostDay]money.Dollars
	agents   map[agentTime]money.Dollars // by day
	ofAgents map[agentTime]money.Dollars // by month
	sessions map[string]money.Dollars
	// by subscription, as budget.Subscription has its ID
	subscriptions map[string]money.Dollars
	recent        []signing // in the last hour
}

type item struct {
	created time.Time
	until   time.Time // by the monotonic clock, which nobody sets: until when it may be good
	host    string
	agent   string
	session string
	price   money.Dollars
	// the ID of the subscription that it is of; "": none
	subscription string
}

// signing is when something was signed, by this process's own clock, and for whom.
type signing struct {
	at    time.Time
	agent string
}

type hostDay struct {
	host string
	day  time.Time
}

type agentTime struct {
	agent string
	begin time.Time // of the day or month
}

func (t *Tally) has(id string) bool {
	_, has := t.items[id]
	return has
}

func (t *Tally) add(p history.Payment, now time.Time) {
	if t.items == nil {
		t.items, t.hosts = map[string]item{}, map[hostDay]money.Dollars{}
		t.days, t.months = map[time.Time]money.Dollars{}, map[time.Time]money.Dollars{}
		t.agents, t.ofAgents = map[agentTime]money.Dollars{}, map[agentTime]money.Dollars{}
		t.sessions, t.subscriptions = map[string]money.Dollars{}, map[string]money.Dollars{}
	}
	i := item{created: p.Created, host: p.Host, agent: p.Agent, session: p.Session, price: p.Price}
	i.subscription, _, _ = budget.SubscriptionOf(p.IdempotencyKey)
	t.items[p.ID] = i
	t.count(i, i.price)
	t.recent = append(t.recent, signing{at: now, agent: p.Agent})
	for t.recent[0].at.Before(now.Add(-budget.BusyWindow)) {
		t.recent = t.recent[1:]
	}
}

func (t *Tally) count(i item, price money.Dollars) {
	day := budget.DayOf(i.created)
	t.days[day] += price
	t.months[budget.MonthOf(i.created)] += price
	t.hosts[hostDay{i.host, day}] += price
	t.agents[agentTime{i.agent, day}] += price
	t.ofAgents[agentTime{i.agent, budget.MonthOf(i.created)}] += price
	t.sessions[i.session] += price
	if i.subscription != "" {
		t.subscriptions[i.subscription] += price
	}
}

// noteEnd notes for how long what was signed may be good from now on.
func (t *Tally) noteEnd(id string, life time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, has := t.items[id]; has {
		i.until = time.Now().Add(life + lateness)
		t.items[id] = i
	}
}

// lives reports whether this process signed a payment, and it may still be good.
func (t *Tally) lives(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.items[id].until)
}

// takeBack takes a payment out of the sums that the chain showed to this process to have expired. It
// is not signed again all the same.
func (t *Tally) takeBack(id string) { t.lower(id, 0) }

// lower takes back what the chain showed to this process not to have been charged of a payment.
func (t *Tally) lower(id string, to money.Dollars) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, has := t.items[id]; has && to < i.price {
		t.count(i, to-i.price)
		i.price = to
		t.items[id] = i
	}
}

// signingTime is what a payment may take from its reservation, by whose time the ledger counts its
// rate, to its signature. By the tally's clock a window is that much shorter, so that a payment for
// which there was room when it was reserved is not refused when it is signed.
const signingTime = 5 * time.Second

// facts are the sealed ones with the sums of this tally alone, and with its rate: how many it signed
// lately, whatever the times of these payments. It is asked with mu held.
func (t *Tally) facts(sealed budget.Facts, q budget.Query, now time.Time) budget.Facts {
	facts := sealed
	day, month := budget.DayOf(sealed.Now), budget.MonthOf(sealed.Now)
	held := func(n money.Dollars) budget.Use { return budget.Use{Held: n} }
	facts.Used = budget.Usage{
		Session: held(t.sessions[sealed.Session.ID]), Day: held(t.days[day]),
		Month: held(t.months[month]), HostDay: map[string]budget.Use{},
	}
	facts.Subscription.Use = held(t.subscriptions[q.Subscription])
	if q.Agent != "" {
		facts.Used.Agent = budget.NodeUsage{Day: held(t.agents[agentTime{q.Agent, day}]),
			Month: held(t.ofAgents[agentTime{q.Agent, month}])}
	}
	facts.Used.Teams = map[string]budget.NodeUsage{}
	for _, team := range q.Teams {
		facts.Used.Teams[team] = budget.NodeUsage{Day: ofTeam(t.agents, day, q.Tree, team),
			Month: ofTeam(t.ofAgents, month, q.Tree, team)}
	}
	for _, entry := range q.HostEntries {
		var sum money.Dollars
		for at, price := range t.hosts {
			if at.day.Equal(day) && onHost(entry, at.host) {
				sum += price
			}
		}
		facts.Used.HostDay[entry] = held(sum)
	}
	hour := budget.RateLimit{Per: budget.BusyWindow - signingTime, NotBefore: sealed.LastUnfreeze}
	lastMinute := now.Add(signingTime - budget.RateWindow)
	facts.LastMinute = t.since(lastMinute, budget.Window{})
	facts.NodeRates = map[string]budget.RateUse{}
	for _, limit := range q.NodeRates {
		facts.NodeRates[limit.Window.Node()] = budget.RateUse{LastMinute: t.since(lastMinute, limit.Window),
			Since: sealed.RateSince}
	}
	if q.BusyHour {
		facts.LastHour = t.since(hour.Since(now), budget.Window{})
	}
	return facts
}

// ofTeam is what the agents of a team were signed for in a day or month.
func ofTeam(signed map[agentTime]money.Dollars, begin time.Time, tree budget.Teams, team string) budget.Use {
	used := map[string]budget.Use{}
	for of, sum := range signed {
		if of.begin.Equal(begin) {
			used[of.agent] = budget.Use{Held: sum}
		}
	}
	return tree.Sum(team, used)
}

// since counts what was signed after a time for an agent, a team or all.
func (t *Tally) since(after time.Time, of budget.Window) (n int) {
	for i := len(t.recent) - 1; i >= 0 && t.recent[i].at.After(after); i-- {
		if of.Has(t.recent[i].agent) {
			n++
		}
	}
	return n
}
