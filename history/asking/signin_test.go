package asking

import (
	"testing"

	"x402-wallet/history"
	"x402-wallet/history/historytest"

	"github.com/stretchr/testify/require"
)

// A no to signing in is heard in the same question again, at once and at a client too, and is none to paying;
// nor is a no to paying one to signing in.
func TestANoToSigningIn(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		free, err := nagging(t, s, "GET", "a.example", "/x", 0)
		require.NoError(t, err)
		require.True(t, free.IsSignIn())
		answer, err := s.Decline(t.Context(), free.ID, "client")
		require.NoError(t, err)
		require.Equal(t, history.Denied, answer.State)
		dear, err := nagging(t, s, "GET", "a.example", "/x", 10)
		require.NoError(t, err, "another question")
		require.False(t, dear.IsSignIn())
		_, err = s.Deny(t.Context(), dear.ID, history.ByOwner)
		require.NoError(t, err)
		_, err = nagging(t, s, "GET", "a.example", "/x", 10)
		require.Equal(t, "this", declined(t, err).About)
		free, err = nagging(t, s, "GET", "a.example", "/x", 0)
		require.NoError(t, err, "one no at a client is none yet to the same in other words")
		_, err = s.Deny(t.Context(), free.ID, history.ByOwner)
		require.NoError(t, err)
		_, err = nagging(t, s, "GET", "a.example", "/x", 0)
		require.Equal(t, "this", declined(t, err).About)

		_, err = nagging(t, s, "GET", "b.example", "/x", 0)
		require.NoError(t, err)
	})
}

// After noes to signing in alone a payment is asked about.
func TestNoesToSigningInAreNoneToPaying(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		free, err := nagging(t, s, "GET", "a.example", "/x", 0)
		require.NoError(t, err)
		_, err = s.Deny(t.Context(), free.ID, history.ByOwner)
		require.NoError(t, err)
		_, err = nagging(t, s, "GET", "a.example", "/x", 10)
		require.NoError(t, err)
	})
}
