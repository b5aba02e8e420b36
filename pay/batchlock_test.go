package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// oneAccount is channels of one account.
type oneAccount struct{ Channels }

func (oneAccount) Address() string { return "0xagent" }

// A channel is used by one call at a time, whichever of its seller's hosts it is for; and so are all of a
// host.
func TestAChannelOfTwoHostsIsUsedByOneCallAtATime(t *testing.T) {
	b := newBench(t, "1000", honest)
	b.Channels, b.ChannelBook = oneAccount{}, b.store
	unlock, err := b.lockChannels(t.Context(), testNetwork, "a.example", "0x01")
	require.NoError(t, err)
	defer unlock()
	try := func(limit time.Duration, host, id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		unlock, err := b.lockChannels(ctx, testNetwork, host, id)
		if err == nil {
			unlock()
		}
		return err
	}
	code(t, x402.Timeout, try(50*time.Millisecond, "b.example", "0x01"))
	code(t, x402.Timeout, try(50*time.Millisecond, "a.example", "0x02"))
	require.NoError(t, try(time.Minute, "b.example", "0x02"))
	unlock()
	require.NoError(t, try(time.Minute, "b.example", "0x01"))
	require.NoError(t, try(time.Minute, "a.example", "0x01"))
}
