package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}

// The demo checks itself. Here its keys open quickly, and what it prints is checked to fit a terminal.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds, and needs PostgreSQL and Prometheus")
	}
	var out bytes.Buffer
	s := &story{out: &out, program: testworld.Build(t), alerts: filepath.Join("..", "..", alertRules),
		makes: func(home, passphrase string) (string, error) {
			address, _, err := testworld.MakeHome(home, "[budget]\nday = \"1.00\"\n", passphrase)
			return address, err
		}}
	require.NoError(t, run(t.Context(), s), "%s", &out)
	require.Contains(t, out.String(), "Everything worked")
	require.NoDirExists(t, s.dir)
	for line := range bytes.Lines(out.Bytes()) {
		require.LessOrEqual(t, len(line), 121, "%s", line)
	}
}
