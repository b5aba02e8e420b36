package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A seller that asks in X-PAYMENT-REQUIRED with a whole challenge and settles itself, at the reference
// facilitator and on a real chain: it gets the payment, and settles once. The wallet brings nothing anywhere.
func TestASellerWithXPaymentRequiredSettlesAtTheReferenceFacilitator(t *testing.T) {
	lab := Start(t)
	const goods = `{"ok":true,"own":"header"}`
	offer := map[string]any{"scheme": "exact", "network": lab.EVM.Network, "amount": "1000",
		"asset": lab.EVM.Asset, "payTo": lab.EVM.PayTo, "maxTimeoutSeconds": 60,
		"extra": map[string]any{"name": "USDC", "version": "2"}}
	for _, c := range []struct {
		version int
		header  string
	}{{2, "PAYMENT-SIGNATURE"}, {1, "X-PAYMENT"}} {
		t.Run(fmt.Sprint(c.version), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked := offer
				if c.version == 1 {
					asked = map[string]any{"scheme": "exact", "network": "base-sepolia",
						"maxAmountRequired": "1000", "asset": offer["asset"], "payTo": offer["payTo"],
						"maxTimeoutSeconds": 60, "extra": offer["extra"], "description": "", "mimeType": "",
						"resource": "http://" + r.Host + "/own"}
				}
				if payment := r.Header.Get(c.header); payment != "" {
					payload, _ := base64.StdEncoding.DecodeString(payment)
					submission, _ := json.Marshal(map[string]any{"x402Version": c.version,
						"paymentPayload": json.RawMessage(payload), "paymentRequirements": asked})
					answer, err := http.Post(lab.Facilitators[0]+"/settle", "application/json",
						bytes.NewReader(submission))
					if err == nil {
						defer answer.Body.Close()
						receipt, _ := io.ReadAll(answer.Body)
						w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString(receipt))
						if bytes.Contains(receipt, []byte(`"success":true`)) {
							_, _ = io.WriteString(w, goods)
							return
						}
					}
				}
				challenge, _ := json.Marshal(map[string]any{"x402Version": c.version,
					"resource": map[string]any{"url": "http://" + r.Host + "/own"}, "accepts": []any{asked}})
				w.Header().Set("X-PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString(challenge))
				w.WriteHeader(http.StatusPaymentRequired)
			}))
			defer server.Close()
			w, home := funded(t, lab, ConfigOptions{Loopback: []string{server.URL}})
			lab.ResetLogs()
			p := payFor(t, w, server.URL+"/own")
			require.Empty(t, p.Error, "%+v", p)
			require.Equal(t, "paid", p.Status)
			require.Equal(t, 1, settled(lab, 0))
			require.Zero(t, settled(lab, 1))
			require.Len(t, lab.EVMSpentNonces(home.EVM), 1)
			require.Equal(t, uint64(1_000_000-1000), lab.EVMBalance(home.EVM))
		})
	}
}
