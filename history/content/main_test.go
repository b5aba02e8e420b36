package content

import (
	"testing"

	"go.uber.org/goleak"

	"x402-wallet/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// For the tests of this package, which are outside of it: package historytest imports it.
var GiveBack = giveBack

const KeptFree = keptFree
