package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/socket"
)

// One user takes half of the places, and no more; what is given back can be taken again.
func TestPlaces(t *testing.T) {
	p := &places{most: 4}
	require.True(t, p.take("1"))
	require.True(t, p.take("1"))
	require.False(t, p.take("1"))
	require.True(t, p.take("2"))
	require.True(t, p.take("3"))
	require.False(t, p.take("4"), "all are taken")
	p.leave("1")
	require.True(t, p.take("4"))
	p.leave("4")
	require.True(t, p.take("1"))
	for _, user := range []socket.User{"1", "1", "2", "3"} {
		p.leave(user)
	}
	require.Zero(t, p.taken)
	require.Empty(t, p.by)
}
