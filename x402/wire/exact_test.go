package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

type outer struct {
	Amount string          `json:"amount"`
	One    *inner          `json:"one,omitempty"`
	Raw    json.RawMessage `json:"raw"`
}

type inner struct {
	PayTo string `json:"payTo"`
}

func TestDecodeExactRefusesUnknownMembers(t *testing.T) {
	var v outer
	require.NoError(t, DecodeExact([]byte(`{"amount":"1","one":{"payTo":"x"}}`), x402.MaxBody, &v))
	require.Equal(t, "1x", v.Amount+v.One.PayTo)
	for text, says := range map[string]string{
		`{"amount":"1","other":2}`:        `unknown field "other"`,
		`{"Amount":"1"}`:                  `unknown field "Amount"`,
		`{"one":{"payto":"x"}}`:           `unknown field "payto"`,
		`{"amount":"1","amount":"2"}`:     "duplicate key",
		`{"raw":{"a":1,"A":2}}`:           "duplicate key",
		`{"amount":1}`:                    "another shape",
		`{"amount":"1"} {}`:               "something follows",
		`{"amount":"1234567890123456789"`: "more than 30 bytes",
	} {
		require.ErrorContains(t, DecodeExact([]byte(text), 30, &outer{}), says, text)
	}
}
