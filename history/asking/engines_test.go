package asking

import (
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func eachEngine(t *testing.T, test func(t *testing.T, s *history.Store, c *historytest.Clock)) {
	t.Helper()
	historytest.EachEngine(t, historytest.Options(), test)
}
