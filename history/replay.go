package history

import (
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// replay makes the tables again from the audit chain, as far as the chain says what is in them: each
// row of the chain tells of a change with everything that it set, big things by their digest. The
// payments themselves are told one after another (story.go); here is what is small.
type replay struct {
	t *tx
	k Keyholder

	page         int64 // how many payments are compared at a time
	reservations int64
	contentUse   contentUse
	redates      []redate // read ahead of the chain
	redated      []redate // as it was read: the same
	sessions     []*chainSession
	tooEarly     string           // the newest session, if nothing is signed in it: see noteTooEarly
	paid         map[string]int64 // when the newest payment of each session was made
	approvals    map[string]*chainApproval
	usedBy       map[int64]string // payment → approval
	freezes      [][]any
	lifts        map[string]string
	rules        map[string]string
	channels     map[string]chainChannel
	delegations  map[string]string
	meta         map[string]string
	imported     string

	newestSeal   int64
	sums         sums
	sealed       []byte   // the sums at the newest seal, without the memory's root
	sealedDigest string   // the digest of the sums that the newest seal names
	remembered   entrySet // of the memory
}

type redate struct{ seq, to int64 }

type chainSession struct {
	id      string
	started int64
	limit   any // *int64, or nil
	seal    string
}

type chainApproval struct {
	row, state, payment, seal         string
	created, expires, declined, since int64
}

type chainChannel struct {
	row, signed string
	updated     int64
	position    voucher
}

// rowDetail is what the details of the chain's rows hold, of all kinds of rows.
type rowDetail struct {
	ID, Payment, Seal, Row   string
	By, Said                 string
	IDs                      []string
	Cap                      *money.Dollars
	Expires, Declined, Since int64

	Network, Account, Why string
	UpTo                  int64
	Version               int64
	SHA256, Sums          string
	Accepted              *sums
	Service, Key          string
	Position              string
	Signed                bool
	Voucher               *voucher
	Largest, Ledger       string
	Format                int
	Session, Label, All   string
	As                    string
	To                    int64
}

// read is what a row's detail holds.
func (r auditRow) read() (d rowDetail, err error) {
	if json.Unmarshal([]byte(r.detail), &d) != nil {
		return d, r.unreadable()
	}
	return d, nil
}

func (r auditRow) unreadable() error { return corrupt("event %d (%s) cannot be read", r.seq, r.event) }

func (t *tx) newReplay(k Keyholder) (*replay, error) {
	r := &replay{t: t, k: k, page: 1000, paid: map[string]int64{}, approvals: map[string]*chainApproval{},
		usedBy: map[int64]string{}, lifts: map[string]string{}, rules: map[string]string{},
		channels: map[string]chainChannel{}, delegations: map[string]string{}, meta: map[string]string{},
		imported: digestOf(nil), remembered: newEntrySet()}
	err := t.Row(`SELECT coalesce(max(seq), 0) FROM audit WHERE seal IS NOT NULL`).Scan(&r.newestSeal)
	return r, err
}

// apply takes a row of the chain into account.
func (r *replay) apply(row auditRow) error {
	if row.event == string(Reserved) {
		r.reservations++
		if row.payment != r.reservations {
			return corrupt("the audit chain has a reservation of payment number %d, and not of number %d",
				row.payment, r.reservations)
		}
	}
	if row.payment < 0 || row.payment > r.reservations {
		return corrupt("event %d is of payment number %d, which was not reserved", row.seq, row.payment)
	}
	switch {
	case isSealedEvent(row.event):
		if err := r.sealedRow(row); err != nil {
			return err
		}
	case row.seal != nil:
		return corrupt("event %d (%s) has a seal, which such an event never has", row.seq, row.event)
	default:
		r.sums.apply(row)
	}
	if row.payment != 0 && row.event != usedEvent && row.event != returnedEvent {
		return nil
	}
	d, err := row.read()
	if err != nil {
		return err
	}
	if strings.HasPrefix(row.event, approvalEvent) {
		return r.approval(row, d)
	}
	r.small(row, d)
	return nil
}

// small is what a row says of the small tables.
func (r *replay) small(row auditRow, d rowDetail) {
	switch row.event {
	case createdEvent:
		r.meta["format"], r.meta["ledger_id"] = toJSON([]any{fmt.Sprint(d.Format)}), toJSON([]any{d.Ledger})
	case sessionEvent:
		s := &chainSession{id: d.ID, started: row.at, seal: d.Seal}
		if d.Cap != nil {
			s.limit = int64(*d.Cap)
		}
		r.sessions = append(r.sessions, s)
		r.noteTooEarly(s)
	case redatedEvent:
		r.redated = append(r.redated, redate{row.seq, d.To})
		for _, s := range r.sessions {
			if s.started > d.To {
				s.started, s.seal = d.To, digestOf(nil)
			}
		}
	case frozenEvent:
		r.freezes = append(r.freezes, []any{d.Network, d.Account, row.at, d.By, d.Why})
	case unfrozenEvent:
		r.lifts[fmt.Sprint(d.UpTo)] = toJSON([]any{row.at, d.Seal})
	case liftRefusedEvent:
		delete(r.lifts, fmt.Sprint(d.UpTo))
	case sealedEvent:
		r.rules[fmt.Sprint(d.Version)] = toJSON([]any{row.at, d.SHA256, d.Seal})
	case channelEvent:
		r.channels[d.Service+" "+d.Key] = chainChannel{
			row:      d.Row,
			updated:  row.at,
			signed:   fmt.Sprint(d.Signed),
			position: voucher{d.Service, d.Key, d.Position},
		}
	case delegationEvent:
		r.delegations[d.Network+" "+d.Account] = toJSON([]any{d.Largest})
	case LabelledEvent:
		delete(r.meta, LabelNote+d.Session)
		if d.Label != "" {
			r.meta[LabelNote+d.Session] = toJSON([]any{d.Label})
		}
	case ImportedEvent:
		r.imported = d.All
	}
}

// approval is what a row says of an approval.
func (r *replay) approval(row auditRow, d rowDetail) error {
	switch a := r.approvals[d.ID]; {
	case d.Said == saidNothing:
	case row.event == returnedEvent:
		a := r.approvals[r.usedBy[row.payment]]
		if a == nil {
			return corrupt("event %d returns an approval that was not used", row.seq)
		}
		a.state, a.payment = string(Approved), ""
	case row.event == approvalEvent+string(Expired):
		for _, id := range d.IDs {
			if over := r.approvals[id]; over != nil {
				over.state = string(Expired)
			}
		}
	case row.event == pendingEvent && d.Row != "":
		r.approvals[d.ID] = &chainApproval{
			row:     d.Row,
			state:   string(Pending),
			created: row.at,
			expires: d.Expires,
			seal:    digestOf(nil),
		}
	case a == nil:
		return corrupt("event %d is of an approval that was never asked for", row.seq)
	case row.event == usedEvent:
		a.state, a.payment = string(Used), d.Payment
		r.usedBy[row.payment] = d.ID
	default:
		a.state = strings.TrimPrefix(row.event, approvalEvent)
		a.expires, a.declined, a.since, a.seal = d.Expires, d.Declined, d.Since, d.Seal
	}
	return nil
}

// sealedRow checks a sealed row, and adds what was signed.
func (r *replay) sealedRow(row auditRow) error {
	if row.seal == nil {
		return corrupt("event %d (%s of payment %d) is not sealed by this wallet", row.seq, row.event,
			row.payment)
	}
	if r.k.MAC != nil {
		own, err := r.k.MAC(rowData(row.hash))
		if err != nil {
			return err
		}
		if !hmac.Equal(own, row.seal) {
			return corrupt("event %d (%s of payment %d) is not sealed by this wallet", row.seq, row.event,
				row.payment)
		}
	}
	var err error
	if row.event == signedEvent {
		err = r.signed(row)
	} else {
		err = r.sealedOtherwise(row)
	}
	if _, isKnown := errors.AsType[*x402.Error](err); isKnown {
		return err
	}
	if err != nil {
		return row.unreadable()
	}
	if row.seq == r.newestSeal {
		d, err := row.read()
		r.sealed, r.sealedDigest = r.sums.encode(), d.Sums
		return err
	}
	return nil
}

// sealedOtherwise is what a sealed row says that is no signature: reading that of each would take too long.
func (r *replay) sealedOtherwise(row auditRow) error {
	d, err := row.read()
	switch {
	case err != nil:
		return err
	case row.event == expiredEvent:
		return r.expired(row)
	case row.event == chargedEvent:
		return r.charged(row)
	case row.event == voucherEvent && d.Voucher != nil:
		r.remembered.put(d.Voucher.entry())
	case row.event == sealedEvent && d.Accepted != nil:
		r.restartFrom(*d.Accepted)
	}
	return nil
}

// signed adds a signature to what was signed.
func (r *replay) signed(row auditRow) error {
	g, err := readSignature(row.detail)
	if err != nil {
		return err
	}
	if !r.sums.knows(g.created()) {
		return corrupt("event %d was signed too late", row.seq)
	}
	r.sums.add(g)
	for _, e := range remembered(g.ID, g) {
		r.remembered.put(e)
	}
	return nil
}

func (r *replay) charged(row auditRow) error {
	d, err := row.readGivenBack()
	if err != nil {
		return err
	}
	r.sums.lower(d.Signature, money.Dollars(d.Returned))
	r.remembered.put(entry{chargedKey(d.Signature.ID), []byte{1}})
	return nil
}

func (r *replay) expired(row auditRow) error {
	d, err := row.readGivenBack()
	if err != nil {
		return err
	}
	g := d.Signature
	r.sums.subtract(g)
	r.remembered.put(entry{expiredKey(g.ID), []byte{1}})
	if g.Key != "" {
		r.remembered.remove(idempotencyKey(g.Agent, g.Key))
	}
	return nil
}

// restartFrom begins anew from the sums that the owner accepted, as tx.rebuildSealed does.
func (r *replay) restartFrom(s sums) {
	r.sums, r.tooEarly = s, ""
	for _, c := range r.channels {
		e := c.position.entry()
		r.remembered.remove(e.key)
		if c.signed == "true" {
			r.remembered.put(e)
		}
	}
}

// noteTooEarly notes a session that a payment began although the one before, in which something was signed,
// was not over, and the owner did not begin it: nothing is signed in it. Only the owner ends that.
func (r *replay) noteTooEarly(s *chainSession) {
	last := r.sums.Session
	r.tooEarly = ""
	if s.seal == digestOf(nil) && last.ID != "" && s.started-last.Last < budget.SessionIdle.Microseconds() {
		r.tooEarly = s.id
	}
}

// tables compares the small tables.
func (r *replay) tables() error {
	if r.tooEarly != "" {
		return corrupt("session %s began in it, though the one before was not over and the owner did not "+
			"begin it", r.tooEarly)
	}
	sessions := map[string]string{}
	for i, s := range r.sessions {
		last, ended := s.started, int64(1)
		if at, paid := r.paid[s.id]; paid {
			last = at
		}
		if i == len(r.sessions)-1 {
			ended = 0
		}
		sessions[s.id] = toJSON([]any{s.started, last, s.limit, ended, orNull(s.seal)})
	}
	approvals := map[string]string{}
	for id, a := range r.approvals {
		approvals[id] = toJSON([]any{a.state, a.created, a.expires, a.declined, a.payment, a.since,
			orNull(a.seal), 32})
	}
	freezes := map[string]string{}
	for i, f := range r.freezes {
		freezes[fmt.Sprint(i+1)] = toJSON(f)
	}
	for _, c := range []struct {
		table string
		want  map[string]string
		n     int
		query string
	}{
		{"sessions", sessions, 5, `SELECT id, started_at, last_at, cap, ended, seal FROM sessions`},
		{"approvals", approvals, 8, `SELECT id, state, created_at, expires_at, declined, payment, since, seal,
			length(quote) FROM approvals`},
		{"freezes", freezes, 5, `SELECT seq, network, account, at, by, why FROM freezes`},
		{"lifts", r.lifts, 2, `SELECT upto, at, seal FROM lifts`},
		{"rules", r.rules, 3, `SELECT version, at, config, seal FROM rules`},
		{"delegations", r.delegations, 1, `SELECT network || ' ' || account, largest FROM delegations`},
		{"meta", r.meta, 1, `SELECT key, value FROM meta WHERE key NOT LIKE 'imported %'
			AND key NOT LIKE 'subscription %' AND key NOT LIKE 'proposal %'`},
	} {
		if err := r.t.tableAgrees(c.table, c.want, c.n, c.query); err != nil {
			return err
		}
	}
	if all, err := ImportedDigest(r.t.Tx); err != nil || all != r.imported {
		return cmpOr(err, corrupt("the imported payments are not those that the audit chain has"))
	}
	if err := r.questions(); err != nil {
		return err
	}
	return r.channelRows()
}

func cmpOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// orNull is the digest of a seal, or NULL where there is none.
func orNull(digest string) any {
	if digest == digestOf(nil) {
		return nil
	}
	return digest
}

// questions compares what the approvals are for.
func (r *replay) questions() error {
	return r.t.Each(func(row sqldb.Row) error {
		id, digest, err := scanDigest(row, 12)
		if err == nil && digest != r.approvals[id].row {
			err = corrupt("what the approval %s is for is not what was asked", id)
		}
		return err
	}, `SELECT id, usd, id, quote, host, method, url, network, asset, symbol, amount, pay_to, why,
			agent FROM approvals`)
}

func (r *replay) channelRows() error {
	updated := map[string]string{}
	for key, c := range r.channels {
		updated[key] = toJSON([]any{c.updated})
	}
	const key = `SELECT service || ' ' || key, `
	err := r.t.tableAgrees("channels", updated, 1, key+`updated_at FROM channels`)
	if err != nil {
		return err
	}
	text := func(column string) string { return `, coalesce(` + column + `, '')` }
	return r.t.Each(func(row sqldb.Row) error {
		name, digest, err := scanDigest(row, 13)
		if err == nil && r.channels[name].row != digest {
			err = corrupt("the channel %q is not what the audit chain says", name)
		}
		return err
	}, key+`known, service, key, server, network, source, channel, epoch, nonce, amount, claimed`+
		text("signed")+text("call")+text("refused")+` FROM channels`)
}

// wasRedated is what became of a time that was written with one event, until another.
func (r *replay) wasRedated(after, upTo, at int64) int64 {
	for _, d := range r.redates {
		if d.seq > after && d.seq < upTo {
			at = min(at, d.to)
		}
	}
	return at
}
