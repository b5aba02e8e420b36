package history

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(payerHome); home != "" {
		os.Exit(payForATeam(home))
	}
	goleak.VerifyTestMain(m)
}
