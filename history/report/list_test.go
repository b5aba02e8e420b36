package report

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// row is a payment as the naive look at them knows it.
type row struct {
	id, url, symbol string
	host, network   string
	state           history.State
	at              time.Time
	usd             money.Dollars
	agent           string
}

// states are those of payments, the common one most.
var states = []history.State{history.Reserved, history.Submitted, history.Settled, history.Settled,
	history.Settled, history.Settled, history.Unknown, history.Failed}

// someURL is made of few words, so that many are alike, and parts of them end and begin anywhere.
func someURL(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	url := pick("https", "http") + "://" + pick("a.example", "ab.example:8080", "b%_.example") + pick("", "",
		"/", "//")
	for range r.IntN(4) {
		url += pick("/", "/", "/", "?", "#") + pick("item", "Item", "v1", "v12", "", "b.example", `q"x`,
			"a\\b", "i", "7", "é", "https://a.example/item") + pick("", "", fmt.Sprint(r.IntN(40)))
	}
	if r.IntN(10) == 0 { // around the most that is in the index
		url += "/" + strings.Repeat(pick("long", "item", "é"), 100+r.IntN(60))
	}
	return url
}

// someRows are payments whose numbers have the order of their times.
func someRows(r *rand.Rand, n int) (rows []row) {
	at := time.Date(2026, 1, 30, 21, 0, 0, 0, time.UTC)
	for i := range n {
		rows = append(rows, row{fmt.Sprint("pay_", i), someURL(r), []string{"USDC", "PYUSD"}[r.IntN(2)],
			fmt.Sprint("h", r.IntN(5)), fmt.Sprint("n", r.IntN(3)),
			states[r.IntN(len(states))], at,
			money.Dollars(r.IntN(3)), []string{"", "", "ann", "bob", "bo"}[r.IntN(5)]})
		at = at.Add(time.Duration(r.IntN(3)) * time.Duration(r.IntN(40)) * time.Minute)
	}
	return rows
}

// insertRows writes them.
func insertRows(t *testing.T, s *history.Store, rows []row) {
	require.NoError(t, s.Write(t.Context(), func(tx *sqldb.Tx) error {
		for _, p := range rows {
			_, err := tx.Exec(`INSERT INTO payments (seq, id, session, state, created_at, updated_at, fingerprint,
				method, url, target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to,
				source, requirement, agent)
				VALUES (coalesce((SELECT max(seq) FROM payments), 0) + 1, ?, 's', ?, ?, 0, ?, 'GET', ?,
					'', ?, ?, '', '', '', ?, '0', ?, '', '', '{}', ?)`,
				p.id, p.state, sqldb.Micros(p.at), []byte{0}, p.url, p.host, p.network, p.symbol,
				int64(p.usd),
				p.agent)
			require.NoError(t, err)
		}
		return nil
	}))
}

// Queries must say what a look at each payment says.
func TestListIsWhatALookAtEachPaymentFinds(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) % 1000 //nolint:gosec // a test's
	t.Log("seed", seed)
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		r := rand.New(rand.NewPCG(7, seed)) //nolint:gosec // a test's
		rows := someRows(r, 600)
		insertRows(t, s, rows)
		for range 700 {
			f := Filter{Limit: 1 + r.IntN(7)}
			if r.IntN(3) == 0 {
				f.Agents = [][]string{{"ann"}, {"bob"}, {"bo"}, {"b"}, {"nobody"}, {},
					{"ann", "bo"}, {"ann", "bob", "b"}}[r.IntN(8)]
			}
			if r.IntN(8) > 0 {
				url := rows[r.IntN(len(rows))].url
				from := r.IntN(len(url))
				f.URL = url[from : from+1+r.IntN(len(url)-from)]
				switch r.IntN(10) {
				case 0:
					f.URL = strings.ToUpper(f.URL)
				case 1:
					f.URL += "x"
				case 2:
					f.URL = f.URL[:min(len(f.URL), 2)]
				}
			}
			if r.IntN(3) == 0 {
				f.Before = rows[r.IntN(len(rows))].id
			}
			if r.IntN(2) == 0 {
				f.After = rows[r.IntN(len(rows))].at.Add(time.Duration(r.IntN(5)-2) * 20 * time.Minute)
				if r.IntN(3) == 0 {
					f.After = f.After.Truncate(24 * time.Hour)
				}
			}
			if r.IntN(3) == 0 {
				f.Until = rows[r.IntN(len(rows))].at.Add(time.Duration(r.IntN(5)-2) * 20 * time.Minute)
			}
			if r.IntN(2) == 0 {
				f.State = states[r.IntN(len(states))]
			}
			wantIDs, wantMore, wantTotals := look(rows, f)
			list, more, totals, err := List(t.Context(), s, f)
			require.NoError(t, err, "%+v", f)
			var ids []string
			for _, p := range list {
				ids = append(ids, p.ID)
			}
			require.Equal(t, wantIDs, ids, "%+v", f)
			require.Equal(t, wantMore, more, "%+v", f)
			require.Equal(t, wantTotals, totals, "%+v", f)
			f.Before, f.Limit = "", len(rows)
			parts := must.Get(AddUp(t.Context(), s, f, 3))(t)
			require.Equal(t, partsOf(rows, f), parts, "%+v", f)
		}
		for range 20 {
			since, unit := rows[r.IntN(len(rows))].at.Truncate(time.Hour), time.Hour
			if r.IntN(2) == 0 {
				since, unit = since.Truncate(24*time.Hour), 24*time.Hour
			}
			got := must.Get(SpendingSince(t.Context(), s, since, unit, 3))(t)
			require.Equal(t, spending(rows, since, unit), got, "since %s by %s", since, unit)
		}
	})
}

// spending is what Spending says, from a look at each payment.
func spending(rows []row, since time.Time, unit time.Duration) (all Spending) {
	all.Over = map[time.Time]budget.Use{}
	hosts, networks, agents := map[string]budget.Use{}, map[string]budget.Use{}, map[string]budget.Use{}
	for _, p := range rows {
		if p.at.Before(since) {
			continue
		}
		add := func(d budget.Use) budget.Use {
			switch p.state {
			case history.Settled:
				d.Spent += p.usd
			case history.Failed:
			default:
				d.Held += p.usd
			}
			return d
		}
		when := p.at.Truncate(unit)
		all.Over[when], hosts[p.host], networks[p.network] = add(all.Over[when]), add(hosts[p.host]),
			add(networks[p.network])
		if p.agent != "" {
			agents[p.agent] = add(agents[p.agent])
		}
	}
	dearest := func(parts map[string]budget.Use) (list []NamedSum) {
		for key, d := range parts {
			if d.Total() > 0 {
				list = append(list, NamedSum{key, d})
			}
		}
		slices.SortFunc(list, func(a, b NamedSum) int {
			return cmp.Or(cmp.Compare(b.Total(), a.Total()), cmp.Compare(a.Key, b.Key))
		})
		return list[:min(len(list), 3)]
	}
	all.Hosts, all.Networks, all.Agents = dearest(hosts), dearest(networks), dearest(agents)
	return all
}

// partsOf is what Parts says of the three dearest, from a look at each payment.
func partsOf(rows []row, f Filter) (p Parts) {
	ids, _, _ := look(rows, f)
	sellers, networks := map[string]money.Dollars{}, map[string]money.Dollars{}
	for _, r := range rows {
		if r.state == history.Failed || r.usd == 0 || !slices.Contains(ids, r.id) {
			continue
		}
		sellers[r.host] = sellers[r.host].Add(r.usd)
		networks[r.network] = networks[r.network].Add(r.usd)
	}
	p.Sellers, p.Others = dearest(sellers, 3)
	p.Networks, _ = dearest(networks, 3)
	return p
}

func look(rows []row, f Filter) (ids []string, more bool, totals map[string]money.Dollars) {
	totals = map[string]money.Dollars{}
	older := f.Before == ""
	for _, p := range slices.Backward(rows) {
		match := contains(p.url, f.URL) && !p.at.Before(f.After) &&
			(f.Until.IsZero() || p.at.Before(f.Until)) && (f.State == "" || f.State == p.state) &&
			(f.Agents == nil || slices.Contains(f.Agents, p.agent))
		if match && p.state != history.Failed && p.usd > 0 {
			totals[p.symbol] += p.usd
		}
		if match && older {
			if len(ids) == f.Limit {
				more = true
			} else {
				ids = append(ids, p.id)
			}
		}
		older = older || p.id == f.Before
	}
	return ids, more, totals
}

// contains folds ASCII letters only, and compares bytes otherwise; half a character is in no URL.
func contains(url, part string) bool {
	return strings.ToValidUTF8(part, "") == part &&
		strings.Contains(lower(url), lower(part))
}

func lower(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}

// What cannot be part of a URL is not looked for: SQLite takes neither a zero byte nor a very long pattern.
func TestListOfWhatNoURLHas(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		historytest.Pay(t, s, historytest.Hold(1), history.Settled)
		for _, part := range []string{"api\x00", "\x00", "\xff", strings.Repeat("a", 60_000), `"`, `a"b`, `*`,
			`api AND`, `weather" OR "api`} {
			t.Run(part, func(t *testing.T) {
				list, _, totals, err := List(t.Context(), s, Filter{URL: part})
				require.NoError(t, err, "%.20q", part)
				require.Empty(t, list, "%.20q", part)
				require.Empty(t, totals, "%.20q", part)
			})
		}
	})
}

func TestListFiltersPagesAndAdds(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		var ids []string
		for i := range 5 {
			h := historytest.Hold(uint64(i + 1))
			if i == 4 {
				h.Payment.URL, h.Payment.Symbol = "https://other.example/100%_sure", "PYUSD"
			}
			ids = append(ids, historytest.Pay(t, s, h, history.Settled).ID)
			c.Set(c.Now().Add(time.Hour))
		}
		list, more, totals, err := List(t.Context(), s, Filter{Limit: 2})
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, []string{ids[4], ids[3]}, []string{list[0].ID, list[1].ID})
		require.Equal(t, map[string]money.Dollars{"USDC": 10, "PYUSD": 5}, totals)

		// not everything, as Before the oldest once returned
		list, more, _, err = List(t.Context(), s, Filter{Before: ids[1], Limit: 5})
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, list, 1)
		list, _, _, err = List(t.Context(), s, Filter{Before: ids[0]})
		require.NoError(t, err)
		require.Empty(t, list)
		_, _, _, err = List(t.Context(), s, Filter{Before: "pay_none"})
		require.ErrorIs(t, err, history.ErrNotFound)

		third := must.Get(s.Payment(t.Context(), ids[2]))(t)
		type sums map[string]money.Dollars
		for _, look := range []struct {
			Filter
			want sums
		}{
			{Filter{After: third.Created}, sums{"USDC": 3 + 4, "PYUSD": 5}},
			{Filter{After: third.Created.Add(time.Microsecond)}, sums{"USDC": 4, "PYUSD": 5}},
			{Filter{State: history.Settled}, sums{"USDC": 10, "PYUSD": 5}},
			{Filter{State: history.Unknown}, sums{}},
			{Filter{URL: "weather"}, sums{"USDC": 10}},
			{Filter{After: third.Created.AddDate(0, 0, -1)}, sums{"USDC": 10, "PYUSD": 5}},
			{Filter{After: third.Created.AddDate(0, 0, 2)}, sums{}},
			{Filter{Agents: []string{}}, sums{}},
		} {
			_, _, totals, err := List(t.Context(), s, look.Filter)
			require.NoError(t, err)
			require.Equal(t, look.want, sums(totals), "%+v", look.Filter)
		}

		list, _, _, err = List(t.Context(), s, Filter{URL: "100%_s"})
		require.NoError(t, err)
		require.Len(t, list, 1, "a part of a URL, not a pattern")
		list, _, _, err = List(t.Context(), s, Filter{URL: "100_"})
		require.NoError(t, err)
		require.Empty(t, list)
	})
}
