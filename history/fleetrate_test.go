package history

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/postgres"
	"x402-wallet/internal/pgtest"
)

// How often was paid is the same number by whole seconds as one by one, from any moment to any other.
func TestPaymentsAreCountedBySeconds(t *testing.T) {
	c := pgtest.Shared(t)
	f := Fleet{URL: c.Database(t), Writer: "home_a"}
	_, err := CreateFleet(t.Context(), f)
	require.NoError(t, err)
	s := openFleet(t, f)
	rules := fleetRules
	applyRules(t, s, 1, rules)
	// the last ten minutes; a third of it is a team's that has a rate as well
	pgtest.SQL(t, f.URL, `SET search_path = x402`,
		`INSERT INTO budgets (id, members, rate, version) VALUES ('team:a', '{a-*}', 1000, 1), ('team:b', '{b-*}', NULL, 1)`,
		fmt.Sprintf(fillPayments, 1000),
		`UPDATE payments SET created_at = clock() - 600000000 + (seq * 599999000 / 1000),
			agent = CASE seq % 3 WHEN 0 THEN '' WHEN 1 THEN 'a-' || seq ELSE 'b-' || seq END`,
		`SELECT recount(ledger_now())`)
	require.Equal(t, "org\nteam:a", pgtest.SQL(t, f.URL, `SELECT DISTINCT budget FROM x402.made ORDER BY 1`))
	require.Equal(t, "f", pgtest.SQL(t, f.URL, `SET search_path = x402`, `SELECT setseed(0.42) IS NULL`,
		`SELECT * FROM (
			SELECT budget, since, upto, made_since(since, upto, budget, '') AS kept,
				(SELECT count(*) FROM payments WHERE created_at > since AND created_at <= upto
				AND (budget = 'org' OR budget = ANY (budgets))) AS counted
			FROM (SELECT since, since + floor(random() ^ 3 * 700000000)::bigint AS upto
				FROM (SELECT clock() - floor(random() * 700000000)::bigint AS since
					FROM generate_series(1, 300)) AS from_one) AS range,
			unnest(ARRAY['org', 'team:a', 'team:b']) AS budget) AS told WHERE kept <> counted`))
}

// What a connection had prepared may be gone, behind a pooler or where somebody changed a table: then it is
// asked again, and the payment goes on.
func TestPreparedStatementsThatAreGone(t *testing.T) {
	for name, words := range map[string]string{
		"forgotten": `DEALLOCATE ALL`,
		"changed":   `ALTER TABLE content_use ALTER COLUMN stored TYPE NUMERIC`,
	} {
		t.Run(name, func(t *testing.T) {
			_, f := newFleet(t)
			s := openFleet(t, f)
			for range 3 {
				pay(t, s, testHold(1), Settled)
			}
			require.NoError(t, s.fleet.pool.With(t.Context(), func(c *postgres.Conn) error {
				require.NotEqual(t, "0", firstText(t, c, `SELECT count(*) FROM pg_prepared_statements`))
				return c.Run(t.Context(), words)
			}))
			for range 3 {
				pay(t, s, testHold(1), Settled)
			}
			requireSound(t, f.URL)
		})
	}
}

func firstText(t *testing.T, c *postgres.Conn, query string) string {
	t.Helper()
	var text string
	require.NoError(t, queryRow(t.Context(), fleetConn{c}, query).Scan(&text))
	return text
}
