package app

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// A paywall's collector has targets of its own, but where the owner set others.
func TestThePaywallsCollector(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(memoryLimit)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	setCollector()
	require.EqualValues(t, paywallMemoryLimit, debug.SetMemoryLimit(1<<30))
	require.Equal(t, paywallGarbage, debug.SetGCPercent(50))
	setCollector()
	require.EqualValues(t, 1<<30, debug.SetMemoryLimit(-1), "as GOMEMLIMIT says")
	require.Equal(t, 50, debug.SetGCPercent(100), "as GOGC says")
}
