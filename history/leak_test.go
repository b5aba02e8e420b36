package history

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(payerHome); home != "" {
		os.Exit(payForATeam(home))
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}
