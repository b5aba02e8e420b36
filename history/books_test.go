package history

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

func TestBooks(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		first := pay(t, s, testHold(1), Settled)
		second := pay(t, s, testHold(2), Unknown)
		ids := func(r Range) (list []string) {
			require.NoError(t, s.Each(t.Context(), r, func(p Payment) error {
				list = append(list, p.ID)
				return nil
			}))
			return list
		}
		require.Equal(t, []string{first.ID, second.ID}, ids(Range{}))
		require.Equal(t, []string{second.ID}, ids(Range{State: Unknown}))
		require.Equal(t, []string{first.ID, second.ID},
			ids(Range{Host: first.Host, Session: first.Session, URL: first.Host}))
		require.Empty(t, ids(Range{Host: "elsewhere.example"}))
		require.Empty(t, ids(Range{Until: first.Created}))
		require.Empty(t, ids(Range{After: second.Created.Add(time.Hour)}))

		require.ErrorIs(t, s.Label(t.Context(), "ses_none", "x"), ErrNotFound)
		require.NoError(t, s.Label(t.Context(), first.Session, "one"))
		require.NoError(t, s.Label(t.Context(), first.Session, "two"))
		labels, err := s.Labels(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{first.Session: "two"}, labels)
		require.NoError(t, s.Label(t.Context(), first.Session, ""))
		labels, err = s.Labels(t.Context())
		require.NoError(t, err)
		require.Empty(t, labels)
	})
}

// What another wallet wrote down is taken once and decides nothing.
func TestImport(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		list := []Imported{
			{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Transaction: "a", URL: "https://a.example/",
				Network: "eip155:8453", Amount: money.NewAmount(1), PayTo: "0x1"},
			{At: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), Transaction: "b", URL: "https://a.example/",
				Network: "eip155:8453", Amount: money.NewAmount(2), PayTo: "0x1"},
		}
		for _, want := range []int{2, 0} {
			added, err := s.Import(t.Context(), list)
			require.NoError(t, err)
			require.Equal(t, want, added)
		}
		grown := append(list, Imported{At: time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), Transaction: "c",
			URL: "https://a.example/", Network: "eip155:8453", Amount: money.NewAmount(3)})
		added, err := s.Import(t.Context(), grown)
		require.NoError(t, err)
		require.Equal(t, 1, added)
		all, err := s.AllImported(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, grown, all)

		events, err := s.Events(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "imported", events[len(events)-1].Event)
		require.Equal(t, "imported", events[len(events)-2].Event)
		require.NotEqual(t, "imported", events[len(events)-3].Event,
			"what was there already is not told again")
		payments, _, totals, err := s.List(t.Context(), Filter{})
		require.NoError(t, err)
		require.Empty(t, payments)
		require.Empty(t, totals)
		_, err = s.Verify(t.Context(), Head{})
		require.NoError(t, err)
	})
}

// A long export neither holds a snapshot, which would keep the log from being cut, nor goes on for ever.
func TestEachGoesPageByPage(t *testing.T) {
	s, _, _ := emptyStore(t)
	one, err := reserve(s, testHold(1))
	require.NoError(t, err)
	const all = 2*pageOfBooks + 1
	insert := func(n int) {
		require.NoError(t, s.tx(t.Context(), func(t *tx) error {
			for ; n > 0 && err == nil; n-- {
				one.ID = NewID(t.Now)
				err = t.insert(&one)
			}
			return err
		}))
	}
	insert(all - 1)
	seen := map[string]bool{}
	require.NoError(t, s.Each(t.Context(), Range{}, func(p Payment) error {
		require.False(t, seen[p.ID])
		seen[p.ID] = true
		if len(seen)%pageOfBooks == 1 {
			var busy, left, moved int
			insert(1)
			require.NoError(t, rawDB(t, s).QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &left, &moved))
			require.Zero(t, busy, "somebody reads")
		}
		return nil
	}))
	require.Len(t, seen, all, "and none that was made meanwhile")
	stop := errors.New("enough")
	n := 0
	require.ErrorIs(t, s.Each(t.Context(), Range{}, func(Payment) error { n++; return stop }), stop)
	require.Equal(t, 1, n)
}
