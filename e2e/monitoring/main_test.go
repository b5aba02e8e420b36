// Package monitoring tries the metrics with a real Prometheus: what docs/monitoring has for it, on a service,
// a paywall and dashboards that are the real program, in a world of play money.
package monitoring

import (
	"os"
	"testing"

	"x402-wallet/e2e/testworld"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}
