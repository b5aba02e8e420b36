package cli

import (
	"bufio"
	"bytes"
	"database/sql"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// page is a command that waits for its owner at a page, with no terminal anywhere.
type page struct {
	t           *testing.T
	cmd         *exec.Cmd
	url         string
	said, asked bytes.Buffer // stdout, and stderr up to the page's address
}

func onPage(t *testing.T, env []string, args ...string) *page {
	t.Helper()
	p := &page{t: t, cmd: command(t, env, append(args, "--page")...)}
	p.cmd.Stdout = &p.said
	stderr := must.Get(p.cmd.StderrPipe())(t)
	require.NoError(t, p.cmd.Start())
	lines := bufio.NewScanner(stderr)
	for p.url == "" {
		require.True(t, lines.Scan(), "no page: %s%s", &p.asked, &p.said)
		p.asked.WriteString(lines.Text() + "\n")
		p.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\S+`).FindString(lines.Text())
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return p
}

func (p *page) shows() string {
	p.t.Helper()
	r := must.Get(http.Get(p.url))(p.t)
	defer r.Body.Close()
	require.Equal(p.t, http.StatusOK, r.StatusCode)
	text := must.Get(io.ReadAll(r.Body))(p.t)
	return string(text)
}

func (p *page) answers(status int, form url.Values) {
	p.t.Helper()
	post := must.Get(http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url,
		strings.NewReader(form.Encode())))(p.t)
	post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	post.Header.Set("Origin", "http://"+post.Host)
	r := must.Get(http.DefaultClient.Do(post))(p.t)
	require.NoError(p.t, r.Body.Close())
	require.Equal(p.t, status, r.StatusCode)
}

func (p *page) ends(code int) string {
	p.t.Helper()
	_ = p.cmd.Wait()
	require.Equal(p.t, code, p.cmd.ProcessState.ExitCode(), "%s", &p.said)
	return p.said.String()
}

// Without a terminal the owner decides on a page, which shows what on. Nothing else that knows the
// passphrase answers there.
func TestLooseningOnAPage(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{ApproveAbove: "0.0005"})
	env = append(env, passphraseFile(t), "X402_WALLET_PASSPHRASE="+testPassphrase)
	a := serve(t, env...)
	pays := func(query string) string {
		return a.call("x402_pay", `{"url":"`+w.SellerURL+`/weather?`+query+`"}`)
	}
	id := regexp.MustCompile(`apr_\w+`).FindString(pays("1"))
	right, wrong := url.Values{"passphrase": {testPassphrase}},
		url.Values{"passphrase": {"incorrect horse battery"}}

	p := onPage(t, env, "approve", id)
	for _, line := range []string{"Approve this payment", "price: $0.001 (1000 atomic units of USDC)",
		"to: " + w.PayToEVM, "on: Base Sepolia (eip155:84532)", "for: GET " + w.SellerURL + "/weather?1"} {
		t.Run(line, func(t *testing.T) { require.Contains(t, p.shows(), line) })
	}
	p.answers(http.StatusOK, url.Values{"passphrase": {testPassphrase}, "decline": {"1"}})
	require.Contains(t, p.ends(4), "declined")
	p = onPage(t, env, "approve", id)
	for range 2 {
		p.answers(http.StatusForbidden, wrong)
	}
	require.Contains(t, pays("1"), "APPROVAL_REQUIRED")
	p.answers(http.StatusOK, right)
	require.Contains(t, p.ends(0), `"state": "approved"`)
	require.Contains(t, pays("1"), `"status":"paid"`)

	p = onPage(t, env, "session", "new")
	require.Contains(t, p.shows(), "Of the session that ends it spent $0.001")
	p.answers(http.StatusOK, right)
	p.ends(0)

	before := w.configText(t)
	p = onPage(t, env, "budget", "set", "approve_above", "0.70")
	require.Contains(t, p.shows(), "loosens budget.approve_above: $0.0005 → $0.70")
	for range 3 {
		p.answers(http.StatusForbidden, wrong)
	}
	require.Contains(t, p.ends(4), "INVALID_PASSPHRASE")
	require.Equal(t, before, w.configText(t))
	p = onPage(t, env, "budget", "set", "approve_above", "0.70")
	p.answers(http.StatusOK, right)
	p.ends(0)
	require.Contains(t, pays("2"), `"status":"paid"`)

	gold := "\n[[assets]]\nnetwork = \"solana\"\naddress = " +
		"\"So11111111111111111111111111111111111111112\"\nsymbol = \"GOLD\"\ndecimals = 6\n"
	w.setConfig(t, w.configText(t)+gold)
	p = onPage(t, env, "policy", "seal")
	require.Contains(t, p.shows(), "usd $1.00")
	require.Contains(t, p.shows(), "each GOLD counts as $1.00 against every limit")
	p.answers(http.StatusOK, right)
	p.ends(0)

	_, _ = runs(t, 0, env, "freeze")
	p = onPage(t, env, "unfreeze")
	require.Contains(t, p.shows(), "the whole wallet since ")
	require.Contains(t, pays("3"), "WALLET_FROZEN")
	p.answers(http.StatusOK, right)
	p.ends(0)
	require.Contains(t, pays("3"), `"status":"paid"`)
	require.Len(t, w.Settlements(), 3)
	out, _ := runs(t, 0, env, "history", "verify", "--seals")
	require.Contains(t, out, `"seals": true`)
}

func runs(t *testing.T, code int, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	_ = cmd.Run()
	require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s%s", &out, &problems)
	return out.String(), problems.String()
}

// scriptSQL: sql STATEMENT is somebody else's hand in the ledger.
func scriptSQL(ts *testscript.TestScript, _ bool, args []string) {
	db, err := sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(ts.Getenv("X402_WALLET_HOME"),
		"ledger.db"))+"?_pragma=busy_timeout(5000)")
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[0])
	ts.Check(err)
}
