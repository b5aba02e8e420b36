package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
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

// allTables are all but the exempt ones.
func allTables(t *testing.T, s *history.Store) (tables []tableRows) {
	t.Helper()
	require.NoError(t, s.View(t.Context(), func(tx *sqldb.Tx) error {
		names, err := sqldb.Collect(tx, sqldb.ScanText,
			`SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name`)
		require.NoError(t, err)
		for _, name := range names {
			if isExempt(name) {
				continue
			}
			table := tableRows{name: name}
			require.NoError(t, tx.Each(func(row sqldb.Row) error {
				var column string
				var pk int
				err := row.Scan(&column, &pk)
				table.columns = append(table.columns, column)
				if pk > 0 {
					table.keys = append(table.keys, column)
				}
				return err
			}, `SELECT name, pk FROM pragma_table_info(?) ORDER BY cid`, name))
			quoted := make([]string, len(table.columns))
			for i, column := range table.columns {
				quoted[i] = `quote("` + column + `")`
			}
			table.rows, err = sqldb.Collect(tx, func(row sqldb.Row) ([]string, error) {
				cells := make([]string, len(quoted))
				into := make([]any, len(quoted))
				for i := range cells {
					into[i] = &cells[i]
				}
				return cells, row.Scan(into...)
			}, `SELECT `+strings.Join(quoted, ", ")+` FROM "`+name+`"`+decides[name])
			require.NoError(t, err)
			tables = append(tables, table)
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
			list = append(list, fmt.Sprintf(`"%s" IS %s`, column, row[i]))
		}
	}
	return " WHERE " + strings.Join(list, " AND ")
}

// others are values that a cell could have as well.
func others(literal string) []string {
	switch {
	case literal == "NULL":
		return []string{"1", "'x'", "x'00'", "X''"}
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
		n, err := tx.Exec(edit)
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
	s, _, k := fullLedger(t)
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
						fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS NOT %[3]s`, table.name,
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
	s, _, k := fullLedger(t)
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
		edit := fmt.Sprintf(`UPDATE "%s" SET "%s" = %s %s AND "%[2]s" IS NOT %[3]s`, table.name,
			table.columns[i], value, table.where(row))
		if done, found := finds(rt, s, k, edit); done {
			require.True(rt, x402.HasCode(found, x402.LedgerCorrupt), "%s: %v", edit, found)
		}
	})
}

// What SQLite itself would do for whoever edits the schema.
func TestVerifyFindsATrigger(t *testing.T) {
	s, _, k := fullLedger(t)
	for _, edit := range []string{
		`CREATE TRIGGER free AFTER INSERT ON audit BEGIN UPDATE totals SET spent = 0; END`,
		`DROP INDEX payments_by_key`, `CREATE TABLE more (a)`,
		`ALTER TABLE sessions ADD COLUMN more TEXT`,
	} {
		onTrial(t, s, func(tx *sqldb.Tx) {
			_, err := tx.Exec(edit)
			require.NoError(t, err)
			_, err = newReplay(tx, k).run()
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%s: %v", edit, err)
		})
	}
}
