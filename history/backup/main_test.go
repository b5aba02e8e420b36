package backup

import (
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
