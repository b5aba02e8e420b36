package history

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) {
	if ledger := os.Getenv(payerLedger); ledger != "" {
		os.Exit(payForATeam(ledger))
	}
	if ledger := os.Getenv(payerOf); ledger != "" {
		os.Exit(payAloud(ledger))
	}
	goleak.VerifyTestMain(pgtest.Main(m))
}
