package historytest

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"path/filepath"

	"x402-wallet/history"
)

// Forger is who runs as the same user and knows how a ledger is made: it writes any row and links it
// into the audit chain as the wallet does. It has no key.
type Forger struct{ db *sql.DB }

// Forge opens the ledger in a home for a forger.
func Forge(home string) (*Forger, error) {
	db, err := sql.Open("sqlite", filepath.Join(home, history.FileName)+"?_pragma=busy_timeout(5000)")
	if err == nil {
		db.SetMaxOpenConns(1) // what it attaches and keeps aside is its connection's
	}
	return &Forger{db}, err
}

func (f *Forger) Close() error { return f.db.Close() }

// Exec runs a statement, and reports how many rows it changed.
func (f *Forger) Exec(query string, args ...any) (rows int64, err error) {
	done, err := f.db.Exec(query, args...)
	if err != nil {
		return 0, err
	}
	return done.RowsAffected()
}

func (f *Forger) Get(into any, query string, args ...any) error {
	return f.db.QueryRow(query, args...).Scan(into)
}

// Row reads a row of several values.
func (f *Forger) Row(query string, args ...any) *sql.Row { return f.db.QueryRow(query, args...) }

// Append puts a row at the end of the audit chain, about the payment of an ID or, for any other, about none.
func (f *Forger) Append(at int64, payment, event, detail string) error {
	_, err := f.db.Exec(`INSERT INTO audit (seq, at, payment, event, detail, hash)
		VALUES ((SELECT max(seq) + 1 FROM audit), ?, coalesce((SELECT seq FROM payments WHERE id = ?), 0), ?, ?, x'')`,
		at, payment, event, detail)
	var seq int64
	if err == nil {
		err = f.Get(&seq, `SELECT max(seq) FROM audit`)
	}
	if err != nil {
		return err
	}
	return f.Relink(seq)
}

// Relink gives the audit chain's rows from one on the hashes that they should have.
func (f *Forger) Relink(from int64) error {
	var previous []byte
	err := f.Get(&previous, `SELECT hash FROM audit WHERE seq < ? ORDER BY seq DESC LIMIT 1`, from)
	if err != nil {
		return err
	}
	for {
		var seq, at int64
		var payment, event, detail string
		err := f.db.QueryRow(`SELECT seq, at, payment, event, detail FROM audit WHERE seq >= ?
			ORDER BY seq LIMIT 1`, from).Scan(&seq, &at, &payment, &event, &detail)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		previous = linked(previous, at, payment, event, detail)
		if _, err := f.db.Exec(`UPDATE audit SET hash = ? WHERE seq = ?`, previous, seq); err != nil {
			return err
		}
		from = seq + 1
	}
}

// Reserve says in the audit chain that a payment, which is in its table, was reserved as it stands
// there: in the row that says so, or in a new one.
func (f *Forger) Reserve(id string) error {
	var at, price int64
	var fingerprint, requirement string
	text := make([]string, 14)
	into := []any{&at, &price, &fingerprint, &requirement}
	for i := range text {
		into = append(into, &text[i])
	}
	err := f.db.QueryRow(`SELECT created_at, usd, fingerprint, requirement, session, method, url, target, host, network,
		scheme, dialect, asset, symbol, amount, pay_to, source, agent
		FROM payments WHERE id = ?`, id).Scan(into...)
	if err != nil {
		return err
	}
	columns := append([]string{id, text[0], fingerprint}, text[1:]...)
	digest := base64.RawURLEncoding.EncodeToString
	detail, err := json.Marshal(map[string]any{"row": digest(linked(nil, price, columns...)),
		"stored": digest(linked(nil, 0, requirement, "", ""))})
	if err != nil {
		return err
	}
	var seq int64
	err = f.Get(&seq, `SELECT seq FROM audit WHERE event = 'reserved'
		AND payment = (SELECT seq FROM payments WHERE id = ?)`, id)
	if errors.Is(err, sql.ErrNoRows) {
		return f.Append(at, id, "reserved", string(detail))
	}
	if err == nil {
		_, err = f.db.Exec(`UPDATE audit SET detail = ?, at = ? WHERE seq = ?`, string(detail), at, seq)
	}
	if err != nil {
		return err
	}
	return f.Relink(seq)
}

// linked is a row's hash.
func linked(previous []byte, at int64, columns ...string) []byte {
	h := sha256.New()
	h.Write(previous)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(at)))
	for _, column := range columns {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(column))))
		h.Write([]byte(column))
	}
	return h.Sum(nil)
}

// Recount makes the sums of the budgets those of the payments as they stand in their table.
func (f *Forger) Recount() error {
	_, err := f.db.Exec(`DELETE FROM totals;
		WITH each AS (SELECT session, host, agent, created_at / 86400000000 AS day,
			CASE WHEN state = 'settled' THEN usd - returned ELSE 0 END AS spent,
			CASE WHEN state IN ('settled', 'failed') THEN 0 ELSE usd - returned END AS held FROM payments)
		INSERT INTO totals SELECT scope, key, day, sum(spent), sum(held) FROM (
			SELECT 'all' AS scope, '' AS key, day, spent, held FROM each UNION ALL
			SELECT 'session', session, 0, spent, held FROM each UNION ALL
			SELECT 'host', host, day, spent, held FROM each UNION ALL
			SELECT 'agent', agent, day, spent, held FROM each WHERE agent <> '') GROUP BY 1, 2, 3`)
	return err
}
