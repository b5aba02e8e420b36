package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
)

// The judge of a fleet's ledger: plain SQL by psql, and none of the ledger's functions.

// sumsOf adds up each kept window from the payments, and names those that hold something else.
const sumsOf = `SELECT c.budget, c.win, c.starts, c.used FROM x402.counters c WHERE c.used <> (
	SELECT coalesce(sum(p.usd - p.returned), 0) FROM x402.payments p WHERE p.state <> 'failed' AND c.budget =
	ANY (p.budgets)
		AND CASE c.win
			WHEN 'day' THEN p.created_at - p.created_at % 86400000000 = c.starts
			WHEN 'month' THEN to_char(to_timestamp(p.created_at / 1e6) AT TIME ZONE 'UTC', 'YYYYMM')
				= to_char(to_timestamp(c.starts / 1e6) AT TIME ZONE 'UTC', 'YYYYMM')
			ELSE p.session = (SELECT s.id FROM x402.sessions s WHERE s.number = c.starts) END)`

// countsOf counts the payments of each second in each budget, and names those that are noted to be others.
const countsOf = `SELECT m.budget, m.starts, m.n FROM x402.made m WHERE m.n <> (SELECT count(*) FROM x402.payments p
	WHERE p.created_at / 1000000 = m.starts / 1000000 AND (m.budget = 'org' OR m.budget = ANY (p.budgets)))`

// brokenLinks names the rows of a chain that do not follow the one before, and the chains that end elsewhere.
const brokenLinks = `WITH rows AS (SELECT writer, seq, hash, lag(seq, 1, 0::bigint) OVER w AS before, sha256(
			lag(hash, 1, ''::bytea) OVER w || int8send(at) || int8send(length(payment::text)) ||
			convert_to(payment::text, 'UTF8')
			|| int8send(length(event)) || convert_to(event, 'UTF8')
			|| int8send(octet_length(convert_to(detail::text, 'UTF8'))) || convert_to(detail::text, 'UTF8'))
			AS link
		FROM x402.audit WINDOW w AS (PARTITION BY writer ORDER BY seq))
	SELECT writer, seq FROM rows WHERE seq <> before + 1 OR hash <> link
	UNION ALL SELECT name, head FROM x402.writers n WHERE head > 0 AND NOT EXISTS (SELECT 1 FROM x402.audit a
		WHERE a.writer = n.name AND a.seq = n.head AND a.hash = n.hash
			AND NOT EXISTS (SELECT 1 FROM x402.audit b WHERE b.writer = n.name AND b.seq > n.head))`

// eventsTwice names what was told twice of a payment, where each step is taken once, and no unlock agent
// signs.
const eventsTwice = `SELECT payment, replace(event, 'submitted', 'signed'), count(*) FROM x402.audit WHERE payment > 0
	GROUP BY 1, 2 HAVING count(*) > 1`

// unreserved names what left without having been held.
const unreserved = `SELECT p.id FROM x402.payments p WHERE NOT EXISTS (SELECT 1 FROM x402.audit a
	WHERE a.payment = p.seq AND a.event = 'reserved')
	UNION ALL SELECT a.payment::text FROM x402.audit a WHERE a.payment > 0
		AND NOT EXISTS (SELECT 1 FROM x402.payments p WHERE p.seq = a.payment)`

// requireSound fails where a ledger contradicts itself.
func requireSound(t *testing.T, url string) {
	t.Helper()
	for what, query := range map[string]string{"counters that are not their payments": sumsOf,
		"counts of a second":        countsOf,
		"broken links":              brokenLinks,
		"events twice":              eventsTwice,
		"payments that nobody held": unreserved,
	} {
		require.Empty(t, pgtest.SQL(t, url, query), what)
	}
	require.Equal(t, "0", pgtest.SQL(t, url, `SELECT deadlocks FROM pg_stat_database WHERE datname =
		current_database()`))
}
