package asking

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// nagging asks about a URL at a price, as an agent that varies what it can.
func nagging(t *testing.T, s *history.Store, method, host, rest string,
	price money.Dollars) (history.Approval, error) {
	t.Helper()
	return naggingAs(t, s, "", method, host, rest, price)
}

// naggingAs is nagging of an agent that has a name.
func naggingAs(t *testing.T, s *history.Store, agent, method, host, rest string,
	price money.Dollars) (history.Approval, error) {
	t.Helper()
	var quote [32]byte
	copy(quote[:], history.RandomID("apr_")) // another one each time: its body or a header changed
	return Asker{Store: s}.AskApproval(t.Context(), history.Approval{
		Quote: quote, Method: method, Host: host, Agent: agent,
		URL: "https://" + host + rest, Price: price, Amount: money.NewAmount(uint64(price))})
}

func declined(t *testing.T, err error) *history.Declined {
	t.Helper()
	d, ok := errors.AsType[*history.Declined](err)
	require.True(t, ok, "%v", err)
	return d
}

// Only what waits counts: a person who answers is asked the next, and nobody fills the queue for others.
func TestTheQueue(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		var last history.Approval
		for i := range 3 * maxPending {
			a := must.Get(nagging(t, s, "GET", fmt.Sprintf("h%d.example", i), "/", 10))(t)
			must.Get(s.Approve(t.Context(), a.ID, history.ByOwner, nil))(t)
		}
		full := func(s *history.Store, host, about string, limit int) {
			t.Helper()
			_, err := nagging(t, s, "GET", host, "/new", 10)
			e, ok := errors.AsType[*history.TooManyPending](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, history.TooManyPending{About: about, Limit: limit}, *e)
		}
		for i := range maxPendingHost {
			last = must.Get(nagging(t, s, "GET", fmt.Sprintf("a.example:%d", 1000+i), "/", 10))(t)
		}
		full(s, "a.example", "host", maxPendingHost)
		for i := range maxPendingSession - maxPendingHost {
			must.Get(nagging(t, s, "GET", fmt.Sprintf("b%d.example", i), "/", 10))(t)
		}
		full(s, "other.example", "agent", maxPendingSession)
		// another agent still is heard, up to what all may
		for i := range maxPending/maxPendingSession - 1 {
			other := historytest.Besides(t, s)
			for j := range maxPendingSession {
				must.Get(nagging(t, other, "GET", fmt.Sprintf("c%d-%d.example", i, j), "/", 10))(t)
			}
		}
		late := historytest.Besides(t, s)
		full(late, "other.example", "all", maxPending)
		// what the table says is not what counts
		require.NoError(t, late.Write(t.Context(), func(t *sqldb.Tx) error {
			return must.Err(t.Exec(`DELETE FROM approvals WHERE id <> ?`, last.ID))
		}))
		full(late, "other.example", "all", maxPending)
		must.Get(s.Deny(t.Context(), last.ID, history.ByOwner))(t)
		require.NoError(t, must.Err(nagging(t, late, "GET", "other.example", "/", 10)), "one was answered")
	})
}

// What was declined twice is not asked again for an hour, however it is spelled.
func TestDeclinedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		method, host, rest string
		price              money.Dollars
		again              bool // is asked
	}{
		"the same":          {"GET", "a.example", "/report", 1000, false},
		"another query":     {"GET", "a.example", "/report?x=2", 1000, false},
		"another spelling":  {"GET", "a.example", "//%72eport", 1000, false},
		"dearer":            {"GET", "a.example", "/report", 1001, false},
		"much dearer":       {"GET", "a.example", "/report", 100_000, false},
		"one unit cheaper":  {"GET", "a.example", "/report", 999, false},
		"more than half":    {"GET", "a.example", "/report", 501, false},
		"half the price":    {"GET", "a.example", "/report", 500, true},
		"another thing":     {"GET", "a.example", "/other", 1000, true},
		"another method":    {"POST", "a.example", "/report", 1000, true},
		"of another seller": {"GET", "b.example", "/report", 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *history.Store, clock *historytest.Clock) {
				var first time.Time
				for i := range maxNo {
					a := must.Get(nagging(t, s, "GET", "a.example", fmt.Sprintf("/report?%d", i), 1000))(t)
					must.Get(s.Decline(t.Context(), a.ID, "client"))(t)
					if i == 0 {
						first = clock.Now()
					}
				}
				_, err := nagging(t, s, c.method, c.host, c.rest, c.price)
				if c.again {
					require.NoError(t, err)
					return
				}
				d := declined(t, err)
				require.Equal(t, "this", d.About)
				require.WithinDuration(t, first.Add(noFor), d.Until, time.Second)
				clock.Set(d.Until.Add(time.Second))
				_, err = nagging(t, s, c.method, c.host, c.rest, c.price)
				require.NoError(t, err, "an hour later")
			})
		})
	}
}

// The owner's own no is enough; another path, another host are asked about for a while, and then no
// more; a yes ends the noes to its question.
func TestNoes(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		deny := func(host, path string) error {
			a, err := nagging(t, s, "GET", host, path, 1000)
			if err == nil {
				_, err = s.Deny(t.Context(), a.ID, history.ByOwner)
				require.NoError(t, err)
			}
			return err
		}
		require.NoError(t, deny("a.example", "/0"))
		require.Equal(t, "this", declined(t, deny("a.example", "/0?again")).About)
		for i := range maxNoHost/maxNo - 1 {
			require.NoError(t, deny(fmt.Sprintf("a.example:%d", 8000+i), "/"))
		}
		require.Equal(t, "host", declined(t, deny("a.example:9000", "/new")).About)
		for i := range (maxNoAgent - maxNoHost) / maxNo {
			require.NoError(t, deny(fmt.Sprintf("h%d.example", i), "/"))
		}
		require.Equal(t, "agent", declined(t, deny("new.example", "/")).About)

		s, _, _ = historytest.SQLite(t, historytest.Options())
		for _, yes := range []bool{false, true, false, false} {
			a, err := nagging(t, s, "GET", "a.example", "/", 1000)
			require.NoError(t, err)
			if yes {
				_, err = s.Accept(t.Context(), a.ID, "client")
			} else {
				_, err = s.Decline(t.Context(), a.ID, "client")
			}
			require.NoError(t, err)
		}
		declined(t, deny("a.example", "/"))
	})
}

// Dialogs that were closed are counted, and no decision.
func TestUnanswered(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, clock *historytest.Clock) {
		for i := range 3 {
			a := must.Get(nagging(t, s, "GET", "a.example", fmt.Sprintf("/?%d", i), 1000))(t)
			require.Equal(t, i, a.Unanswered)
			require.NoError(t, s.Unanswered(t.Context(), a.ID, "client"))
			require.Equal(t, history.Pending, must.Get(s.Approval(t.Context(), a.ID))(t).State)
		}
		require.ErrorIs(t, s.Unanswered(t.Context(), "apr_none", "client"), history.ErrNotFound)
		clock.Set(clock.Now().Add(noFor))
		require.Zero(t, must.Get(nagging(t, s, "GET", "a.example", "/", 1000))(t).Unanswered)
	})
}

func TestListsAreBounded(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		for _, n := range []int{0, maxList + 1} {
			_, err := Asker{Store: s}.AskApprovals(t.Context(), make([]history.Approval, n))
			require.ErrorIs(t, err, errListTooLong)
		}
		require.ErrorIs(t, must.Err(s.AskedTogether(t.Context(), "apr_none")), history.ErrNotFound)
	})
}
