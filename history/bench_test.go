package history

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"x402-wallet/budget"
)

var kept = flag.String("million", "", "directory of the ledger of a million payments: made there, or "+
	"found there; Reserve leaves failed ones in it")

// million is a ledger with a million payments of the last thirty days, each of another URL, at a
// hundred hosts; made once for all benchmarks.
func million(b *testing.B) *Store {
	b.Helper()
	home := cmp.Or(*kept, b.TempDir())
	there := *kept != "" && isDatabase(filepath.Join(home, FileName)) == nil
	if !there {
		if err := Create(b.Context(), home, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	s, err := Open(b.Context(), home, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if there {
		return s
	}
	const month, n = 30 * 24 * time.Hour, 1_000_000
	at := fmt.Sprintf(`%d + i * %d`, time.Now().Add(-month).UnixMicro(), (month / n).Microseconds())
	for _, query := range []string{
		`INSERT INTO sessions (id, started_at, last_at) VALUES ('s', 0, ` +
			fmt.Sprint(time.Now().UnixMicro()) + `)`,
		`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ` + fmt.Sprint(n) + `)
		INSERT INTO payments (id, session, state, proof, created_at, updated_at, fingerprint, method, url,
		target, host, network, scheme, dialect, asset,
			symbol, amount, usd, pay_to, payee, resource, url_prefix, source, requirement, unique_key,
			transaction_id, delivered)
		SELECT printf('pay_%032x', i), 's', CASE WHEN i % 997 THEN 'settled' ELSE 'failed' END, 'chain', ` +
			at + `, ` + at + `,
			randomblob(32), 'GET', printf('https://host%d.example/item/%d', i % 100, i), '',
			printf('host%d.example', i % 100),
			'eip155:84532', 'exact', 'v2', '0xasset', 'USDC', '1', 1, '0xpayee', '0xpayee',
			printf('GET host%d.example/item/%d', i % 100, i), printf('https://host%d.example/item',
			i % 100), '0xagent', '{}',
			printf('t%d', i), printf('0x%064x', i), 1 FROM n`,
	} {
		if _, err := s.write.Exec(query); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkMillion: what must not become slow with the years, in a ledger of a million payments of
// one month and one session. Goals: Reserve ≤ 2 ms, History ≤ 5 ms.
func BenchmarkMillion(b *testing.B) {
	s := million(b)
	rules := budget.Rules{PerCall: 1 << 40, Day: 1 << 50, Month: 1 << 50, ApproveAbove: 1 << 40,
		Rate: 1 << 40, PriceJump: 3}
	b.Run("Reserve", func(b *testing.B) {
		var all []time.Duration
		for b.Loop() {
			begin := time.Now()
			h := testHold(1)
			h.Payment.Host = "host7.example"
			h.Funds.ReadAt = time.Now()
			h.Payment.PayTo = fmt.Sprint("0xnew", b.N)
			p, err := reserveBy(s, rules, h)
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(begin))
			b.StopTimer()
			if err := s.Release(context.Background(), p.ID, "bench"); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms-p50")
		// each 256th puts a block into the index
		b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "ms-most")
	})
	week := time.Now().Add(-7 * 24 * time.Hour) // in the middle of a day, and of an hour
	for _, c := range []struct {
		name string
		Filter
	}{
		{"Newest", Filter{}},
		{"Page", Filter{Before: fmt.Sprintf("pay_%032x", 500_000), Limit: 100}},
		{"After", Filter{After: week}},
		{"Settled", Filter{State: Settled}},
		{"Failed", Filter{State: Failed}},
		{"Unknown", Filter{State: Unknown}},
		{"URLOfAll", Filter{URL: "https://"}},
		{"URLOf10000", Filter{URL: "host7.example/item"}},
		{"URLOf10000After", Filter{URL: "host7.example/item", After: week}},
		{"URLOf10000Settled", Filter{URL: "host7.example", State: Settled}},
		{"URLOf10000Failed", Filter{URL: "host7.example", State: Failed}},
		{"URLOf10000Unknown", Filter{URL: "host7.example", State: Unknown}},
		// behind the places, of which sums are kept: each is looked at
		{"URLOf11111Deep", Filter{URL: "/item/77"}},
		{"URLOf3700Scattered", Filter{URL: "770"}}, // so are these, of which a third lie each for itself
		{"URLOf111", Filter{URL: "host7.example/item/77"}},
		{"URLOfOne", Filter{URL: "https://host7.example/item/770007"}},
		{"URLOfOneAfter", Filter{URL: "item/990007", After: week, State: Settled}},
		{"URLOfNone", Filter{URL: "nowhere.example"}},
		{"URLOfNoneAfter", Filter{URL: "host7.example/nothing", After: week}},
	} {
		b.Run("History"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, _, err := s.List(context.Background(), c.Filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
