package history

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// What moves, table by table, as PostgreSQL's COPY has it in its text format: each row is a line, columns
// with tabs between them. What was copied is read back, and has to be the same bytes. Nothing is in memory
// but a row and some buffers.

// movedTable is one of the tables that move. Both ledgers have these columns, and order a table alike.
type movedTable struct {
	name    string
	columns string
	order   string // numbers and bytes alone, or texts
	// where a table holds more than what moves; "": it does not
	only string
	// change makes a row that of another ledger; nil: it is the same
	change func(m *Mover, row []any) error
	fixed  string // a column of the fleet's alone, which has one value
	value  string // of it
}

const paymentsMoved = `seq, id, session, state, proof, created_at, updated_at, fingerprint,
	idempotency_key, method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to,
	source, record, unique_key, transaction_id, facilitator, receipt, chain_proof, note, false_receipt,
	lease_owner, waiter, delivered, prefix_length, charged, returned, agent`

const approvalsMoved = `id, quote, state, created_at, expires_at, declined, host, method, url, network,
	asset, symbol, amount, usd, pay_to, why, agent, payment, since, seal`

const salesMoved = `seq, id, unique_key, state, created_at, updated_at, resource, call, identifier,
	network, scheme, asset, symbol, amount, usd, pay_to, payer, requirement, payload, transaction_id,
	facilitator, receipt, note, answer`

const soldMoved = `network, channel, config, charged, ceiling, signature, balance, claimed, refunds,
	withdraws_at, holder, held_until, owed_since`

const channelsMoved = `service, key, server, network, source, channel, epoch, nonce, amount, claimed,
	signed, known, call, refused, updated_at`

// tablesToFleet are those that move into the chain of a writer, in an order in which each finds what it is
// about.
func tablesToFleet(writer string) []movedTable {
	return []movedTable{
		{name: "sessions", columns: `id, started_at, last_at, cap, ended, seal`, order: `started_at, id`,
			change: sealSession},
		{name: "payments", columns: paymentsMoved, order: `seq`},
		{name: "contents", columns: `payment, http_status, type, truncated, size, sha256, spare, removed`,
			order: `payment`},
		{name: "bodies", columns: `payment, body`, order: `payment`},
		{name: "memory", columns: `key, value`, order: `key`},
		{name: "delegations", columns: `network, account, largest`, order: `network, account`},
		{name: "approvals", columns: approvalsMoved, order: `id`, change: sealApproval},
		{name: "freezes", columns: `seq, network, account, at, by, why`, order: `seq`},
		{name: "lifts", columns: `upto, at, seal`, order: `upto`, change: sealLift},
		{name: "alerts", columns: `id, kind, subject, win, at, detail, state, told_at, told_as, attempts,
			next_at`,
			order: `id`},
		{name: "sales", columns: salesMoved, order: `seq`},
		{name: "sold_channels", columns: soldMoved, order: `network, channel`},
		{name: "channels", columns: channelsMoved, order: `service, key`},
		{name: "meta", columns: `key, value`, order: `key`,
			only: `(key LIKE 'label %' OR key LIKE 'imported %' OR key LIKE 'subscription %' OR key LIKE 'proposal %')`},
		{name: "audit", columns: `seq, at, payment, event, detail, hash, seal`, order: `seq`, fixed: "writer",
			value: writer},
	}
}

// sealSession, sealApproval and sealLift are the owner's word again, where it was given.
func sealSession(m *Mover, row []any) (err error) {
	if seal, _ := row[5].([]byte); len(seal) > 0 {
		row[5], err = m.Seals.Session(budget.Session{ID: row[0].(string),
			Started: fromMicros(row[1].(int64))})
	}
	return err
}

func sealLift(m *Mover, row []any) (err error) {
	if seal, _ := row[2].([]byte); len(seal) > 0 {
		row[2], err = m.Seals.Lift(Lift{UpTo: row[0].(int64), At: fromMicros(row[1].(int64))})
	}
	return err
}

func sealApproval(m *Mover, row []any) error {
	if seal, _ := row[19].([]byte); len(seal) == 0 {
		return nil
	}
	a, err := scanApproval(valuesRow(row))
	if err != nil || a.State != Used { // what is over needs none, and no other is good any more
		row[19] = nil
		return err
	}
	row[19], err = m.Seals.Approval(a)
	return err
}

// valuesRow is a row that was read as it is.
type valuesRow []any

// Scan implements scanner.
func (r valuesRow) Scan(into ...any) error {
	for i, v := range r {
		if err := assign(into[i], v); err != nil {
			return err
		}
	}
	return nil
}

// text is the columns as COPY and SELECT have them.
func (mt movedTable) text() string {
	if mt.fixed == "" {
		return mt.columns
	}
	return mt.fixed + `, ` + mt.columns
}

// onSQLite is the query that reads the table in SQLite.
func (mt movedTable) onSQLite() string {
	columns, where := mt.columns, ``
	if mt.fixed != "" {
		columns = quoted(mt.value) + `, ` + columns
	}
	if mt.only != "" {
		where = ` WHERE ` + mt.only
	}
	return `SELECT ` + columns + ` FROM ` + mt.name + where + ` ORDER BY ` + mt.order
}

// where is the condition for what moves, in a fleet's ledger.
func (mt movedTable) where() string {
	where := ` WHERE true`
	if mt.only != "" {
		where += ` AND ` + mt.only
	}
	if mt.fixed != "" {
		where += ` AND ` + mt.fixed + ` = ` + quoted(mt.value)
	}
	return where
}

// onServer is the query that reads it in a fleet's ledger, in the same order.
func (mt movedTable) onServer() string {
	order := mt.order
	switch order {
	case `seq`, `payment`, `upto`:
	case `key`:
		if mt.name == "meta" {
			order = `key COLLATE "C"`
		}
	case `started_at, id`:
		order = `started_at, id COLLATE "C"`
	default:
		order = strings.ReplaceAll(order, `,`, ` COLLATE "C",`) + ` COLLATE "C"`
	}
	return `SELECT ` + mt.text() + ` FROM ` + mt.name + mt.where() + ` ORDER BY ` + order
}

// copyIn copies a table as SQLite has it into a fleet's, and reads it back there.
func (m *Mover) copyIn(ctx context.Context, from *tx, c *postgres.Conn, mt movedTable) (rows int64,
	err error) {
	read, write := io.Pipe()
	sum := sha256.New()
	done := make(chan error, 1)
	go func() {
		into := `COPY ` + mt.name + ` (` + mt.text() + `) FROM STDIN`
		_, err := c.CopyIn(ctx, into, read)
		_ = read.CloseWithError(cmpOr(err, io.ErrClosedPipe)) // whoever still writes is not to wait
		done <- err
	}()
	rows, err = m.lines(from, mt, io.MultiWriter(write, sum))
	_ = write.CloseWithError(err) // nil: the end
	if copied := <-done; copied != nil && (err == nil || errors.Is(err, io.ErrClosedPipe)) {
		err = copied
	}
	if err != nil {
		return rows, err
	}
	back := sha256.New()
	if err := c.CopyOut(ctx, `COPY (`+mt.onServer()+`) TO STDOUT`, back); err != nil {
		return rows, err
	}
	if !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
		err = x402.Errorf(x402.Internal, "the table %s is not the same in the new ledger", mt.name)
	}
	return rows, err
}

// lines writes the rows of a table.
func (m *Mover) lines(from *tx, mt movedTable, to io.Writer) (rows int64, err error) {
	out := bufio.NewWriterSize(to, 64<<10)
	var line []byte
	var values, into []any
	err = from.forEach(func(row scanner) error {
		if values == nil {
			values = make([]any, strings.Count(mt.text(), ",")+1)
			for i := range values {
				into = append(into, &values[i])
			}
		}
		if err := row.Scan(into...); err != nil {
			return err
		}
		if mt.change != nil {
			if err := mt.change(m, values); err != nil {
				return err
			}
		}
		line = line[:0]
		for i, v := range values {
			if i > 0 {
				line = append(line, '\t')
			}
			line = appendCopied(line, v)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
		rows++
		m.tell(rows)
		return nil
	}, mt.onSQLite())
	if err == nil {
		err = out.Flush()
	}
	return rows, err
}

// appendCopied appends a value as COPY has it (https://www.postgresql.org/docs/15/sql-copy.html).
func appendCopied(line []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(line, `\N`...)
	case int64:
		return strconv.AppendInt(line, v, 10)
	case []byte:
		return hex.AppendEncode(append(line, `\\x`...), v)
	case string:
		// no text of a ledger is to have one; PostgreSQL has no place for it
		if strings.ContainsRune(v, 0) {
			v = strings.ReplaceAll(v, "\x00", "\uFFFD")
		}
		for _, c := range []byte(strings.ToValidUTF8(v, "\uFFFD")) {
			if i := strings.IndexByte("\b\f\n\r\t\v\\", c); i >= 0 {
				line = append(line, '\\', `bfnrtv\`[i])
			} else {
				line = append(line, c)
			}
		}
		return line
	}
	return fmt.Append(line, v)
}

// tell tells of progress, now and then.
func (m *Mover) tell(more int64) {
	if m.Progress != nil && more%progressStep == 0 {
		m.done += progressStep
		m.Progress(m.done, m.all)
	}
}
