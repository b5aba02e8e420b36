package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// The demo checks itself; that its output fits a terminal is checked here.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and needs PostgreSQL and Prometheus")
	}
	var out bytes.Buffer
	s := &story{out: &out, program: testworld.Build(t),
		alerts: filepath.Join("..", "..", "docs", "monitoring", "alerts.yml")}
	require.NoError(t, run(t.Context(), s), "%s", &out)
	require.Contains(t, out.String(), "Everything worked")
	require.NoDirExists(t, s.dir)
}
