package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Statement is a query and its arguments, in this package's dialect: "?" and "?N" are arguments, as SQLite
// has them.
type Statement struct {
	Query string
	Args  []any
}

// Rows is an answer, as a driver has it: int64, string, []byte and nil. All of it was read.
type Rows struct {
	columns []string
	rows    [][]driver.Value
	changed int64
}

// Columns implements driver.Rows.
func (r *Rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *Rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *Rows) Next(into []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(into, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// RowsAffected implements driver.Result.
func (r *Rows) RowsAffected() (int64, error) { return r.changed, nil }

// LastInsertId implements driver.Result: PostgreSQL has no such thing.
func (r *Rows) LastInsertId() (int64, error) { return 0, errNoID }

var errNoID = fmt.Errorf("the server gives numbers by RETURNING alone")

// Query runs one statement, in one round trip. A statement that has begun is waited for, whatever becomes of
// ctx: who has left does not know what was done.
func (c *Conn) Query(ctx context.Context, s Statement) (*Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Failure{Kind: Unreachable, Doing: asking, err: err}
	}
	values, formats, err := arguments(s.Args)
	if err != nil {
		return nil, &Failure{Kind: Defect, Doing: asking, err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return c.ask(ctx, s.Query, values, formats)
}

// QueryLong is Query for what only reads, and may take long: ctx ends it, and the connection with it.
func (c *Conn) QueryLong(ctx context.Context, s Statement) (*Rows, error) {
	values, formats, err := arguments(s.Args)
	if err != nil {
		return nil, &Failure{Kind: Defect, Doing: asking, err: err}
	}
	return c.ask(ctx, s.Query, values, formats)
}

const asking = "ask the ledger's server"

func (c *Conn) ask(ctx context.Context, query string, values [][]byte, formats []int16) (*Rows, error) {
	return c.run(ctx, c.plan(query, func() string { return numbered(query, 0) }), values, formats)
}

func (c *Conn) run(ctx context.Context, p *planned, values [][]byte, formats []int16) (*Rows, error) {
	if err := c.prepare(ctx, p); err != nil {
		return nil, failure(asking, err)
	}
	var answer *pgconn.ResultReader
	if c.isPrepared(p) {
		answer = c.ExecStatement(ctx, p.prepared, values, formats, nil)
	} else {
		answer = c.ExecParams(ctx, p.text, values, nil, formats, nil)
	}
	rows, err := read(answer)
	if err != nil {
		return nil, c.failure(err)
	}
	return rows, nil
}

// Run runs words without arguments, such as BEGIN, or many statements behind one another.
func (c *Conn) Run(ctx context.Context, words string) error {
	if err := ctx.Err(); err != nil {
		return &Failure{Kind: Unreachable, Doing: asking, err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err := c.Exec(ctx, words).ReadAll()
	return failure(asking, err)
}

// Together runs queries that only read as one statement: at one moment, in one round trip. What functions of
// theirs read is of that moment too, where they are STABLE. with is a common part of all of them: "name AS
// (query)". The answers are Records.
func (c *Conn) Together(ctx context.Context, with Statement, list []Statement) ([][]Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, &Failure{Kind: Unreachable, Doing: asking, err: err}
	}
	var key strings.Builder
	key.WriteString(with.Query)
	args := slices.Clone(with.Args)
	for _, s := range list {
		key.WriteString(";")
		key.WriteString(s.Query)
		args = append(args, s.Args...)
	}
	values, formats, err := arguments(args)
	if err != nil {
		return nil, &Failure{Kind: Defect, Doing: asking, err: err}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	p := c.plan(key.String(), func() string { return together(with, list) })
	rows, err := c.run(ctx, p, values, formats)
	if err != nil {
		return nil, err
	}
	answers := make([][]Record, len(list))
	for _, row := range rows.rows {
		part, _ := row[0].(int64)
		text, _ := row[1].(string)
		record, err := parseRecord(text)
		if err != nil {
			return nil, &Failure{Kind: Defect, Doing: asking, err: err}
		}
		answers[part] = append(answers[part], record)
	}
	return answers, nil
}

// together is the statement that runs several queries: a row is the number of its query, and what that
// answers.
func together(with Statement, list []Statement) string {
	var text strings.Builder
	text.WriteString(`WITH ` + numbered(with.Query, 0))
	before := len(with.Args)
	for i, s := range list {
		if i > 0 {
			text.WriteString(` UNION ALL`)
		}
		fmt.Fprintf(&text, ` SELECT %d, part FROM (%s) AS part`, i, numbered(s.Query, before))
		before += len(s.Args)
	}
	return text.String()
}

func read(answer *pgconn.ResultReader) (*Rows, error) {
	r := &Rows{}
	fields := answer.FieldDescriptions()
	for _, f := range fields {
		r.columns = append(r.columns, f.Name)
	}
	for answer.NextRow() {
		if fields == nil {
			fields = answer.FieldDescriptions()
			for _, f := range fields {
				r.columns = append(r.columns, f.Name)
			}
		}
		row := make([]driver.Value, len(fields))
		for i, value := range answer.Values() {
			var err error
			row[i], err = decode(fields[i].DataTypeOID, value)
			if err != nil {
				_, _ = answer.Close()
				return nil, err
			}
		}
		r.rows = append(r.rows, row)
	}
	tag, err := answer.Close()
	r.changed = tag.RowsAffected()
	return r, err
}

// The types of the ledger's columns (pg_type.dat).
const (
	oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidNumeric = 16, 17, 20, 21, 23, 1700
)

// decode reads a value in PostgreSQL's text format.
func decode(oid uint32, text []byte) (driver.Value, error) {
	if text == nil {
		return nil, nil
	}
	switch oid {
	case oidInt8, oidInt4, oidInt2:
		return strconv.ParseInt(string(text), 10, 64)
	case oidNumeric: // what a sum of numbers is; amounts are text
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n, nil
		}
	case oidBool:
		if string(text) == "t" {
			return int64(1), nil
		}
		return int64(0), nil
	case oidBytea:
		return bytesOf(string(text))
	}
	return string(text), nil
}

// arguments are args as text, and bytes as they are.
func arguments(args []any) (values [][]byte, formats []int16, err error) {
	values, formats = make([][]byte, len(args)), make([]int16, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, nil, err
		}
		switch v := value.(type) {
		case nil:
		case int64:
			values[i] = strconv.AppendInt(nil, v, 10)
		case bool:
			values[i] = []byte{'0'}
			if v {
				values[i][0] = '1'
			}
		case string:
			values[i] = []byte(v)
		case []byte:
			if v != nil {
				values[i], formats[i] = v, 1
			}
		default:
			return nil, nil, fmt.Errorf("argument %d is a %T", i+1, arg)
		}
		if values[i] == nil && value != nil {
			if b, isBytes := value.([]byte); !isBytes || b != nil {
				values[i] = []byte{}
			}
		}
	}
	return values, formats, nil
}

// numbered writes the arguments of a query as PostgreSQL has them, behind so many of others: "?" as $1, $2 …,
// and "?N" as $N.
func numbered(query string, before int) string {
	var out strings.Builder
	out.Grow(len(query) + 16)
	next, quoted := before+1, false
	for i := 0; i < len(query); i++ {
		c := query[i]
		if c == '\'' {
			quoted = !quoted
		}
		if c != '?' || quoted {
			out.WriteByte(c)
			continue
		}
		end, n := i+1, 0
		for end < len(query) && query[end] >= '0' && query[end] <= '9' {
			n = 10*n + int(query[end]-'0')
			end++
		}
		if end > i+1 {
			n += before
		} else {
			n = next
			next++
		}
		out.WriteByte('$')
		out.WriteString(strconv.Itoa(n))
		i = end - 1
	}
	return out.String()
}
