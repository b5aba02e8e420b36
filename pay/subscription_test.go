package pay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// No caller takes the key of a subscription's slot: whoever could would have a slot's purchase, or be one.
func TestSubscriptionKeysAreTheWallets(t *testing.T) {
	const key = "x402-subscription:news:20270327T023000Z:20270327T023000Z"
	q := Request{Request: seller.Request{URL: "https://api.example/"}, IdempotencyKey: key}
	_, err := q.parse("")
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
	q.OfSubscription = true
	in, err := q.parse("")
	require.NoError(t, err)
	require.Equal(t, q.Fingerprint(""), in.fingerprint, "the rules know the request by the same")
	require.NotEqual(t, q.Fingerprint("a"), in.fingerprint)
	q.IdempotencyKey = "mine"
	_, err = q.parse("")
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
}
