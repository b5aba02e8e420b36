package pay

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// What a hostile seller or agent writes into any field comes back in at most 120 escaped characters at
// a time, whichever refusal it meets.
func TestLongWordsOfStrangers(t *testing.T) {
	evil := strings.Repeat("EVIL", 500)
	turned := strings.Repeat("\u202eEVIL", 100)
	for _, word := range []string{evil, turned} {
		for name, c := range map[string]func(*bench, *Request){
			"network": func(b *bench, _ *Request) { b.seller.network = "eip155:" + word },
			"asset":   func(b *bench, _ *Request) { b.seller.asset = word },
			"payee": func(b *bench, _ *Request) {
				b.seller.payee,
					b.Rules.ApproveAbove = word, 0
			},
			"flow":               func(b *bench, _ *Request) { b.seller.flow = word },
			"price":              func(b *bench, _ *Request) { b.seller.price = word },
			"the call's network": func(_ *bench, q *Request) { q.Network = word },
			"the call's asset":   func(_ *bench, q *Request) { q.Asset = word },
			"maxAmount":          func(_ *bench, q *Request) { q.MaxAmount = word },
			"a seller's refusal": func(b *bench, _ *Request) {
				b.seller.script = func(s *scriptedSeller, nonce string, _ uint64) (*seller.Answer, error) {
					a := served(nonce)
					a.Status, a.Content = 402, []byte(word)
					return a, nil
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, "10000", honest)
				q := get(testURL)
				c(b, &q)
				_, err := b.Pay(t.Context(), q)
				if err == nil {
					return // it was no reason to refuse
				}
				e := x402.AsError(err)
				details, err := json.Marshal(e.Details)
				require.NoError(t, err)
				for _, text := range []string{e.Message, e.Hint, string(details)} {
					for _, run := range regexp.MustCompile(`(EVIL|\\+u202e|\x{202e})+`).FindAllString(text, -1) {
						require.LessOrEqual(
							t,
							len(run),
							240,
							text,
						) // JSON writes each escape's backslash twice
					}
					require.NotContains(t, e.Message+e.Hint, "\u202e")
					require.LessOrEqual(t, strings.Count(text, "EVIL"), 3*30, "of three places at most")
				}
			})
		}
	}
}
