package history

import (
	"bytes"
	"crypto/hmac"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/memory"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Whoever runs as the same user can write to ledger.db, and the tables that a decision reads are
// only a cache. What is believed when something is signed are the sealed rows of the audit chain:
// those of rules (sealed), of signatures (signed, voucher) and of signatures that the chain showed
// to have expired (expired) or to have moved less than they allowed (charged). Each is written by a process
// that holds the key, with a MAC over its hash, and names the sums (package seals) of everything that was
// signed up to it: the windows, the session, the rate, the failures in a row and the root of the memory. The
// next one begins from there, goes through the rows since, and compares the tables with what comes out.

// Keyholder is what a process that holds the wallet's key brings to a row that it seals.
type Keyholder struct {
	// MAC is a MAC for this ledger in this place, under the wallet's key.
	MAC func(data []byte) ([]byte, error)
	// After is the newest checkpoint that the process has met: the chain has to have it.
	After Head
	// Query says what Permit has to know about a payment.
	Query func(Payment) budget.Query
	// Permit decides on a payment by the owner's rules and by what is sealed alone. It is asked once for each
	// signature, last; with its error nothing is recorded. The fact that it returns is sealed with the
	// signature, if it is one.
	Permit func(Payment, budget.Facts, Sealed) (*Fact, error)
	// OwnSession reports whether the owner began a session, and OwnLift whether they lifted freezes. A lift
	// of nothing is theirs.
	OwnSession func(s budget.Session, seal []byte) (bool, error)
	OwnLift    func(l Lift) (bool, error)
	// NeedsCap says that the owner set no limit of a session, and that the chain was not asked for one. The
	// cap of a session in which nothing was signed is only in a table: a signature in it is then
	// ErrNewSession.
	NeedsCap bool
	// SessionCap is an upper bound of that cap. It is nil if there is none.
	SessionCap *money.Dollars
}

// ErrNewSession says that nothing was signed in a payment's session yet, and its cap has to be asked for.
var ErrNewSession = errors.New("nothing was signed in the session yet")

// Sealed is what the sealed rows say beside the sums.
type Sealed struct {
	// Channel is the step that the signature takes a channel. It is nil for a payment without one.
	Channel *Step
	// Recall returns the value of a fact, or nil if it was never sealed.
	Recall func(name string) ([]byte, error)
}

// Step is what a voucher makes of a channel. From is where the last sealed voucher left it, if IsKnown: else
// no voucher was ever sealed, and From is a row that nobody vouches for.
type Step struct {
	From, To Channel
	IsKnown  bool
}

// Fact is what a scheme has to know when it signs the next time. The newest value of a name counts.
type Fact = seals.Fact

// sealed is the newest sealed row, with its sums carried on to the end of the chain.
type sealed struct {
	seals.Sums
	memory    *memory.Memory
	seq       int64 // of the row; 0: nothing was ever sealed
	hash, mac []byte
	followed  int64 // up to which row the chain was followed to its end then
	compared  map[windowKey]bool
}

// windowKey names the windows that a payment falls into: of its session, of its day and month, of the
// owner's entries of hosts, of its agent and of that one's teams.
type windowKey struct {
	session string
	day     int64
	entries string
	agent   string
	teams   string
}

// lastSealed reads and checks the newest sealed row, its sums, and all rows since; earlier is a row that has
// to be on the chain, too, or nil.
func (t *tx) lastSealed(k Keyholder, earlier *audit.Row) (s *sealed, err error) {
	if err := t.hasNewest(); err != nil {
		return nil, err
	}
	s, err = t.sealedBefore(k, earlier)
	if s != nil || err != nil {
		return s, err
	}
	s = &sealed{}
	var detail, state string
	err = t.Row(`SELECT a.seq, a.detail, a.hash, a.seal, s.sums FROM audit a, sealed_sums s
		WHERE a.seal IS NOT NULL ORDER BY a.seq DESC LIMIT 1`).Scan(&s.seq, &detail, &s.hash, &s.mac, &state)
	s.memory = &memory.Memory{Tx: t.Tx, MAC: k.MAC}
	if errors.Is(err, sql.ErrNoRows) {
		return s, t.neverSealed(k)
	}
	if err != nil {
		return s, err
	}
	own, err := k.MAC(audit.SealData(s.hash))
	if err != nil {
		return s, err
	}
	var d struct {
		Sums string `json:"sums"`
	}
	isOwn := json.Unmarshal([]byte(detail), &d) == nil && hmac.Equal(own, s.mac) &&
		d.Sums == audit.Digest([]byte(state))
	s.Sums, err = decodeSums(state)
	if err != nil || !isOwn {
		return s, audit.Corrupt("the last row that it sealed, or what that says of the budgets, is another " +
			"one")
	}
	root, err := hex.DecodeString(s.Memory)
	if err != nil {
		return s, audit.Corrupt("the root of its memory cannot be read")
	}
	copy(s.memory.Root[:], root)
	return s, t.replaySince(s, k, earlier)
}

// sealedBefore is what a signature of the same transaction left, carried on by what was written since. It was
// read and checked by that one, nobody else writes meanwhile, and a change that failed leaves nothing of it
// (Store.apply). nil: there is none, its seal is not this keyholder's, or the keyholder's checkpoint and the
// earlier row are not among the rows that were followed then; so it is read again.
func (t *tx) sealedBefore(k Keyholder, earlier *audit.Row) (*sealed, error) {
	s := t.known.sealed
	t.known.sealed = nil
	if s == nil {
		return nil, nil
	}
	own, err := k.MAC(audit.SealData(s.hash))
	if err != nil || !hmac.Equal(own, s.mac) {
		return nil, err
	}
	wasFollowed := func(seq int64, hash []byte) bool {
		known := t.followed.hash(seq)
		return seq <= s.followed && known != nil && bytes.Equal(known, hash)
	}
	if k.After.Seq > 0 && !wasFollowed(k.After.Seq, k.After.Hash) {
		return nil, nil
	}
	if earlier != nil && !wasFollowed(earlier.Seq, earlier.Linked(t.followed.hash(earlier.Seq-1))) {
		return nil, nil
	}
	s.memory.Tx, s.memory.MAC = t.Tx, k.MAC
	return s, nil
}

// neverSealed refuses to begin anew where something was sealed before.
func (t *tx) neverSealed(k Keyholder) error {
	var n int
	err := t.Row(`SELECT count(*) FROM payments WHERE unique_key IS NOT NULL`).Scan(&n)
	if err == nil && (n > 0 || k.After.Seq > 0) {
		err = audit.Corrupt("no row of it is sealed")
	}
	return err
}

// replaySince applies the rows behind the sealed one. The chain has to hold together from there to its end,
// and to have the checkpoint and the earlier row on it: where these are older, it is read from them on,
// unless this process followed it from them on before.
func (t *tx) replaySince(s *sealed, k Keyholder, earlier *audit.Row) error {
	base, hash, err := t.lastFollowed(s.seq)
	if err != nil {
		return err
	}
	after, rows := s.seq-1, [][]byte{}
	if base > 0 {
		after, rows = base, append(rows, hash)
	}
	leadsToBase := func(seq int64, hash []byte) bool {
		known := t.followed.hash(seq)
		return seq <= base && known != nil && bytes.Equal(known, hash)
	}
	if seq := k.After.Seq; seq > 0 && !leadsToBase(seq, k.After.Hash) {
		after = min(after, seq-1)
	}
	if earlier != nil && !leadsToBase(earlier.Seq, earlier.Linked(t.followed.hash(earlier.Seq-1))) {
		after = min(after, earlier.Seq-1)
	}
	if after < base {
		rows = nil
	}
	first := after + 1 - int64(len(rows))
	err = t.walk(after, k.After, func(r audit.Row) error {
		rows = append(rows, r.Hash)
		if r.Seq <= s.seq {
			return nil
		}
		if audit.IsSealed(r.Event) {
			return audit.Corrupt("event %d (%s of payment %d) is not sealed by this wallet", r.Seq, r.Event,
				r.Payment)
		}
		s.Apply(r)
		return nil
	})
	if err == nil {
		t.followed.keep(first, rows)
		s.followed = first + int64(len(rows)) - 1
	}
	return err
}

// seal appends a sealed row, and keeps its sums, whose digest it adds to the detail.
func (t *tx) seal(k Keyholder, s *sealed, payment int64, event string, detail any) error {
	if err := t.ownForm(); err != nil {
		return err
	}
	if err := s.memory.Flush(); err != nil {
		return err
	}
	s.Memory = hex.EncodeToString(s.memory.Root[:])
	state := s.Encode()
	text := strings.TrimSuffix(audit.JSON(detail), "}") + `,"sums":"` + audit.Digest(state) + `"}`
	mac, err := t.append(payment, event, json.RawMessage(text), k.MAC)
	if err != nil {
		return err
	}
	_, err = t.Exec(`INSERT INTO sealed_sums VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET sums = excluded.sums`,
		string(state))
	cacheSums(string(state), &s.Sums)
	s.seq, s.hash, s.mac = t.known.head, t.known.hash, mac
	t.sealed = &Head{Seq: s.seq, Hash: s.hash}
	t.known.sealed = s
	return err
}

// ownForm refuses a ledger with a trigger or a view, or another table than this wallet's: it could change
// what is written. Nobody makes one while the transaction lasts.
func (t *tx) ownForm() error {
	if t.known.ownForm || t.IsServer() {
		return nil
	}
	err := t.Each(func(row sqldb.Row) error {
		var name, made string
		err := row.Scan(&name, &made)
		isStatistic := name == "table sqlite_stat1" || name == "table sqlite_stat4" // SQLite's own
		if err == nil && !isStatistic && !strings.Contains(schema.SQLite(), made) {
			err = audit.Corrupt("the %s is not one of this wallet's", name)
		}
		return err
	}, `SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema`)
	t.known.ownForm = err == nil
	return err
}

// compare refuses tables that show less, or more, than what was signed and what is held for a
// signature to come. Both are in the same transaction, so they are equal or somebody else wrote. Nobody else
// does within it, so once is enough for those of its payments that fall into the same windows.
func (t *tx) compare(s *sealed, p Payment, q budget.Query) error {
	all := windowKey{p.Session, sqldb.DayNumber(p.Created), strings.Join(q.HostEntries, "\n"), q.Agent,
		strings.Join(q.Teams, "\n")}
	if s.compared[all] {
		return nil
	}
	shown, err := t.usage(p.Session, q, p.Created)
	if err != nil {
		return err
	}
	waiting, err := t.reserved(p.Session, q, p.Created)
	if err != nil {
		return err
	}
	signed := s.Usage(p.Session, q, p.Created)
	if p.Session == "" { // none ever began
		shown.Session, signed.Session = budget.Use{}, budget.Use{}
	}
	agree := func(shown, waiting, signed budget.Use) error {
		if shown.Total() != signed.Held+waiting.Held {
			return audit.Corrupt("a budget's sum in it is %s; %s were signed and are held for it",
				shown.Total(), signed.Held+waiting.Held)
		}
		return nil
	}
	for _, err := range []error{agree(shown.Session, waiting.Session, signed.Session),
		agree(shown.Day, waiting.Day, signed.Day), agree(shown.Month, waiting.Month, signed.Month),
		agree(shown.Agent.Day, waiting.Agent.Day, signed.Agent.Day),
		agree(shown.Agent.Month, waiting.Agent.Month, signed.Agent.Month)} {
		if err != nil {
			return err
		}
	}
	for _, entry := range q.HostEntries {
		if err := agree(shown.HostDay[entry], waiting.HostDay[entry], signed.HostDay[entry]); err != nil {
			return err
		}
	}
	for _, team := range q.Teams {
		shown, waiting, signed := shown.Teams[team], waiting.Teams[team], signed.Teams[team]
		err := agree(shown.Day, waiting.Day, signed.Day)
		if err == nil {
			err = agree(shown.Month, waiting.Month, signed.Month)
		}
		if err != nil {
			return err
		}
	}
	if s.compared == nil {
		s.compared = map[windowKey]bool{}
	}
	s.compared[all] = true
	return nil
}

// reserved is what is held in the windows of a time that are asked for and not yet signed.
func (t *tx) reserved(session string, q budget.Query, at time.Time) (u budget.Usage, err error) {
	u.HostDay = map[string]budget.Use{}
	ofDay, ofMonth := map[string]budget.Use{}, map[string]budget.Use{}
	err = t.Each(func(row sqldb.Row) error {
		var host, agent string
		var inSession, inDay, inMonth money.Dollars
		if err := row.Scan(&host, &agent, &inSession, &inDay, &inMonth); err != nil {
			return err
		}
		if q.Agent != "" && agent == q.Agent {
			u.Agent.Day.Held += inDay
			u.Agent.Month.Held += inMonth
		}
		ofDay[agent] = budget.Use{Held: ofDay[agent].Held + inDay}
		ofMonth[agent] = budget.Use{Held: ofMonth[agent].Held + inMonth}
		u.Session.Held += inSession
		u.Day.Held += inDay
		u.Month.Held += inMonth
		for _, entry := range q.HostEntries {
			if budget.HostMatches(entry, host) {
				u.HostDay[entry] = budget.Use{Held: u.HostDay[entry].Held + inDay}
			}
		}
		return nil
	}, `SELECT host, agent, sum(CASE WHEN session = ? THEN usd ELSE 0 END),
		sum(CASE WHEN created_at >= ? THEN usd ELSE 0 END), sum(CASE WHEN created_at >= ? THEN usd ELSE 0 END)
		FROM payments WHERE state = 'reserved' GROUP BY host, agent`,
		session, sqldb.Micros(budget.DayOf(at)), sqldb.Micros(budget.MonthOf(at)))
	u.Teams = q.OfTeams(ofDay, ofMonth)
	return u, err
}

// sealedFacts are what Permit decides by: of what was signed and nothing else, without the payment
// itself, at the time at which it was reserved.
func (t *tx) sealedFacts(s *sealed, p Payment, q budget.Query, k Keyholder) (f budget.Facts, err error) {
	f.Now, f.Used = p.Created, s.Usage(p.Session, q, p.Created)
	f.Session = budget.Session{ID: p.Session, Last: p.Created}
	f.Session.Cap = s.Session.Cap
	if s.Session.ID != p.Session {
		f.Session.Cap, err = t.sessionCap(p.Session, k)
	}
	if err != nil {
		return f, err
	}
	if q.MaxFailures > 0 || q.BusyHour {
		f.LastUnfreeze, err = t.lastUnfreeze()
		if err != nil {
			return f, err
		}
	}
	// What each agent and team paid in the last minute the seals do not tell: their rates hold where the
	// money is held, and by what each process signed.
	now := p.Created.Unix()
	f.LastMinute = s.Seconds.Between(now-60, now)
	f.RateSince = p.Created
	f.LastHour = s.Minutes.Between(max(now-3600, f.LastUnfreeze.Unix())/60, now/60)
	f.ConsecutiveFailures = len(s.Failures)
	f.Subscription = s.Subscription(q.Subscription)
	f.Payee, err = historyFor(s.memory.Get, q)
	return f, err
}

// sessionCap is the cap of a session in which nothing was signed: no more than what the keyholder knows,
// because the table alone can be edited.
func (t *tx) sessionCap(id string, k Keyholder) (limit *money.Dollars, err error) {
	if k.NeedsCap {
		return nil, ErrNewSession
	}
	err = t.Row(`SELECT cap FROM sessions WHERE id = ?`, id).Scan(&limit)
	if err != nil {
		return nil, sqldb.Otherwise(err, audit.Corrupt("session %s is not in it", id))
	}
	if limit == nil || (k.SessionCap != nil && *k.SessionCap < *limit) {
		limit = k.SessionCap
	}
	return limit, nil
}

// sameSession refuses a payment whose session is not the one that was signed in last, unless it is
// the newest, and the owner began it, or that one had been idle for long enough.
func (t *tx) sameSession(s *sealed, p Payment, k Keyholder) error {
	if s.Session.ID == "" || p.Session == s.Session.ID {
		return nil
	}
	var started int64
	var ended bool
	var seal []byte
	err := t.Row(`SELECT started_at, ended, seal FROM sessions WHERE id = ?`, p.Session).
		Scan(&started, &ended, &seal)
	if err != nil {
		return sqldb.Otherwise(err, audit.Corrupt("session %s is not in it", p.Session))
	}
	newest := sqldb.FromMicros(s.Session.Last)
	if ended || p.Created.Before(newest) {
		return tooLate()
	}
	if sqldb.FromMicros(started).Before(newest) {
		return audit.Corrupt("session %s was over in it, and is open again", p.Session)
	}
	own, err := k.OwnSession(budget.Session{ID: p.Session, Started: sqldb.FromMicros(started)}, seal)
	if err != nil || own {
		return err
	}
	if p.Created.Sub(newest) < budget.SessionIdle {
		return audit.Corrupt("session %s began in it, though the one before was not over and the owner did "+
			"not begin it", p.Session)
	}
	return nil
}

// ErrTooLate says that money was held so long ago that it is not signed for any more: its session is
// over, or nobody can say what else was signed in its windows.
var ErrTooLate = errors.New("the payment was reserved too long ago to be signed now")

func tooLate() error {
	e := x402.Errorf(x402.LedgerUnavailable, "%w", ErrTooLate)
	e.FixedBy = x402.ByTime
	return e.WithHint("make the same call again")
}
