package history

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// What is written down for the person's books: names of sessions, and payments of the wallet before
// this one. They stand beside the payments (meta), and nothing that decides ever reads them: a file
// from elsewhere makes no payee known and fills no budget.

const (
	labelKey    = "label "    // and a session
	importedKey = "imported " // and an Imported.ID
)

// Range selects payments for the books. Zero fields do not restrict.
type Range struct {
	After, Until time.Time // made at or after, and before
	URL          string    // part of it
	Host         string
	Session      string
	Agents       []string // as of a Filter
	State        State
}

// where is the range as a condition.
func (r Range) where() condition {
	c := Filter{After: r.After, Until: r.Until, URL: r.URL, State: r.State, Agents: r.Agents}.where()
	if r.Host != "" {
		c.and(`host = ?`, r.Host)
	}
	if r.Session != "" {
		c.and(`session = ?`, r.Session)
	}
	return c
}

// selectForBooks is what the books have of a payment. What was signed, and what proves it, is most of a row.
const selectForBooks = `SELECT seq, id, session, state, proof, created_at, method, url, host, network, asset,
	symbol, amount, usd, pay_to, transaction_id, facilitator, charged, returned, agent FROM payments`

func scanForBooks(row sqldb.Row) (seq int64, p Payment, err error) {
	var created int64
	var charged string
	err = row.Scan(&seq, &p.ID, &p.Session, &p.State, &p.Proof, &created, &p.Method, &p.URL, &p.Host,
		&p.Network, &p.Asset, &p.Symbol, &p.Amount, &p.Price, &p.PayTo, &p.Transaction, &p.Facilitator,
		&charged, &p.Returned, &p.Agent)
	p.Created = fromMicros(created)
	if charged != "" && err == nil {
		err = p.setCharged(charged)
	}
	return seq, p, err
}

// pageOfBooks is how many payments one reading of Each holds.
const pageOfBooks = 1000

// Each calls f with every payment in the range that there is when it begins, oldest first, with what the
// books have of it: neither what was signed nor its evidence. The ledger is read a page at a time, each in
// a transaction of its own that is over when f is called: so a long export keeps nobody from cutting
// SQLite's log, and takes the memory of a page. Payments are never taken out, so each comes once; its state
// is the one it has when its page is read.
func (s *Store) Each(ctx context.Context, r Range, f func(Payment) error) error {
	newest, err := read(ctx, s, func(t *tx) (int64, error) {
		return scanNumber(t.Row(`SELECT coalesce(max(seq), 0) FROM payments`))
	})
	for next := int64(1); err == nil && next <= newest; {
		c := r.where()
		c.and(`seq >= ? AND seq <= ?`, next, newest)
		var page []Payment
		page, err = read(ctx, s, func(t *tx) ([]Payment, error) {
			return sqldb.Collect(t.Tx, func(row sqldb.Row) (p Payment, err error) {
				next, p, err = scanForBooks(row)
				return p, err
			}, selectForBooks+c.text+` ORDER BY seq LIMIT ?`, append(c.args, pageOfBooks)...)
		})
		next++
		if len(page) < pageOfBooks {
			next = newest + 1
		}
		for _, p := range page {
			if err == nil {
				err = f(p)
			}
		}
	}
	return err
}

// spentHeld are the sums of payments by their state.
const spentHeld = `sum(CASE WHEN state = 'settled' THEN usd - returned ELSE 0 END),
	sum(CASE WHEN state IN ('settled', 'failed') THEN 0 ELSE usd - returned END)`

// over is what hours or days came to, since one.
func (t *tx) over(since time.Time, unit time.Duration) (map[time.Time]budget.Use, error) {
	list := map[time.Time]budget.Use{}
	err := t.Each(func(row sqldb.Row) error {
		var n int64
		var d budget.Use
		err := row.Scan(&n, &d.Spent, &d.Held)
		list[fromMicros(n*unit.Microseconds())] = d
		return err
	}, `SELECT created_at / ?1, `+spentHeld+` FROM payments WHERE created_at >= ?2 GROUP BY 1`,
		unit.Microseconds(), micros(since)/unit.Microseconds()*unit.Microseconds())
	return list, err
}

// NamedSum is what one seller, network or agent came to.
type NamedSum struct {
	Key string
	budget.Use
}

// Spending is what was paid since a time.
type Spending struct {
	Over                    map[time.Time]budget.Use // by hour or day, by its first moment (UTC)
	Hosts, Networks, Agents []NamedSum               // the dearest first
}

// Spending adds up what was paid since the beginning of an hour, by hour, or of a day, by day; and
// by the dearest sellers, networks and agents, so many at most.
func (s *Store) Spending(ctx context.Context, since time.Time, unit time.Duration,
	most int) (Spending, error) {
	return read(ctx, s, func(t *tx) (all Spending, err error) {
		var failed [4]error
		all.Over, failed[0] = t.over(since, unit)
		all.Hosts, failed[1] = t.parts("host", since, most)
		all.Networks, failed[2] = t.parts("network", since, most)
		all.Agents, failed[3] = t.parts("agent", since, most)
		return all, cmp.Or(failed[:]...)
	})
}

// parts are the dearest values of a column.
func (t *tx) parts(column string, since time.Time, most int) (list []NamedSum, err error) {
	return sqldb.Collect(t.Tx, func(row sqldb.Row) (p NamedSum, err error) {
		err = row.Scan(&p.Key, &p.Spent, &p.Held)
		return p, err
	}, `SELECT `+column+`, `+spentHeld+` FROM payments
		WHERE created_at >= ? AND `+column+` <> '' GROUP BY `+column+`
		HAVING sum(`+worth+`) > 0 ORDER BY sum(`+worth+`) DESC, `+column+` LIMIT ?`, micros(since), most)
}

// Label names a session, for the books; "" takes the name away.
func (s *Store) Label(ctx context.Context, session, label string) error {
	return s.tx(ctx, func(t *tx) error {
		var known int
		if err := t.Row(`SELECT count(*) FROM sessions WHERE id = ?`, session).Scan(&known); err != nil {
			return err
		}
		if known == 0 {
			return errNoSession
		}
		if err := t.label(session, label); err != nil {
			return err
		}
		return t.audit(0, labelledEvent, map[string]string{"session": session, "label": label})
	})
}

func (t *tx) label(session, label string) error {
	if _, err := t.Exec(`DELETE FROM meta WHERE key = ?`, labelKey+session); err != nil {
		return err
	}
	if label == "" {
		return nil
	}
	_, err := t.Exec(`INSERT INTO meta VALUES (?, ?)`, labelKey+session, label)
	return err
}

// Labels are the names of sessions.
func (s *Store) Labels(ctx context.Context) (map[string]string, error) {
	labels := map[string]string{}
	err := s.facts(ctx, labelKey, func(session, label string) error {
		labels[session] = label
		return nil
	})
	return labels, err
}

// Imported is a payment of the wallet before this one, as that wrote it down. Nothing proves it.
type Imported struct {
	At          time.Time    `json:"at"`
	Transaction string       `json:"transaction"`
	Method      string       `json:"method"`
	URL         string       `json:"url"`
	Network     string       `json:"network"`
	Asset       string       `json:"asset"`
	Amount      money.Amount `json:"amount"`
	PayTo       string       `json:"payTo"`
	Facilitator string       `json:"facilitator"`
}

// ID is the same for the same payment.
func (i Imported) ID() string {
	sum := sha256.Sum256([]byte(toJSON(i)))
	return "imp_" + hex.EncodeToString(sum[:16])
}

// Import writes payments of another wallet down, those that are not there yet, and records that in
// the audit chain.
func (s *Store) Import(ctx context.Context, list []Imported) (added int, err error) {
	err = s.tx(ctx, func(t *tx) error {
		added = 0
		digest := sha256.New()
		for _, i := range list {
			text := toJSON(i)
			n, err := t.Exec(`INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO NOTHING`, importedKey+i.ID(), text)
			if err != nil {
				return err
			}
			if n > 0 {
				added++
				digest.Write([]byte(text))
			}
		}
		if added == 0 {
			return nil
		}
		all, err := t.importedDigest()
		if err != nil {
			return err
		}
		return t.audit(0, importedEvent,
			map[string]any{"payments": added, "sha256": encodeDigest(digest.Sum(nil)), "all": all})
	})
	return added, err
}

// The events of the books: a session was named, payments of another wallet were written down.
const labelledEvent, importedEvent = "labelled", "imported"

// importedDigest is over everything that was ever imported.
func (t *tx) importedDigest() (string, error) {
	digest := sha256.New()
	err := t.Each(func(row sqldb.Row) error {
		var key, text string
		err := row.Scan(&key, &text)
		digest.Write([]byte(toJSON([]string{key, text})))
		return err
	}, `SELECT key, value FROM meta WHERE key LIKE ? ORDER BY key`, importedKey+"%")
	return encodeDigest(digest.Sum(nil)), err
}

// AllImported are the payments of other wallets, in no order.
func (s *Store) AllImported(ctx context.Context) (list []Imported, err error) {
	err = s.facts(ctx, importedKey, func(_, text string) error {
		var i Imported
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			return err
		}
		list = append(list, i)
		return nil
	})
	return list, err
}

// facts are what stands in meta under keys that begin alike.
func (s *Store) facts(ctx context.Context, begin string, each func(rest, value string) error) error {
	return s.view(ctx, func(t *tx) error {
		return t.Each(func(row sqldb.Row) error {
			var key, value string
			if err := row.Scan(&key, &value); err != nil {
				return err
			}
			return each(strings.TrimPrefix(key, begin), value)
		}, `SELECT key, value FROM meta WHERE key LIKE ?`, begin+"%")
	})
}
