package history

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Whoever runs as the same user can write to ledger.db, and the tables that a decision reads are
// only a cache. What is believed when something is signed are the sealed rows of the audit chain:
// those of rules (sealed), of signatures (signed, voucher) and of signatures that the chain showed
// to have expired (expired). Each is written by a process that holds the key, with a MAC over its
// hash, and names the sums of everything that was signed up to it: the windows, the session, the
// rate, the failures in a row and the root of the memory. The next one begins from there, goes
// through the rows since, and compares the tables with what comes out.

// Keyholder is what a process that holds the wallet's key brings to a row that it seals.
type Keyholder struct {
	// MAC is a MAC for this ledger in this place, under the wallet's key.
	MAC func(data []byte) ([]byte, error)
	// After is the newest checkpoint that the process has met: the chain has to have it.
	After Head
	// Query says what Permit has to know about a payment.
	Query func(Payment) budget.Query
	// Permit decides on a payment by the owner's rules and by sealed facts alone. It is asked once
	// for each signature, last; with its error nothing is recorded.
	Permit func(Payment, budget.Facts) error
	// OwnSession reports whether the owner began a session.
	OwnSession func(s budget.Session, seal []byte) (bool, error)
}

// The events whose rows are sealed.
const (
	sealedEvent  = "sealed"
	signedEvent  = "signed"
	voucherEvent = "voucher"
	expiredEvent = "expired"
)

func isSealedEvent(event string) bool {
	return slices.Contains([]string{sealedEvent, signedEvent, voucherEvent, expiredEvent}, event)
}

// sums is what was signed and did not expire.
type sums struct {
	Days    []windowSum `json:"days"`   // the newest two in which anything was signed
	Months  []windowSum `json:"months"` // likewise; Day is the month's first
	Session sessionSum  `json:"session"`
	// how much was signed, by the second in the last minute and by the minute in the last hour, of
	// the payments' own times
	Seconds map[int64]int `json:"seconds"`
	Minutes map[int64]int `json:"minutes"`
	// Failures are the payments in a row that came to nothing, by their numbers; Settled is the last
	// one that did not.
	Failures []int64 `json:"failures"`
	Settled  int64   `json:"settled"`
	Memory   string  `json:"memory"` // the root, hex
}

type windowSum struct {
	Day   int64                    `json:"day"` // since 1970
	Sum   money.Dollars            `json:"sum"`
	Hosts map[string]money.Dollars `json:"hosts,omitempty"`
}

type sessionSum struct {
	ID   string         `json:"id"`
	Last int64          `json:"last"` // the newest payment's time, microseconds
	Cap  *money.Dollars `json:"cap"`
	Sum  money.Dollars  `json:"sum"`
}

// signature is what a sealed row says of one.
type signature struct {
	Number      int64          `json:"n"` // the payment's, in the order of creation
	Session     string         `json:"session"`
	SessionCap  *money.Dollars `json:"sessionCap"`
	Created     int64          `json:"created"` // microseconds
	Host        string         `json:"host"`
	Network     string         `json:"network"`
	Asset       string         `json:"asset"`
	PayTo       string         `json:"payTo"`
	Amount      money.Amount   `json:"amount"`
	Price       money.Dollars  `json:"microdollars"`
	Resource    string         `json:"resource"`
	Key         string         `json:"key,omitempty"`
	Unique      string         `json:"unique"`   // its nonce or our signature
	Evidence    string         `json:"evidence"` // SHA-256 of what the chain is asked by
	SignedBytes string         `json:"sha256"`   // of what was signed, or of the payload with it
	Voucher     *voucher       `json:"voucher,omitempty"`
}

// voucher is how far a sealed row takes a channel.
type voucher struct {
	Service  string `json:"service"`
	Key      string `json:"key"`
	Position string `json:"position"`
}

func (g signature) created() time.Time { return fromMicros(g.Created) }

// at returns the window of a day, or nil.
func at(list []windowSum, day int64) *windowSum {
	i := slices.IndexFunc(list, func(w windowSum) bool { return w.Day == day })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// keptWindows is how many days and months the sums know: what was held before midnight may be
// signed after it.
const keptWindows = 2

// knows reports whether all that was signed in the windows of a time is known: they are among the
// newest.
func (s *sums) knows(created time.Time) bool {
	isOld := func(list []windowSum, day int64) bool { return len(list) == keptWindows && day < list[0].Day }
	return !isOld(s.Days, dayNumber(created)) && !isOld(s.Months, dayNumber(budget.MonthOf(created)))
}

// opens puts a window into a list.
func opens(list []windowSum, day int64) []windowSum {
	if at(list, day) != nil {
		return list
	}
	list = append(list, windowSum{Day: day, Hosts: map[string]money.Dollars{}})
	slices.SortFunc(list, func(a, b windowSum) int { return int(a.Day - b.Day) })
	return list[max(0, len(list)-keptWindows):]
}

// ErrTooLate says that money was held so long ago that it is not signed for any more: its session is
// over, or nobody can say what else was signed in its windows.
var ErrTooLate = errors.New("the payment was reserved too long ago to be signed now")

func tooLate() error {
	return x402.Errorf(x402.LedgerUnavailable, "%w", ErrTooLate).WithHint("make the same call again")
}

// add counts a signature. Its session and its windows must have been looked at.
func (s *sums) add(g signature) {
	day, month := dayNumber(g.created()), dayNumber(budget.MonthOf(g.created()))
	s.Days, s.Months = opens(s.Days, day), opens(s.Months, month)
	d := at(s.Days, day)
	d.Sum += g.Price
	if d.Hosts == nil {
		d.Hosts = map[string]money.Dollars{}
	}
	d.Hosts[g.Host] += g.Price
	at(s.Months, month).Sum += g.Price
	if s.Session.ID != g.Session {
		s.Session = sessionSum{ID: g.Session, Cap: g.SessionCap}
	}
	s.Session.Sum += g.Price
	s.Session.Last = max(s.Session.Last, g.Created)
	s.count(g.created())
}

// count adds to the rate, and forgets what is over.
func (s *sums) count(created time.Time) {
	second, minute := created.Unix(), created.Unix()/60
	if s.Seconds == nil {
		s.Seconds, s.Minutes = map[int64]int{}, map[int64]int{}
	}
	s.Seconds[second]++
	s.Minutes[minute]++
	newest := slices.Max(slices.Collect(maps.Keys(s.Seconds)))
	maps.DeleteFunc(s.Seconds, func(at int64, _ int) bool { return at < newest-60 })
	maps.DeleteFunc(s.Minutes, func(at int64, _ int) bool { return at < newest/60-60 })
}

// subtract takes a signature back that expired.
func (s *sums) subtract(g signature) {
	if d := at(s.Days, dayNumber(g.created())); d != nil {
		d.Sum -= g.Price
		d.Hosts[g.Host] -= g.Price
	}
	if m := at(s.Months, dayNumber(budget.MonthOf(g.created()))); m != nil {
		m.Sum -= g.Price
	}
	if s.Session.ID == g.Session {
		s.Session.Sum -= g.Price
	}
}

// maxFailuresKept bounds Failures, as failuresWithin bounds what the breaker looks at.
const maxFailuresKept = failuresWithin

// follow takes a row of the chain into account that needs no seal.
func (s *sums) follow(event, detail string) {
	var d struct {
		Number    int64           `json:"n"`
		Chain     json.RawMessage `json:"chain"`
		Delivered bool            `json:"delivered"`
	}
	switch event {
	case string(Settled), string(Unknown), string(Failed), deliveredEvent, unfrozenEvent:
	default:
		return
	}
	if json.Unmarshal([]byte(detail), &d) != nil || d.Number == 0 {
		return
	}
	isThis := func(n int64) bool { return n == d.Number }
	switch {
	case event == string(Settled), event == unfrozenEvent:
		s.Settled = max(s.Settled, d.Number)
		s.Failures = slices.DeleteFunc(s.Failures, func(n int64) bool { return n <= s.Settled })
	case event == deliveredEvent:
		s.Failures = slices.DeleteFunc(s.Failures, isThis)
	case event == string(Unknown) && !d.Delivered, event == string(Failed) && d.Chain != nil:
		if d.Number > s.Settled && !slices.ContainsFunc(s.Failures, isThis) {
			s.Failures = append(s.Failures, d.Number)
			s.Failures = s.Failures[max(0, len(s.Failures)-maxFailuresKept):]
		}
	}
}

func (s *sums) encode() []byte { return []byte(toJSON(s)) }

func digestOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// sealed is the newest sealed row, with its sums carried on to the end of the chain.
type sealed struct {
	sums
	memory *memory
	seq    int64 // of the row; 0: nothing was ever sealed
}

// corruptHint is what to do about a ledger that is not what the wallet wrote.
const corruptHint = "somebody or something else wrote to ledger.db: the owner restores the newest good " +
	"copy, or looks (x402-wallet history verify) and accepts it in a terminal with x402-wallet policy " +
	"seal; " +
	"nothing is paid until then"

func corrupt(format string, args ...any) error {
	return x402.Errorf(x402.LedgerCorrupt, "the ledger is not as this wallet left it: "+format, args...).
		WithHint("%s", corruptHint)
}

// lastSealed reads and checks the newest sealed row, its sums, and all rows since; from is a row
// that has to be on the chain, too: 0 is none.
func (t *tx) lastSealed(k Keyholder, from int64) (s *sealed, err error) {
	s = &sealed{}
	var mac, hash []byte
	var detail, state string
	err = t.row(`SELECT a.seq, a.detail, a.hash, a.seal, s.sums FROM audit a, sealed_sums s
		WHERE a.seal IS NOT NULL ORDER BY a.seq DESC LIMIT 1`).Scan(&s.seq, &detail, &hash, &mac, &state)
	s.memory = &memory{t: t, mac: k.MAC}
	if errors.Is(err, sql.ErrNoRows) {
		return s, t.neverSealed(k)
	}
	if err != nil {
		return s, err
	}
	own, err := k.MAC(rowData(hash))
	if err != nil {
		return s, err
	}
	var d struct {
		Sums string `json:"sums"`
	}
	if json.Unmarshal([]byte(detail), &d) != nil || !hmac.Equal(own, mac) ||
		d.Sums != digestOf([]byte(state)) || json.Unmarshal([]byte(state), &s.sums) != nil {
		return s, corrupt("the last row that it sealed, or what that says of the budgets, is another one")
	}
	root, err := hex.DecodeString(s.Memory)
	if err != nil {
		return s, corrupt("the root of its memory cannot be read")
	}
	copy(s.memory.root[:], root)
	return s, t.carryOn(s, k, from)
}

// neverSealed refuses to begin anew where something was sealed before.
func (t *tx) neverSealed(k Keyholder) error {
	var n int
	err := t.row(`SELECT count(*) FROM payments WHERE unique_key IS NOT NULL`).Scan(&n)
	if err == nil && (n > 0 || k.After.Seq > 0) {
		err = corrupt("no row of it is sealed")
	}
	return err
}

// rowData is what the MAC of a sealed row is over.
func rowData(hash []byte) []byte { return slices.Concat([]byte("row"), hash) }

// carryOn goes through the rows behind the sealed one. The chain has to hold together from there, or
// from an earlier row, to its end, and to have the checkpoint on it.
func (t *tx) carryOn(s *sealed, k Keyholder, from int64) error {
	start := s.seq
	for _, row := range []int64{from, k.After.Seq} {
		if row > 0 {
			start = min(start, row)
		}
	}
	return t.walk(start-1, k.After, func(r auditRow) error {
		if r.seq <= s.seq {
			return nil
		}
		if isSealedEvent(r.event) {
			return corrupt("event %d (%s of %s) is not sealed by this wallet", r.seq, r.event, r.payment)
		}
		s.follow(r.event, r.detail)
		return nil
	})
}

// seal appends a sealed row, and keeps its sums.
func (t *tx) seal(k Keyholder, s *sealed, payment, event string, detail map[string]any) error {
	s.Memory = hex.EncodeToString(s.memory.root[:])
	state := s.encode()
	detail["sums"] = digestOf(state)
	if err := t.append(payment, event, detail, k.MAC); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO sealed_sums VALUES (1, ?) ON CONFLICT DO UPDATE SET sums = excluded.sums`,
		string(state))
	return err
}

// compare refuses tables that show less, or more, than what was signed and what is held for a
// signature to come. Both are in the same transaction, so they are equal or somebody else wrote.
func (t *tx) compare(s *sealed, p Payment, entries []string) error {
	shown, err := t.usage(p.Session, entries, p.Created)
	if err != nil {
		return err
	}
	waiting, err := t.reserved(p.Session, entries, p.Created)
	if err != nil {
		return err
	}
	signed := s.usage(p.Session, entries, p.Created)
	if p.Session == "" { // none ever began
		shown.Session, signed.Session = budget.Use{}, budget.Use{}
	}
	agree := func(shown, waiting, signed budget.Use) error {
		if shown.Total() != signed.Held+waiting.Held {
			return corrupt("a budget's sum in it is %s; %s were signed and are held for it", shown.Total(),
				signed.Held+waiting.Held)
		}
		return nil
	}
	for _, err := range []error{agree(shown.Session, waiting.Session, signed.Session),
		agree(shown.Day, waiting.Day, signed.Day), agree(shown.Month, waiting.Month, signed.Month)} {
		if err != nil {
			return err
		}
	}
	for _, entry := range entries {
		if err := agree(shown.HostDay[entry], waiting.HostDay[entry], signed.HostDay[entry]); err != nil {
			return err
		}
	}
	return nil
}

// usage is what was signed in the windows of a time, all of it as held.
func (s *sums) usage(session string, entries []string, at time.Time) (u budget.Usage) {
	day, month := dayNumber(budget.DayOf(at)), dayNumber(budget.MonthOf(at))
	u.HostDay = map[string]budget.Use{}
	if session == s.Session.ID {
		u.Session.Held = s.Session.Sum
	}
	for _, w := range s.Months {
		if w.Day >= month {
			u.Month.Held += w.Sum
		}
	}
	for _, w := range s.Days {
		if w.Day < day {
			continue
		}
		u.Day.Held += w.Sum
		for _, entry := range entries {
			u.HostDay[entry] = budget.Use{Held: u.HostDay[entry].Held + w.host(entry)}
		}
	}
	return u
}

// host is what a day's payments to a host of the owner's entry come to: with any port.
func (w windowSum) host(entry string) (sum money.Dollars) {
	for host, price := range w.Hosts {
		if host == entry || strings.HasPrefix(host, entry+":") {
			sum += price
		}
	}
	return sum
}

// reserved is what is held in the windows of a time and not yet signed.
func (t *tx) reserved(session string, entries []string, at time.Time) (u budget.Usage, err error) {
	day, month := budget.DayOf(at), budget.MonthOf(at)
	u.HostDay = map[string]budget.Use{}
	err = t.forEach(func(row scanner) error {
		var in, host string
		var micro int64
		var price money.Dollars
		if err := row.Scan(&in, &host, &micro, &price); err != nil {
			return err
		}
		created := fromMicros(micro)
		if in == session {
			u.Session.Held += price
		}
		if !created.Before(month) {
			u.Month.Held += price
		}
		if created.Before(day) {
			return nil
		}
		u.Day.Held += price
		on := windowSum{Hosts: map[string]money.Dollars{host: price}}
		for _, entry := range entries {
			u.HostDay[entry] = budget.Use{Held: u.HostDay[entry].Held + on.host(entry)}
		}
		return nil
	}, `SELECT session, host, created_at, usd FROM payments INDEXED BY payments_reserved
		WHERE state = 'reserved'`)
	return u, err
}

// sealedFacts are what Permit decides by: of what was signed and nothing else, without the payment
// itself, at the time at which it was reserved.
func (t *tx) sealedFacts(s *sealed, p Payment, q budget.Query) (f budget.Facts, err error) {
	f.Now, f.Used = p.Created, s.usage(p.Session, q.HostEntries, p.Created)
	f.Session = budget.Session{ID: p.Session, Last: p.Created}
	f.Session.Cap = s.Session.Cap
	if s.Session.ID != p.Session {
		f.Session.Cap, err = t.sessionCap(p.Session)
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
	now := p.Created.Unix()
	for at, n := range s.Seconds {
		if at > now-60 && at <= now {
			f.LastMinute += n
		}
	}
	f.RateSince = p.Created
	since := max(now-3600, f.LastUnfreeze.Unix()) / 60
	for at, n := range s.Minutes {
		if at > since && at <= now/60 {
			f.LastHour += n
		}
	}
	f.ConsecutiveFailures = len(s.Failures)
	if q.Payee.PayTo != "" {
		f.Payee, err = payeeHistory(s.memory.get, p.Host, q.Payee)
	}
	return f, err
}

func (t *tx) sessionCap(id string) (limit *money.Dollars, err error) {
	err = t.row(`SELECT cap FROM sessions WHERE id = ?`, id).Scan(&limit)
	return limit, none(err, corrupt("session %s is not in it", id))
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
	err := t.row(`SELECT started_at, ended, seal FROM sessions WHERE id = ?`, p.Session).
		Scan(&started, &ended, &seal)
	if err != nil {
		return none(err, corrupt("session %s is not in it", p.Session))
	}
	newest := fromMicros(s.Session.Last)
	if ended || p.Created.Before(newest) {
		return tooLate()
	}
	if fromMicros(started).Before(newest) {
		return corrupt("session %s was over in it, and is open again", p.Session)
	}
	own, err := k.OwnSession(budget.Session{ID: p.Session, Started: fromMicros(started)}, seal)
	if err != nil || own {
		return err
	}
	if p.Created.Sub(newest) < budget.SessionIdle {
		return corrupt("session %s began in it, though the one before was not over and the owner did not "+
			"begin it", p.Session)
	}
	return nil
}

// agreed is what was sealed last, if the tables agree with it.
func (t *tx) agreed(k Keyholder) (*sealed, error) {
	s, err := t.lastSealed(k, 0)
	if err == nil {
		err = t.compare(s, Payment{Session: s.Session.ID, Created: t.Now}, nil)
	}
	return s, err
}

// Agrees refuses a ledger whose budgets, open session or memory are not what was sealed: all that
// could stop the next signature. It reads the whole memory.
func (s *Store) Agrees(ctx context.Context, k Keyholder) error {
	return s.view(ctx, func(t *tx) error {
		last, err := t.agreed(k)
		if err != nil {
			return err
		}
		for _, w := range last.Days {
			err = t.compare(last, Payment{Session: last.Session.ID, Created: time.Unix(w.Day*86400, 0).UTC()},
				slices.Collect(maps.Keys(w.Hosts)))
			if err != nil {
				return err
			}
		}
		if err := t.sessionGoesOn(last, k); err != nil {
			return err
		}
		return last.memory.whole()
	})
}

// sessionGoesOn refuses an open session in which nothing would be signed.
func (t *tx) sessionGoesOn(s *sealed, k Keyholder) error {
	current, err := t.session()
	if err != nil {
		return err
	}
	now := max(micros(t.Now), s.Session.Last)
	if current.ID == "" && now-s.Session.Last < budget.SessionIdle.Microseconds() {
		return corrupt("its session ended, and was not over")
	}
	if current.ID == "" {
		return nil
	}
	return t.sameSession(s, Payment{Session: current.ID, Created: fromMicros(now)}, k)
}

// accepted is what the payments say, as the owner accepts them: of what was signed and did not fail
// the sums, and of all that was signed the memory. The tables that are kept beside them follow.
func (t *tx) accepted(k Keyholder) (*sealed, error) {
	s := &sealed{memory: &memory{t: t, mac: k.MAC}}
	if err := s.memory.clear(); err != nil {
		return nil, err
	}
	entries := map[string][]byte{}
	err := t.forEach(func(row scanner) error {
		var p Payment
		var created int64
		var limit *money.Dollars
		err := row.Scan(
			&p.ID,
			&p.State,
			&p.Session,
			&created,
			&p.Method,
			&p.URL,
			&p.Host,
			&p.Network,
			&p.Asset,
			&p.PayTo,
			&p.Price,
			&p.IdempotencyKey,
			&limit,
		)
		if err != nil {
			return err
		}
		p.Created = fromMicros(created)
		g := p.signature()
		g.SessionCap = limit
		if p.State == Failed {
			g.Key = ""
		}
		for _, e := range remembered(p.ID, g) {
			entries[string(e.key)] = e.value
		}
		if p.State == Failed {
			entries[string(expiredKey(p.ID))] = []byte{1}
		} else if s.knows(g.created()) {
			s.add(g)
		}
		return nil
	}, `SELECT p.id, p.state, p.session, p.created_at, p.method, p.url, p.host, p.network, p.asset, p.pay_to, p.usd,
			coalesce(a.detail ->> 'key', ''), s.cap
		FROM payments p LEFT JOIN audit a ON a.payment = p.id AND a.event = 'signed'
		LEFT JOIN sessions s ON s.id = p.session WHERE p.unique_key IS NOT NULL ORDER BY a.seq, p.seq`)
	if err != nil {
		return nil, err
	}
	channels, err := collect(t, scanChannel, selectChannel)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if c.Signed != nil {
			e := c.voucher().entry()
			entries[string(e.key)] = e.value
		}
	}
	if err := t.row(`SELECT coalesce(max(seq), 0) FROM payments`).Scan(&s.Settled); err != nil {
		return nil, err
	}
	if err := t.resumeSession(s, k); err != nil {
		return nil, err
	}
	if err := t.addUpAgain(); err != nil {
		return nil, err
	}
	return s, s.memory.fill(entries)
}

// resumeSession makes the session that was signed in last the open one again, unless it is over: by
// accepting a ledger the owner begins no session.
func (t *tx) resumeSession(s *sealed, k Keyholder) error {
	if s.Session.ID == "" {
		return nil
	}
	goesOn := t.sessionGoesOn(s, k)
	if !x402.HasCode(goesOn, x402.LedgerCorrupt) {
		return goesOn
	}
	_, err := t.exec(`INSERT INTO sessions (id, started_at, last_at, cap) VALUES (?1, ?2, ?2, ?3)
		ON CONFLICT DO UPDATE SET last_at = excluded.last_at`, s.Session.ID, s.Session.Last,
		(*int64)(s.Session.Cap))
	if err == nil {
		_, err = t.exec(`UPDATE sessions SET ended = id <> ?`, s.Session.ID)
	}
	return err
}

// addUpAgain makes the sums that are kept those of the payments.
func (t *tx) addUpAgain() error {
	_, err := t.exec(`DELETE FROM totals`)
	if err == nil {
		_, err = t.exec(paymentSums + ` INSERT INTO totals SELECT * FROM sums`)
	}
	return err
}
