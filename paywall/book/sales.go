package book

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// SaleState is where a sale of our paywall stands.
type SaleState string

// running → settling → settled | unknown | failed; running → failed | verified; unknown → settled | failed.
const (
	SaleRunning  SaleState = "running"  // a payment was shown and is good; what it is for runs
	SaleSettling SaleState = "settling" // a facilitator has been asked to settle it, or is about to be
	SaleSettled  SaleState = "settled"  // a facilitator says that it is
	SaleUnknown  SaleState = "unknown"  // asked, no word either way: perhaps taken
	SaleFailed   SaleState = "failed"   // nothing was asked for, or refused: nothing taken
	SaleVerified SaleState = "verified" // verify-only: given, and nothing asked for
)

// saleMovesTo are the states that each may follow, between spaces.
var saleMovesTo = map[SaleState]string{
	SaleSettling: " running ",
	SaleVerified: " running ",
	SaleFailed:   " running settling unknown ",
	SaleUnknown:  " settling unknown ",
	SaleSettled:  " settling unknown settled ", // settled: its answer comes later, where it was settled first
}

// Sale is one payment that our paywall was shown.
type Sale struct {
	ID          string
	UniqueKey   string // what makes the payment that payment: one run each
	State       SaleState
	Created     time.Time
	Updated     time.Time
	Resource    string   // what was sold, by its URL
	Call        [32]byte // the hash of the call that it was shown for
	Identifier  string   // the buyer's own; "" without
	Network     string
	Scheme      string
	Asset       string
	Symbol      string
	Amount      money.Amount // atomic units
	Price       money.Dollars
	PayTo       string
	Payer       string // "" where it is not known before the settlement
	Requirement json.RawMessage
	Payload     json.RawMessage // as it was shown
	Transaction string
	Facilitator string
	Receipt     json.RawMessage
	Note        string
	Answer      []byte // what was sold, for the buyer whose answer got lost
}

// AlreadySold says that this payment has had its run; Sale is that one.
type AlreadySold struct{ Sale Sale }

func (e *AlreadySold) Error() string { return "this payment has been used before" }

// keepAnswers is how long what was sold can be asked for again by a buyer whose answer got lost:
// longer than a client retries, shorter than a disk fills.
const keepAnswers = time.Hour

// forgetEvery is how long no answers are deleted after some were looked for.
const forgetEvery = time.Minute

// OpenSale gives a payment its one run: the first who comes with it has it, in whatever process, and
// everybody else gets *AlreadySold; so does another payment that its payer gave the same Identifier. It is
// durable before it returns, so that a crash gives no second run.
func (b *Book) OpenSale(ctx context.Context, sale Sale) (Sale, error) {
	sale.State = SaleRunning
	err := b.write(ctx, func(t *tx) error {
		if err := b.beginSale(t); err != nil {
			return err
		}
		return t.insertSale(&sale)
	})
	return sale, err
}

// beginSale refuses sales in a file that is not the book's any more, and forgets old answers.
func (b *Book) beginSale(t *tx) error {
	if err := b.db.InPlace(); err != nil {
		return err
	}
	return b.forgetAnswers(t)
}

// insertSale opens a sale, unless its payment has had its run, or its name.
func (t *tx) insertSale(sale *Sale) error {
	if err := t.isNamedOnce(*sale); err != nil {
		return err
	}
	sale.ID, sale.Created, sale.Updated = newID("sale_", t.Now), t.Now, t.Now
	n, err := t.Exec(
		`INSERT INTO sales (seq, id, unique_key, state, created_at, updated_at, resource, call, identifier,
			network, scheme, asset, symbol, amount, usd, pay_to, payer, requirement, payload)
		SELECT coalesce(max(seq), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM sales
			WHERE 1 = 1 ON CONFLICT DO NOTHING`,
		sale.ID, sale.UniqueKey, sale.State, sqldb.Micros(sale.Created), sqldb.Micros(sale.Updated),
		sale.Resource,
		sale.Call[:], sale.Identifier, sale.Network, sale.Scheme, sale.Asset, sale.Symbol, sale.Amount,
		int64(sale.Price), sale.PayTo, sale.Payer, string(sale.Requirement), []byte(sale.Payload))
	if err != nil || n > 0 {
		return err
	}
	earlier, err := scanSale(t.Row(selectSale+` WHERE unique_key = ?`, sale.UniqueKey))
	if errors.Is(err, sql.ErrNoRows) { // in a fleet: another of that name came at the same time
		return t.insertSale(sale)
	}
	if err != nil {
		return err
	}
	return &AlreadySold{Sale: earlier}
}

// isNamedOnce refuses a second payment under a name that its payer gave to another one, unless that one
// failed: the payer wants one thing once, and may have lost the first answer. Another payer's names are other
// names.
func (t *tx) isNamedOnce(sale Sale) error {
	if sale.Identifier == "" || sale.Payer == "" {
		return nil
	}
	earlier, err := scanSale(t.Row(selectSale+` WHERE identifier = ? AND identifier <> '' AND payer = ?
		AND unique_key <> ? AND state <> ?`, sale.Identifier, sale.Payer, sale.UniqueKey, SaleFailed))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return &AlreadySold{Sale: earlier}
}

// forgetAnswers deletes the answers that are kept no longer, once in a while.
func (b *Book) forgetAnswers(t *tx) error {
	now := sqldb.Micros(t.Now)
	if last := b.answersForgotten.Load(); last <= now && now-last < forgetEvery.Microseconds() {
		return nil
	}
	_, err := t.Exec(`UPDATE sales SET answer = NULL WHERE answer IS NOT NULL AND updated_at < ?`,
		sqldb.Micros(t.Now.Add(-keepAnswers)))
	if err == nil {
		b.answersForgotten.Store(now)
	}
	return err
}

// MoveSale records where a sale stands now, with what became known of it: Amount and Price, which may be less
// than at first; and Transaction, Facilitator, Receipt, Note and Answer, where they are not empty. It is
// durable before it returns.
func (b *Book) MoveSale(ctx context.Context, sale Sale) error {
	return b.write(ctx, func(t *tx) error { return t.moveSale(sale) })
}

func (t *tx) moveSale(sale Sale) error {
	n, err := t.Exec(
		`UPDATE sales SET state = ?, updated_at = ?, amount = ?, usd = ?,
		transaction_id = coalesce(nullif(?, ''), transaction_id),
		facilitator = coalesce(nullif(?, ''), facilitator), receipt = coalesce(?, receipt),
		note = coalesce(nullif(?, ''), note), answer = coalesce(?, answer)
		WHERE id = ? AND ? LIKE '% ' || state || ' %'`,
		sale.State, sqldb.Micros(t.Now), sale.Amount, int64(sale.Price), sale.Transaction, sale.Facilitator,
		orNull(sale.Receipt), sale.Note, sale.Answer, sale.ID, saleMovesTo[sale.State])
	if err != nil || n > 0 {
		return err
	}
	var from SaleState
	if err := t.Row(`SELECT state FROM sales WHERE id = ?`, sale.ID).Scan(&from); err != nil {
		return sqldb.Otherwise(err, errNoSale)
	}
	return fmt.Errorf("%w: %s from %s to %s", ErrTransition, sale.ID, from, sale.State)
}

// DropSale forgets a sale of which nothing ran to its end: its payment may be shown again.
func (b *Book) DropSale(ctx context.Context, id string) error {
	return b.write(ctx, func(t *tx) error {
		_, err := t.Exec(`DELETE FROM sales WHERE id = ? AND state = ?`, id, SaleRunning)
		return err
	})
}

const selectSale = `SELECT id, unique_key, state, created_at, updated_at, resource, call, identifier,
	network, scheme, asset, symbol, amount, usd, pay_to, payer, requirement, payload, transaction_id,
	facilitator, coalesce(receipt, ''), note, answer FROM sales`

func scanSale(row sqldb.Row) (sale Sale, err error) {
	var created, updated int64
	var call, payload []byte
	var requirement, receipt string
	err = row.Scan(&sale.ID, &sale.UniqueKey, &sale.State, &created, &updated, &sale.Resource, &call,
		&sale.Identifier, &sale.Network, &sale.Scheme, &sale.Asset, &sale.Symbol, &sale.Amount, &sale.Price,
		&sale.PayTo, &sale.Payer, &requirement, &payload, &sale.Transaction, &sale.Facilitator, &receipt,
		&sale.Note, &sale.Answer)
	sale.Created, sale.Updated = sqldb.FromMicros(created), sqldb.FromMicros(updated)
	copy(sale.Call[:], call)
	sale.Requirement, sale.Payload, sale.Receipt = raw(requirement), raw(string(payload)), raw(receipt)
	return sale, err
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func orNull(text json.RawMessage) sql.NullString {
	return sql.NullString{String: string(text), Valid: len(text) > 0}
}

// SaleByKey returns what a payment was shown for, by what makes it that payment (Sale.UniqueKey),
// or ErrNotFound.
func (b *Book) SaleByKey(ctx context.Context, uniqueKey string) (sale Sale, err error) {
	err = b.db.Once(ctx, func(t *sqldb.Tx) error {
		sale, err = scanSale(t.Row(selectSale+` WHERE unique_key = ?`, uniqueKey))
		return sqldb.Otherwise(err, errNoSale)
	})
	return sale, err
}

// SoldTo returns the newest settled sale of a call to a payer that was opened no earlier than since, and not
// for nothing; or ErrNotFound.
func (b *Book) SoldTo(ctx context.Context, resource string, call [32]byte, payer string, since time.Time) (
	Sale, error) {
	return read(ctx, b, func(t *tx) (Sale, error) {
		sale, err := scanSale(t.Row(selectSale+` WHERE call = ? AND payer = ? AND payer <> '' AND resource = ?
			AND state = ? AND amount <> '0' AND created_at >= ? ORDER BY seq DESC LIMIT 1`,
			call[:], payer, resource, SaleSettled, sqldb.Micros(since)))
		return sale, sqldb.Otherwise(err, errNoSale)
	})
}

type SaleFilter struct {
	Limit    int       // at most so many; 0 is 100
	Before   string    // older than this one
	After    time.Time // made at or after
	State    SaleState // "" is any
	Resource string    // that contains this
}

// Sales lists sales, newest first, and sums up what all that match have earned, by the asset's
// symbol: settled only.
func (b *Book) Sales(ctx context.Context, f SaleFilter) (list []Sale, more bool,
	earned map[string]money.Dollars, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	earned = map[string]money.Dollars{}
	where := ` WHERE created_at >= ? AND (state = ? OR ? = '') AND lower(resource) LIKE ? ESCAPE '\'`
	args := []any{sqldb.Micros(f.After), f.State, f.State, sqldb.Containing(f.Resource)}
	err = b.view(ctx, func(t *tx) error {
		if err := t.addEarned(earned, where, args); err != nil {
			return err
		}
		page, args := where, slices.Clone(args)
		if f.Before != "" {
			var seq int64
			if err := t.Row(`SELECT seq FROM sales WHERE id = ?`, f.Before).Scan(&seq); err != nil {
				return sqldb.Otherwise(err, errNoSale)
			}
			page += ` AND seq < ?`
			args = append(args, seq)
		}
		list, err = sqldb.Collect(t.Tx, scanSale, selectSale+page+` ORDER BY seq DESC LIMIT ?`,
			append(args, f.Limit+1)...)
		return err
	})
	if len(list) > f.Limit {
		list, more = list[:f.Limit], true
	}
	return list, more, earned, err
}

func (t *tx) addEarned(into map[string]money.Dollars, where string, args []any) error {
	return t.Each(func(row sqldb.Row) error {
		var symbol string
		var sum money.Dollars
		err := row.Scan(&symbol, &sum)
		if sum != 0 {
			into[symbol] = sum
		}
		return err
	}, `SELECT symbol, sum(usd) FROM sales`+where+` AND state = 'settled' GROUP BY symbol`, args...)
}
