package history

import (
	"context"
	"crypto/sha256"
	"strings"

	"x402-wallet/history/sqldb"
)

// What is written down beside the payments (meta), for the person's books: names of sessions, and payments of
// the wallet before this one (package report). Nothing that decides ever reads them: a file from elsewhere
// makes no payee known and fills no budget.

// The kinds of these rows: how their keys begin.
const (
	LabelNote    = "label "    // and a session
	ImportedNote = "imported " // and a report.Imported.ID
)

// Note runs f in a durable transaction, and appends an event about no payment to the audit chain, with the
// detail that f returns; nil: none. f changes no rows of this package but notes.
func (s *Store) Note(ctx context.Context, event string, f func(*sqldb.Tx) (detail any, err error)) error {
	return s.tx(ctx, func(t *tx) error {
		detail, err := f(t.Tx)
		if err != nil || detail == nil {
			return err
		}
		return t.audit(0, event, detail)
	})
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
