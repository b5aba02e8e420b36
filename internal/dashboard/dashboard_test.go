package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/locks"
	"x402-wallet/history/report"
	"x402-wallet/history/subscriptions"
	"x402-wallet/internal/books"
	"x402-wallet/internal/loopback"
	"x402-wallet/internal/must"
	"x402-wallet/pay"
	"x402-wallet/scheme/batch"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// board is a dashboard that is served, and a browser that opened it.
type board struct {
	*testing.T
	*Server
	base    string
	store   *history.Store
	home    string
	browser *http.Client
	typed   []string // passphrases that reached Approve
	wallet  *tools.Wallet
}

type noKeys struct{}

func (noKeys) Addresses() (solana, evm string)      { return "SoLAddress", "0xEvmAddress" }
func (noKeys) Locked() bool                         { return true }
func (noKeys) Unlock(context.Context, []byte) error { return errors.New("no keys") }

func newBoard(t *testing.T) *board { return newBoardFor(t, 0) }

// newBoardFor is a board that ends when nobody has looked for that long.
func newBoardFor(t *testing.T, idle time.Duration) *board {
	t.Helper()
	b := &board{T: t, home: t.TempDir()}
	require.NoError(t, ledgers.Create(t.Context(), b.home, history.Options{}))
	o := historytest.Options()
	o.Alerts = alerts.Writer{}
	b.store = must.Get(ledgers.Open(t.Context(), b.home, o))(t)
	t.Cleanup(func() { b.store.Close() })
	session := money.Dollars(5_000_000)
	wallet := &tools.Wallet{Store: b.store, Keys: noKeys{}, Engine: &pay.Engine{Store: b.store,
		Asker: asking.Asker{Store: b.store},
		Rules: budget.Rules{PerCall: 1_000_000, Session: &session, Day: 10_000_000, Month: 100_000_000,
			HostDay: map[string]money.Dollars{"api.example": 1_000_000}}, Assets: x402.NewRegistry(nil)},
		Deposits: &batch.Channels{Ledger: locks.New(b.store), Assets: x402.NewRegistry(nil)}}
	b.wallet = wallet
	listener := must.Get(loopback.Listen(t.Context(), "127.0.0.1:0"))(t)
	b.Server = New(listener.Addr(), Options{Idle: idle,
		Wallet: func(context.Context) (*tools.Wallet, func(), error) { return wallet, func() {}, nil },
		Approve: func(ctx context.Context, store *history.Store, shown history.Approval,
			passphrase []byte) error {
			b.typed = append(b.typed, string(passphrase))
			if string(passphrase) != "right" {
				return x402.Errorf(x402.InvalidPassphrase, "wrong passphrase")
			}
			return must.Err(store.Approve(ctx, shown.ID, "owner", nil))
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, listener) }()
	t.Cleanup(func() { stop(); <-ended })
	b.base = "http://" + b.host + b.place
	b.browser = newBrowser(t)
	return b
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar := must.Get(cookiejar.New(nil))(t)
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

type answer struct {
	status int
	body   string
	header http.Header
}

// send sends as a browser does from the page itself; change makes it something else.
func (b *board) send(method, at, body string, change func(*http.Request)) answer {
	b.Helper()
	r := must.Get(http.NewRequestWithContext(b.Context(), method, at, strings.NewReader(body)))(b)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+b.host)
	}
	if change != nil {
		change(r)
	}
	w := must.Get(b.browser.Do(r))(b)
	defer w.Body.Close()
	return answer{w.StatusCode, string(must.Get(io.ReadAll(w.Body))(b)), w.Header}
}

func (b *board) get(path string) answer { return b.send("GET", b.base+path, "", nil) }

func opened(t *testing.T) *board { return openedFor(t, 0) }

func openedFor(t *testing.T, idle time.Duration) *board {
	t.Helper()
	b := newBoardFor(t, idle)
	require.Equal(t, http.StatusSeeOther, b.send("GET", b.URL, "", nil).status)
	return b
}

func (b *board) ask(n byte) history.Approval { return b.askAs("", n) }

func (b *board) askAs(agent string, n byte) history.Approval {
	b.Helper()
	return must.Get(asking.Asker{Store: b.store}.AskApproval(b.Context(), history.Approval{
		Quote: [32]byte{n}, Host: "api.example",
		Method: "GET", URL: "https://api.example/report/" + fmt.Sprint(n),
		Network: "eip155:8453", Asset: "0xasset", Symbol: "USDC", Amount: money.NewAmount(500_000),
		Price: 500_000, PayTo: "0xpayee", Why: "the price is above what is paid without asking",
		Agent: agent}))(b)
}

// pays puts a payment into the ledger, from outside: what is tested here does not make any.
func (b *board) pays(id, url, state string, usd int, at time.Time) {
	b.Helper()
	b.paysAs("", id, url, state, usd, at)
}

// paysAs is pays of one of the agents that share the wallet.
func (b *board) paysAs(agent, id, url, state string, usd int, at time.Time) {
	b.Helper()
	b.sql(`INSERT INTO payments (id, session, state, proof, created_at, updated_at, fingerprint, method, url,
		target, host, network, scheme, dialect, asset, symbol, amount, usd, pay_to, source, requirement,
		payload, agent) VALUES (?, 's', ?, ?, ?, 0, x'00', 'GET', ?, '', 'api.example', 'eip155:8453',
			'exact', 'v2', '0xa', 'USDC', ?, ?, '0xpayee', '', '{}', '{}', ?)`,
		id, state, map[string]string{"settled": "claimed"}[state], at.UnixMicro(), url, fmt.Sprint(usd), usd,
		agent)
	forger := must.Get(historytest.Forge(b.home))(b)
	defer forger.Close()
	require.NoError(b, forger.Recount())
}

func (b *board) stores(id string, c history.Content) {
	b.Helper()
	store := must.Get(ledgers.Open(b.Context(), b.home, historytest.Options()))(b)
	defer store.Close()
	must.Get(store.Finish(b.Context(), id, history.Outcome{State: history.Settled, Proof: history.Claimed,
		Content: &c}))(b)
}

func (b *board) sql(query string, args ...any) {
	b.Helper()
	db := must.Get(sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(b.home, history.FileName))+
		"?_pragma=busy_timeout(5000)"))(b)
	defer db.Close()
	must.Get(db.Exec(query, args...))(b)
}

func (b *board) form(id, decision, passphrase string) string {
	b.Helper()
	shown := regexp.MustCompile(`name="shown" value="(\w+)"`).FindStringSubmatch(b.get("/approvals/" +
		id).body)
	require.NotNil(b, shown)
	return url.Values{"shown": {shown[1]}, "decision": {decision}, "passphrase": {passphrase}}.Encode()
}

func (b *board) state(id string) history.Decision {
	b.Helper()
	return must.Get(b.store.Approval(b.Context(), id))(b).State
}

// The token opens the page in one browser, once.
func TestOpening(t *testing.T) {
	b := newBoard(t)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/[a-z2-7]{10}/[A-Z2-7]{26}$`, b.URL)
	require.Equal(t, http.StatusForbidden, b.get("/").status, "not without it")
	guess := b.send("GET", b.URL, "", func(r *http.Request) {
		r.Header.Set("Sec-Purpose", "prefetch;prerender")
	})
	require.Equal(t, http.StatusServiceUnavailable, guess.status, "a browser's guess does not use it up")
	require.Equal(t, http.StatusForbidden, b.send("HEAD", b.URL, "", nil).status)
	require.Equal(t, http.StatusForbidden, b.send("POST", b.URL, "", nil).status)

	first := b.send("GET", b.URL, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") })
	require.Equal(t, http.StatusSeeOther, first.status)
	require.Equal(t, b.place+"/", first.header.Get("Location"))
	require.Equal(t, "x402-wallet="+b.key+"; Path="+b.place+"; HttpOnly; SameSite=Strict",
		first.header.Get("Set-Cookie"))
	require.NotContains(t, b.key, b.token)
	page := b.get("/")
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "Nothing was paid yet")

	require.Equal(t, http.StatusSeeOther, b.send("GET", b.URL, "", nil).status,
		"who opened it comes back by it")
	b.browser = newBrowser(t)
	again := b.send("GET", b.URL, "", nil)
	require.Equal(t, http.StatusGone, again.status)
	require.Empty(t, again.header.Get("Set-Cookie"))
	require.Contains(t, again.body, "Run x402-wallet dashboard again")
	require.NotContains(t, again.body, b.key)
}

// Where another site leads here by the token, a strict cookie does not go along with the redirect:
// the person clicks once more.
func TestOpenedFromElsewhere(t *testing.T) {
	b := newBoard(t)
	page := b.send("GET", b.URL, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, `href="`+b.place+`/"`)
	require.Equal(t, http.StatusOK, b.get("/").status)
}

// Whatever does not come from the page itself, in the browser that opened it, sees nothing and
// changes nothing.
func TestOthersAreRefused(t *testing.T) {
	b := opened(t)
	a := b.ask(1)
	good, at := b.form(a.ID, "approve", "right"), b.base+"/approvals/"+a.ID
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		method, at, body string
		change           func(*http.Request)
		status           int
	}{
		"another name": {"GET", b.base + "/", "", func(r *http.Request) { r.Host = "evil.example" }, 421},
		"localhost": {"GET", b.base + "/", "", func(r *http.Request) {
			r.Host = "localhost:" + r.URL.Port()
		}, 421},
		"no port": {"GET", b.base + "/", "", func(r *http.Request) { r.Host = "127.0.0.1" }, 421},
		"another name, the token": {"GET", b.URL, "", func(r *http.Request) {
			r.Host = "evil.example"
		}, 421},
		"no cookie": {"GET", b.base + "/", "", func(r *http.Request) {
			r.Header.Del("Cookie")
			b.forget()
		}, 403},
		"another cookie": {"GET", b.base + "/", "", func(r *http.Request) {
			b.forget()
			r.Header.Set("Cookie", "x402-wallet=AAAA")
		}, 403},
		"another place":           {"GET", "http://" + b.host + "/", "", nil, 404},
		"another place's history": {"GET", "http://" + b.host + "/history", "", nil, 404},
		"led here by a site":      {"GET", b.base + "/", "", header("Sec-Fetch-Site", "cross-site"), 403},
		"led here by a port":      {"GET", b.base + "/", "", header("Sec-Fetch-Site", "same-site"), 403},
		"an export for a site": {"GET", b.base + "/export?format=csv", "",
			header("Sec-Fetch-Site", "cross-site"), 403},
		"post, another origin": {"POST", at, good, header("Origin", "https://evil.example"), 403},
		"post, origin null":    {"POST", at, good, header("Origin", "null"), 403},
		"post, no origin":      {"POST", at, good, func(r *http.Request) { r.Header.Del("Origin") }, 403},
		"post, another port":   {"POST", at, good, header("Origin", "http://127.0.0.1:1"), 403},
		"post, https":          {"POST", at, good, header("Origin", "https://"+b.host), 403},
		"post, another site":   {"POST", at, good, header("Sec-Fetch-Site", "cross-site"), 403},
		"post, no cookie":      {"POST", at, good, func(r *http.Request) { b.forget() }, 403},
		"a put":                {"PUT", at, good, nil, 405},
		"a delete":             {"DELETE", at, "", nil, 405},
		"a post of a page":     {"POST", b.base + "/history", good, nil, 404},
		"JSON":                 {"POST", at, `{"decision":"approve"}`, header("Content-Type", "application/json"), 400},
		"text":                 {"POST", at, good, header("Content-Type", "text/plain"), 400},
		"two passphrases":      {"POST", at, good + "&passphrase=right", nil, 400},
		"too large":            {"POST", at, good + "&x=" + strings.Repeat("x", maxForm), nil, 400},
		"broken escape":        {"POST", at, "passphrase=%zz", nil, 400},
		"no decision": {"POST", at, strings.Replace(good, "decision=approve", "decision=", 1), nil,
			400},
		"nothing shown":    {"POST", at, "decision=approve&passphrase=right", nil, 409},
		"another's form":   {"POST", at, strings.Replace(good, "shown=", "shown=00", 1), nil, 409},
		"no such approval": {"POST", b.base + "/approvals/apr_none", good, nil, 404},
		"by GET":           {"GET", at + "?" + good, "", nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			jar := b.browser.Jar
			got := b.send(c.method, c.at, c.body, c.change)
			b.browser.Jar = jar
			require.Equal(t, c.status, got.status, "%s: %s", name, got.body)
			require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'", name)
			require.Equal(t, "no-store", got.header.Get("Cache-Control"), name)
			if got.status == 421 || got.status == 403 {
				require.NotContains(t, got.body, "0xEvmAddress", name)
			}
		})
	}
	require.Empty(t, b.typed)
	require.Equal(t, history.Pending, b.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.send("POST", at, good, nil).status, "the form itself is good")
	require.Equal(t, history.Approved, b.state(a.ID))
}

func (b *board) forget() { b.browser.Jar = nil }

// Looking changes nothing: not one row, whatever is asked for.
func TestLookingChangesNothing(t *testing.T) {
	b := opened(t)
	a := b.ask(1)
	b.pays("pay_1", "https://api.example/a", "settled", 1000, time.Now())
	before := must.Get(b.store.Head(t.Context()))(t)
	for _, path := range []string{"/", "/?range=24h", "/?range=12m&table=1", "/money", "/freeze", "/history",
		"/history?url=a&status=settled&from=2026-01-01&to=2027-01-01", "/payments/pay_1",
		"/payments/pay_1/content", "/payments/pay_1/receipt", "/approvals/" + a.ID, "/export?format=csv",
		"/export?format=jsonl", "/icon.svg"} {
		t.Run(path, func(t *testing.T) {
			got := b.get(path)
			require.Less(t, got.status, 500, "%s: %s", path, got.body)
			require.NotContains(t, got.body, "<script", path)
		})
	}
	require.Equal(t, before, must.Get(b.store.Head(t.Context()))(t))
}

// Nothing comes from outside, and the one style sheet is the one that the policy names.
func TestNothingFromOutside(t *testing.T) {
	b := opened(t)
	b.ask(1)
	b.pays("pay_1", "https://api.example/a", "settled", 1000, time.Now())
	for _, path := range []string{"/", "/money", "/freeze", "/history", "/payments/pay_1"} {
		t.Run(path, func(t *testing.T) {
			page := b.get(path)
			for _, outside := range []string{`src=`, `href="http`, `href="//`, "<script", "@import", "url(h",
				"url(/", "javascript:", " style="} {
				require.NotContains(t, page.body, outside, path)
			}
			sheet := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page.body)
			require.NotNil(t, sheet)
			hash := sha256.Sum256([]byte(sheet[1]))
			require.Contains(t, page.header.Get("Content-Security-Policy"), "style-src 'sha256-"+
				base64.StdEncoding.EncodeToString(hash[:])+"';")
		})
	}
}

// Approving takes the passphrase, denying does not; each is for what was shown.
func TestDeciding(t *testing.T) {
	b := opened(t)
	a := b.ask(1)
	at := b.base + "/approvals/" + a.ID
	page := b.get("/approvals/" + a.ID)
	for _, line := range []string{"Approve this payment?", "$0.50", "500000 atomic units of USDC", "0xpayee",
		"Base (eip155:8453)", "GET https://api.example/report/1", a.Why} {
		t.Run(line, func(t *testing.T) { require.Contains(t, page.body, line) })
	}
	wrong := b.send("POST", at, b.form(a.ID, "approve", "no"), nil)
	require.Equal(t, http.StatusForbidden, wrong.status)
	require.Contains(t, wrong.body, "That was not the passphrase.")
	require.NotContains(t, wrong.body, `value="no"`)
	done := b.send("POST", at, b.form(a.ID, "approve", "right"), nil)
	require.Equal(t, http.StatusSeeOther, done.status)
	require.Equal(t, b.place+"/approvals/"+a.ID, done.header.Get("Location"))
	require.Contains(t, b.get("/approvals/"+a.ID).body, "You approved this payment")
	require.Equal(t, []string{"no", "right"}, b.typed)

	require.Equal(t, http.StatusSeeOther, b.send("POST", at, b.form(a.ID, "deny", ""), nil).status,
		"an approval is revoked without it")
	require.Equal(t, history.Denied, b.state(a.ID))
	require.Contains(t, b.get("/").body, "Decided, still valid")

	changed := b.ask(2)
	form := b.form(changed.ID, "approve", "right")
	b.sql(`UPDATE approvals SET pay_to = '0xthief' WHERE id = ?`, changed.ID)
	got := b.send("POST", b.base+"/approvals/"+changed.ID, form, nil)
	require.Equal(t, http.StatusConflict, got.status)
	require.Contains(t, got.body, "This changed after it was shown to you")
	require.Contains(t, got.body, "0xthief")
	require.Equal(t, http.StatusConflict, b.send("POST", at, form, nil).status, "the form of another")
	require.Len(t, b.typed, 2)

	over := b.ask(3)
	form = b.form(over.ID, "approve", "right")
	b.sql(`UPDATE approvals SET expires_at = 1 WHERE id = ?`, over.ID)
	require.Equal(t, http.StatusConflict, b.send("POST", b.base+"/approvals/"+over.ID, form, nil).status)
	require.Contains(t, b.get("/approvals/"+over.ID).body, "This request has expired")
	require.Len(t, b.typed, 2)
}

// After three wrong passphrases in a row no more are taken, for whatever approval; a denial is.
func TestThreeTries(t *testing.T) {
	b := opened(t)
	a, other := b.ask(1), b.ask(2)
	at := b.base + "/approvals/" + a.ID
	right := b.form(a.ID, "approve", "right")
	for range maxTries {
		require.Equal(t, http.StatusForbidden, b.send("POST", at, b.form(a.ID, "approve", "no"), nil).status)
	}
	for _, id := range []string{a.ID, other.ID} {
		page := b.get("/approvals/" + id).body
		require.Contains(t, page, "x402-wallet approve "+id)
		require.NotContains(t, page, `type="password"`)
	}
	require.Equal(t, http.StatusForbidden, b.send("POST", at, right, nil).status)
	require.Equal(t, http.StatusForbidden, b.send("POST", b.base+"/approvals/"+other.ID,
		b.form(other.ID, "approve", "right"), nil).status)
	require.Len(t, b.typed, maxTries)
	require.Equal(t, history.Pending, b.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.send("POST", at, b.form(a.ID, "deny", ""), nil).status)
	require.Equal(t, history.Denied, b.state(a.ID))
}

// What strangers wrote is text, on every page, and letters that cannot be seen are written out.
func TestHostileText(t *testing.T) {
	b := opened(t)
	const evil = `"' onclick=alert(0)><script>alert(1)</script><img src=x onerror=alert(2)></style>{{.}}` +
		"\u202eevil\u200b\x1b[2J\U000e0041"
	b.pays("pay_1", "https://api.example/"+evil, "settled", 1000, time.Now())
	b.pays("pay_2", "https://api.example/open?"+evil, "unknown", 1000, time.Now())
	b.pays("pay_3", "javascript:alert(3)//"+evil, "settled", 1000, time.Now())
	b.stores("pay_1", history.Content{Status: 200, Type: "text/html" + evil,
		Body: []byte("<h1>content</h1>" + evil + "\nline")})
	b.sql(`UPDATE payments SET note = ?1, host = ?1, symbol = 'U<b>', transaction_id = ?1, requirement = ?1,
		chain_proof = ?1, facilitator = ?1, idempotency_key = id || ?1`, evil)
	b.sql(`INSERT INTO audit VALUES (1000, 0, 1, ?1, ?1, x'', NULL)`, evil)
	must.Get(subscriptions.Propose(t.Context(), b.store, alerts.Writer{},
		subscriptions.Proposal{Agent: evil, URL: evil, Every: evil, Reason: evil}))(t)
	a := b.ask(1)
	b.sql(`UPDATE approvals SET url = ?1, host = ?1, why = ?1, pay_to = ?1, network = ?1, symbol = ?1`, evil)
	for _, path := range []string{"/", "/?range=12m&table=1", "/history", "/payments/pay_3",
		"/history?url=javascript:alert(4)", "/history?url=" + url.QueryEscape(evil),
		"/history?status=" + url.QueryEscape(evil), "/payments/pay_1", "/approvals/" + a.ID, "/payments/" +
			url.PathEscape(evil)} {
		t.Run(path, func(t *testing.T) {
			page := b.get(path).body
			require.NotEmpty(t, page, path)
			for _, live := range []string{"<script", "<img", "onerror=alert(2)>", "\u202e", "\u200b", "\x1b",
				"\U000e0041", "<b>", "<h1>content"} {
				require.NotContains(t, strings.ReplaceAll(page, "onerror=alert(2)&gt;", ""), live, path)
			}
			b.harmless(t, page)
		})
	}
	page := b.get("/payments/pay_1")
	require.Contains(t, page.body, "&lt;h1&gt;content&lt;/h1&gt;")
	require.Contains(t, page.body, `\u202eevil\u200b\u001b[2J`)
	got := b.get("/payments/pay_1/content")
	require.Equal(t, "<h1>content</h1>"+evil+"\nline", got.body, "as it came")
	require.Equal(t, "application/octet-stream", got.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="pay_1.content"`, got.header.Get("Content-Disposition"))
	require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
}

var (
	tags       = regexp.MustCompile(`<[^>]*>`)
	attributes = regexp.MustCompile(`([^\s"=]+)="([^"]*)"`)
)

// harmless looks at every attribute of a page: none is a script or a style, and each address is the
// dashboard's own.
func (b *board) harmless(t *testing.T, page string) {
	t.Helper()
	for _, tag := range tags.FindAllString(page, -1) {
		for _, a := range attributes.FindAllStringSubmatch(tag, -1) {
			name, value := strings.ToLower(a[1]), a[2]
			require.False(t, name == "style" || strings.HasPrefix(name, "on"), "%s", tag)
			switch name {
			case "href", "src", "action", "formaction", "data-options":
				require.True(t, value == "#main" || strings.HasPrefix(value, b.place+"/"), "%s", tag)
			}
		}
		require.NotRegexp(t, `(?i)[\s/](on\w+|style)\s*=`, attributes.ReplaceAllString(tag, ""))
	}
}

// An address leads to one of these pages whatever its parts are.
func TestAddresses(t *testing.T) {
	for _, base := range []string{"", "/place"} {
		f := &frame{Base: base}
		require.Equal(t, base+"/", f.at())
		require.Equal(t, base+"/payments/pay_1", f.at("payments", "pay_1"))
		require.Equal(t, base+"/payments/%2Fevil.example%2F%3Fa%22%23b", f.at("payments", `/evil.example/?a"#b`))
		require.Equal(t, base+"/payments/javascript:alert%281%29", f.at("payments", "javascript:alert(1)"))
	}
}

// What is written without being escaped is ours: literals, a constant and the style sheet.
func TestOnlyOursIsWrittenRaw(t *testing.T) {
	files := must.Get(filepath.Glob("*_html.go"))(t)
	calls := 0
	for _, name := range files {
		file := must.Get(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isNamed(n.Fun, "raw") {
					calls++
					require.True(t, isOurs(n.Args[0]), "%s, call %d", name, calls)
				}
			case *ast.SelectorExpr: // nothing of gomponents goes by what elements_html.go wraps
				if isNamed(n.X, "g") && name != "elements_html.go" {
					require.Contains(t, []string{"Node", "Group", "If", "Map"}, n.Sel.Name, name)
				}
			}
			return true
		})
	}
	require.NotZero(t, calls)
}

func isOurs(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return isOurs(sum.X) && isOurs(sum.Y)
	}
	_, literal := e.(*ast.BasicLit)
	return literal || isNamed(e, "style") || isNamed(e, "smallMark")
}

func isNamed(n ast.Node, name string) bool {
	id, ok := n.(*ast.Ident)
	return ok && id.Name == name
}

// The export is that of the command, and the same filter selects for both.
func TestExport(t *testing.T) {
	b := opened(t)
	day := time.Date(2026, 3, 5, 23, 59, 0, 0, time.UTC)
	b.pays("pay_1", "https://api.example/=SUM(A1)", "settled", 1000, day.AddDate(0, 0, -1))
	b.pays("pay_2", "https://api.example/b", "failed", 2000, day)
	b.pays("pay_3", "https://other.example/a", "settled", 3000, day)
	b.pays("pay_4", "https://other.example/a", "settled", 4000, day.Add(time.Minute))
	for query, within := range map[string]report.Range{
		"":                {},
		"&url=OTHER":      {URL: "OTHER"},
		"&status=settled": {State: history.Settled},
		"&from=2026-03-05&to=2026-03-05": {After: time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC),
			Until: time.Date(2026, 3, 6, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run(query, func(t *testing.T) {
			for _, format := range []string{"csv", "jsonl"} {
				var want bytes.Buffer
				require.NoError(t, books.Export{Format: format, Within: within}.Write(t.Context(), &want,
					b.store, x402.NewRegistry(nil)))
				got := b.get("/export?format=" + format + query)
				require.Equal(t, want.String(), got.body, query)
				require.Equal(t, `attachment; filename="x402-wallet.`+format+`"`,
					got.header.Get("Content-Disposition"))
			}
		})
	}
	page := b.get("/history?from=2026-03-05&to=2026-03-05").body
	require.Contains(t, page, "pay_2")
	require.Contains(t, page, "pay_3")
	require.NotContains(t, page, "pay_1")
	require.NotContains(t, page, "pay_4")
	require.Contains(t, page, "<strong>$0.003 in USDC</strong>")
	require.Equal(t, http.StatusNotFound, b.get("/export?format=beancount").status)
	require.Equal(t, http.StatusNotFound, b.get("/history?from=yesterday").status)
}

// Pages follow one another, without gaps and without end.
func TestPaging(t *testing.T) {
	b := opened(t)
	for i := range perPage + 3 {
		b.pays(fmt.Sprintf("pay_%03d", i), "https://api.example/a", "settled", 1000, time.Now())
	}
	seen := map[string]int{}
	path := "/history?url=api"
	for pages := 0; path != ""; pages++ {
		require.Less(t, pages, 3)
		page := b.get(path).body
		for _, m := range regexp.MustCompile(`/payments/(pay_\d+)"`).FindAllStringSubmatch(page, -1) {
			seen[m[1]]++
		}
		path = ""
		if m := regexp.MustCompile(`href="[^"]*(/history\?[^"]*)">Older`).FindStringSubmatch(page); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	require.Len(t, seen, perPage+3)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
}

// A wallet that stands still says why, and what to do.
// What an agent proposes is shown, with the command that makes it a subscription, and no button does.
func TestProposals(t *testing.T) {
	b := opened(t)
	p := must.Get(subscriptions.Propose(t.Context(), b.store, alerts.Writer{}, subscriptions.Proposal{
		Agent: "research",
		URL:   "https://api.example/news",
		Every: "1d", Max: 50_000, Until: time.Now().AddDate(1, 0, 0), Reason: "daily <b>news</b>"}))(t)
	page := b.get("/").body
	require.Contains(t, page,
		"The agent research proposes to buy &#34;https://api.example/news&#34; every 1d")
	require.Contains(t, page, "daily &lt;b&gt;news")
	require.Contains(t, page, "<code>x402-wallet subscriptions accept "+p.ID+"</code>")
	require.NotContains(t, page, p.ID+`"`, "there is no form and no link of it")
	b.pays("pay_1", "https://api.example/news", "settled", 1000, time.Now())
	b.sql(`UPDATE payments SET idempotency_key = 'x402-subscription:news:20270327T023000Z:20270327T023000Z'`)
	require.Contains(t, b.get("/history").body, "by the subscription news")
}

func TestAlerts(t *testing.T) {
	b := opened(t)
	require.NoError(t,
		b.store.Freeze(t.Context(), history.Freeze{By: "breaker", Why: "5 payments came to nothing"}))
	for _, path := range []string{"/", "/history"} {
		page := b.get(path).body
		require.Contains(t, page, "5 payments came to nothing (by the breaker)")
		require.Contains(t, page, "<code>x402-wallet unfreeze</code>")
	}
	require.NoError(t, os.Rename(filepath.Join(b.home, history.FileName), filepath.Join(b.home, "elsewhere")))
	moved := b.get("/")
	require.Equal(t, http.StatusInternalServerError, moved.status)
	require.Contains(t, moved.body, "LEDGER_CORRUPT")
	require.Contains(t, moved.body, "put it back into its place")
}

func TestIdle(t *testing.T) {
	listener := must.Get(loopback.Listen(t.Context(), "127.0.0.1:0"))(t)
	s := New(listener.Addr(), Options{Idle: 20 * time.Millisecond})
	require.ErrorIs(t, s.Serve(t.Context(), listener), ErrIdle)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("Ctrl-C"))
	listener = must.Get(loopback.Listen(t.Context(), "127.0.0.1:0"))(t)
	require.ErrorIs(t, New(listener.Addr(), Options{}).Serve(ctx, listener), context.Canceled)
}

// BenchmarkOverview: the first page over a hundred thousand payments of a year, and the history's.
func BenchmarkOverview(b *testing.B) {
	home := b.TempDir()
	require.NoError(b, ledgers.Create(b.Context(), home, history.Options{}))
	db := must.Get(sql.Open("sqlite", "file://"+filepath.ToSlash(filepath.Join(home, history.FileName))))(b)
	must.Get(db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
		INSERT INTO payments (id, session, state, proof, created_at, updated_at, fingerprint, method,
			url, target, host, network, scheme, dialect, asset, symbol, amount, usd,
			pay_to, source, delivered, requirement, payload)
		SELECT printf('pay_%032x', i), 's', CASE WHEN i % 997 THEN 'settled' ELSE 'failed' END, 'chain',
			?1 + i * 315360000, 0, x'00', 'GET',
			printf('https://host%d.example/item/%d', i % 100, i), '', printf('host%d.example', i % 100),
			'eip155:' || (i % 5), 'exact', 'v2', '0xa', 'USDC', '1', 1,
			'0xpayee', '', 1, '{}', ?2 FROM n`,
		time.Now().AddDate(-1, 0, 0).UnixMicro(), strings.Repeat("x", 400)))(b)
	require.NoError(b, db.Close())
	store := must.Get(ledgers.Open(b.Context(), home, historytest.Options()))(b)
	defer store.Close()
	wallet := &tools.Wallet{Store: store, Keys: noKeys{}, Engine: &pay.Engine{Store: store,
		Asker:  asking.Asker{Store: store},
		Assets: x402.NewRegistry(nil)}}
	s := New(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1},
		Options{Wallet: func(context.Context) (*tools.Wallet, func(), error) {
			return wallet, func() {}, nil
		}})
	for _, path := range []string{"/?range=24h", "/?range=30d", "/?range=12m", "/history",
		"/history?url=host7.example/item", "/history?url=host7&from=2026-01-05&to=2026-09-20"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				r := httptest.NewRequest("GET", "http://"+s.host+s.place+path, nil)
				r.AddCookie(&http.Cookie{Name: cookie, Value: s.key})
				w := httptest.NewRecorder()
				s.answer(w, r)
				require.Equal(b, http.StatusOK, w.Code, w.Body)
			}
		})
	}
}
