//go:build unix

package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("ca", &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) make(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by))(a.t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(a.t)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600))
	}
	made := must.Get(x509.ParseCertificate(der))(a.t)
	return made, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// client is an agent's, with a certificate of this name; "": it shows none.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	config := &tls.Config{RootCAs: roots}
	if name != "" {
		pair := must.Get(tls.LoadX509KeyPair(a.file(name+".pem"), a.file(name+".key")))(a.t)
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Over TLS an agent is let in by the subject of its certificate, too: of an authority that the owner named,
// and where the owner's rules know it.
func TestAgentsByCertificate(t *testing.T) {
	t.Parallel()
	own, other := newAuthority(t), newAuthority(t)
	own.make("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	agent := func(by *authority, name string) {
		subject := pkix.Name{CommonName: name, Organization: []string{"Example"}}
		by.make(name, &x509.Certificate{Subject: subject,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	agent(own, "carol")
	agent(own, "dave")
	agent(other, "carol")
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{}) + "\n[agents.carol]\ncertificate = \"CN=carol,O=Example\"\n"
	})
	s := startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0", "--tls-certificate",
		own.file("server.pem"), "--tls-key", own.file("server.key"), "--client-ca", own.file("ca.pem"))
	asks := func(client *http.Client) (status int, protocol, body string, err error) {
		r := s.post("", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x402_pay",`+
			`"arguments":`+weather(w, "certificate")+`,"_meta":{"io.modelcontextprotocol/protocolVersion":`+
			`"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		for name, value := range map[string]string{"Mcp-Protocol-Version": "2026-07-28",
			"Mcp-Method": "tools/call", "Mcp-Name": "x402_pay"} {
			r.Header.Set(name, value)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, "", "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return answer.StatusCode, answer.Proto, string(text), err
	}
	_, protocol, body, err := asks(own.client("carol"))
	require.NoError(t, err)
	require.Contains(t, body, `"status":"paid"`)
	require.Equal(t, "HTTP/2.0", protocol)
	for _, stranger := range []*http.Client{own.client(""), own.client("dave")} {
		status, _, _, err := asks(stranger)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	pair := must.Get(tls.LoadX509KeyPair(other.file("carol.pem"), other.file("carol.key")))(t)
	forged := own.client("")
	forged.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(
		*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &pair, nil // whoever the server says it believes
	}
	_, _, _, err = asks(forged)
	require.Error(t, err)
	require.Len(t, w.Settlements(), 1)

	out, _ := runs(t, 0, env, "history", "--agent", "carol")
	require.Contains(t, out, `"count": 1`)
	_, said := runs(t, 2, env, "serve", "--client-ca", own.file("ca.pem"))
	require.Contains(t, said, "--client-ca needs")
}

// mcpCounter is a free MCP server on stdio that counts its calls.
func mcpCounter() {
	var calls atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "count", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{
				Text: fmt.Sprint("call ", calls.Add(1))}}}, nil
		})
	_ = server.Run(context.Background(), &mcp.StdioTransport{})
}

// What an MCP server knows of its session is one agent's, of whichever sessions it has with the service: by
// the tool that calls other servers' tools, and by a mounted tool.
func TestAgentsAtOneMCPServer(t *testing.T) {
	t.Parallel()
	_, s, alice, bob := named(t, "\n[servers.counter]\ncommand = [\"mcp-counter\"]\nmount = true\n")
	said := regexp.MustCompile(`call \d+`)
	count := func(token, session, name, arguments string) string {
		_, _, body := s.send(s.post(token, session, callOf(name, arguments)))
		return said.FindString(body)
	}
	first, second, ofBob := s.open(alice), s.open(alice), s.open(bob)
	require.Eventually(t, func() bool { // a server that is slow to start is mounted later
		_, _, body := s.send(s.post(bob, ofBob, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		return strings.Contains(body, "counter__count")
	}, time.Minute, 10*time.Millisecond)
	for _, c := range []struct{ token, session, says string }{{alice, first, "call 1"},
		{bob, ofBob, "call 1"}, {alice, second, "call 3"}, {bob, ofBob, "call 3"}} {
		require.Equal(t, c.says, count(c.token, c.session, "counter__count", "{}"))
		next := strings.NewReplacer("1", "2", "3", "4").Replace(c.says)
		require.Equal(t, next, count(c.token, c.session, "x402_call_tool",
			`{"server":"counter","tool":"count","arguments":{}}`))
	}
}

// What agents do at a service can be watched at a socket of its own, by the service's user and its group, and
// not where agents come in.
func TestMetricsOfAService(t *testing.T) {
	t.Parallel()
	token := "x402w_" + strings.Repeat("a", 43)
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return w.rules(sandbox.Rules{ApproveAbove: "0.01"}) + "\n[agents.alice]\ntoken = \"" +
			callers.TokenHash(token) + "\"\nday = \"3\"\n"
	})
	dir := must.Get(os.MkdirTemp("", "metrics-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := filepath.Join(dir, "m")
	s := startService(t, append(env, passphraseFile(t)), "--http", "127.0.0.1:0", "--metrics", at)
	require.Equal(t, os.FileMode(0o660), must.Get(os.Lstat(at))(t).Mode().Perm())

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
		"[tools.tool]\nprice = \"0.001\"\n", w.PayToEVM), 0o600))
	for _, command := range [][]string{{"serve", "--socket", at + "2"}, {"dashboard"},
		{"paywall", "--config", shop}} {
		said, problem := runs(t, 2, env, append(command, "--metrics", "0.0.0.0:0")...)
		require.Contains(t, said+problem, "other machines", command)
	}
}

func (s *service) get(path, token string) *http.Request {
	at := strings.TrimSuffix(s.URL, "/mcp") + path
	r := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, at, nil))(s.t)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
