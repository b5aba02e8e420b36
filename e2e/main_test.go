package e2e

import (
	"os"
	"testing"

	"x402-wallet/e2e/testworld"
)

func TestMain(m *testing.M) {
	if runs := os.Getenv(behindEnv); runs != "" {
		if behind(runs) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(passOnEnv); url != "" {
		if passOn(url, os.Args[len(os.Args)-1]) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	stopLab()
	testworld.RemoveBuild()
	closeShops()
	os.Exit(code)
}
