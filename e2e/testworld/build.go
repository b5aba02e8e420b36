package testworld

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Build gives the path of the real wallet binary, built once per test process, or that of
// X402_WALLET_BIN.
func Build(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("X402_WALLET_BIN"); bin != "" {
		return bin
	}
	bin, err := build()
	require.NoError(t, err)
	return bin
}

var built string // its directory

var build = sync.OnceValues(func() (bin string, err error) {
	built, err = os.MkdirTemp("", "x402-wallet-e2e-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a cold cache, a busy machine
	defer cancel()
	bin = filepath.Join(built, "x402-wallet")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "x402-wallet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the wallet: %w\n%s", err, said)
	}
	return bin, nil
})

// RemoveBuild removes what Build built; for the TestMain of packages that call it.
func RemoveBuild() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}
