//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// What agents do at a service can be watched at a socket of its own, by the service's user and its group, and
// not where agents come in.
func TestMetricsOfAService(t *testing.T) {
	t.Parallel()
	token := "x402w_" + strings.Repeat("a", 43)
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{ApproveAbove: "0.01"}) + "\n[agents.alice]\ntoken = \"" +
			callers.TokenHash(token) + "\"\nday = \"3\"\n"
	})
	dir, err := os.MkdirTemp("", "metrics-") // a test's own is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := filepath.Join(dir, "m")
	s := startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0", "--metrics", at)
	info := must.Get(os.Lstat(at))(t)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())

	session := s.open(token)
	_, _, body := s.send(s.post(token, session, payOf(w, "one")))
	require.Contains(t, body, `"status":"paid"`)
	_, _, body = s.send(s.post(token, session, strings.Replace(payOf(w, "two"), "/weather", "/report", 1)))
	require.Contains(t, body, "APPROVAL_REQUIRED")

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}}}
	answer := must.Get(client.Get("http://metrics/metrics"))(t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	for _, line := range []string{`x402_wallet_payments_total{agent="alice",outcome="paid",code=""} 1`,
		`x402_wallet_payments_total{agent="alice",outcome="failed",code="APPROVAL_REQUIRED"} 1`,
		`x402_wallet_paid_dollars_total{agent="alice",network="eip155:84532"} 0.001`,
		`x402_wallet_sessions{agent="alice"} 1`, `x402_wallet_sessions{agent=""} 0`,
		`x402_wallet_payment_step_seconds_count{step="sign"} 1`,
		`x402_wallet_budget_used_dollars{window="day",agent="",host=""} 0.001`,
		`x402_wallet_budget_limit_dollars{window="day",agent="",host=""} 10`,
		`x402_wallet_budget_used_dollars{window="day",agent="alice",host=""} 0.001`,
		`x402_wallet_budget_limit_dollars{window="day",agent="alice",host=""} 3`,
		`x402_wallet_balance_dollars{network="eip155:84532",asset="USDC",source="agent"} 0.999`,
		`x402_wallet_approvals_waiting{agent="alice"} 1`, "x402_wallet_frozen 0",
		`x402_wallet_calls_working 0`} {
		require.Contains(t, string(text), line+"\n")
	}
	status, _, _ := s.send(s.get("/metrics", token))
	require.Equal(t, http.StatusNotFound, status)

	shop := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(shop, fmt.Appendf(nil, "url = \"http://127.0.0.1:1\"\n"+
		"listen = \"127.0.0.1:0\"\nnetwork = \"base-sepolia\"\npay_to = %q\n"+
		"[tools.tool]\nprice = \"0.001\"\n",
		w.PayToEVM), 0o600))
	for _, command := range [][]string{{"serve", "--socket", at + "2"}, {"dashboard"},
		{"paywall", "--config", shop}} {
		said, problem := runs(t, 2, env, append(command, "--metrics", "0.0.0.0:0")...)
		require.Contains(t, said+problem, "other machines", command)
	}
}

func (s *service) get(path, token string) *http.Request {
	at := strings.TrimSuffix(s.URL, "/mcp") + path
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, at, nil)
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
