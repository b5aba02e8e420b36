//go:build linux || darwin

package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/cli"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402/money"
)

// house is a home with one passkey in its sealed rules, and the service on it.
type house struct {
	*testing.T
	*app
	passphrase string // its file
	phone      *passkeytest.Authenticator
	origin     string
	at         string // what is listened to
	store      *history.Store
	asked      byte // questions
	stop       func()
}

// newHouse starts a service that unlocks itself, or not.
func newHouse(t *testing.T, unlocks bool) *house {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "pg-"))(t) // a test's own is too long for a socket
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &house{T: t, passphrase: filepath.Join(dir, "passphrase")}
	require.NoError(t, os.WriteFile(h.passphrase, []byte(testworld.Passphrase), 0o600))
	env := environ.Env{}
	if unlocks {
		env.PassphraseFile = h.passphrase
	}
	h.app = newApp(filepath.Join(dir, "h"), env)
	port := freePort(t)
	h.at, h.origin = "127.0.0.1:"+port, "http://localhost:"+port
	h.phone = passkeytest.New(h.origin)
	rules := "[policy]\npublic_nodes = false\n" + h.table("phone", h.phone)
	_, _, err := testworld.MakeHome(h.home, rules, testworld.Passphrase)
	require.NoError(t, err)
	h.store = must.Get(ledgers.Open(t.Context(), h.home, historytest.Options()))(t)
	t.Cleanup(func() { _ = h.store.Close() })
	h.start()
	return h
}

func newApp(home string, env environ.Env) *app {
	return &app{home: home, env: env, log: slog.New(slog.DiscardHandler),
		checkpoints: &seal.CheckpointCache{}, tally: &agent.Tally{}, passkeys: passkey.NewChecker()}
}

// freePort is one that localhost has free, at both of its addresses, and that no system gives to whoever asks
// for any: a passkey is for a port, so it has to be known before.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		one, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		other, err := net.Listen("tcp", "[::1]:"+port)
		_ = one.Close()
		if err == nil {
			_ = other.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return port
		}
	}
}

// start starts the service.
func (h *house) start() {
	h.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- h.Serve(ctx, cli.Doors{HTTP: h.at}, func(cli.Doors) { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		h.Fatal(err)
	}
	done := false
	h.stop = func() {
		if !done {
			done = true
			stop()
			require.NoError(h, <-ended)
		}
	}
	h.Cleanup(func() { h.stop() })
}

// table is a passkey's, as passkeys add writes it.
func (h *house) table(name string, a *passkeytest.Authenticator) string {
	h.Helper()
	dir := must.Get(os.MkdirTemp("", "pk-"))(h)
	defer os.RemoveAll(dir)
	i := must.Get(invitation.Invite(h.Context(), dir, name, a.Origin))(h)
	made := make(chan passkey.Key, 1)
	go func() {
		k, _ := i.Wait(h.Context())
		made <- k
	}()
	links := &invitation.Links{Home: dir}
	_, options, err := links.Options(h.Context(), filepath.Base(i.URL))
	require.NoError(h, err)
	must.Get(links.Made(h.Context(), filepath.Base(i.URL), a.Create(options)))(h)
	k := <-made
	return fmt.Sprintf("[passkeys.%s]\nid = %q\npublic_key = %q\norigin = %q\ncount = %d\n", name, k.ID,
		k.PublicKey, k.Origin, k.Count)
}

// ask puts a question to the person.
func (h *house) ask() history.Approval {
	h.Helper()
	h.asked++
	return must.Get(asking.Asker{Store: h.store}.AskApproval(h.Context(), history.Approval{
		Quote: [32]byte{h.asked}, Host: fmt.Sprintf("api%d.example", h.asked),
		Method: "GET", URL: "https://api.example/report", Network: "eip155:8453", Asset: "0xasset",
		Symbol: "USDC", Amount: money.NewAmount(500_000), Price: 500_000, PayTo: "0xpayee",
		Why: "too much"}))(h)
}

func (h *house) state(id string) history.Decision {
	h.Helper()
	a := must.Get(h.store.Approval(h.Context(), id))(h)
	return a.State
}

func (h *house) sql(query string, args ...any) {
	h.Helper()
	db := must.Get(sql.Open("sqlite", "file://"+filepath.Join(h.home, history.FileName)+
		"?_pragma=busy_timeout(5000)"))(h)
	defer db.Close()
	must.Get(db.Exec(query, args...))(h)
}

// rewrite changes config.toml without sealing it.
func (h *house) rewrite(change func(text string) string) {
	h.Helper()
	path := filepath.Join(h.home, config.FileName)
	text := must.Get(os.ReadFile(path))(h)
	require.NoError(h, ownfile.Write(path, []byte(change(string(text)))))
}

// browser is one of a person's.
type browser struct {
	*house
	client *http.Client
}

func (h *house) browser() *browser {
	h.Helper()
	jar := must.Get(cookiejar.New(nil))(h)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, h.at)
	}
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &browser{h, &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type reply struct {
	status int
	body   string
	header http.Header
}

func (b *browser) send(method, path string, form url.Values, change func(*http.Request)) reply {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.origin+path, strings.NewReader(form.Encode()))
	require.NoError(b, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.origin)
	}
	if change != nil {
		change(r)
	}
	w := must.Get(b.client.Do(r))(b)
	defer w.Body.Close()
	text := must.Get(io.ReadAll(w.Body))(b)
	return reply{w.StatusCode, string(text), w.Header}
}

func (b *browser) get(path string) reply { b.Helper(); return b.send("GET", path, nil, nil) }

func (b *browser) post(path string, form url.Values) reply {
	b.Helper()
	return b.send("POST", path, form, nil)
}

var shownField = regexp.MustCompile(`name="shown" value="(\w+)"`)

// form is what the page of an approval has in its form.
func (b *browser) form(path, decision string) url.Values {
	b.Helper()
	page := b.get(path)
	shown := shownField.FindStringSubmatch(page.body)
	require.NotNil(b, shown, page.body)
	return url.Values{"shown": {shown[1]}, "decision": {decision}}
}

// answered is a form with the answer of an authenticator to what the page asks it.
func (b *browser) answered(path, decision string, a *passkeytest.Authenticator) url.Values {
	b.Helper()
	form := b.form(path, decision)
	asked := b.post(path+"/challenge", form)
	require.Equal(b, http.StatusOK, asked.status, asked.body)
	form.Set("answer", string(a.Get([]byte(asked.body))))
	return form
}

// signIn is where the browser is after it.
func (b *browser) signIn(a *passkeytest.Authenticator) (place string, got reply) {
	b.Helper()
	b.get("/")
	asked := b.post("/signin/challenge", nil)
	require.Equal(b, http.StatusOK, asked.status, asked.body)
	got = b.post("/signin", url.Values{"answer": {string(a.Get([]byte(asked.body)))}})
	return strings.TrimPrefix(got.header.Get("Location"), b.origin), got
}

// A passkey's yes is the owner's sealed approval, once; its no needs no key.
func TestApprovedByPasskey(t *testing.T) {
	h := newHouse(t, true)
	b, a := h.browser(), h.ask()
	path := "/approvals/" + a.ID
	page := b.get(path)
	require.Equal(t, http.StatusOK, page.status)
	for _, line := range []string{"$0.50", "0xpayee", "Base (eip155:8453)", "GET https://api.example/report",
		"too much"} {
		require.Contains(t, page.body, line)
	}
	for _, more := range []string{"History", "passphrase", `type="password"`} {
		require.NotContains(t, page.body, more, "who has the link sees this alone")
	}
	form := b.answered(path, "approve", h.phone)
	done := b.post(path, form)
	require.Equal(t, http.StatusSeeOther, done.status, done.body)
	require.Equal(t, path, done.header.Get("Location"))
	require.Contains(t, b.get(path).body, "You approved this payment")

	keys := must.Get(wallet.Open(h.home))(t)
	defer keys.Close()
	require.NoError(t, keys.Unlock(t.Context(), unlock.File(h.passphrase)))
	owned := func() error { return verify.Owned(t.Context(), h.store, h.Guard(h.store, nil, keys)) }
	require.NoError(t, owned(), "it is sealed as the owner's")
	h.sql(`UPDATE approvals SET pay_to = '0xthief' WHERE id = ?`, a.ID)
	require.Error(t, owned(), "and this would find that it is not")
	h.sql(`UPDATE approvals SET pay_to = '0xpayee' WHERE id = ?`, a.ID)

	require.Equal(t, http.StatusSeeOther, b.post(path, b.answered(path, "deny", h.phone)).status)
	require.Equal(t, history.Denied, h.state(a.ID))
	form.Set("shown", b.form(path, "approve").Get("shown"))
	require.Equal(t, http.StatusForbidden, b.post(path, form).status, "an answer that was given already")
	require.Equal(t, history.Denied, h.state(a.ID))
}

// Whatever is not the owner's passkey's yes to what this page showed in this browser approves nothing.
func TestNoYes(t *testing.T) {
	h := newHouse(t, true)
	other, stranger := passkeytest.New(h.origin), h.browser()
	with := func(change func(*passkeytest.Authenticator)) *passkeytest.Authenticator {
		a := *h.phone
		change(&a)
		return &a
	}
	yesBy := func(a *passkeytest.Authenticator) func(*browser, history.Approval, string) url.Values {
		return func(b *browser, _ history.Approval, path string) url.Values {
			return b.answered(path, "approve", a)
		}
	}
	for name, c := range map[string]struct {
		answer func(b *browser, a history.Approval, path string) url.Values
		status int
		from   *browser
	}{
		"another's passkey": {answer: yesBy(other)},
		"its id, another's key": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			other := *other
			other.ID = h.phone.ID
			return b.answered(path, "approve", &other)
		}},
		"nobody verified": {answer: yesBy(with(func(a *passkeytest.Authenticator) { a.Flags = 1 }))},
		"another port": {answer: yesBy(with(func(a *passkeytest.Authenticator) {
			a.Origin = "http://localhost:1"
		}))},
		"the address": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			return b.answered(path, "approve", with(func(a *passkeytest.Authenticator) {
				a.Origin = "http://" + b.at
			}))
		}},
		"another name": {answer: yesBy(with(func(a *passkeytest.Authenticator) { a.RPID = "evil" }))},
		"a frame":      {answer: yesBy(with(func(a *passkeytest.Authenticator) { a.Framed = true }))},
		"a copy that counts less": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			_, got := b.signIn(h.phone)
			require.Equal(t, http.StatusSeeOther, got.status)
			return b.answered(path, "approve", with(func(a *passkeytest.Authenticator) { a.Count = 0 }))
		}},
		"a yes to another": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			form := b.answered("/approvals/"+b.ask().ID, "approve", h.phone)
			form.Set("shown", b.form(path, "approve").Get("shown"))
			return form
		}},
		"a yes to signing in": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			b.get("/")
			form := b.form(path, "approve")
			form.Set("answer", string(h.phone.Get([]byte(b.post("/signin/challenge", nil).body))))
			return form
		}},
		"a no": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			form := b.answered(path, "deny", h.phone)
			form.Set("decision", "approve")
			return form
		}},
		"of another browser": {from: stranger, answer: func(b *browser, _ history.Approval,
			path string) url.Values {
			stranger.get(path)
			return b.answered(path, "approve", h.phone)
		}},
		"another row than was shown": {status: http.StatusConflict, answer: func(b *browser,
			a history.Approval, path string) url.Values {
			form := b.answered(path, "approve", h.phone)
			b.sql(`UPDATE approvals SET pay_to = '0xthief' WHERE id = ?`, a.ID)
			return form
		}},
		"another row, with its form": {answer: func(b *browser, a history.Approval, path string) url.Values {
			form := b.answered(path, "approve", h.phone)
			b.sql(`UPDATE approvals SET why = 'little' WHERE id = ?`, a.ID)
			form.Set("shown", b.form(path, "approve").Get("shown"))
			return form
		}},
		"no answer": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			return b.form(path, "approve")
		}},
		"no decision": {status: http.StatusBadRequest, answer: func(b *browser, _ history.Approval,
			path string) url.Values {
			form := b.answered(path, "deny", h.phone)
			form.Set("decision", "")
			return form
		}},
		"a passphrase": {answer: func(b *browser, _ history.Approval, path string) url.Values {
			form := b.form(path, "approve")
			form.Set("passphrase", testworld.Passphrase)
			return form
		}},
		"too much": {status: http.StatusBadRequest, answer: func(b *browser, _ history.Approval,
			path string) url.Values {
			form := b.answered(path, "approve", h.phone)
			form.Set("more", strings.Repeat("x", 64<<10))
			return form
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, a := h.browser(), h.ask()
			path := "/approvals/" + a.ID
			form, from := c.answer(b, a, path), b
			if c.from != nil {
				from = c.from
			}
			got := from.post(path, form)
			if c.status == 0 {
				c.status = http.StatusForbidden
			}
			require.Equal(t, c.status, got.status, got.body)
			require.Equal(t, history.Pending, h.state(a.ID))
		})
	}
}
