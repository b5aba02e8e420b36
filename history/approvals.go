package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Decision is where an approval stands.
type Decision string

// pending → approved | denied; both may still be changed until they are used up or over.
const (
	Pending  Decision = "pending"
	Approved Decision = "approved" // one payment of exactly this quote may be made
	Denied   Decision = "denied"   // and nobody is asked again
	Used     Decision = "used"     // that payment was held
	Expired  Decision = "expired"
)

// Limits with their reasons.
const (
	// AnswerTime is how long a question waits for its answer, and a no is remembered: a person sleeps.
	AnswerTime = 24 * time.Hour
	// approvedFor is how long the owner's approval waits for the call that uses it: the agent has
	// to be told first.
	approvedFor = time.Hour
	// acceptedFor is the same at a client, where the call that needs it goes on at once, but for
	// unlocking the wallet.
	acceptedFor = 5 * time.Minute
	// maxDeclined is how often a person is asked through a client about one quote: who said no so
	// often is not to be worn down.
	maxDeclined = 3
)

// Approval is a question to a person about one exact quote, and the answer.
type Approval struct {
	ID      string
	Quote   [32]byte // the hash of everything that a changed quote must not reuse
	State   Decision
	Created time.Time
	Expires time.Time // of the question, or of the answer
	Host    string
	Method  string
	URL     string
	Network string
	Asset   string
	Symbol  string
	Amount  money.Amount // atomic units
	Price   money.Dollars
	PayTo   string
	Why     string // why a person is asked
	Agent   string // who asks, and alone may use it; "": a caller without a name
	Payment string // that used it up
	// the audit chain's last row when the owner approved
	Since int64
	Seal  []byte // over the owner's approval; empty: none, or a person at a client gave it
	// Unanswered is how often within the last hour a client's person was asked as much and did not
	// answer; set by AskApproval.
	Unanswered int
	// Together are the approvals that it stands for, where it is a list (Store.Asked).
	Together []Approval

	declined int
}

// Covers reports whether a payment is what a person was shown and costs no more: the price of a
// channel's call is known only after a person approved up to so much.
func (a Approval) Covers(p Payment) bool {
	return a.Agent == p.Agent && a.Host == p.Host && a.Method == p.Method && a.URL == p.URL &&
		a.Network == p.Network &&
		strings.EqualFold(a.Asset, p.Asset) && a.PayTo == p.PayTo &&
		p.Amount.Cmp(a.Amount) <= 0 && p.Price <= a.Price
}

// IsSignIn reports whether a person is asked about a sign-in, which costs nothing and pays nobody.
func (a Approval) IsSignIn() bool { return a.PayTo == "" && a.Amount.IsZero() && a.Price == 0 }

// ShownDigest is over everything of an approval that a person is shown, and where it stands: what differs in
// it is another question to them.
func (a Approval) ShownDigest() [sha256.Size]byte {
	var digests []byte
	for _, one := range a.Together {
		digest := one.ShownDigest()
		digests = append(digests, digest[:]...)
	}
	return sha256.Sum256(fmt.Appendf(nil, "%#v", []any{a.ID, a.Quote, a.State, a.Created.UnixMicro(),
		a.Expires.UnixMicro(), a.Host, a.Method, a.URL, a.Network, a.Asset, a.Symbol, a.Amount.String(),
		a.Price, a.PayTo, a.Why, a.Agent, a.Since, digests}))
}

// SelectApproval is what ScanApproval reads.
const SelectApproval = `SELECT id, quote, state, created_at, expires_at, declined, host, method, url,
	network, asset, symbol, amount, usd, pay_to, why, agent, payment, since, seal FROM approvals`

const isOpen = ` state IN ('pending', 'approved', 'denied')`

func ScanApproval(row sqldb.Row) (a Approval, err error) {
	var created, expires int64
	var quote []byte
	err = row.Scan(&a.ID, &quote, &a.State, &created, &expires, &a.declined, &a.Host, &a.Method, &a.URL,
		&a.Network, &a.Asset, &a.Symbol, &a.Amount, &a.Price, &a.PayTo, &a.Why, &a.Agent, &a.Payment,
		&a.Since, &a.Seal)
	a.Created, a.Expires = sqldb.FromMicros(created), sqldb.FromMicros(expires)
	copy(a.Quote[:], quote)
	return a, err
}

// ErrDecided is what comes of deciding too late.
var ErrDecided = errors.New("the approval is used up or over")

// Declined says that nobody is asked, because a person said no to as much a short time ago.
type Declined struct {
	ID    string // of the approval that was declined last
	About string // "this" payment, payments to this "host", all that this "agent" asks for, or "all"
	Times int
	Until time.Time
}

func (d *Declined) Error() string {
	return fmt.Sprintf("a person said no %d times; nobody is asked again before %s", d.Times,
		d.Until.Format(time.RFC3339))
}

// TooManyPending says that no question was opened, because as many as Limit wait already.
type TooManyPending struct {
	About string // questions about this "host", of this "agent" (or process), or "all"
	Limit int
}

func (e *TooManyPending) Error() string {
	return fmt.Sprintf("%d approvals are waiting for a person", e.Limit)
}

// The words of the audit chain for what happened to a question.
const (
	SaidAsked   = "asked"
	SaidYes     = "yes"
	SaidNo      = "no"
	SaidNothing = audit.SaidNothing // its dialog was closed, or nobody came

	ByOwner = "owner" // who decided in a terminal or on the dashboard
)

// ApprovalRecord is an approval as a row of the audit chain has it.
type ApprovalRecord struct {
	ID       string        `json:"id"`
	Host     string        `json:"host"`
	Resource string        `json:"resource"` // Payment.Resource: no query, no spelling of a path
	Price    money.Dollars `json:"price"`
	Session  string        `json:"session,omitempty"` // the process whose client asks
	Agent    string        `json:"agent,omitempty"`   // whose question it is; "": of a caller without a name
	Said     string        `json:"said"`
	By       string        `json:"by,omitempty"`
	Declined int           `json:"declined,omitempty"`
	PayTo    string        `json:"payTo,omitempty"`
	Network  string        `json:"network,omitempty"`

	// the columns that are set: Row is over those that never change
	Row     string `json:"row,omitempty"`
	Expires int64  `json:"expires,omitempty"`
	Since   int64  `json:"since,omitempty"`
	Seal    string `json:"seal,omitempty"`
}

// Record is what the chain says of an approval.
func (a Approval) Record(said, by string) ApprovalRecord {
	return ApprovalRecord{ID: a.ID, Agent: a.Agent, Host: a.Host, Price: a.Price, Said: said, By: by,
		Declined: a.declined, Resource: Payment{Method: a.Method, Host: a.Host, URL: a.URL}.Resource()}
}

// beginDeciding locks what a change of approvals needs, and closes what is over.
func (t *tx) beginDeciding() error {
	if _, err := t.notBeforeLedger(); err != nil {
		return err
	}
	return t.expire()
}

// expire closes what is over. An approval is over at its very time.
func (t *tx) expire() error { return t.expireWhere(`expires_at <= ?`, t.Now) }

func (t *tx) expireWhere(condition string, at time.Time) error {
	ids, err := sqldb.Collect(t.Tx, sqldb.ScanText, `UPDATE approvals SET state = 'expired' WHERE `+condition+` AND`+isOpen+
		` RETURNING id`, sqldb.Micros(at))
	if err != nil || len(ids) == 0 {
		return err
	}
	return t.audit(0, audit.ApprovalEvent+string(Expired), map[string]any{"ids": ids})
}

// pendingEvent says that a question was asked, or is open again.
const pendingEvent = audit.ApprovalEvent + string(Pending)

// digest is over the columns that never change, but for the time; hex.
func (a Approval) digest() string {
	return audit.EncodeDigest(audit.Link(nil, int64(a.Price), a.ID, string(a.Quote[:]), a.Host, a.Method,
		a.URL, a.Network, a.Asset, a.Symbol, a.Amount.String(), a.PayTo, a.Why, a.Agent))
}

// Approval returns one approval, or ErrNotFound.
func (s *Store) Approval(ctx context.Context, id string) (Approval, error) {
	return read(ctx, s, func(t *tx) (Approval, error) {
		a, err := ScanApproval(t.Row(SelectApproval+` WHERE id = ?`, id))
		return a, sqldb.Otherwise(err, errNoApproval)
	})
}

// Accept is an approval by a person at a client to the question that is open there. The owner's no
// it does not take back.
func (s *Store) Accept(ctx context.Context, id, by string) (Approval, error) {
	return s.decide(ctx, id, func(t *tx, a *Approval) error {
		if a.State == Denied {
			return ErrDecided
		}
		if a.State == Approved && len(a.Seal) > 0 { // the owner said so already, and for longer
			return nil
		}
		a.State, a.Expires = Approved, t.Now.Add(acceptedFor)
		return t.decided(*a, SaidYes, by)
	})
}

// Approve is the owner's approval: one payment of exactly this quote may pass, once, within
// approvedFor. by is for the audit chain. A no is taken back by it; what is used up or over is
// ErrDecided. seal is called inside the transaction, with the approval as it will stand; nil leaves
// it without a seal.
func (s *Store) Approve(ctx context.Context, id, by string,
	seal func(Approval) ([]byte, error)) (Approval, error) {
	return s.decide(ctx, id, func(t *tx, a *Approval) error {
		head, err := t.head()
		if err != nil {
			return err
		}
		a.State, a.Since = Approved, head.Seq
		a.Expires = sqldb.FromMicros(sqldb.Micros(t.Now.Add(approvedFor)))
		if seal != nil {
			a.Seal, err = seal(*a)
			if err != nil {
				return err
			}
		}
		return t.decided(*a, SaidYes, by)
	})
}

// Deny says no to a quote, or takes an approval back, and for as long as it is remembered nobody is
// asked about it.
func (s *Store) Deny(ctx context.Context, id, by string) (Approval, error) {
	return s.decide(ctx, id, func(t *tx, a *Approval) error {
		a.State, a.Seal = Denied, nil
		return t.decided(*a, SaidNo, by)
	})
}

// Decline is a no from a person at a client: this time. After maxDeclined of them it is Deny; an
// approval they take back.
func (s *Store) Decline(ctx context.Context, id, by string) (Approval, error) {
	return s.decide(ctx, id, func(t *tx, a *Approval) error {
		a.Seal = nil
		a.declined++
		if a.declined >= maxDeclined || a.IsSignIn() { // who does not sign in is served for money
			a.State = Denied
		} else if a.State == Approved {
			a.State = Pending
		}
		return t.decided(*a, SaidNo, by)
	})
}

// Unanswered notes that a client's person was asked and said neither yes nor no.
func (s *Store) Unanswered(ctx context.Context, id, by string) error {
	isSaid := false // of a list once: its dialog was one
	_, err := s.decide(ctx, id, func(t *tx, a *Approval) error {
		if isSaid {
			return nil
		}
		isSaid = true
		return t.audit(0, audit.ApprovalEvent+string(a.State), a.Record(SaidNothing, by))
	})
	return err
}

// decide decides on an approval, or on all of its list that are still open, and returns the first of them.
func (s *Store) decide(ctx context.Context, id string, how func(*tx, *Approval) error) (first Approval,
	err error) {
	err = s.tx(ctx, func(t *tx) error {
		if err := t.beginDeciding(); err != nil {
			return err
		}
		list, err := t.listOf(ListOf(id))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return errNoApproval
		}
		list = slices.DeleteFunc(list, func(a Approval) bool { return a.State == Used || a.State == Expired })
		if len(list) == 0 {
			return ErrDecided
		}
		for i := range list {
			if err := how(t, &list[i]); err != nil {
				return err
			}
		}
		first = list[0]
		return nil
	})
	return first, err
}

func (t *tx) decided(a Approval, said, by string) error {
	_, err := t.Exec(
		`UPDATE approvals SET state = ?, expires_at = ?, declined = ?, since = ?, seal = ? WHERE id = ?`,
		a.State, sqldb.Micros(a.Expires), a.declined, a.Since, a.Seal, a.ID)
	if err != nil {
		return err
	}
	q := a.Record(said, by)
	q.Expires, q.Since, q.Seal = sqldb.Micros(a.Expires), a.Since, audit.Digest(a.Seal)
	return t.audit(0, audit.ApprovalEvent+string(a.State), q)
}
