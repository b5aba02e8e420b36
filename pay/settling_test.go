package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// facilitators are real HTTP servers, "a" and then "b", that answer with a status and a text; asked by the
// real client, which does not pause.
func facilitators(t *testing.T, answers ...string) *facilitator.Client {
	var list []facilitator.Facilitator
	for n, answer := range answers {
		status, text, _ := strings.Cut(answer, " ")
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			var code int
			_, _ = fmt.Sscan(status, &code)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(text))
		}))
		t.Cleanup(server.Close)
		list = append(list, facilitator.Facilitator{Name: string(rune('a' + n)), URL: server.URL,
			Networks: []string{testNetwork}})
	}
	return facilitator.New(facilitator.Options{List: list,
		Sleep: func(context.Context, time.Duration) error { return nil }})
}

// Who was asked to settle, and with which HTTP status it answered, stands in the error's details, in the
// evidence of the payment, and in the audit chain.
func TestWhatFacilitatorsAnsweredIsKept(t *testing.T) {
	const (
		open     = `503 oops`
		refused  = `400 {"success":false,"errorReason":"insufficient_funds","transaction":"","network":"base-sepolia"}`
		pending  = `402 {"success":false,"errorReason":"settlement_pending","transaction":"","network":"base-sepolia"}`
		settles  = `200 {"success":true,"transaction":"0xsettled","network":"base-sepolia"}`
		notFound = `404 nothing here`
	)
	for name, test := range map[string]struct {
		answers []string
		code    x402.Code
		who     string
		status  int
		tries   int
	}{
		"refused":                {[]string{refused}, x402.SettlementFailed, "a", 400, 1},
		"not found":              {[]string{notFound, settles}, x402.SettlementFailed, "a", 404, 1},
		"open":                   {[]string{open}, x402.OutcomeUnknown, "a", 503, 3},
		"open, then refused":     {[]string{open, refused}, x402.OutcomeUnknown, "a", 503, 4},
		"pending":                {[]string{pending, settles}, x402.OutcomeUnknown, "a", 402, 1},
		"settled":                {[]string{settles}, "", "a", 200, 1},
		"open, then settled":     {[]string{open, settles}, "", "b", 200, 4},
		"nobody for its network": {nil, x402.FacilitatorError, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSettlingBench(t, "0xsettled")
			b.Settler = facilitators(t, test.answers...)
			if test.code == "" {
				require.Equal(t, test.who, b.mustBuy(t, testURL).Facilitator)
			} else {
				details := b.mustRefuse(t, test.code, testURL).Details
				if test.tries > 0 {
					require.Equal(t, test.who, details["facilitator"])
					require.Equal(t, test.status, details["facilitatorStatus"])
					require.Len(t, details["tries"], test.tries)
				}
			}
			var kept history.Settling
			for _, event := range must.Get(report.Events(t.Context(), b.store, b.only(t).ID))(t) {
				var detail struct {
					Facilitator       string
					FacilitatorStatus int
					Tries             []string
				}
				require.NoError(t, json.Unmarshal(event.Detail, &detail))
				if detail.Tries != nil {
					kept = history.Settling{Facilitator: detail.Facilitator, Status: detail.FacilitatorStatus,
						Tries: detail.Tries}
				}
			}
			require.Equal(t, test.status, kept.Status)
			require.Len(t, kept.Tries, test.tries)
			require.Equal(t, test.who, kept.Facilitator)
			require.Equal(t, test.who, b.only(t).Facilitator)
		})
	}
}

// On Solana the answer says why nobody else settles, and until when.
func TestAnOpenOutcomeOnSolanaSaysWhyNobodyElseIsAsked(t *testing.T) {
	open := facilitator.Result{Outcome: facilitator.Unknown, Facilitator: "a"}
	require.Contains(t, judgeSettling(open, "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1").note,
		"another gets a new one only when the chain has proven that this one expired")
	require.NotContains(t, judgeSettling(open, testNetwork).note, "another")
	open.Outcome = facilitator.Refused
	require.NotContains(t, judgeSettling(open, "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1").note, "another")
}
