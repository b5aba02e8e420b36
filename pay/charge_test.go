package pay

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// charging is a seller that asks in MPP, of an answer from another host where it has one.
type charging struct {
	*scriptedSeller
	parameters string // of its challenge, beside what it needs
	from       string // the URL that answers
	x402       bool   // it offers x402 as well
}

func (c charging) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	a := &seller.Answer{Status: 402, Header: http.Header{}, FinalURL: c.from}
	if c.x402 {
		a.Header = offers(testURL, anOption("exact", testNetwork, "1000")).Header
	}
	request := fmt.Sprintf(`{"amount":"1000","currency":%q,"recipient":%q,"methodDetails":{"chainId":%s}}`,
		testUSDC, testPayee, testNetwork[len("eip155:"):])
	a.Header.Set("WWW-Authenticate", fmt.Sprintf(`Payment id="a", method="evm", intent="charge", request=%q%s`,
		base64.RawURLEncoding.EncodeToString([]byte(request)), c.parameters))
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a, nil
}

func newCharging(t *testing.T, parameters string, beside bool) *bench {
	b := newBench(t, "10000", honest)
	b.Policy.Schemes = append(b.Policy.Schemes, x402.MPP)
	b.Schemes[SchemeKey{Scheme: x402.MPP, Family: "eip155"}] = b.chain
	b.Transport = charging{b.seller, parameters, testURL, beside}
	return b
}

func TestChargesThatAreNotAnswered(t *testing.T) {
	own := get(testURL)
	own.Header = http.Header{"Authorization": {"Bearer of the caller"}}
	post := get(testURL)
	post.Method, post.Body = "POST", []byte("hello")
	plain := get(testURL)
	for _, c := range []struct {
		name, parameters, says string
		call                   Request
	}{
		{"expired", `, realm="api.example", expires="2001-01-01T00:00:00Z"`, "ended at 2001", plain},
		{"another host", `, realm="bank.example"`, "is not the host that was asked", plain},
		{"a host inside", `, realm="a.api.example"`, "is not the host", plain},
		{"a host that ends alike", `, realm="i.example"`, "is not the host", plain},
		{"the caller's own header", `, realm="api.example"`, "something of its own", own},
		{"another body", `, realm="api.example", digest="sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"`,
			"another body", post},
		{"a digest of another kind", `, realm="api.example", digest="md5=:eA==:"`, "another body", plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newCharging(t, c.parameters, false)
			_, err := b.Pay(t.Context(), c.call)
			require.True(t, x402.HasCode(err, x402.InvalidRequirement), err)
			require.ErrorContains(t, err, c.says)
			list := b.rows(t)
			require.Empty(t, list, "nothing was held")
		})
	}
}

// A challenge is good for one payment, and of two that a seller offers in both languages one is answered.
func TestOneOfMPPAndX402(t *testing.T) {
	b := newCharging(t, `, realm="api.example"`, true)
	r := b.mustPay(t, testURL)
	require.Equal(t, "1000", r.AmountPaid.String())
	require.Equal(t, x402.Exact, b.only(t).Scheme)
	require.Equal(t, uint64(999_000), b.chain.balance)

	estimate := b.estimate(t, testURL)
	require.Len(t, estimate.Options, 2)
	require.Equal(t, time.Duration(300), time.Duration(estimate.Options[1].MaxTimeoutSeconds))
	require.Equal(t, x402.MPP, estimate.Options[1].Scheme)
}
