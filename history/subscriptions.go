package history

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What the ledger has of the owner's subscriptions beside their payments: where the newest run of each
// stands, and which ones agents proposed. Both are hints (meta): that a slot is bought once, and for how
// much, is kept by the payments' keys and by what is sealed. So whoever writes to them makes a run wait or
// come again, and nothing be paid.

// RunState is where the newest run of a subscription stands.
type RunState string

// running → done | failed; waiting: for a person, or for the next try.
const (
	RunRunning RunState = "running"
	RunWaiting RunState = "waiting"
	RunDone    RunState = "done"
	RunFailed  RunState = "failed"
)

// SubscriptionRun is the newest run of a subscription.
type SubscriptionRun struct {
	Slot     time.Time `json:"slot"`
	State    RunState  `json:"state"`
	At       time.Time `json:"at"`            // when it was noted
	Attempts int       `json:"attempts"`      // that failed
	Next     time.Time `json:"next,omitzero"` // not to be tried before
	Payment  string    `json:"payment,omitempty"`
	Approval string    `json:"approval,omitempty"` // that it waits for
	Code     x402.Code `json:"code,omitempty"`
	Why      string    `json:"why,omitempty"`
	Free     bool      `json:"free,omitempty"` // it was served without payment
}

// isOver reports whether nothing more is done about its slot.
func (r SubscriptionRun) isOver() bool { return r.State == RunDone || r.State == RunFailed }

// LastDone is the newest slot about which nothing more is to be done; zero: none.
func (r SubscriptionRun) LastDone() time.Time {
	if r.isOver() {
		return r.Slot
	}
	return time.Time{}
}

const runKey, proposalKey = "subscription ", "proposal "

// SubscriptionRuns are the newest runs, by budget.Subscription.ID.
func (s *Store) SubscriptionRuns(ctx context.Context) (map[string]SubscriptionRun, error) {
	runs := map[string]SubscriptionRun{}
	err := s.View(ctx, func(t *sqldb.Tx) error {
		return EachNote(t, runKey, func(id, text string) error {
			var r SubscriptionRun
			if json.Unmarshal([]byte(text), &r) == nil { // what is no JSON of ours says nothing
				runs[id] = r
			}
			return nil
		})
	})
	return runs, err
}

// NoteRun notes where a run of a subscription stands, unless a later slot or the end of this one is noted
// already. alert says what the owner is told of it, once for each window; nil: nothing.
func (s *Store) NoteRun(ctx context.Context, sub budget.Subscription, r SubscriptionRun,
	alert *SubscriptionAlert) error {
	return s.tx(ctx, func(t *tx) error {
		r.At, r.Why = t.Now.Truncate(time.Microsecond), x402.BriefTo(r.Why, maxAlertText)
		key := runKey + sub.ID()
		was, err := t.subscriptionRun(key)
		if err != nil {
			return err
		}
		isLate := was.Slot.After(r.Slot) || (was.Slot.Equal(r.Slot) && was.State == RunDone)
		if isLate {
			return nil
		}
		_, err = t.Exec(`INSERT INTO meta VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, toJSON(r))
		if err != nil || alert == nil {
			return err
		}
		return t.alert(AlertSubscription, sub.ID(), alert.Window, AlertDetail{Agent: sub.Agent,
			Host: alert.Host, Why: x402.BriefTo(alert.Why, maxAlertText), Expires: alert.Next})
	})
}

// SubscriptionAlert is what the owner is told of a run.
type SubscriptionAlert struct {
	Window string // one alert for each
	Host   string
	Why    string
	Next   time.Time // when it is tried again; zero: not in this slot
}

func (t *tx) subscriptionRun(key string) (r SubscriptionRun, err error) {
	text, err := scanText(t.Row(`SELECT value FROM meta WHERE key = ?`, key))
	if err := sqldb.Otherwise(err, nil); err != nil {
		return r, err
	}
	_ = json.Unmarshal([]byte(text), &r)
	return r, nil
}

// ofSubscription is the condition for the payments of a subscription's slots that did not fail, and its
// arguments.
func ofSubscription(id string) (where string, args []any) {
	from, to := budget.SubscriptionKeys(id)
	return ` WHERE idempotency_key >= ? AND idempotency_key < ? AND state <> 'failed'`, []any{from, to}
}

// subscriptionUse is what the last sealed row says of a subscription, and what is held for it and not yet
// signed. Without the key it is believed, as all of the ledger is until something is signed.
func (t *tx) subscriptionUse(id string) (use budget.SubscriptionUse, err error) {
	state, err := scanText(t.Row(`SELECT sums FROM sealed_sums`))
	if err := sqldb.Otherwise(err, nil); err != nil {
		return use, err
	}
	if state != "" {
		known, err := decodeSums(state)
		if err != nil {
			return use, sqldb.Damaged("read the sealed sums", err)
		}
		use = known.subscription(id)
	}
	where, args := ofSubscription(id)
	var waiting money.Dollars
	err = t.Row(`SELECT coalesce(sum(usd), 0) FROM payments`+where+` AND state = 'reserved'`, args...).Scan(&waiting)
	use.Held = use.Held.Add(waiting)
	return use, err
}

// SubscriptionSpent is what a subscription's payments took, by its ID: what is settled, and what is open.
func (s *Store) SubscriptionSpent(ctx context.Context, id string) (use budget.Use, err error) {
	return readOnce(ctx, s, func(t *tx) (use budget.Use, err error) {
		where, args := ofSubscription(id)
		err = t.Row(`SELECT coalesce(sum(CASE WHEN state = 'settled' THEN usd - returned END), 0),
			coalesce(sum(CASE WHEN state <> 'settled' THEN usd - returned END), 0) FROM payments`+where, args...).Scan(&use.Spent, &use.Held)
		return use, err
	})
}

// SubscriptionPayments are a subscription's newest payments that did not fail, newest first.
func (s *Store) SubscriptionPayments(ctx context.Context, id string, limit int) ([]Payment, error) {
	return read(ctx, s, func(t *tx) ([]Payment, error) {
		where, args := ofSubscription(id)
		return sqldb.Collect(t.Tx, ScanPayment, SelectPayment+where+` ORDER BY created_at DESC, seq DESC LIMIT ?`,
			append(args, limit)...)
	})
}

// Proposal is a subscription that an agent would like the owner to make. All of it but its id and time is the
// agent's word.
type Proposal struct {
	ID      string        `json:"id"`
	Agent   string        `json:"agent,omitempty"`
	At      time.Time     `json:"at"`
	URL     string        `json:"url"`
	Host    string        `json:"host"` // its
	Every   string        `json:"every"`
	Max     money.Dollars `json:"maxAmount"`
	Until   time.Time     `json:"until"`
	Reason  string        `json:"reason"`
	Expires time.Time     `json:"expires"`
}

// Bounds of proposals, with their reasons.
const (
	// maxProposals is how many of one agent wait for the owner at a time, and maxAllProposals of all agents:
	// more is not read by anybody.
	maxProposals, maxAllProposals = 5, 25
	// proposalTime is how long one waits; then nobody wanted it.
	proposalTime = 14 * 24 * time.Hour
)

// ErrManyProposals says that as many proposals wait as may.
var ErrManyProposals = errors.New("too many proposals wait for the owner")

// Propose writes a proposal down, and tells the owner of it. The very same one is the same proposal.
func (s *Store) Propose(ctx context.Context, p Proposal) (Proposal, error) {
	asked := p
	err := s.tx(ctx, func(t *tx) error {
		p = asked
		list, err := t.proposals()
		if err != nil {
			return err
		}
		ofAgent := 0
		for _, other := range list {
			if other.Agent != p.Agent {
				continue
			}
			ofAgent++
			if other.isSame(p) {
				p = other
				return nil
			}
		}
		if ofAgent >= maxProposals || len(list) >= maxAllProposals {
			return ErrManyProposals
		}
		p.ID, p.At = newTimedID("prp_", t.Now), t.Now.Truncate(time.Microsecond)
		p.Expires = p.At.Add(proposalTime)
		if _, err := t.Exec(`INSERT INTO meta VALUES (?, ?)`, proposalKey+p.ID, toJSON(p)); err != nil {
			return err
		}
		return t.alert(AlertProposal, p.ID, "", AlertDetail{Agent: p.Agent, Price: p.Max, Host: p.Host,
			Why: x402.BriefTo(p.Reason, maxAlertText), Expires: p.Expires})
	})
	return p, err
}

// isSame reports whether two proposals are for the same.
func (p Proposal) isSame(other Proposal) bool {
	return p.URL == other.URL && p.Every == other.Every && p.Max == other.Max && p.Until.Equal(other.Until)
}

const selectProposals = `SELECT value FROM meta WHERE key LIKE '` + proposalKey + `%' ORDER BY key`

// proposals are those that wait; what is over is taken out on the way.
func (t *tx) proposals() (list []Proposal, err error) {
	found, err := sqldb.Collect(t.Tx, scanProposal, selectProposals)
	for _, p := range found {
		if p.ID != "" && t.Now.Before(p.Expires) {
			list = append(list, p)
			continue
		}
		if _, err := t.Exec(`DELETE FROM meta WHERE key = ?`, proposalKey+p.ID); err != nil {
			return nil, err
		}
	}
	return list, err
}

func scanProposal(row sqldb.Row) (p Proposal, err error) {
	text, err := scanText(row)
	if err == nil {
		_ = json.Unmarshal([]byte(text), &p) // what is no JSON of ours is no proposal
	}
	return p, err
}

// Proposals are those that wait for the owner, oldest first.
func (s *Store) Proposals(ctx context.Context) (list []Proposal, err error) {
	now := s.db.Now()
	err = s.view(ctx, func(t *tx) error {
		found, err := sqldb.Collect(t.Tx, scanProposal, selectProposals)
		for _, p := range found {
			if p.ID != "" && now.Before(p.Expires) {
				list = append(list, p)
			}
		}
		return err
	})
	return list, err
}

// EndProposal takes a proposal away, because the owner decided on it; ErrNotFound: there is none.
func (s *Store) EndProposal(ctx context.Context, id string) error {
	return s.tx(ctx, func(t *tx) error {
		n, err := t.Exec(`DELETE FROM meta WHERE key = ?`, proposalKey+id)
		if err == nil && n == 0 {
			err = errNoProposal
		}
		return err
	})
}
