package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/x402"
)

// onTrial runs f in a transaction that is rolled back.
func onTrial(t require.TestingT, s *Store, f func(*tx)) {
	err := s.tx(context.Background(), func(t *tx) error {
		f(t)
		return errRollBack
	})
	require.ErrorIs(t, err, errRollBack)
}

// rowsOf are a table's rows behind one, as text, as they are read from its pages.
func rowsOf(t *tx, table, kinds string, after int64) (rows []string, err error) {
	r, err := t.openTree(table, kinds, after)
	if err != nil {
		return nil, err
	}
	for {
		if err := r.next(); err != nil {
			return rows, err
		}
		row := fmt.Sprint(r.row.number)
		for i, kind := range kinds {
			switch {
			case kind == '#':
			case r.row.isNull(i):
				row += " NULL"
			case strings.ContainsRune("iI", kind):
				row += fmt.Sprint(" ", r.row.int(i))
			case strings.ContainsRune("bB", kind):
				row += fmt.Sprintf(" X'%X'", r.row.text(i))
			default:
				row += fmt.Sprintf(" '%s'", r.row.text(i))
			}
		}
		rows = append(rows, row)
	}
}

// What is read from a table's pages is what SQLite reads, from wherever one begins.
func TestPagesHoldWhatSQLiteReads(t *testing.T) {
	s, _, _ := newStore(t)
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.OneOf(rapid.Int64Range(-3, 3000), rapid.Int64Range(math.MinInt64+1, math.MaxInt64))
		size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 20_000))
		seed := rapid.Uint64().Draw(rt, "seed")
		rows := rapid.IntRange(0, 60).Draw(rt, "rows")
		isLong := rapid.Bool().Draw(rt, "of several levels")
		onTrial(rt, s, func(tx *tx) {
			exec := func(query string, args ...any) {
				_, err := tx.exec(query, args...)
				require.NoError(rt, err)
			}
			exec(`CREATE TABLE probe (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, t TEXT, b BLOB, m INTEGER)`)
			if isLong {
				exec(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
					INSERT INTO probe SELECT 3 * n, n, 'row ' || n, randomblob(n % 700 + 1), NULL FROM n`)
			}
			for range rows {
				var text, null any
				if n := size.Draw(rt, "text"); n > 0 {
					text = strings.Repeat("aÄ\x00", n/4)
				}
				if rapid.Bool().Draw(rt, "is null") {
					null = number.Draw(rt, "number or null")
				}
				blob := make([]byte, 1+size.Draw(rt, "bytes"))
				for i := range blob {
					blob[i] = byte(seed >> (i % 64))
				}
				exec(`INSERT OR REPLACE INTO probe VALUES (?, ?, ?, ?, ?)`, number.Draw(rt, "row"),
					number.Draw(rt, "number"), text, blob, null)
			}
			exec(`DELETE FROM probe WHERE id % 7 = ?`, seed%7)
			for range 4 {
				after := number.Draw(rt, "after")
				want, err := collect(tx, scanText, `SELECT id || ' ' || n || ' ' || iif(t IS NULL, 'NULL', '''' || t || '''') ||
					' ' || quote(b) || ' ' || coalesce(m, 'NULL') FROM probe WHERE id > ? ORDER BY id`, after)
				require.NoError(rt, err)
				got, err := rowsOf(tx, "probe", "#iTBI", after)
				require.ErrorIs(rt, err, io.EOF)
				require.Equal(rt, want, got)
			}
		})
	})
}

// Pages that somebody wrote are refused, or read as they are, and never end the program or go on for ever.
func TestPagesThatAreBroken(t *testing.T) {
	s, _, _ := newStore(t)
	pay(t, s, testHold(1), Settled)
	random := rand.New(rand.NewPCG(4, 2))
	var refused, read int
	for range 1000 {
		onTrial(t, s, func(tx *tx) {
			_, err := tx.exec(`CREATE TABLE probe (id INTEGER PRIMARY KEY, t TEXT)`)
			require.NoError(t, err)
			_, err = tx.exec(`WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200)
				INSERT INTO probe SELECT n, hex(zeroblob(20 + (n % 9 = 0) * 3000)) FROM n`)
			require.NoError(t, err)
			pages, err := collect(tx, scanInt, `SELECT pageno FROM dbstat WHERE name = 'probe'`)
			require.NoError(t, err)
			for range 1 + random.IntN(3) {
				page, at := pages[random.IntN(len(pages))], random.IntN(4096)
				if random.IntN(2) == 0 {
					at %= 120 // the header, and where the cells are
				}
				_, err = tx.exec(`UPDATE sqlite_dbpage SET data = CAST(substr(data, 1, ?1) || ? || substr(data, ?1 + 2) AS BLOB)
					WHERE pgno = ?`, at, []byte{byte(random.IntN(256))}, page)
				require.NoError(t, err)
			}
			_, err = rowsOf(tx, "probe", "#T", math.MinInt64)
			if errors.Is(err, io.EOF) {
				read++
				return
			}
			refused++
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
		})
	}
	require.Greater(t, refused, 50)
	require.Greater(t, read, 50)
}

func scanInt(row scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// What others write meanwhile is not in a reading that has begun.
func TestPagesAreThoseOfTheTransaction(t *testing.T) {
	s, _, _ := newStore(t)
	for range 20 {
		pay(t, s, testHold(1), Settled)
	}
	require.NoError(t, s.view(t.Context(), func(tx *tx) error {
		r, err := tx.openTree("audit", auditKinds, math.MinInt64)
		require.NoError(t, err)
		rows := int64(0)
		for ; ; rows++ {
			err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if rows%5 == 0 {
				pay(t, s, testHold(1), Settled)
			}
		}
		var all int64
		require.NoError(t, tx.row(`SELECT count(*) FROM audit`).Scan(&all))
		require.Equal(t, all, rows)
		return nil
	}))
}
