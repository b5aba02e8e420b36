package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// exempt are the cells in which an edit is found by nobody, each with the reason why it decides
// nothing about the wallet's own money. "table" is all of a table, "table.column" one column,
// "table-" a row that is gone.
var exempt = map[string]string{
	"payments.lease_owner": "who may go on with a payment: another process asks the chain, or sends the " +
		"same bytes",
	"payments.waiter": "whose client waits: the same call takes the payment up, or pays under the " +
		"same limits",
	"content_use.id": "as sealed_sums.id",
	"sealed_sums.id": "a CHECK of the schema, which is compared, holds it at 1",
	"alerts":         "what the owner is told of; what it is about is in the other tables",
	"turns":          "who tells it",
	"contents-":      "what was bought may be deleted for space at any time",
	"instances":      "as payments.lease_owner",
	"batches":        "the engine's own",
	"writer":         "the engine's own",
}

// decides are which rows of a table are edited, where not all of them are.
var decides = map[string]string{"totals": ` WHERE spent <> 0 OR held <> 0`} // nothing is nothing

func isExempt(name string) bool {
	table, _, _ := strings.Cut(strings.TrimSuffix(name, "-"), ".")
	return exempt[name] != "" || exempt[table] != ""
}

// tableRows are one table's columns and rows, as SQL literals.
type tableRows struct {
	name    string
	columns []string
	keys    []string // of the primary key
	rows    [][]string
}

// columnsOf selects each column of the ledger's tables, whether it is of the key, and the expression that
// reads it as a literal of SQLite.
func columnsOf(s *history.Store) string {
	if !s.Shared() {
		return `SELECT m.name, c.name, c.pk > 0, 'quote("' || c.name || '")'
			FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1, c.cid`
	}
	return `SELECT table_name, column_name, EXISTS (SELECT 1 FROM pg_index WHERE indisprimary
			AND indrelid = to_regclass(table_name) AND ordinal_position = ANY (indkey)),
		CASE data_type
			WHEN 'bytea' THEN format($$coalesce('X''' || encode(%I, 'hex') || '''', 'NULL')$$, column_name)
			WHEN 'text' THEN format('quote_nullable(%I)', column_name)
			ELSE format($$coalesce(CAST(%I AS TEXT), 'NULL')$$, column_name) END
		FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, ordinal_position`
}

// literals are SQLite's in the engine's words.
func literals(s *history.Store, query string) string {
	if s.Shared() {
		return regexp.MustCompile(`(?i)X'([0-9a-f]*)'`).ReplaceAllString(query, `'\x$1'::bytea`)
	}
	return query
}

// allTables are all but the exempt ones.
func allTables(t *testing.T, s *history.Store) (tables []tableRows) {
	t.Helper()
	require.NoError(t, s.View(t.Context(), func(tx *sqldb.Tx) error {
		quoted := map[string][]string{}
		require.NoError(t, tx.Each(func(row sqldb.Row) error {
			var table, column, quotes string
			var isKey bool
			err := row.Scan(&table, &column, &isKey, &quotes)
			if isExempt(table) {
				return err
			}
			if quoted[table] == nil {
				tables = append(tables, tableRows{name: table})
			}
			last := &tables[len(tables)-1]
			last.columns, quoted[table] = append(last.columns, column), append(quoted[table], quotes)
			if isKey {
				last.keys = append(last.keys, column)
			}
			return err
		}, columnsOf(s)))
		for i, table := range tables {
			var err error
			tables[i].rows, err = sqldb.Collect(tx, func(row sqldb.Row) ([]string, error) {
				cells := make([]string, len(table.columns))
				into := make([]any, len(cells))
				for i := range cells {
					into[i] = &cells[i]
				}
				return cells, row.Scan(into...)
			}, `SELECT `+strings.Join(quoted[table.name], ", ")+` FROM "`+table.name+`"`+decides[table.name])
			require.NoError(t, err)
		}
		return nil
	}))
	return tables
}

// where selects a row by its key.
func (table tableRows) where(row []string) string {
	var list []string
	for i, column := range table.columns {
		if slices.Contains(table.keys, column) || len(table.keys) == 0 {
			list = append(list, fmt.Sprintf(`"%s" IS NOT DISTINCT FROM %s`, column, row[i]))
		}
	}
	return " WHERE " + strings.Join(list, " AND ")
}

// others are values that a cell could have as well.
func others(literal string) []string {
	switch {
	case literal == "NULL":
		return []string{"1", "'x'", "x'00'", "X''", "''"}
	case strings.HasPrefix(literal, "'"):
		return []string{strings.TrimSuffix(literal, "'") + "x'", "''", "'0'"}
	case strings.HasPrefix(literal, "X'"):
		return []string{"X'00" + literal[2:], "X''", "X'31'"}
	}
	return []string{literal + " + 1", literal + " - 1", "0"}
}

var errRollBack = errors.New("as it was")

// verifyAll is what `history verify` compares: the tables, and the bytes that are stored.
func verifyAll(t *sqldb.Tx, k history.Keyholder) error {
	if _, err := newReplay(t, k).run(); err != nil {
		return err
	}
	for after, more := int64(math.MinInt64), true; more; {
		var err error
		_, after, more, err = contentPage(t, after)
		if err != nil {
			return err
		}
	}
	return nil
}

// onTrial runs f in a transaction that is rolled back.
func onTrial(t require.TestingT, s *history.Store, f func(*sqldb.Tx)) {
	err := s.Write(context.Background(), func(tx *sqldb.Tx) error {
		f(tx)
		return errRollBack
	})
	require.Error(t, err) // the database's, where f met one
}

// finds edits a ledger, and reports whether that can be done, whether it is found, and what was said.
func finds(t require.TestingT, s *history.Store, k history.Keyholder, edit string) (done bool, found error) {
	onTrial(t, s, func(tx *sqldb.Tx) {
		n, err := tx.Exec(literals(s, edit))
		done = err == nil && n > 0
		if done { // a row that the table takes
			found = verifyAll(tx, k)
		}
	})
	return done, found
}

// Whatever single cell of whatever table is edited, whatever row is taken out or put in: it is found,
// or stands among the exempt with its reason.
func TestVerifyFindsEveryCell(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		k := fullLedger(t, s, c)
		tried := map[string]bool{}
		attempt := func(name, edit string) {
			done, found := finds(t, s, k, edit)
			if !done {
				return
			}
			tried[name] = true
			if !x402.HasCode(found, x402.LedgerCorrupt) {
				t.Errorf("%s: %s: %v", name, edit, found)
			}
		}
		for _, table := range allTables(t, s) {
			require.NotEmpty(t, table.rows, "%s has no row to edit", table.name)
			rows := table.rows
			if testing.Short() {
				rows = rows[:min(3, len(rows))]
			}
			for _, row := range rows {
				at := table.where(row)
				for i, column := range table.columns {
					name := table.name + "." + column
					if isExempt(name) {
						continue
					}
					for _, value := range others(row[i]) {
						attempt(
							name,
							fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS DISTINCT FROM %[3]s`, table.name,
								column, value, at),
						)
					}
				}
				if !isExempt(table.name + "-") {
					attempt(table.name+"-", `DELETE FROM "`+table.name+`"`+at)
				}
				attempt(table.name+"+",
					`INSERT INTO "`+table.name+`" VALUES (`+strings.Join(table.another(row), ", ")+`)`)
			}
		}
		for _, table := range allTables(t, s) {
			for _, column := range table.columns {
				name := table.name + "." + column
				require.True(t, tried[name] || isExempt(name), "%s was never edited", name)
			}
		}
	})
}

// another is a row like one, with another key.
func (table tableRows) another(row []string) []string {
	row = slices.Clone(row)
	for i, column := range table.columns {
		isKey := slices.Contains(table.keys, column) || column == "id" || column == "unique_key" ||
			column == "idempotency_key" || column == "state" || column == "place"
		switch {
		case !isKey:
		case column == "state":
			row[i] = "'used'"
		case strings.HasPrefix(row[i], "'"):
			row[i] = strings.TrimSuffix(row[i], "'") + "y'"
		case strings.HasPrefix(row[i], "X'"):
			row[i] = "X'" + row[i][4:len(row[i])-1] + "77'"
		case row[i] != "NULL":
			row[i] += " + 100000"
		}
	}
	return row
}

// The same with random values, in random rows.
func TestVerifyFindsRandomEdits(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		k := fullLedger(t, s, c)
		tables := allTables(t, s)
		rapid.Check(t, func(rt *rapid.T) {
			table := rapid.SampledFrom(tables).Draw(rt, "table")
			i := rapid.IntRange(0, len(table.columns)-1).Draw(rt, "column")
			row := rapid.SampledFrom(table.rows).Draw(rt, "row")
			name := table.name + "." + table.columns[i]
			if isExempt(name) {
				rt.Skip("exempt")
			}
			value := rapid.OneOf(
				rapid.Just(rapid.SampledFrom(table.rows).Draw(rt, "of another row")[i]),
				rapid.Map(rapid.Int64(), func(n int64) string { return fmt.Sprint(n) }),
				rapid.Map(rapid.StringMatching(`[ -&(-~]{0,40}`), func(s string) string { return "'" + s + "'" }),
				rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40),
					func(b []byte) string { return fmt.Sprintf("X'%X'", b) }),
			).Draw(rt, "value")
			edit := fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS DISTINCT FROM %[3]s`, table.name,
				table.columns[i], value, table.where(row))
			if done, found := finds(rt, s, k, edit); done {
				require.True(rt, x402.HasCode(found, x402.LedgerCorrupt), "%s: %v", edit, found)
			}
		})
	})
}

// What SQLite itself would do for whoever edits the schema.
func TestVerifyFindsATrigger(t *testing.T) {
	s, c, _ := historytest.SQLite(t, history.Options{})
	k := fullLedger(t, s, c)
	for _, edit := range []string{
		`CREATE TRIGGER free AFTER INSERT ON audit BEGIN UPDATE totals SET spent = 0; END`,
		`DROP INDEX payments_by_key`, `CREATE TABLE more (a)`,
		`ALTER TABLE sessions ADD COLUMN more TEXT`,
	} {
		onTrial(t, s, func(tx *sqldb.Tx) {
			must.Get(tx.Exec(edit))(t)
			_, err := newReplay(tx, k).run()
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%s: %v", edit, err)
		})
	}
}
