package asking

import (
	"errors"
	"fmt"
	"testing"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// Whatever one agent asks, another one's questions have their own room, and so have those of callers
// without a name; an agent with a name has as much of it in all processes together.
func TestEachAgentHasItsOwnQuestions(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		other := historytest.Besides(t, s)
		for i := range maxPendingHost {
			must.Get(naggingAs(t, s, "ann", "GET", "a.example", fmt.Sprintf("/%d", i), 10))(t)
		}
		for i := range maxPendingSession - maxPendingHost {
			must.Get(naggingAs(t, s, "ann", "GET", fmt.Sprintf("h%d.example", i), "/", 10))(t)
		}
		for host, full := range map[string]history.TooManyPending{
			"a.example":   {About: "host", Limit: maxPendingHost},
			"new.example": {About: "agent", Limit: maxPendingSession}} {
			for _, process := range []*history.Store{s, other} {
				_, err := naggingAs(t, process, "ann", "GET", host, "/new", 10)
				e, ok := errors.AsType[*history.TooManyPending](err)
				require.True(t, ok, "%v", err)
				require.Equal(t, full, *e)
			}
			for _, agent := range []string{"bob", ""} {
				_, err := naggingAs(t, s, agent, "GET", host, "/new", 10)
				require.NoError(t, err, "%q has room", agent)
			}
		}
		list := must.Get(report.OpenApprovals(t.Context(), s))(t)
		asked := map[string]int{}
		for _, a := range list {
			asked[a.Agent]++
		}
		require.Equal(t, map[string]int{"ann": maxPendingSession, "bob": 2, "": 2}, asked)
	})
}

// All questions together are bounded, and no asker's room is more than half of that, nor are their noes.
func TestAllAgentsQuestionsAreBounded(t *testing.T) {
	require.LessOrEqual(t, 2*maxPending, maxPendingAll)
	require.LessOrEqual(t, 2*maxPendingSession, maxPendingAll)
	require.LessOrEqual(t, 2*(maxNoAgent+maxNo), maxNoAll)
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		for i := range maxPendingAll / maxPendingSession {
			for j := range maxPendingSession {
				agent, host := fmt.Sprintf("a%d", i), fmt.Sprintf("h%d.example", j)
				must.Get(naggingAs(t, s, agent, "GET", host, "/", 10))(t)
			}
		}
		_, err := naggingAs(t, s, "late", "GET", "a.example", "/", 10)
		e, ok := errors.AsType[*history.TooManyPending](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, history.TooManyPending{About: "all", Limit: maxPendingAll}, *e)
	})
}

// A no is to who asked: another agent may ask the same, and its own noes are counted; only the noes to
// everybody keep everybody from asking. A yes to one ends no other's noes.
func TestNoesAreAnAgentsOwn(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		deny := func(agent, host string) error {
			a, err := naggingAs(t, s, agent, "GET", host, "/", 1000)
			if err == nil {
				_, err = s.Deny(t.Context(), a.ID, history.ByOwner)
				require.NoError(t, err)
			}
			return err
		}
		require.NoError(t, deny("ann", "a.example"))
		require.Equal(t, "this", declined(t, deny("ann", "a.example")).About)
		a := must.Get(naggingAs(t, s, "bob", "GET", "a.example", "/", 1000))(t)
		must.Get(s.Approve(t.Context(), a.ID, history.ByOwner, nil))(t)
		require.Equal(t, "this", declined(t, deny("ann", "a.example")).About, "bob's yes is bob's")

		noes := 1
		for i := 0; noes < maxNoAll/maxNo; i++ {
			agent := fmt.Sprintf("a%d", i)
			for j := 0; j < maxNoAgent/maxNo && noes < maxNoAll/maxNo; j++ {
				require.NoError(t, deny(agent, fmt.Sprintf("h%d.example", j)))
				noes++
			}
			if noes < maxNoAll/maxNo {
				require.Equal(t, "agent", declined(t, deny(agent, "new.example")).About)
			}
		}
		require.Equal(t, "all", declined(t, deny("cy", "new.example")).About)
	})
}

// How often a dialog was closed is said of the agent whose it was.
func TestUnansweredOfAnAgent(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		for i, agent := range []string{"ann", "bob", "", "ann"} {
			a := must.Get(naggingAs(t, s, agent, "GET", "a.example", "/", 1000))(t)
			require.Equal(t, i/3, a.Unanswered, "%q", agent)
			require.NoError(t, s.Unanswered(t.Context(), a.ID, "client"))
		}
	})
}
