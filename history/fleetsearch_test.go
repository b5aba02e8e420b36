package history

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

// Up to so many payments are added up exactly, and of one more nothing is said but that they are too many.
func TestAFleetAddsUpSoMany(t *testing.T) {
	s, c := newFleetStore(t)
	insert := func(from, to int) {
		testFleet.sql.run(t, fmt.Sprintf(`INSERT INTO payments (id, session, state, created_at, updated_at,
				fingerprint, method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd,
				pay_to, prefix_length, source, record)
			SELECT 'pay_' || n, 's', 'settled', %d, 0, '', 'GET', 'https://a.example/x', '', 'a.example', 'n',
				'', '', '', 'USDC', '0', 2, '', 0, '', '\x' FROM generate_series(%d, %d) AS n`, micros(c.now()), from, to))
	}
	insert(1, mostSummed)
	list, more, totals, err := s.List(t.Context(), Filter{Limit: 1, URL: "a.example"})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, list, 1)
	require.Equal(t, map[string]money.Dollars{"USDC": 2 * mostSummed}, totals)
	parts, err := s.Parts(t.Context(), Filter{}, 3)
	require.NoError(t, err)
	require.Equal(t, []Part{{"a.example", 2 * mostSummed}}, parts.Sellers)

	insert(mostSummed+1, mostSummed+1)
	_, _, totals, err = s.List(t.Context(), Filter{Limit: 1, URL: "a.example"})
	require.NoError(t, err)
	require.Nil(t, totals)
	parts, err = s.Parts(t.Context(), Filter{}, 3)
	require.NoError(t, err)
	require.Equal(t, Parts{TooMany: true}, parts)
	_, _, totals, err = s.List(t.Context(), Filter{URL: "b.example"})
	require.NoError(t, err)
	require.Empty(t, totals)
	require.NotNil(t, totals)
}

// Where the server has trigrams, a part of a URL is found by them.
func TestAFleetFindsURLsByTrigrams(t *testing.T) {
	s, _ := newFleetStore(t)
	if testFleet.sql.one(t, `SELECT count(*)::text FROM pg_extension WHERE extname = 'pg_trgm'`) == "0" {
		t.Skip("the server has no pg_trgm")
	}
	var plan []string
	require.NoError(t, s.view(t.Context(), func(t *tx) (err error) {
		if _, err := t.exec(`SET LOCAL enable_seqscan = off`); err != nil {
			return err
		}
		q, err := t.fleetSearch(Filter{URL: "Weather_100%"})
		if err != nil {
			return err
		}
		plan, err = collect(t, scanText, `EXPLAIN SELECT seq FROM payments WHERE `+q.where, q.args...)
		return err
	}))
	require.Contains(t, strings.Join(plan, "\n"), "payments_by_url")
}
