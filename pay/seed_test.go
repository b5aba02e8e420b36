package pay

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// The defects of the seed's payer that no other test names; docs/proof.md lists all of them with
// their tests.

// Seed defect 25: where the seller settles, the wallet does not: its settling would be a first one,
// and the seller's a second.
func TestTheSellerSettles(t *testing.T) {
	b := newBench(t, "10000", honest)
	_, err := b.Pay(t.Context(), get(testURL))
	require.NoError(t, err)
	require.Empty(t, b.settler.seen)
	require.Equal(t, 1, b.chain.settlements())
}

// Seed defect 23: a seller that takes the payment and asks again has served nothing. It stays held
// until the chain is asked, and asking again never signs again.
func TestA402AfterPayingIsNoSuccess(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		return s.asks(), nil
	})
	_, err := b.Pay(t.Context(), get(testURL))
	require.Equal(t, "10000", code(t, x402.PaymentRejected, err).Spent)
	r, err := b.Pay(t.Context(), get(testURL))
	require.NoError(t, err)
	require.Equal(t, StatusUnserved, r.Status, "the chain says that it was paid")
	require.Equal(t, 402, r.HTTPStatus)
	require.Equal(t, history.Settled, b.only(t).State)
	require.Equal(t, 1, b.chain.signed)
}

// Seed defect 13: a receipt without a transaction is a receipt, and what was bought is not thrown
// away.
func TestAReceiptWithoutATransaction(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		a := served(nonce)
		a.Settlement.Transaction = ""
		return a, nil
	})
	r, err := b.Pay(t.Context(), get(testURL))
	require.NoError(t, err)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "sunny", r.Content)
	_, err = b.Reconcile(t.Context())
	require.NoError(t, err)
	p := b.only(t)
	require.Equal(t, history.Chain, p.Proof)
	require.NotEmpty(t, p.Transaction, "the chain knows it")
}

// offers is a seller whose challenge begins with options that this wallet cannot pay.
type offers struct{ *scriptedSeller }

func (o offers) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	option := func(scheme, network, amount string) string {
		return fmt.Sprintf(
			`{"scheme":%q,"network":%q,"amount":%q,"asset":%q,"payTo":%q,"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`,
			scheme, network, amount, testUSDC, testPayee)
	}
	text := fmt.Sprintf(`{"x402Version":2,"resource":{"url":%q},"accepts":[%s,%s,%s,%s]}`, testURL,
		option("exact", "eip155:8453", "10000"), option("upto", testNetwork, "1"),
		option("exact", testNetwork, "0x10"), option("exact", testNetwork, "10000"))
	a := &seller.Answer{Status: 402,
		Header: http.Header{"Payment-Required": {base64.StdEncoding.EncodeToString([]byte(text))}}}
	a.Challenge, a.ChallengeErr = x402.ReadChallenge(402, a.Header, nil)
	return a, nil
}

// Seed defects 15 and 22: not the first option is tried but all of them, and only an exact one with
// a plain amount is paid.
func TestTheOptionThatCanBePaidIsPaid(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = offers{b.seller}
	r, err := b.Pay(t.Context(), get(testURL))
	require.NoError(t, err)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "10000", r.AmountPaid.String())
	require.Equal(t, testNetwork, r.Network)
	require.Equal(t, uint64(990_000), b.chain.balance)
}
