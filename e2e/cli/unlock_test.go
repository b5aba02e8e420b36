//go:build unix

package cli

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// The real program over stdio, its wallet locked: the client opens a page for its person, and what
// is typed there unlocks the wallet and is in no message.
func TestUnlockedOnAPageOverStdio(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"2025-11-25", "2026-07-28"} {
		w, env := household(t, sandbox.Options{}, sandbox.Rules{})
		cmd := command(t, append(env, "LOG_LEVEL=debug"), "mcp")
		var log, wire strings.Builder
		cmd.Stderr = &log
		asked := 0
		pages := &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: pages},
			ElicitationHandler: func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked++
				post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Params.URL,
					strings.NewReader(url.Values{"passphrase": {testPassphrase}}.Encode()))
				if err != nil {
					return nil, err
				}
				post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				post.Header.Set("Origin", "http://"+post.Host)
				answer, err := http.DefaultClient.Do(post)
				if err != nil {
					return nil, err
				}
				return &mcp.ElicitResult{Action: "accept"}, answer.Body.Close()
			},
		})
		session := must.Get(client.Connect(t.Context(),
			&mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: cmd}, Writer: &wire},
			&mcp.ClientSessionOptions{ProtocolVersion: era}))(t)
		pay := func() map[string]any {
			out := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
				Arguments: map[string]any{"url": w.SellerURL + "/weather"}}))(t)
			return out.StructuredContent.(map[string]any)
		}
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, "paid", pay()["status"], era)
		require.Equal(t, 1, asked, era)
		require.NoError(t, session.Close())
		require.NotContains(t, log.String()+wire.String(), testPassphrase)
		require.Len(t, w.Settlements(), 2)
	}
}

func TestLockReachesEveryProcess(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	a := serve(t, append(env, passphraseFile(t))...)
	setup := func() string { return a.call("x402_setup_agent", `{}`) }
	require.Contains(t, setup(), `"locked":true`)
	require.Contains(t, a.call("x402_pay", `{"url":"`+w.SellerURL+`/weather"}`), `"status":"paid"`)
	require.Contains(t, setup(), `"locked":false`)
	sit(t, nil, env, "lock").ends(0)
	require.Contains(t, setup(), `"locked":true`)
}
