package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/x402/money"
)

// The lines are at round sums, the topmost is not below the highest bar, and something is never
// nothing.
func TestDraw(t *testing.T) {
	for most, lines := range map[money.Dollars]string{
		1:           "$0.000001",
		3000:        "$0.001 $0.002 $0.003",
		500_000:     "$0.20 $0.40 $0.60",
		4_230_000:   "$2.00 $4.00 $6.00",
		100_000_000: "$50.00 $100.00",
	} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			p := draw([]step{{Use: budget.Use{Spent: most - most/4, Held: most / 4}},
				{Use: budget.Use{Spent: 1}}, {}, {Use: budget.Use{Held: 1}}}, 2, "the last 4 days")
			var got []string
			for _, l := range p.Lines {
				got = append(got, l.Label)
			}
			require.Equal(t, lines, strings.TrimSpace(strings.Join(got, " ")))
			require.InDelta(t, 0, p.Lines[len(p.Lines)-1].Y, .01)
			for _, b := range p.Bars {
				require.GreaterOrEqual(t, b.HeldY, -.02, "%s: inside", most)
				require.InDelta(t, plotHeight, b.SpentY+b.SpentHigh, .02)
				require.Equal(t, b.Spent > 0, b.SpentHigh >= leastHigh)
				require.Equal(t, b.Held > 0, b.HeldHigh >= leastHigh)
			}
			require.Equal(t, []bool{false, true, false, true}, []bool{p.Bars[0].Labelled, p.Bars[1].Labelled,
				p.Bars[2].Labelled, p.Bars[3].Labelled}, "from the last")
		})
	}
	none := draw(make([]step, 3), 1, "the last 3 days")
	require.False(t, none.Any)
	require.Empty(t, none.Lines)
	require.Equal(t, "Nothing was spent in the last 3 days.", none.Said)
}

func TestBars(t *testing.T) {
	b := barsOf([]report.NamedSum{{Key: "a", Use: budget.Use{Spent: 60, Held: 20}},
		{Key: "b", Use: budget.Use{Spent: 1}}}, budget.Use{Spent: 80, Held: 20}, strings.ToUpper)
	require.Equal(t, bars{List: []lying{{"A", budget.Use{Spent: 60, Held: 20}, 75, 25},
		{"B", budget.Use{Spent: 1}, 1.25, 0}}, Others: 19}, b)
	require.InDelta(t, .5, percent(1, 1_000_000), 0)
	require.InDelta(t, 0, percent(0, 0), 0)
	require.InDelta(t, 100, percent(1, 0), 0)
}

func TestNoSuchRange(t *testing.T) {
	require.Equal(t, http.StatusNotFound, opened(t).get("/?range=1000y").status)
}
