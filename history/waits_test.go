package history

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// heard is what a Waits was called with.
type heard struct {
	asked  []Approval
	frozen []Freeze
}

func (h *heard) Asked(a Approval) { h.asked = append(h.asked, a) }
func (h *heard) Frozen(f Freeze)  { h.frozen = append(h.frozen, f) }

// What waits for the owner is told once, as it stands in the ledger, and never when nothing new waits.
func TestWhatWaitsIsToldOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		var h heard
		s.waits = &h
		first := asking(t, s, 1)
		require.Equal(t, []Approval{first}, h.asked)
		again := asking(t, s, 1)
		require.Equal(t, first.ID, again.ID)
		require.Len(t, h.asked, 1, "the same question")
		second := asking(t, s, 2)
		require.Equal(t, []Approval{first, second}, h.asked)
		_, err := s.Deny(t.Context(), second.ID, byOwner)
		require.NoError(t, err)
		_, err = s.AskApproval(t.Context(), Approval{Quote: quoteOf(2), Host: second.Host})
		require.NoError(t, err)
		require.Len(t, h.asked, 2, "it was decided")
		for n := byte(3); ; n++ { // until the host's questions are too many
			p := testHold(250_000).Payment
			a, err := s.AskApproval(t.Context(), Approval{Quote: quoteOf(n), Host: p.Host, Price: p.Price,
				Method: p.Method, URL: p.URL + string('a'+rune(n))})
			if err != nil {
				require.IsType(t, &TooManyPending{}, err)
				break
			}
			require.Equal(t, a.ID, h.asked[len(h.asked)-1].ID)
		}
		require.Len(t, h.asked, 1+maxPendingHost, "what was not asked is not told")

		all := Freeze{By: "breaker", Why: "why"}
		for range 2 {
			require.NoError(t, s.Freeze(t.Context(), all))
		}
		require.NoError(t, s.Freeze(t.Context(), Freeze{Network: "n", Account: "a", By: "agent", Why: "why"}))
		require.Len(t, h.frozen, 2)
		require.Equal(t, "breaker", h.frozen[0].By)
		require.False(t, h.frozen[0].At.IsZero())
		require.Equal(t, "a", h.frozen[1].Account)
	})
}
