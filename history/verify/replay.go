package verify

import (
	"encoding/json"
	"fmt"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/notes"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// replay makes the tables again from the audit chain, as far as the chain says what is in them: each
// row of the chain tells of a change with everything that it set, big things by their digest. The
// payments themselves are told one after another (payments.go); here is what is small.
type replay struct {
	t    *sqldb.Tx
	k    history.Keyholder
	tell func(done, all int64) // nil: nobody asked

	page         int64 // how many payments are compared at a time
	reservations int64
	content      contentUse
	redates      []redate // read ahead of the chain
	redated      []redate // as it was read: the same
	sessions     []*session
	tooEarly     string           // the newest session, if nothing is signed in it: see noteTooEarly
	paid         map[string]int64 // when the newest payment of each session was made
	approvals    map[string]*approval
	usedBy       map[int64]string // payment → approval
	freezes      [][]any
	lifts        map[string]string
	rules        map[string]string
	channels     map[string]channel
	delegations  map[string]string
	meta         map[string]string
	imported     string

	newestSeal   int64
	sums         seals.Sums
	sealed       []byte   // the sums at the newest seal, without the memory's root
	sealedDigest string   // the digest of the sums that the newest seal names
	remembered   entrySet // of the memory
}

func newReplay(t *sqldb.Tx, k history.Keyholder) *replay {
	return &replay{t: t, k: k, page: 1000, paid: map[string]int64{}, approvals: map[string]*approval{},
		usedBy: map[int64]string{}, lifts: map[string]string{}, rules: map[string]string{},
		channels: map[string]channel{}, delegations: map[string]string{}, meta: map[string]string{},
		imported: noDigest, remembered: newEntrySet()}
}

var noDigest = audit.Digest(nil)

// begin compares the tables' form, and reads what is needed ahead of the chain.
func (r *replay) begin() error {
	if err := form(r.t); err != nil {
		return err
	}
	err := r.t.Row(`SELECT coalesce(max(seq), 0) FROM audit WHERE seal IS NOT NULL`).Scan(&r.newestSeal)
	if err != nil {
		return err
	}
	return r.t.Each(func(row sqldb.Row) error {
		var a audit.Row
		var d detail
		err := row.Scan(&a.Seq, &a.Event, &a.Detail)
		if err == nil {
			d, err = read(a)
		}
		r.redates = append(r.redates, redate{a.Seq, d.To})
		return err
	}, `SELECT seq, event, detail FROM audit WHERE payment = 0 AND event = ? ORDER BY seq`, audit.RedatedEvent)
}

// redate says that from one row of the chain on nothing before it is dated later than a time.
type redate struct{ seq, to int64 }

// wasRedated is what became of a time that was written with one event, until another.
func (r *replay) wasRedated(after, upTo, at int64) int64 {
	for _, d := range r.redates {
		if d.seq > after && d.seq < upTo {
			at = min(at, d.to)
		}
	}
	return at
}

// These are rows of small tables, as the chain tells of them; seal is a digest.
type (
	session struct {
		id      string
		started int64
		limit   any // int64, or nil
		seal    string
	}
	approval struct {
		row, state, payment, seal         string
		created, expires, declined, since int64
	}
	channel struct {
		row      string
		isSigned bool
		updated  int64
		voucher  seals.Voucher
	}
)

// detail is what the details of the chain's rows hold, of all kinds of rows but those of a payment.
type detail struct {
	ID, Payment, Seal, Row   string
	Said                     string
	IDs                      []string
	Cap                      *money.Dollars
	Expires, Declined, Since int64

	Network, Account, By, Why string
	UpTo                      int64
	Version                   int64
	SHA256, Sums              string
	Accepted                  *seals.Sums
	Service, Key              string
	Position                  string
	Signed                    bool
	Voucher                   *seals.Voucher
	Largest, Ledger           string
	Format                    int
	Session, Label, All       string
	To                        int64
}

func read(r audit.Row) (d detail, err error) {
	if json.Unmarshal([]byte(r.Detail), &d) != nil {
		return d, unreadable(r)
	}
	return d, nil
}

func unreadable(r audit.Row) error {
	return audit.Corrupt("event %d (%s) cannot be read", r.Seq, r.Event)
}

// apply takes a row of the chain into account.
func (r *replay) apply(row audit.Row) error {
	if row.Event == audit.ReservedEvent {
		r.reservations++
		if row.Payment != r.reservations {
			return audit.Corrupt("the audit chain has a reservation of payment number %d, and not of number "+
				"%d", row.Payment, r.reservations)
		}
	}
	if row.Payment < 0 || row.Payment > r.reservations {
		return audit.Corrupt("event %d is of payment number %d, which was not reserved", row.Seq, row.Payment)
	}
	switch {
	case audit.IsSealed(row.Event):
		if err := r.applySealed(row); err != nil {
			return err
		}
	case row.Seal != nil:
		return audit.Corrupt("event %d (%s) has a seal, which such an event never has", row.Seq, row.Event)
	default:
		r.sums.Apply(row)
	}
	if row.Payment != 0 && row.Event != audit.UsedEvent && row.Event != audit.ReturnedEvent {
		return nil
	}
	d, err := read(row)
	if err != nil {
		return err
	}
	if strings.HasPrefix(row.Event, audit.ApprovalEvent) {
		return r.applyApproval(row, d)
	}
	r.applySmall(row, d)
	return nil
}

// applySmall takes into account what a row says of the small tables.
func (r *replay) applySmall(row audit.Row, d detail) {
	switch row.Event {
	case audit.CreatedEvent:
		r.meta["format"], r.meta["ledger_id"] = cells(fmt.Sprint(d.Format)), cells(d.Ledger)
	case audit.SessionEvent:
		s := &session{id: d.ID, started: row.At, seal: d.Seal}
		if d.Cap != nil {
			s.limit = int64(*d.Cap)
		}
		r.sessions = append(r.sessions, s)
		r.noteTooEarly(s)
	case audit.RedatedEvent:
		r.redated = append(r.redated, redate{row.Seq, d.To})
		for _, s := range r.sessions {
			if s.started > d.To {
				s.started, s.seal = d.To, noDigest
			}
		}
	case audit.FrozenEvent:
		r.freezes = append(r.freezes, []any{d.Network, d.Account, row.At, d.By, d.Why})
	case audit.UnfrozenEvent:
		r.lifts[fmt.Sprint(d.UpTo)] = cells(row.At, d.Seal)
	case audit.LiftRefusedEvent:
		delete(r.lifts, fmt.Sprint(d.UpTo))
	case audit.SealedEvent:
		r.rules[fmt.Sprint(d.Version)] = cells(row.At, d.SHA256, d.Seal)
	case audit.ChannelEvent:
		r.channels[d.Service+" "+d.Key] = channel{row: d.Row, isSigned: d.Signed, updated: row.At,
			voucher: seals.Voucher{Service: d.Service, Key: d.Key, Position: d.Position}}
	case audit.DelegationEvent:
		r.delegations[d.Network+" "+d.Account] = cells(d.Largest)
	case audit.LabelledEvent:
		delete(r.meta, notes.Label+d.Session)
		if d.Label != "" {
			r.meta[notes.Label+d.Session] = cells(d.Label)
		}
	case audit.ImportedEvent:
		r.imported = d.All
	}
}

// noteTooEarly notes a session that a payment began although the one before, in which something was signed,
// was not over, and the owner did not begin it: nothing is signed in it. Only the owner ends that.
func (r *replay) noteTooEarly(s *session) {
	last := r.sums.Session
	r.tooEarly = ""
	if s.seal == noDigest && last.ID != "" && s.started-last.Last < budget.SessionIdle.Microseconds() {
		r.tooEarly = s.id
	}
}

// applyApproval takes into account what a row says of an approval.
func (r *replay) applyApproval(row audit.Row, d detail) error {
	a := r.approvals[d.ID]
	switch {
	case d.Said == audit.SaidNothing:
	case row.Event == audit.ReturnedEvent:
		used := r.approvals[r.usedBy[row.Payment]]
		if used == nil {
			return audit.Corrupt("event %d returns an approval that was not used", row.Seq)
		}
		used.state, used.payment = string(history.Approved), ""
	case row.Event == audit.ApprovalEvent+string(history.Expired):
		for _, id := range d.IDs {
			if over := r.approvals[id]; over != nil {
				over.state = string(history.Expired)
			}
		}
	case row.Event == audit.ApprovalEvent+string(history.Pending) && d.Row != "":
		r.approvals[d.ID] = &approval{row: d.Row, state: string(history.Pending), created: row.At,
			expires: d.Expires, seal: noDigest}
	case a == nil:
		return audit.Corrupt("event %d is of an approval that was never asked for", row.Seq)
	case row.Event == audit.UsedEvent:
		a.state, a.payment = string(history.Used), d.Payment
		r.usedBy[row.Payment] = d.ID
	default:
		a.state = strings.TrimPrefix(row.Event, audit.ApprovalEvent)
		a.expires, a.declined, a.since, a.seal = d.Expires, d.Declined, d.Since, d.Seal
	}
	return nil
}
