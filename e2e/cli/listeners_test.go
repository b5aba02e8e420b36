//go:build unix

package cli

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// serves starts a command, and gives what it says where it listens, by an expression of it.
func serves(t *testing.T, env []string, expression string, args ...string) string {
	t.Helper()
	cmd := command(t, env, args...)
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
		_ = write.Close()
	}()
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); <-ended })
	var said strings.Builder
	for lines := bufio.NewScanner(read); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if found := regexp.MustCompile(expression).FindStringSubmatch(lines.Text()); found != nil {
			late.Stop()
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return found[1]
		}
	}
	require.Fail(t, "it does not serve", "%s", &said)
	return ""
}

// Every listener of ours answers neither to a name that leads to it nor to a page of another origin.
func TestListeners_RefuseForeignNamesAndPages(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	env = append(env, passphraseFile(t), "LOG_LEVEL=info")
	shop := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(shop, fmt.Appendf(nil, "command = [\"mcp-counter\"]\n"+
		"listen = \"127.0.0.1:0\"\norigin = \"https://shop.example\"\nnetwork = \"base-sepolia\"\n"+
		"pay_to = %q\ndiscovery_list = true\n"+
		"[tools.count]\nprice = \"0.001\"\ndiscoverable = true\n", w.PayToEVM), 0o600))
	own := newAuthority(t)
	own.make("server", &x509.Certificate{DNSNames: []string{"wallet.example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	sockets := must.Get(os.MkdirTemp("", "listeners-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	serve := func(name, expression string, flags ...string) string {
		return serves(t, env, expression, append([]string{"serve", "--socket", filepath.Join(sockets, name)},
			flags...)...)
	}
	const mcp, metrics = `and at (\S+)/mcp`, `metrics are at (\S+)`
	door := serve("1", mcp, "--http", "127.0.0.1:0")
	tls := serve("2", mcp, "--http", "127.0.0.1:0", "--tls-certificate", own.file("server.pem"), "--tls-key",
		own.file("server.key"))
	paywall := serves(t, env, `url=(http\S+)/mcp`, "paywall", "--config", shop)
	world := serves(t, env, `(.*)`, "sandbox", "--json")
	said := must.JSON[struct {
		Seller, Facilitator, Control string
		Nodes                        map[string]string
	}]([]byte(world))(t)

	rows := map[string]string{
		"service, MCP":            door + "/mcp",
		"service, OAuth":          door + "/.well-known/oauth-protected-resource",
		"service, pages":          door + "/",
		"service, passkey page":   door + "/passkeys/add/x",
		"service, approval page":  door + "/approvals/apr_1",
		"service over TLS":        tls + "/mcp",
		"service over TLS, OAuth": tls + "/.well-known/oauth-protected-resource",
		"metrics of a service":    serve("3", metrics, "--metrics", "127.0.0.1:0"),
		"metrics of a dashboard": serves(t, env, `"metrics": "(\S+)"`, "dashboard", "--metrics",
			"127.0.0.1:0"),
		"metrics of a paywall": serves(t, env, `metrics are served\S* at=(\S+)`, "paywall", "--config", shop,
			"--metrics", "127.0.0.1:0"),
		"dashboard":            serves(t, env, `"url": "(\S+)"`, "dashboard"),
		"question":             serves(t, env, `(http://127\S+)`, "session", "new", "--page"),
		"paywall":              paywall + "/mcp",
		"paywall, discovery":   paywall + "/discovery/resources",
		"sandbox, seller":      said.Seller + "/weather",
		"sandbox, facilitator": said.Facilitator + "/supported",
		"sandbox, control":     said.Control + "/payments",
	}
	for network, node := range said.Nodes {
		rows["sandbox, "+network] = node
	}
	client := own.client("")
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	asks := func(method, at string, change func(*http.Request)) int {
		r := must.Get(http.NewRequestWithContext(t.Context(), method, at, strings.NewReader("{}")))(t)
		r.Header.Set("Content-Type", "application/json")
		change(r)
		answer := must.Get(client.Do(r))(t)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	named := func(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }
	from := func(origin string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Origin", origin) }
	}
	refused := []int{http.StatusForbidden, http.StatusMisdirectedRequest}
	for name, at := range rows {
		t.Run(name, func(t *testing.T) {
			port := must.Get(url.Parse(at))(t).Port()
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				for _, host := range []string{"evil.example", "evil.example:" + port,
					"127.0.0.1.evil.example:" + port, "localhost.evil.example", "[::1].evil.example"} {
					require.Contains(t, refused, asks(method, at, named(host)), "%s %q", method, host)
				}
				for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:1",
					"http://evil.example:" + port} {
					require.Equal(t, 403, asks(method, at, from(origin)), "%s from %s", method, origin)
				}
			}
			require.NotContains(t, refused, asks(http.MethodGet, at, func(*http.Request) {}))
		})
	}
	for at, host := range map[string]string{tls + "/mcp": "wallet.example", door + "/mcp": "localhost",
		paywall + "/discovery/resources": "shop.example"} {
		require.NotContains(t, refused, asks(http.MethodGet, at, named(host)), host)
	}
}
