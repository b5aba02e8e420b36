//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/oauth/oauthtest"
	"x402-wallet/internal/sandbox"
)

// office is a service whose agents are let in by an authorization server's tokens (ann, bob), or by a token
// of its own (carl), behind a proxy that is where its owner's rules say that it is.
type office struct {
	*service
	w      *world
	env    []string
	login  *oauthtest.Server
	origin string // the proxy's
	carl   string // his token
}

func newOffice(t *testing.T, limits string) *office {
	t.Helper()
	o := &office{login: oauthtest.New(t, "/tenant"), carl: "x402w_" + strings.Repeat("c", 43)}
	behind := make(chan *url.URL, 1)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := <-behind
		behind <- to
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// read before it is passed on, as proxies do: an answer may come before it was sent
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(rw, r)
	}))
	t.Cleanup(proxy.Close)
	o.origin = proxy.URL
	o.login.Change(func() { o.login.Resource = o.origin + "/mcp" })
	o.w, o.env = householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + fmt.Sprintf("\n[service]\nurl = %q\nissuer = %q\n"+
			"[agents.ann]\nsubject = \"client-of-ann\"\n%s\n[agents.bob]\nsubject = \"client-of-bob\"\n"+
			"[agents.carl]\ntoken = %q\n", o.origin, o.login.Issuer, limits, callers.TokenHash(o.carl))
	})
	o.env = append(o.env, passphraseFile(t))
	o.service = startService(t, o.env, "--http", "127.0.0.1:0")
	to := must.Get(url.Parse(o.service.URL))(t)
	behind <- &url.URL{Scheme: to.Scheme, Host: to.Host}
	o.service.URL = o.origin + "/mcp"
	return o
}

// token is one of the authorization server's, with other claims than usual.
func (o *office) token(subject string, claims map[string]any) string {
	all := o.login.Claims(subject, o.origin+"/mcp")
	for name, value := range claims {
		all[name] = value
	}
	return o.login.Keys[0].Sign(o.t, all, nil)
}

// A client that knows the URL alone, and its credentials at the authorization server, finds the way in by
// itself, and pays within the limits of the agent that it is.
func TestAnAgentByOAuth(t *testing.T) {
	t.Parallel()
	o := newOffice(t, `day = "0.001"`)
	o.login.Change(func() { o.login.Clients["client-of-ann"] = "secret" })
	credentials := must.Get(extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
		Credentials: &oauthex.ClientCredentials{ClientID: "client-of-ann",
			ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "secret"}}}))(t)
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(
		t.Context(), &mcp.StreamableClientTransport{Endpoint: o.URL, OAuthHandler: credentials}, nil))(t)
	defer client.Close()
	pay := func(query string) string {
		out := must.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
			Arguments: json.RawMessage(weather(o.w, query))}))(t)
		return string(must.Get(json.Marshal(out))(t))
	}
	require.Contains(t, pay("one"), `"status":"paid"`)
	require.Contains(t, pay("two"), "BUDGET_EXCEEDED")
	require.Len(t, o.w.Settlements(), 1)
	require.Contains(t, o.login.Paths(), "/token")

	out, _ := runs(t, 0, o.env, "history", "--agent", "ann")
	require.Contains(t, out, `"count": 1`)
	out, _ = runs(t, 0, o.env, "agents", "list")
	require.Contains(t, out, `"subject": "client-of-ann"`)
}

// Whatever is wrong with a token, the answer is the same; what is right is looked at to the letter.
func TestAccessTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	status, header, said := o.send(o.post("", "", ping))
	require.Equal(t, http.StatusUnauthorized, status)
	where := o.origin + "/.well-known/oauth-protected-resource/mcp"
	require.Equal(t, fmt.Sprintf("Bearer resource_metadata=%q", where), header.Get("Www-Authenticate"))
	require.Equal(t, "no bearer token\n", said)
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, where, nil))(t)
	_, _, said = o.send(r)
	require.JSONEq(t, fmt.Sprintf(`{"resource":%q,"resource_name":"x402-wallet",`+
		`"authorization_servers":[%q],"bearer_methods_supported":["header"]}`, o.URL, o.login.Issuer), said)

	s, now := o.service, time.Now().Unix()
	good := o.token("client-of-ann", nil)
	require.NotEmpty(t, s.open(good))
	stranger, unknown := oauthtest.NewKey(t, "first", "ES256"), oauthtest.NewKey(t, "x", "ES256")
	for name, token := range map[string]string{
		"nobody's subject":   o.token("client-of-eve", nil),
		"in capitals":        o.token("Client-of-ann", nil),
		"with a space":       o.token("client-of-ann ", nil),
		"of another script":  o.token("client-of-\u0430nn", nil),
		"an agent's name":    o.token("ann", nil),
		"another audience":   o.token("client-of-ann", map[string]any{"aud": o.origin}),
		"another issuer":     o.token("client-of-ann", map[string]any{"iss": o.login.Issuer + "/"}),
		"expired":            o.token("client-of-ann", map[string]any{"exp": now - 1}),
		"a wrong signature":  good[:len(good)-10] + strings.Repeat("A", 10),
		"a stranger's":       stranger.Sign(t, o.login.Claims("client-of-ann", o.URL), nil),
		"a key from nowhere": unknown.Sign(t, o.login.Claims("client-of-ann", o.URL), nil),
		"garbage":            "a.b.c",
		"a token of ours":    o.carl + "c",
	} {
		status, header, said := o.send(o.post(token, "", ping))
		require.Equal(t, http.StatusUnauthorized, status, name)
		require.Equal(t, fmt.Sprintf("Bearer error=\"invalid_token\", resource_metadata=%q", where),
			header.Get("Www-Authenticate"), name)
		require.Equal(t, "invalid token\n", said, name)
	}
	r = o.post("", "", ping)
	r.URL.RawQuery = "access_token=" + good
	status, _, _ = o.send(r)
	require.Equal(t, http.StatusUnauthorized, status, "a token in the address is not read")

	// on the socket, where a session may be longer than a token, it is nobody's
	_, said = runs(t, 3, append(s.env(), "X402_WALLET_TOKEN="+good), "mcp")
	require.Contains(t, said, "POLICY_DENIED")

	runs(t, 0, o.env, "agents", "revoke", "ann")
	status, _, _ = o.send(o.post(good, "", ping))
	require.Equal(t, http.StatusUnauthorized, status, "who was revoked is not let in while the token is good")
}

// A session is that of the agent that opened it, whatever token that is: no other's good token uses it, ends
// it, or has what it was told.
func TestASessionIsItsAgents(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "")
	ann, bob := o.token("client-of-ann", nil), o.token("client-of-bob", nil)
	for _, c := range []struct{ owner, other string }{{ann, bob}, {ann, o.carl}, {o.carl, bob}} {
		session := o.open(c.owner)
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			body := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
			if method != http.MethodPost {
				body = ""
			}
			r := o.post(c.other, session, body)
			r.Method = method
			r.Header.Set("Last-Event-Id", "_0")
			status, _, _ := o.send(r)
			require.Equal(t, http.StatusForbidden, status, method)
		}
		status, _, _ := o.send(o.post(c.owner, session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`))
		require.Equal(t, http.StatusOK, status, "it is still there")
	}
	session := o.open(ann)
	_, _, body := o.send(o.post(ann, session, payOf(o.w, "first")))
	require.Contains(t, body, `"status":"paid"`)
	_, _, body = o.send(o.post(o.token("client-of-ann", nil), session, payOf(o.w, "renewed")))
	require.Contains(t, body, `"status":"paid"`, "a session goes on with the agent's next token")
}

// A proxy that has TLS, on the same machine, passes on the name by which clients know the service.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	token := "x402w_" + strings.Repeat("a", 43)
	_, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + fmt.Sprintf("\n[service]\nurl = \"https://wallet.example\"\n"+
			"[agents.ann]\ntoken = %q\n", callers.TokenHash(token))
	})
	s := startService(t, env, "--http", "127.0.0.1:0")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for host, want := range map[string]int{"wallet.example": http.StatusOK,
		"evil.example":                http.StatusMisdirectedRequest,
		"wallet.example.evil.example": http.StatusMisdirectedRequest} {
		r := s.post(token, s.open(token), ping)
		r.Host = host
		status, _, said := s.send(r)
		require.Equal(t, want, status, "%s: %s", host, said)
	}
	_, header, _ := s.send(s.post("", "", ping))
	require.Contains(t, header.Get("Www-Authenticate"), `"https://wallet.example/.well-known/`)
}
