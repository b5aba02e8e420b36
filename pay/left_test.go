package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// Who left before anything was held hears that, and not that the wallet failed.
func TestWhoLeftBeforeAHoldIsTold(t *testing.T) {
	caller, leave := context.WithCancel(t.Context())
	leave()
	_, err := new(inflight).begin("pay_1", [32]byte{}, caller)
	code(t, x402.Timeout, err)
	require.ErrorIs(t, err, context.Canceled)
}

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
