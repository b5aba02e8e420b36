package pay

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/seller"
)

// Content that broke off is not what was bought: the same call asks the seller for all of it
// instead of being given the part.
func TestContentThatBrokeOffIsNotReplayed(t *testing.T) {
	b := newBench(t, "10000", nil)
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		a := served(nonce)
		a.Content, a.Truncated = a.Content[:2], true
		return a, &seller.SendError{Sent: true, Err: errors.New("cut")}
	}
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status)
	require.Empty(t, r.ContentURI, "there is no place for what is not kept")
	require.Equal(t, history.Settled, b.only(t).State)

	b.seller.script = func(_ *scriptedSeller, nonce string, _ uint64) (*seller.Answer, error) {
		return served(nonce), nil
	}
	r = b.mustPay(t, testURL)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "sunny", r.Content)
	require.Equal(t, 1, b.chain.signed)
}
