package testworld

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const buildWait = 10 * time.Minute // a cold build cache on a busy machine

var built struct {
	once sync.Once
	dir  string
	bin  string
	err  error
	log  []byte
}

// Build gives the path of the real wallet binary, built once per test process, or that of
// X402_WALLET_BIN.
func Build(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("X402_WALLET_BIN"); bin != "" {
		return bin
	}
	built.once.Do(build)
	if built.err != nil {
		t.Fatalf("build the wallet: %v\n%s", built.err, built.log)
	}
	return built.bin
}

func build() {
	built.dir, built.err = os.MkdirTemp("", "x402-wallet-e2e-")
	if built.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildWait)
	defer cancel()
	built.bin = filepath.Join(built.dir, "x402-wallet")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", built.bin, "x402-wallet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	built.log, built.err = cmd.CombinedOutput()
}

// RemoveBuild removes what Build built; for the TestMain of packages that call it.
func RemoveBuild() {
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
}
