package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who left takes no turn that happens to be free, and nothing that was read ahead.
func TestWhoLeftTakesNoTurn(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	done := make(chan struct{})
	close(done)
	for range 100 { // which of two ready channels is picked is chance
		_, err := new(turns).begin(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
		_, ok := readings{{done: done}}.take(ctx, option{}, time.Time{})
		require.False(t, ok)
	}
}
