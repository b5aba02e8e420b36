package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/scheme/signing"
)

// A voucher is recorded together with the step that it takes its channel.
func TestAVoucherTakesItsChannelOn(t *testing.T) {
	_, err := voucher{}.Bound(t.Context(), signing.Sealed{})
	require.ErrorContains(t, err, "takes no channel on")
}
