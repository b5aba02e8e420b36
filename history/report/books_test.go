package report

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func TestBooks(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		first := historytest.Pay(t, s, historytest.Hold(1), history.Settled)
		second := historytest.Pay(t, s, historytest.Hold(2), history.Unknown)
		ids := func(r Range) (list []string) {
			require.NoError(t, Each(t.Context(), s, r, func(p history.Payment) error {
				list = append(list, p.ID)
				return nil
			}))
			return list
		}
		require.Equal(t, []string{first.ID, second.ID}, ids(Range{}))
		require.Equal(t, []string{second.ID}, ids(Range{State: history.Unknown}))
		require.Equal(t, []string{first.ID, second.ID},
			ids(Range{Host: first.Host, Session: first.Session, URL: first.Host}))
		require.Empty(t, ids(Range{Host: "elsewhere.example"}))
		require.Empty(t, ids(Range{Until: first.Created}))
		require.Empty(t, ids(Range{After: second.Created.Add(time.Hour)}))

		require.ErrorIs(t, Label(t.Context(), s, "ses_none", "x"), history.ErrNotFound)
		require.NoError(t, Label(t.Context(), s, first.Session, "one"))
		require.NoError(t, Label(t.Context(), s, first.Session, "two"))
		labels := must.Get(Labels(t.Context(), s))(t)
		require.Equal(t, map[string]string{first.Session: "two"}, labels)
		require.NoError(t, Label(t.Context(), s, first.Session, ""))
		labels = must.Get(Labels(t.Context(), s))(t)
		require.Empty(t, labels)
	})
}

// What another wallet wrote down is taken once and decides nothing.
func TestImport(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		list := []Imported{
			{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Transaction: "a", URL: "https://a.example/",
				Network: "eip155:8453", Amount: money.NewAmount(1), PayTo: "0x1"},
			{At: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Transaction: "b", URL: "https://a.example/",
				Network: "eip155:8453", Amount: money.NewAmount(2), PayTo: "0x1"},
		}
		for _, want := range []int{2, 0} {
			require.Equal(t, want, must.Get(Import(t.Context(), s, list))(t))
		}
		grown := append(list, Imported{At: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC),
			Transaction: "c", URL: "https://a.example/", Network: "eip155:8453", Amount: money.NewAmount(3)})
		require.Equal(t, 1, must.Get(Import(t.Context(), s, grown))(t))
		require.ElementsMatch(t, grown, must.Get(AllImported(t.Context(), s))(t))

		events := must.Get(Events(t.Context(), s, ""))(t)
		require.Equal(t, "imported", events[len(events)-1].Event)
		require.Equal(t, "imported", events[len(events)-2].Event)
		require.NotEqual(t, "imported", events[len(events)-3].Event,
			"what was there already is not told again")
		payments, _, totals, err := List(t.Context(), s, Filter{})
		require.NoError(t, err)
		require.Empty(t, payments)
		require.Empty(t, totals)
		must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
	})
}

// A long export neither holds a snapshot, which would keep the log from being cut, nor goes on for ever.
func TestEachGoesPageByPage(t *testing.T) {
	s, _, home := historytest.SQLite(t, history.Options{})
	past := must.Get(historytest.Forge(home))(t)
	defer past.Close()
	const all = 2*pageOfBooks + 1
	made := 0
	insert := func(n int) {
		var rows []row
		for ; n > 0; n-- {
			made++
			rows = append(rows, row{id: fmt.Sprint("pay_", made), state: history.Settled})
		}
		insertRows(t, s, rows)
	}
	insert(all)
	seen := map[string]bool{}
	require.NoError(t, Each(t.Context(), s, Range{}, func(p history.Payment) error {
		require.False(t, seen[p.ID])
		seen[p.ID] = true
		if len(seen)%pageOfBooks == 1 {
			var busy, left, moved int
			insert(1)
			require.NoError(t, past.Row(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &left, &moved))
			require.Zero(t, busy, "somebody reads")
		}
		return nil
	}))
	require.Len(t, seen, all, "and none that was made meanwhile")
	stop := errors.New("enough")
	n := 0
	require.ErrorIs(t, Each(t.Context(), s, Range{}, func(history.Payment) error { n++; return stop }), stop)
	require.Equal(t, 1, n)
}

func TestBooksOfAnAgent(t *testing.T) {
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		for _, agent := range []string{"", "ann", "bob", "ann"} {
			h := historytest.Hold(1)
			h.Payment.Agent = agent
			historytest.Pay(t, s, h, history.Settled)
		}
		for whose, want := range map[string][]string{"ann": {"ann", "ann"}, "": nil,
			"bob ann": {"ann", "bob", "ann"}} {
			var agents []string
			r := Range{Agents: strings.Fields(whose)}
			require.NoError(t, Each(t.Context(), s, r, func(p history.Payment) error {
				agents = append(agents, p.Agent)
				return nil
			}))
			require.Equal(t, want, agents)
		}
		require.Equal(t, []string{"ann", "bob"}, must.Get(Agents(t.Context(), s))(t))
	})
}
