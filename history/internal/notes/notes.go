// Package notes reads what is written down beside the payments for the person's books: names of sessions, and
// payments of the wallet before this one. The rows are in the table meta.
//
// What must stay true: nothing that decides reads them.
package notes

import (
	"crypto/sha256"
	"strings"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
)

// The kinds of these rows: how their keys begin.
const (
	Label    = "label "    // and a session
	Imported = "imported " // and a report.Imported.ID
)

// ImportedDigest is over everything that was ever imported.
func ImportedDigest(t *sqldb.Tx) (string, error) {
	digest := sha256.New()
	err := t.Each(func(row sqldb.Row) error {
		var key, text string
		err := row.Scan(&key, &text)
		digest.Write([]byte(audit.JSON([]string{key, text})))
		return err
	}, `SELECT key, value FROM meta WHERE key LIKE ? ORDER BY key`, Imported+"%")
	return audit.EncodeDigest(digest.Sum(nil)), err
}

// Each calls f with each row of the table meta that is of a kind (as Label): with the rest of its
// key, and its value.
func Each(t *sqldb.Tx, kind string, f func(key, value string) error) error {
	return t.Each(func(row sqldb.Row) error {
		var key, value string
		if err := row.Scan(&key, &value); err != nil {
			return err
		}
		return f(strings.TrimPrefix(key, kind), value)
	}, `SELECT key, value FROM meta WHERE key LIKE ?`, kind+"%")
}
