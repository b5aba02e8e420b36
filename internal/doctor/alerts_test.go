package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/internal/must"
)

// Who could not be told of something hears it from the doctor, for a week.
func TestWhatCouldNotBeTold(t *testing.T) {
	home, now := t.TempDir(), time.Now()
	require.NoError(t, history.Create(t.Context(), home, history.Options{}))
	store := must.Get(history.Open(t.Context(), home, history.Options{Alerts: alerts.Writer{}}))(t)
	defer store.Close()
	o := Options{Now: func() time.Time { return now }}
	require.NoError(t, store.Freeze(t.Context(), history.Freeze{By: "agent", Why: "why"}))
	list := must.Get(alerts.List(t.Context(), store, 2))(t)
	require.Len(t, list, 1)
	turn := must.Get(store.TakeTurn(t.Context(), "alerts", "test"))(t)
	for range alerts.MaxTries {
		require.Empty(t, o.alerts(t.Context(), store))
		require.NoError(t, alerts.MarkFailed(t.Context(), store, turn, now, list[0].ID))
	}
	found := o.alerts(t.Context(), store)
	require.Len(t, found, 1)
	require.Equal(t, warn, found[0].Status)
	require.Contains(t, found[0].Message, "of 1 things within a week you could not be told")
	now = now.Add(8 * 24 * time.Hour)
	require.Empty(t, o.alerts(t.Context(), store))
}
