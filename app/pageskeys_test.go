//go:build linux || darwin

package app

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/cli"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/passkeytest"
	"x402-wallet/wallet/unlock"
)

// A passkey that the sealed rules do not have approves nothing, whatever config.toml says, and one that was
// removed does not any more, though its answer was given before.
func TestOnlySealedPasskeysApprove(t *testing.T) {
	h := newHouse(t, true)
	b, a, thief := h.browser(), h.ask(), passkeytest.New(h.origin)
	path := "/approvals/" + a.ID
	sealed := ""
	h.rewrite(func(text string) string { sealed = text; return text + h.table("thief", thief) })
	for _, who := range []*passkeytest.Authenticator{thief, h.phone} {
		got := b.post(path, b.answered(path, "approve", who))
		require.Equal(t, http.StatusForbidden, got.status)
		require.Contains(t, got.body, "not sealed")
	}
	place, got := b.signIn(thief)
	require.Equal(t, http.StatusForbidden, got.status, got.body)
	require.Empty(t, place)

	h.rewrite(func(string) string { return sealed })
	form := b.answered(path, "approve", h.phone)
	h.rewrite(func(text string) string { return strings.Split(text, "[passkeys")[0] })
	require.Equal(t, http.StatusForbidden, b.post(path, form).status, "removed, which takes no seal")
	require.Equal(t, history.Pending, h.state(a.ID))
	h.rewrite(func(string) string { return sealed })
	require.Equal(t, http.StatusForbidden, b.post(path, b.answered(path, "approve", h.phone)).status,
		"and that was sealed on the way: to take it back loosens")
	require.Equal(t, history.Pending, h.state(a.ID))
}

// An answer is good for five minutes, and for the service that asked.
func TestLateAnswers(t *testing.T) {
	h := newHouse(t, true)
	b, a := h.browser(), h.ask()
	path := "/approvals/" + a.ID
	form := b.answered(path, "approve", h.phone)
	h.passkeys.Now = func() time.Time { return time.Now().Add(passkey.Life) }
	require.Equal(t, http.StatusForbidden, b.post(path, form).status)
	h.passkeys.Now = time.Now
	form = b.answered(path, "approve", h.phone)
	h.stop()
	h.app = newApp(h.home, h.env) // another process
	h.start()
	form.Set("shown", b.form(path, "approve").Get("shown"))
	require.Equal(t, http.StatusForbidden, b.post(path, form).status, "of the service before this one")
	require.Equal(t, history.Pending, h.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.post(path, b.answered(path, "approve", h.phone)).status)
}

// A wallet that is locked approves nothing, and says how to unlock it. Its unlock agent approves what it
// reads itself, by passkeys of the rules that it finds sealed.
func TestLockedWallet(t *testing.T) {
	h := newHouse(t, false)
	b, a := h.browser(), h.ask()
	path := "/approvals/" + a.ID
	page := b.get(path).body
	require.Contains(t, page, "The wallet is locked")
	require.NotContains(t, page, "with a passkey")
	got := b.post(path, b.answered(path, "approve", h.phone))
	require.Equal(t, http.StatusForbidden, got.status)
	require.Contains(t, got.body, "unlock it first")
	require.Equal(t, history.Pending, h.state(a.ID))

	ctx, lock := context.WithCancel(t.Context())
	unlocked, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- newApp(h.home, environ.Env{}).HoldKeys(ctx, unlock.File(h.passphrase),
			func(time.Time, time.Duration) { close(unlocked) })
	}()
	select {
	case <-unlocked:
	case err := <-ended:
		t.Fatal(err)
	}
	require.Contains(t, b.get(path).body, "with a passkey")
	form := b.answered(path, "approve", passkeytest.New(h.origin))
	require.Equal(t, http.StatusForbidden, b.post(path, form).status)
	form = b.answered(path, "approve", h.phone)
	h.sql(`UPDATE approvals SET why = 'little' WHERE id = ?`, a.ID)
	form.Set("shown", b.form(path, "approve").Get("shown"))
	require.Equal(t, http.StatusForbidden, b.post(path, form).status, "another row than it was asked about")
	require.Equal(t, history.Pending, h.state(a.ID))
	got = b.post(path, b.answered(path, "approve", h.phone))
	require.Equal(t, http.StatusSeeOther, got.status, got.body)
	require.Equal(t, history.Approved, h.state(a.ID))

	again := h.ask()
	path = "/approvals/" + again.ID
	form = b.answered(path, "approve", h.phone)
	lock()
	require.NoError(t, <-ended)
	require.Equal(t, http.StatusForbidden, b.post(path, form).status)
	require.Equal(t, history.Pending, h.state(again.ID))
}

// Who seals reads the row once more: between what the page showed and that, nothing may have changed.
func TestAnotherRowThanWasShown(t *testing.T) {
	h := newHouse(t, true)
	a := h.ask()
	w := must.Get(h.OpenWallet(t.Context(), nil, nil))(t)
	defer func() { require.NoError(t, w.Close()) }()
	challenge := must.Get(w.ByPasskey.Challenge(t.Context(), a, "browser"))(t)
	options := must.Get(passkey.RequestOptions(h.origin, challenge))(t)
	answer := h.phone.Get(options)
	h.sql(`UPDATE approvals SET why = 'little' WHERE id = ?`, a.ID)
	err := w.ByPasskey.Approve(t.Context(), a, "browser", answer)
	require.ErrorContains(t, err, "changed after it was shown")
	_, err = w.ByPasskey.Challenge(t.Context(), a, "browser")
	require.ErrorContains(t, err, "changed after it was shown")
	require.Equal(t, history.Pending, h.state(a.ID))
	h.sql(`UPDATE approvals SET why = ? WHERE id = ?`, a.Why, a.ID)
	require.NoError(t, w.ByPasskey.Approve(t.Context(), a, "browser", answer))
	require.Equal(t, history.Approved, h.state(a.ID))
}

// Who signed in sees the dashboard, at a place that nobody else learns, until their passkey is removed, they
// sign out, or the service ends.
func TestSignedIn(t *testing.T) {
	h := newHouse(t, true)
	b, a := h.browser(), h.ask()
	_, got := b.signIn(passkeytest.New(h.origin))
	require.Equal(t, http.StatusForbidden, got.status)
	require.Empty(t, got.header.Values("Set-Cookie"))
	place, got := b.signIn(h.phone)
	require.Regexp(t, `^/[a-z2-7]{10}/$`, place)
	require.Regexp(t, `^x402-wallet=[A-Z2-7]{26}; Path=`+strings.TrimSuffix(place, "/")+
		`; HttpOnly; SameSite=Strict$`, got.header.Get("Set-Cookie"), "no other port's server is sent it")
	page := b.get(place)
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.body, "Waiting for you")

	stranger := h.browser()
	require.Equal(t, http.StatusSeeOther, stranger.get(place).status)
	for _, open := range []string{"/", "/approvals/" + a.ID, "/nothing", "/icon.svg", "/passkey.js",
		"/passkeys/add/x", "/history", "/approvals/apr_none"} {
		got := stranger.get(open)
		require.NotContains(t, got.body, strings.Trim(place, "/"), open)
		require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'", open)
	}

	path := place + "approvals/" + a.ID
	approve := b.form(path, "approve")
	require.Equal(t, http.StatusForbidden, b.post(path, approve).status, "signing in approves nothing")
	require.Equal(t, history.Pending, h.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.post(path, b.answered(path, "approve", h.phone)).status)
	require.Equal(t, history.Approved, h.state(a.ID))
	require.Equal(t, http.StatusForbidden, stranger.post(path, b.form(path, "deny")).status)
	require.Equal(t, http.StatusForbidden, stranger.post("/approvals/"+a.ID, b.form(path, "deny")).status)
	require.Equal(t, history.Approved, h.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.post(path, b.form(path, "deny")).status)
	require.Equal(t, history.Denied, h.state(a.ID))

	out := shownField.FindAllStringSubmatch(b.get(place).body, -1)
	require.Equal(t, http.StatusBadRequest, b.post(place+"signout", url.Values{"shown": {"x"}}).status)
	require.Equal(t, http.StatusSeeOther, b.post(place+"signout",
		url.Values{"shown": {out[len(out)-1][1]}}).status)
	require.Equal(t, http.StatusSeeOther, b.get(place).status)

	place, _ = b.signIn(h.phone)
	require.Equal(t, http.StatusOK, b.get(place).status)
	h.rewrite(func(text string) string { return strings.Split(text, "[passkeys")[0] })
	require.Equal(t, http.StatusSeeOther, b.get(place).status, "its passkey is gone")
}

// A cookie is good for the service that gave it.
func TestACookieOfAnotherStart(t *testing.T) {
	h := newHouse(t, true)
	b := h.browser()
	place, _ := b.signIn(h.phone)
	at := must.Get(url.Parse(h.origin + place))(t)
	cookies := b.client.Jar.Cookies(at)
	require.NotEmpty(t, cookies)
	h.stop()
	h.app = newApp(h.home, h.env)
	h.start()
	require.NotEqual(t, http.StatusOK, b.get(place).status)
	now, _ := b.signIn(h.phone)
	require.NotEqual(t, place, now)
	thief := h.browser()
	got := thief.send("GET", now, nil, func(r *http.Request) {
		for _, c := range cookies {
			r.AddCookie(c)
		}
	})
	require.Equal(t, http.StatusSeeOther, got.status)
	require.Equal(t, h.origin+"/", got.header.Get("Location"))
}

// Pages are answered under their own name alone, and take what was posted from themselves alone.
func TestForeignRequests(t *testing.T) {
	h := newHouse(t, true)
	b, a := h.browser(), h.ask()
	path := "/approvals/" + a.ID
	for _, host := range []string{"evil.example", "localhost", "localhost:1", "[::1]:1", "127.0.0.1"} {
		got := b.send("GET", path, nil, func(r *http.Request) { r.Host = host })
		require.Equal(t, http.StatusMisdirectedRequest, got.status, host)
		require.NotContains(t, got.body, "0xpayee")
	}
	led := b.send("GET", path, nil, func(r *http.Request) { r.Host = h.at })
	require.Equal(t, http.StatusTemporaryRedirect, led.status, "who typed the address")
	require.Equal(t, h.origin+path, led.header.Get("Location"))
	form := b.answered(path, "approve", h.phone)
	require.Equal(t, http.StatusForbidden, b.send("POST", path, form, func(r *http.Request) {
		r.Host = h.at
	}).status, "posted across origins")
	for name, value := range map[string]string{"none": "", "null": "null",
		"another port": "http://localhost:1", "the address": "http://" + h.at,
		"https":   "https" + strings.TrimPrefix(h.origin, "http"),
		"another": "https://evil.example"} {
		for _, to := range []string{path, path + "/challenge", "/signin", "/signin/challenge"} {
			got := b.send("POST", to, form, func(r *http.Request) {
				r.Header.Del("Origin")
				if value != "" {
					r.Header.Set("Origin", value)
				}
			})
			require.Equal(t, http.StatusForbidden, got.status, "%s %s", name, to)
		}
	}
	require.Equal(t, http.StatusForbidden, b.send("POST", path, form, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "same-site") // another port
	}).status)
	require.Equal(t, http.StatusMethodNotAllowed, b.send("PUT", path, form, nil).status)
	require.Equal(t, history.Pending, h.state(a.ID))
	require.Equal(t, http.StatusSeeOther, b.post(path, form).status, "the form itself is good")

	mcp := b.send("POST", "/mcp", nil, func(r *http.Request) {
		r.Host = h.at
		r.Header.Del("Origin")
	})
	require.Equal(t, http.StatusUnauthorized, mcp.status, "MCP has rules of its own")
}

// Whoever has the other address of localhost would have the pages' origin: then there are none.
func TestLocalhostIsHeld(t *testing.T) {
	squatter, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1, so nobody can have it")
	}
	defer squatter.Close()
	_, port, err := net.SplitHostPort(squatter.Addr().String())
	require.NoError(t, err)
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: squatter.Addr().(*net.TCPAddr).Port}
	for _, origin := range []string{"http://localhost:" + port, "http://wallet.localhost:" + port} {
		require.ErrorContains(t, must.Err(holdLocalhost(t.Context(), origin, at)), "cannot be held", origin)
	}
	require.Nil(t, must.Get(holdLocalhost(t.Context(), "https://wallet.example", at))(t))

	h := newHouse(t, true)
	_, port, err = net.SplitHostPort(h.at)
	require.NoError(t, err)
	require.Error(t, must.Err(net.Listen("tcp", "[::1]:"+port)), "a service with pages holds both")
	require.Equal(t, h.origin+"/approvals/apr_x", h.approvalPage("apr_x"))
	h.stop()
	taken := must.Get(net.Listen("tcp", "[::1]:"+port))(t)
	defer taken.Close()
	h.app = newApp(h.home, h.env)
	h.start()
	require.Empty(t, h.approvalPage("apr_x"))
	require.Equal(t, http.StatusNotFound, h.browser().get("/").status)
	require.Equal(t, http.StatusUnauthorized, h.browser().post("/mcp", nil).status, "agents are served")
	require.NoFileExists(t, filepath.Join(h.home, cli.PagesFile))
}

// Where the pages are, or why there are none.
func TestPagesOrigin(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8402}
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 8402}
	for _, c := range []struct {
		url    string
		at     *net.TCPAddr
		isTLS  bool
		origin string
	}{
		{"", local, false, "http://localhost:8402"},
		{"", local, true, ""},
		{"", everywhere, true, ""},
		{"https://wallet.example", everywhere, true, "https://wallet.example"},
		{"https://wallet.example", local, false, "https://wallet.example"},
		{"http://127.0.0.1:8402", local, false, ""},
		{"https://10.0.0.1", everywhere, true, ""},
	} {
		home := filepath.Join(t.TempDir(), "h")
		rules := ""
		if c.url != "" {
			rules = "[service]\nurl = '" + c.url + "'\n"
		}
		_, _, err := testworld.MakeHome(home, rules, testworld.Passphrase)
		require.NoError(t, err)
		origin, err := newApp(home, environ.Env{}).pagesOrigin(c.at, c.isTLS)
		if c.origin == "" {
			require.Error(t, err, c.url)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.origin, origin)
	}
}
