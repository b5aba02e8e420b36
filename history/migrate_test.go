package history

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// oldLedger puts testdata/formatN.sql into a new home.
func oldLedger(t *testing.T, n int) (home string) {
	t.Helper()
	home = t.TempDir()
	dump, err := os.ReadFile(fmt.Sprintf("testdata/format%d.sql", n))
	require.NoError(t, err)
	db, err := sql.Open("sqlite", filepath.Join(home, FileName))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(`PRAGMA journal_mode = WAL`) // which every ledger has, and a dump does not tell
	require.NoError(t, err)
	_, err = db.Exec(string(dump))
	require.NoError(t, err)
	return home
}

// tables are what a ledger is made of, as SQL without comments and spaces.
func tables(t *testing.T, s *Store) map[string]string {
	t.Helper()
	rows, err := s.read.Query(`SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema`)
	require.NoError(t, err)
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var name, text string
		require.NoError(t, rows.Scan(&name, &text))
		var words []string
		for line := range strings.Lines(text) {
			code, _, _ := strings.Cut(line, "--")
			words = append(words, strings.Fields(code)...)
		}
		all[name] = strings.Join(words, "")
	}
	require.NoError(t, rows.Err())
	return all
}

// Every older ledger opens, with all that is in it, as one that was made today.
func TestMigrations(t *testing.T) {
	fresh, _, _ := newStore(t)
	for old := 1; old < format; old++ {
		t.Run(fmt.Sprint(old), func(t *testing.T) {
			home := oldLedger(t, old)
			var open sync.WaitGroup // several programs start at once
			for range 4 {
				open.Go(func() {
					s, err := Open(t.Context(), home, Options{})
					if err == nil {
						err = s.Close()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			open.Wait()
			s, err := Open(t.Context(), home, Options{})
			require.NoError(t, err)
			defer s.Close()
			require.Equal(t, tables(t, fresh), tables(t, s))
			events, err := s.Events(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, "migrated", events[len(events)-1].Event, "once")
			require.NotEqual(t, "migrated", events[len(events)-2].Event, "once")
			_, err = s.Verify(t.Context(), Head{})
			require.NoError(t, err)
			list, _, totals, err := s.List(t.Context(), Filter{})
			require.NoError(t, err)
			require.Len(t, list, 5)
			require.EqualValues(t, 1000+3000+4000+5000, totals["USDC"])
			c, err := s.Content(t.Context(), "pay_settled")
			require.NoError(t, err)
			require.Equal(t, "weather", string(c.Body))
			pay(t, s, testHold(1), Settled)
		})
	}
}

// Long URLs that were in the index of trigrams leave it: they are found once.
func TestMigratedLongURLs(t *testing.T) {
	home := oldLedger(t, 9)
	db, err := sql.Open("sqlite", filepath.Join(home, FileName))
	require.NoError(t, err)
	_, err = db.Exec(`WITH RECURSIVE n (i) AS (SELECT 6 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
		INSERT INTO payments (id, session, state, created_at, updated_at, fingerprint, method, url, target, host, network, scheme, dialect,
			asset, symbol, amount, usd, pay_to, source, requirement)
		SELECT 'pay_' || i, 's', 'settled', 1795262400000015 + i, 0, x'00', 'GET', 'https://b.example/' || i || '/' || CASE WHEN i % 10 THEN '' ELSE printf('%.*c', 600, 'é') END
			|| 'weather', '', 'b.example', '', '', '', '', 'USDC', '1', 1, '', '', '{}' FROM n`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	s, err := Open(t.Context(), home, Options{})
	require.NoError(t, err)
	defer s.Close()
	for part, n := range map[string]int{"weather": 295, "éweather": 30, "b.example/250/é": 1,
		"b.example/251/weather": 1} {
		list, _, totals, err := s.List(t.Context(), Filter{URL: part, State: Settled, Limit: 5})
		require.NoError(t, err)
		require.Len(t, list, min(n, 5), part)
		if part == "weather" { // and the one that was there
			n += 1000
		}
		require.EqualValues(t, n, totals["USDC"], part)
	}
	var indexed int
	require.NoError(t, s.read.QueryRow(`SELECT count(*) FROM urls WHERE urls MATCH '"250"'`).Scan(&indexed))
	require.Zero(t, indexed)
	_, err = s.write.Exec(`INSERT INTO urls (urls) VALUES ('integrity-check')`)
	require.NoError(t, err)
}

// What was given and frozen before there were seals: a yes has to be given again, a freeze stands,
// and what was used is nobody's forgery.
func TestMigratedDecisions(t *testing.T) {
	s, err := Open(t.Context(), oldLedger(t, 5), Options{})
	require.NoError(t, err)
	defer s.Close()
	states := map[Decision]int{}
	rows, err := s.read.Query(`SELECT state, count(*) FROM approvals GROUP BY state`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var state Decision
		var n int
		require.NoError(t, rows.Scan(&state, &n))
		states[state] = n
	}
	require.NoError(t, rows.Err())
	require.Equal(t, map[Decision]int{Used: 1, Pending: 2}, states)
	given, err := s.Given(t.Context())
	require.NoError(t, err)
	require.Empty(t, given)
	list, err := s.Freezes(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "acc", list[0].Account)
	_, err = s.write.Exec(`UPDATE approvals SET state = 'approved' WHERE state = 'pending'`)
	require.NoError(t, err)
	given, err = s.Given(t.Context())
	require.NoError(t, err)
	require.Len(t, given, 1,
		"one that nobody ever gave is somebody's; of the other the chain tells from before")
}

// A ledger of a newer program is left alone, also by an older program that had it open when it was
// migrated.
func TestNewerFormat(t *testing.T) {
	s, _, home := newStore(t)
	p := pay(t, s, testHold(1), Reserved)
	_, err := s.write.Exec(`UPDATE meta SET value = ? WHERE key = 'format'`, format+1)
	require.NoError(t, err)
	_, err = Open(t.Context(), home, Options{})
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("format %d, this program knows 1 to %d", format+1, format))
	_, err = s.Reserve(t.Context(), testHold(1), noRules)
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	err = s.Submit(t.Context(), p.ID, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
		UniqueKey: "x"})
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	for _, nonsense := range []string{"", "two", "0", "-1"} {
		_, err := s.write.Exec(`UPDATE meta SET value = ? WHERE key = 'format'`, nonsense)
		require.NoError(t, err)
		_, err = Open(t.Context(), home, Options{})
		require.Error(t, err)
	}
}

// A migration that fails half-way leaves the ledger as it was.
func TestMigrationIsWhole(t *testing.T) {
	home := oldLedger(t, 1)
	db, err := sql.Open("sqlite", filepath.Join(home, FileName))
	require.NoError(t, err)
	defer db.Close()
	// the migration's last statement
	_, err = db.Exec(`CREATE TRIGGER obstacle BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'no'); END`)
	require.NoError(t, err)
	_, err = Open(t.Context(), home, Options{})
	require.ErrorContains(t, err, "no")
	var now string
	require.NoError(t, db.QueryRow(`SELECT value FROM meta WHERE key = 'format'`).Scan(&now))
	require.Equal(t, "1", now)
	require.ErrorContains(t, db.QueryRow(`SELECT count(*) FROM rules`).Scan(new(int)), "no such table")
}

func TestRules(t *testing.T) {
	s, _, _ := newStore(t)
	r, err := s.Rules(t.Context())
	require.NoError(t, err)
	require.Zero(t, r.Version)
	require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("a"),
		Seal: []byte("s")}, "/home"))
	require.ErrorIs(t, s.SealRules(t.Context(), SealedRules{Version: 1, Config: []byte("b"),
		Seal: []byte("s")}, "/home"), ErrRulesMoved)
	require.NoError(t, s.SealRules(t.Context(), SealedRules{Version: 2, Config: []byte("b"),
		Seal: []byte("t")}, "/home"))
	r, err = s.Rules(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b", string(r.Config))
	require.Equal(t, "t", string(r.Seal))

	head, err := s.Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, head.Seq, "created, sealed, sealed")
	pay(t, s, testHold(1), Reserved)
	has, err := s.Has(t.Context(), head)
	require.NoError(t, err)
	require.True(t, has)
	head.Seq++
	has, err = s.Has(t.Context(), head)
	require.NoError(t, err)
	require.False(t, has)
}
