// Package schema is the SQL that makes a ledger's tables.
package schema

import (
	_ "embed"
	"regexp"
	"sync"

	"x402-wallet/history/sqldb"
)

//go:embed schema.sql
var tables string

//go:embed sqlite.sql
var sqlite string

//go:embed postgres.sql
var postgres string

// SQLite has no comments: a ledger keeps the text of each table, which package verify compares.
var SQLite = sync.OnceValue(func() string { return sqldb.WithoutComments(tables + sqlite) })

// Postgres is for the schema of its own that a ledger has there.
func Postgres() string { return tables + postgres }

// Tables are those of both engines.
func Tables() (names []string) {
	for _, found := range regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`).FindAllStringSubmatch(tables, -1) {
		names = append(names, found[1])
	}
	return names
}

// Totals are the rows of the table totals again, from the payments.
const Totals = `WITH counted AS (SELECT session, host, agent, created_at / 86400000000 AS day,
	sum(CASE WHEN state = 'settled' THEN usd - returned ELSE 0 END) AS spent,
	sum(CASE WHEN state IN ('settled', 'failed') THEN 0 ELSE usd - returned END) AS held
	FROM payments GROUP BY 1, 2, 3, 4)
	SELECT scope, key, day, CAST(sum(spent) AS BIGINT), CAST(sum(held) AS BIGINT) FROM (
	SELECT 'all' AS scope, '' AS key, day, spent, held FROM counted UNION ALL
	SELECT 'session', session, 0, spent, held FROM counted UNION ALL
	SELECT 'host', host, day, spent, held FROM counted UNION ALL
	SELECT 'agent', agent, day, spent, held FROM counted WHERE agent <> '') AS sums
	GROUP BY scope, key, day HAVING sum(spent) <> 0 OR sum(held) <> 0`
