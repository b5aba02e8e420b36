//go:build chromium

package pages

import (
	"bufio"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// authenticator gives the browser one of its own, whose person is always there and verified.
func (b *browser) authenticator() {
	b.t.Helper()
	b.do("WebAuthn.enable", nil, nil)
	b.do("WebAuthn.addVirtualAuthenticator", map[string]any{"options": map[string]any{"protocol": "ctap2",
		"transport": "internal", "hasResidentKey": true, "hasUserVerification": true, "isUserVerified": true,
		"automaticPresenceSimulation": true}}, nil)
}

type adding struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	said  strings.Builder
}

func add(t *testing.T, home testworld.Home, bin, name string) *adding {
	t.Helper()
	a := &adding{t: t, cmd: home.Command(t.Context(), bin, "passkeys", "add", name, "--page")}
	stderr := must.Get(a.cmd.StderrPipe())(t)
	a.lines = bufio.NewScanner(stderr)
	require.NoError(t, a.cmd.Start())
	return a
}

func (a *adding) link() string {
	a.t.Helper()
	for a.lines.Scan() {
		a.said.WriteString(a.lines.Text() + "\n")
		if link := regexp.MustCompile(`^\s+(http://\S+)$`).FindStringSubmatch(a.lines.Text()); link != nil {
			return link[1]
		}
	}
	a.t.Fatalf("no link: %s", &a.said)
	return ""
}

func (a *adding) ends() {
	a.t.Helper()
	for a.lines.Scan() {
		a.said.WriteString(a.lines.Text() + "\n")
	}
	require.NoError(a.t, a.cmd.Wait(), "%s", &a.said)
}

// A passkey is made behind a link and sealed by the passphrase; with it the owner signs in to the service's
// pages and approves what an agent waits for, and the very same call pays.
func TestPasskeys(t *testing.T) {
	bin := testworld.Build(t)
	world := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { _ = world.Close() })
	home := testworld.NewHome(t, world.Config(sandbox.Rules{ApproveAbove: "0.10"}))
	world.Fund(home.EVM, 10*sandbox.USDC)
	service := testworld.StartService(t, bin, home.Env("LOG_LEVEL=error"), "--http", "127.0.0.1:0")
	at := must.Get(url.Parse(service.URL))(t)
	host := "localhost:" + at.Port()
	b := open(t)
	b.authenticator()

	typed := open(t)
	typed.visit("http://127.0.0.1:" + at.Port() + "/")
	var here string
	typed.eval("location.host", &here)
	require.Equal(t, host, here, "the address leads to the name that passkeys are for")
	b.visit("http://" + host + "/")
	require.Contains(t, b.text(), "Sign in with a passkey")
	b.shoot("signin")

	terminal := add(t, home, bin, "phone")
	link := terminal.link()
	require.True(t, strings.HasPrefix(link, "http://"+host+"/passkeys/add/"), link)
	b.visit(link)
	require.Contains(t, b.text(), "Add the passkey phone")
	b.shoot("passkey-add")
	b.tabTo("Make the passkey")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "Go back to the terminal")
	b.glance("passkey-made")
	typed.visit(terminal.link())
	require.Contains(t, typed.text(), "loosens passkeys: none → [phone id")
	typed.eval(`document.querySelector("[name=passphrase]").focus()`, nil)
	typed.write(testworld.Passphrase)
	typed.leads(func() { typed.press("Enter") })
	terminal.ends()

	agent := exec.CommandContext(t.Context(), bin, "mcp")
	agent.Env = home.Env("X402_WALLET_SERVICE=" + service.Socket)
	agent.Stderr = os.Stderr
	session := must.Get(mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: agent}, nil))(t)
	t.Cleanup(func() { _ = session.Close() })
	buy := func() string {
		answer := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
			Arguments: map[string]any{"url": world.SellerURL + "/report"}}))(t)
		return answer.Content[0].(*mcp.TextContent).Text
	}
	asked := buy()
	require.Contains(t, asked, "APPROVAL_REQUIRED")
	id := regexp.MustCompile(`apr_[0-9a-f]{32}`).FindString(asked)

	b.visit("http://" + host + "/approvals/" + id)
	require.Contains(t, b.text(), "Approve this payment?")
	require.NotContains(t, b.text(), "History", "who has the link sees this alone")
	b.shoot("approval-passkey")
	b.tabTo("with a passkey")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "You approved this payment")
	require.Contains(t, buy(), `"paid"`)
	require.Len(t, world.Settlements(), 1)
	verified := must.Get(home.Command(t.Context(), bin, "history", "verify", "--seals").Output())(t)
	require.Contains(t, string(verified), `"seals": true`)

	b.visit("http://" + host + "/")
	b.tabTo("Sign in with a passkey")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "Overview")
	require.Contains(t, b.text(), "Latest payments")
	b.glance("signed-in")
	out, err := home.Command(t.Context(), bin, "passkeys", "remove", "phone").CombinedOutput()
	require.NoError(t, err, "%s", out)
	b.leads(func() { b.do("Page.reload", nil, nil) })
	require.Contains(t, b.text(), "Sign in with a passkey", "who was removed is signed out")
	b.tabTo("Sign in with a passkey")
	b.leads(func() { b.press("Enter") })
	require.Contains(t, b.text(), "was not taken")
	b.quiet(host)
}
