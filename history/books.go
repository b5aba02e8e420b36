package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// What is written down for the person's books: names of sessions, and payments of the wallet before
// this one. They stand beside the payments (meta), and nothing that decides ever reads them: a file
// from elsewhere makes no payee known and fills no budget.

// The kinds of these rows: how their keys begin.
const (
	LabelNote    = "label "    // and a session
	ImportedNote = "imported " // and an Imported.ID
)

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
		return t.audit(0, audit.LabelledEvent, map[string]string{"session": session, "label": label})
	})
}

func (t *tx) label(session, label string) error {
	if _, err := t.Exec(`DELETE FROM meta WHERE key = ?`, LabelNote+session); err != nil {
		return err
	}
	if label == "" {
		return nil
	}
	_, err := t.Exec(`INSERT INTO meta VALUES (?, ?)`, LabelNote+session, label)
	return err
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
			n, err := t.Exec(`INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO NOTHING`,
				ImportedNote+i.ID(), text)
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
		all, err := ImportedDigest(t.Tx)
		if err != nil {
			return err
		}
		return t.audit(0, audit.ImportedEvent,
			map[string]any{"payments": added, "sha256": encodeDigest(digest.Sum(nil)), "all": all})
	})
	return added, err
}

// ImportedDigest is over everything that was ever imported.
func ImportedDigest(t *sqldb.Tx) (string, error) {
	digest := sha256.New()
	err := t.Each(func(row sqldb.Row) error {
		var key, text string
		err := row.Scan(&key, &text)
		digest.Write([]byte(toJSON([]string{key, text})))
		return err
	}, `SELECT key, value FROM meta WHERE key LIKE ? ORDER BY key`, ImportedNote+"%")
	return encodeDigest(digest.Sum(nil)), err
}

// EachNote calls f with each row of the table meta that is of a kind (as LabelNote): with the rest of its
// key, and its value.
func EachNote(t *sqldb.Tx, kind string, f func(key, value string) error) error {
	return t.Each(func(row sqldb.Row) error {
		var key, value string
		if err := row.Scan(&key, &value); err != nil {
			return err
		}
		return f(strings.TrimPrefix(key, kind), value)
	}, `SELECT key, value FROM meta WHERE key LIKE ?`, kind+"%")
}
