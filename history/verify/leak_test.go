package verify

import (
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/internal/pgtest"
)

// No test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
