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
	if of := os.Getenv(replicaOf); of != "" {
		os.Exit(payAsReplica(of))
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}
