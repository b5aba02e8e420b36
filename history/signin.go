package history

import (
	"cmp"
	"context"
	"unicode/utf8"

	"x402-wallet/history/sqldb"
)

// A sign-in (sign-in-with-x) is a row among the payments, because it is held, signed, sealed and shown like
// one: its amount and price are zero, and it pays nobody. The memory keeps at which hosts the wallet
// signed in, and of it no payee and no price.

// searched selects payments by an index that has what a search looks at (internal/schema/sqlite.sql), so that
// only those that are found are read whole. State is an expression there, because its own index has nothing
// else of it.
func searched(where string) string {
	return SelectPayment + ` WHERE seq IN (SELECT seq FROM payments WHERE state || '' = 'settled' AND ` +
		where + ` ORDER BY created_at DESC, seq DESC LIMIT ?) ORDER BY seq DESC`
}

// Earlier returns settled payments for a host that were made before a payment, newest first, and no more than
// limit.
func (s *Store) Earlier(ctx context.Context, p Payment, limit int) ([]Payment, error) {
	return read(ctx, s, func(t *tx) (list []Payment, err error) {
		before, err := sqldb.ScanNumber(t.Row(`SELECT seq FROM payments WHERE id = ?`, p.ID))
		if err != nil {
			return nil, sqldb.Otherwise(err, errNoPayment)
		}
		found, err := sqldb.Collect(t.Tx, ScanPayment, searched(`host = ? AND seq < ?`), p.Host, before,
			2*limit)
		for _, was := range found {
			if !was.IsSignIn() && !was.IsPull() && len(list) < limit {
				list = append(list, was)
			}
		}
		return list, err
	})
}

// maxBought is how many payments are looked through for one of a resource, newest first.
const maxBought = 50

// Bought returns an agent's newest settled payment for a resource (Payment.Resource) whose URL begins with a
// URL, the resource's without its query. It returns ErrNotFound if there is none; agent "" is anybody.
func (s *Store) Bought(ctx context.Context, agent, url, resource string) (Payment, error) {
	return read(ctx, s, func(t *tx) (p Payment, err error) {
		where, args := `substr(url, 1, ?) = ?`, []any{utf8.RuneCountInString(url), url}
		if agent != "" {
			where, args = where+` AND agent = ?`, append(args, agent)
		}
		list, err := sqldb.Collect(t.Tx, ScanPayment, searched(where), append(args, maxBought)...)
		for _, p := range list {
			if !p.IsSignIn() && !p.IsPull() && p.Resource() == resource {
				return p, nil
			}
		}
		return p, cmp.Or(err, errNoPayment)
	})
}
