package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Whoever writes into a fleet's ledger past its functions is found.
func TestAForgedFleetsLedgerIsFound(t *testing.T) {
	for name, edit := range map[string]string{
		"an event":         `UPDATE audit SET detail = '{}' WHERE seq = 2`,
		"an event's time":  `UPDATE audit SET at = at + 1 WHERE seq = 3`,
		"a missing event":  `DELETE FROM audit WHERE seq = 3`,
		"the last events":  `DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)`,
		"a window's sum":   `UPDATE counters SET used = used - 1 WHERE win = 'day'`,
		"a second's count": `UPDATE made SET n = n - 1`,
		"a payment's sum":  `UPDATE payments SET usd = usd - 1`,
		"a payment failed": `UPDATE payments SET state = 'failed'`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newFleetStore(t)
			pay(t, s, testHold(5), Settled)
			part := func() (Sampled, error) {
				return read(t.Context(), s, func(t *tx) (Sampled, error) { return t.sampleFleet(0) })
			}
			rows, err := s.Verify(t.Context(), Head{})
			require.NoError(t, err)
			done, err := part()
			require.NoError(t, err)
			require.EqualValues(t, rows, done.Rows)
			forge(t, s, edit)
			_, err = s.Verify(t.Context(), Head{})
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			_, err = s.Sample(t.Context())
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			_, err = part()
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
		})
	}
}

// Content that somebody changed is not given out, and found.
func TestAForgedFleetsContentIsFound(t *testing.T) {
	for _, edit := range []string{
		`UPDATE bodies SET body = '\x00'`, `UPDATE contents SET sha256 = '\x00'`, `UPDATE contents SET size = size + 1`,
		`UPDATE contents SET removed = 'quota'`, `DELETE FROM bodies`,
	} {
		t.Run(edit, func(t *testing.T) {
			s, _ := newFleetStore(t)
			id := buy(t, s, 10, false)
			_, err := s.VerifyContent(t.Context())
			require.NoError(t, err)
			forge(t, s, edit)
			_, err = s.VerifyContent(t.Context())
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
			_, err = s.Content(t.Context(), id)
			require.Error(t, err)
		})
	}
	for _, edit := range []string{`UPDATE contents SET http_status = 201`, `UPDATE contents SET type = 'text/html'`} {
		t.Run(edit, func(t *testing.T) {
			s, _ := newFleetStore(t)
			id := buy(t, s, 10, false)
			forge(t, s, edit)
			_, err := s.Content(t.Context(), id)
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
		})
	}
}

// A server's clock that was far ahead for one payment is seen when it was set back.
func TestAFleetsClockThatWasAhead(t *testing.T) {
	s, c := newFleetStore(t)
	right := c.now()
	c.set(right.AddDate(1, 0, 0))
	p := pay(t, s, testHold(1), Settled)
	c.set(right)
	latest, err := s.Ahead(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, p.Created, latest, time.Minute)
	require.False(t, latest.Before(p.Created))
	err = s.Redate(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
}
