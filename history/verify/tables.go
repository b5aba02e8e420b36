package verify

import (
	"cmp"
	"fmt"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/notes"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

func (r *replay) tables() error {
	if r.tooEarly != "" {
		return audit.Corrupt("session %s began in it, though the one before was not over and the owner did "+
			"not begin it", r.tooEarly)
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
		sessions[s.id] = cells(s.started, last, s.limit, ended, orNull(s.seal))
	}
	approvals, questions := map[string]string{}, map[string]string{}
	for id, a := range r.approvals {
		approvals[id] = cells(a.state, a.created, a.expires, a.declined, a.payment, a.since,
			orNull(a.seal), 32)
		questions[id] = a.row
	}
	freezes := map[string]string{}
	for i, f := range r.freezes {
		freezes[fmt.Sprint(i+1)] = cells(f...)
	}
	updated, channels := map[string]string{}, map[string]string{}
	for key, c := range r.channels {
		updated[key], channels[key] = cells(c.updated), c.row
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
		if err := r.compareCells(c.table, c.want, c.n, c.query); err != nil {
			return err
		}
	}
	if all, err := notes.ImportedDigest(r.t); err != nil || all != r.imported {
		return cmp.Or(err, audit.Corrupt("the imported payments are not those that the audit chain has"))
	}
	err := r.compareDigests(questions, 12, "what the approval %s is for is not what was asked",
		`SELECT id, usd, id, quote, host, method, url, network, asset, symbol, amount, pay_to, why, agent
		FROM approvals`)
	if err != nil {
		return err
	}
	const key = `SELECT service || ' ' || key, `
	if err := r.compareCells("channels", updated, 1, key+`updated_at FROM channels`); err != nil {
		return err
	}
	return r.compareDigests(channels, 13, "the channel %q is not what the audit chain says",
		key+`known, service, key, server, network, source, channel, epoch, nonce, amount, claimed,
		coalesce(signed, ''), coalesce(call, ''), coalesce(refused, '') FROM channels`)
}

// totals compares the sums that are kept with those of the payments.
func (r *replay) totals() error {
	different, err := sqldb.ScanNumber(r.t.Row(`WITH again AS (` + schema.Totals + `),
		kept AS (SELECT scope, key, day, spent, held FROM totals)
		SELECT (SELECT count(*) FROM (SELECT * FROM again EXCEPT SELECT * FROM kept) AS lost) +
			(SELECT count(*) FROM (SELECT * FROM kept EXCEPT SELECT * FROM again) AS more
				WHERE spent <> 0 OR held <> 0)`))
	if err == nil && different > 0 {
		err = x402.Errorf(x402.LedgerCorrupt, "%d sums are not those of the payments", different)
	}
	return err
}

// cells are values of a row as they are compared.
func cells(values ...any) string { return audit.JSON(values) }

// orNull is the digest of a seal, or NULL where there is none.
func orNull(digest string) any {
	if digest == noDigest {
		return nil
	}
	return digest
}

// compareCells compares a table with what its rows have to be, by their keys: the query asks for a key and n
// cells, of which those of bytes are compared by their digests.
func (r *replay) compareCells(table string, want map[string]string, n int, query string) error {
	err := r.t.Each(func(row sqldb.Row) error {
		var key string
		values := make([]any, n)
		into := []any{&key}
		for i := range values {
			into = append(into, &values[i])
		}
		if err := row.Scan(into...); err != nil {
			return err
		}
		for i, value := range values {
			if b, ok := value.([]byte); ok {
				values[i] = audit.Digest(b)
			}
		}
		if is, known := want[key]; !known || is != cells(values...) {
			return audit.Corrupt("the row %q of %s is not what the audit chain says", key, table)
		}
		delete(want, key)
		return nil
	}, query)
	if err != nil {
		return err
	}
	for key := range want {
		return audit.Corrupt("the row %q of %s is gone", key, table)
	}
	return nil
}

// compareDigests compares rows with their digests, by their keys: the query asks for a key, and for what the
// digest is over, a number and n texts or bytes. what says, of a key, that its row is another one.
func (r *replay) compareDigests(want map[string]string, n int, what, query string) error {
	return r.t.Each(func(row sqldb.Row) error {
		var key string
		var number int64
		texts := make([]string, n)
		into := []any{&key, &number}
		for i := range texts {
			into = append(into, &texts[i])
		}
		err := row.Scan(into...)
		if err == nil && audit.EncodeDigest(audit.Link(nil, number, texts...)) != want[key] {
			err = audit.Corrupt(what, key)
		}
		return err
	}, query)
}
