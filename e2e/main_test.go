package e2e

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeWalletEnv) != "" {
		os.Exit(fakeWallet(os.Args[1:]))
	}
	if runs := os.Getenv(behindEnv); runs != "" {
		if behind(runs) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := Main(m)
	closeShops()
	os.Exit(code)
}
