package history

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/pgtest"
)

var (
	fleetPayments = flag.Int("fleet.payments", 0,
		"how many payments are there before the benchmarks of a fleet begin")
	fleetWallets = flag.String("fleet.wallets", "1,16,64,256", "how many wallets pay at once")
	fleetVerify  = flag.Int("fleet.verify", 2_000, "how many payments BenchmarkFleetVerify verifies")
)

// BenchmarkFleet is payments a second, each a reserve, a submit and a finish with their facts, by so many
// wallets on one organisation's row, and how long a reserve takes: here, with a disk of 2 ms, and with
// a network that takes 1 ms too; against the same with a reserve that is waited for. `make bench-fleet` runs it.
func BenchmarkFleet(b *testing.B) {
	for _, at := range []struct {
		name     string
		settings []string
		trip     time.Duration
	}{
		{"here", nil, 0},
		{"2ms-disk", pgtest.SlowFlush, 0},
		{"2ms-disk-1ms-trip", pgtest.SlowFlush, time.Millisecond},
	} {
		b.Run(at.name, func(b *testing.B) {
			settings := append([]string{"max_connections = 300", "shared_buffers = 256MB"}, at.settings...)
			c := pgtest.Start(b, settings...)
			for _, kind := range []string{"reserve", "reserve-waited-for"} {
				f := benchmarkFleet(b, c, *fleetPayments, kind != "reserve")
				for _, n := range numbersOf(b, *fleetWallets) {
					b.Run(fmt.Sprint(kind, "/", n), func(b *testing.B) {
						benchmarkWallets(b, f, n, at.trip)
					})
				}
			}
		})
	}
}

func numbersOf(b *testing.B, list string) (numbers []int) {
	for part := range strings.SplitSeq(list, ",") {
		var n int
		_, err := fmt.Sscan(part, &n)
		require.NoError(b, err)
		numbers = append(numbers, n)
	}
	return numbers
}

// benchmarkFleet is a ledger with so many payments of the last thirty days, without their chains.
func benchmarkFleet(b *testing.B, c *pgtest.Cluster, payments int, waits bool) Fleet {
	b.Helper()
	f := Fleet{URL: c.Database(b), Writer: "home_owner"}
	_, err := CreateFleet(b.Context(), f)
	require.NoError(b, err)
	s, err := OpenFleet(f, Options{})
	require.NoError(b, err)
	b.Cleanup(func() { s.Close() })
	applyRules(b, s, 1, fleetRules)
	if payments > 0 {
		pgtest.SQL(b, f.URL, fmt.Sprintf(fillPayments, payments), fillCounters, `VACUUM ANALYZE`)
	}
	if waits {
		pgtest.SQL(b, f.URL, `SET search_path = x402; DO $do$ BEGIN EXECUTE
			replace(pg_get_functiondef('x402.reserve'::regproc),
			$$set_config('synchronous_commit', 'off', true)$$, $$durable()$$); END $do$`)
	}
	return f
}

// The fill: rows as the money path leaves them, without what no step reads.
const (
	fillPayments = `INSERT INTO x402.payments (id, session, state, proof, created_at, updated_at,
		fingerprint, method, url, target, host,
		network, scheme, dialect, asset, symbol, amount, usd, pay_to, source, record, unique_key, delivered,
		prefix_length, budgets)
	SELECT 'pay_' || lpad(n::text, 26, '0'), 'ses_before', 'settled', 'claimed', at, at,
	sha256(n::text::bytea), 'GET',
		'https://api.example/weather/' || n, '/weather/' || n, 'api.example', 'eip155:84532', 'exact',
		'v2-header', '0xasset', 'USDC',
		'1', 1, '0xpayee', '0xagent', '\x00', substr(sha256(('u' || n)::bytea), 1, 16), 1, 20, '{org}'
	FROM (SELECT n, (extract(epoch FROM now() - interval '30 days') * 1e6)::bigint + n * (2592000000000 /
	%[1]d) - 60000000 AS at
		FROM generate_series(1, %[1]d) AS n) AS each`
	fillCounters = `INSERT INTO x402.counters SELECT 'org', win, starts, (SELECT count(*) FROM x402.payments
		WHERE created_at >= starts), 1099511627776
		FROM (VALUES ('day', x402.day_of(x402.clock())), ('month', x402.month_of(x402.clock()))) AS w (win,
		starts)`
	// four links for each payment of a range, in one of 100 chains; the writers' rows are swept only behind a
	// commit
	fillChains = `DO $do$ DECLARE _p RECORD; BEGIN
		PERFORM set_config('search_path', 'x402', false);
		FOR _p IN SELECT seq, created_at FROM payments WHERE seq > %[1]d AND seq <= %[1]d + %[2]d ORDER BY
		seq LOOP
			PERFORM append('home_' || _p.seq %% 100, _p.created_at, _p.seq, e,
			'{"row":"` + fill64 + `","stored":"` + fill64 + `"}')
				FROM unnest(ARRAY['reserved', 'signed', 'settled', 'delivered']) AS e;
			IF _p.seq %% 200 = 0 THEN COMMIT; END IF;
		END LOOP; END $do$`
	fill64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func benchmarkWallets(b *testing.B, f Fleet, wallets int, trip time.Duration) {
	stores := make([]*Store, wallets)
	for i := range stores {
		wire := f
		wire.Writer = fmt.Sprint("home_bench_", i)
		if trip > 0 {
			proxy := pgtest.NewProxy(b, f.URL)
			proxy.Delay(trip)
			wire.URL = proxy.URL()
		}
		s, err := OpenFleet(wire, Options{})
		require.NoError(b, err)
		defer s.Close()
		_, err = s.instance() // its connection
		require.NoError(b, err)
		stores[i] = s
	}
	var mu sync.Mutex
	var reserves []time.Duration
	var all sync.WaitGroup
	for _, s := range stores { // its functions are compiled and its questions planned, once a connection
		all.Go(func() {
			for range 6 {
				if _, err := benchmarkPayment(s); !errors.Is(err, ErrMoved) && !no(b, err) {
					return
				}
			}
		})
	}
	all.Wait()
	begin := time.Now()
	over := begin.Add(5 * time.Second)
	for _, s := range stores {
		all.Go(func() {
			for time.Now().Before(over) {
				took, err := benchmarkPayment(s)
				if errors.Is(err, ErrMoved) { // a session began
					continue
				}
				if !no(b, err) {
					return
				}
				mu.Lock()
				reserves = append(reserves, took)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(reserves)
	b.ReportMetric(float64(len(reserves))/time.Since(begin).Seconds(), "payments/s")
	b.ReportMetric(ms(reserves[len(reserves)/2]), "reserve-p50-ms")
	b.ReportMetric(ms(reserves[len(reserves)*99/100]), "reserve-p99-ms")
	b.ReportMetric(0, "ns/op")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func benchmarkPayment(s *Store) (reserve time.Duration, err error) {
	ctx := context.Background()
	h := testHold(1)
	h.Funds.ReadAt = time.Now()
	grounds, err := decideOn(s, fleetRules, &h)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	p, err := s.Reserve(ctx, h)
	reserve = time.Since(begin)
	if err == nil {
		signed := signedOf(p)
		signed.Grounds = grounds
		err = s.Submit(ctx, p, signed, holderOf(fleetRules))
	}
	if err == nil {
		_, err = s.Finish(ctx, p.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true,
			ClearWaiter: true})
	}
	return reserve, err
}

// BenchmarkFleetVerify is history verify over a fleet's payments: goal: 10^5 in 10 s.
func BenchmarkFleetVerify(b *testing.B) {
	f := benchmarkFleet(b, pgtest.Start(b), *fleetVerify, false)
	const step = 10_000
	for from := 0; from < *fleetVerify; from += step {
		pgtest.SQL(b, f.URL, fmt.Sprintf(fillChains, from, step))
	}
	pgtest.SQL(b, f.URL, `VACUUM ANALYZE`)
	s, err := OpenFleet(f, Options{})
	require.NoError(b, err)
	defer s.Close()
	rows := 0
	for b.Loop() {
		rows, err = s.Verify(b.Context(), Head{})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(cmp.Or(rows, 1)), "rows")
}

// no is require.NoError where another goroutine than the test's may not end it.
func no(t testing.TB, err error) bool {
	if err != nil {
		t.Errorf("%+v", err)
	}
	return err == nil
}
