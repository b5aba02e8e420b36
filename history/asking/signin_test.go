package asking

import (
	"testing"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// A no to signing in is heard in the same question again, at once and at a client too, and is none to paying;
// nor is a no to paying one to signing in.
func TestANoToSigningIn(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		free := must.Get(nagging(t, s, "GET", "a.example", "/x", 0))(t)
		require.True(t, free.IsSignIn())
		require.Equal(t, history.Denied, must.Get(s.Decline(t.Context(), free.ID, "client"))(t).State)
		dear, err := nagging(t, s, "GET", "a.example", "/x", 10)
		require.NoError(t, err, "another question")
		require.False(t, dear.IsSignIn())
		must.Get(s.Deny(t.Context(), dear.ID, history.ByOwner))(t)
		require.Equal(t, "this", declined(t, must.Err(nagging(t, s, "GET", "a.example", "/x", 10))).About)
		free, err = nagging(t, s, "GET", "a.example", "/x", 0)
		require.NoError(t, err, "one no at a client is none yet to the same in other words")
		must.Get(s.Deny(t.Context(), free.ID, history.ByOwner))(t)
		require.Equal(t, "this", declined(t, must.Err(nagging(t, s, "GET", "a.example", "/x", 0))).About)

		must.Get(nagging(t, s, "GET", "b.example", "/x", 0))(t)
	})
}

// After noes to signing in alone a payment is asked about.
func TestNoesToSigningInAreNoneToPaying(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		free := must.Get(nagging(t, s, "GET", "a.example", "/x", 0))(t)
		must.Get(s.Deny(t.Context(), free.ID, history.ByOwner))(t)
		must.Get(nagging(t, s, "GET", "a.example", "/x", 10))(t)
	})
}
