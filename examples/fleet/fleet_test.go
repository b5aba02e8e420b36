package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}

// The demo checks itself. Here its keys open quickly, and its lines are checked to fit a terminal.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	var out bytes.Buffer
	s := &story{out: &out, program: testworld.Build(t), makes: func(home, rules, passphrase string) error {
		_, _, err := testworld.MakeHome(home, rules, passphrase)
		return err
	}}
	err := run(t.Context(), s)
	if errors.Is(err, pgtest.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err, "%s", &out)
	require.Contains(t, out.String(), "Everything worked")
	require.NoDirExists(t, s.dir)
	for line := range bytes.Lines(out.Bytes()) {
		require.LessOrEqual(t, len(line), 121, "%s", line)
	}
}
