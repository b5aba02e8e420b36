package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// So many wrong passphrases are taken, in so long a time; a right one makes up for them.
func TestWrongTries(t *testing.T) {
	now := time.Unix(1e9, 0)
	w := &wrongTries{now: func() time.Time { return now }}
	for range maxWrong {
		require.False(t, w.tooMany())
		w.note(false)
		now = now.Add(time.Second)
	}
	require.True(t, w.tooMany())
	now = time.Unix(1e9, 0).Add(wrongTime)
	require.False(t, w.tooMany(), "the first is long ago")
	w.note(false)
	require.True(t, w.tooMany(), "the others are not")
	now = now.Add(wrongTime)
	require.False(t, w.tooMany())
	w.note(false)
	w.note(true)
	for range maxWrong {
		require.False(t, w.tooMany())
		w.note(false)
	}
	require.True(t, w.tooMany())
	require.Len(t, w.times, maxWrong)
}
