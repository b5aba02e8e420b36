package budget

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// What the owner allows until a time is refused from then on, with that time.
func TestEnds(t *testing.T) {
	end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	one := map[string]time.Time{"api.example": end}
	for name, c := range map[string]struct {
		allow  []string
		ends   map[string]time.Time
		agent  time.Time
		now    time.Time
		passes bool
	}{
		"no end":         {nil, nil, time.Time{}, end, true},
		"a host, before": {[]string{"api.example"}, one, time.Time{}, end.Add(-1), true},
		"a host, then":   {[]string{"api.example"}, one, time.Time{}, end, false},
		"a host, later":  {[]string{"api.example"}, one, time.Time{}, end.AddDate(1, 0, 0), false},
		"another host's": {[]string{"api.example", "b.example"}, map[string]time.Time{"b.example": end},
			time.Time{}, end, true},
		"by another entry, too": {[]string{"api.example", "*.example"}, one, time.Time{}, end, true},
		"and the other is over too": {[]string{"api.example", "*.example"},
			map[string]time.Time{"api.example": end, "*.example": end.Add(1)}, time.Time{},
			end.Add(1), false},
		"an agent, before":          {nil, nil, end, end.Add(-1), true},
		"an agent, then":            {nil, nil, end, end, false},
		"a clock that is not known": {nil, nil, end, time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules(t)
			r.AllowHosts, r.Ends, r.Agents = c.allow, c.ends, map[string]Agent{"ann": {Until: c.agent}}
			a := ask(t, "0.01")
			a.Agent = "ann"
			_, err := r.Decide(a, Facts{Now: c.now})
			if c.passes {
				require.NoError(t, err)
				return
			}
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
			require.Contains(t, err.Error(), "until 2027-01-01T00:00:0")
			require.NotEmpty(t, x402.AsError(err).Details["until"])
			_, err = r.MaxPrice(a, 0, Facts{Now: c.now})
			require.True(t, x402.HasCode(err, x402.PolicyDenied), "where the price is not known, too")
			a.Agent = ""
			_, err = r.Decide(a, Facts{Now: c.now})
			require.Equal(t, !c.agent.IsZero(), err == nil, "an agent's end is no one else's")
		})
	}
}

// What the owner delegated on a network is over at its end; other networks' money is not.
func TestEnds_OfANetwork(t *testing.T) {
	end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	r, a := rules(t), ask(t, "0.01")
	r.NetworkEnds = map[string]time.Time{a.Payee.Network: end}
	for now, passes := range map[time.Time]bool{end.Add(-1): true, end: false, end.AddDate(1, 0, 0): false} {
		_, err := r.Decide(a, Facts{Now: now})
		require.Equal(t, passes, err == nil, now)
		if !passes {
			require.Contains(t, err.Error(), "until 2027-01-01T00:00:00Z")
		}
	}
	r.NetworkEnds = map[string]time.Time{"eip155:1": end}
	_, err := r.Decide(a, Facts{Now: end})
	require.NoError(t, err)
}
