package ask

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// page asks with a check that is content with "right".
func page(t *testing.T, lines ...string) (at string, wait func() error, got *[]string) {
	t.Helper()
	got = new([]string)
	at, wait, err := Ask(t.Context(), "Unlock <the> wallet", lines, func(p []byte) (bool, error) {
		*got = append(*got, string(p))
		if string(p) != "right" {
			return true, errors.New("wrong passphrase")
		}
		return false, nil
	})
	require.NoError(t, err)
	return at, wait, got
}

// call sends as a browser does from the page itself; change makes it something else.
func call(t *testing.T, method, at, body string, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body)))(t)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+r.Host)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error(), nil // the page is gone
	}
	defer answer.Body.Close()
	return answer.StatusCode, string(must.Get(io.ReadAll(answer.Body))(t)), answer.Header
}

func form(passphrase string) string { return url.Values{"passphrase": {passphrase}}.Encode() }

func TestAsk(t *testing.T) {
	at, wait, got := page(t, "pays <b>nobody</b>\u202e\x1b[2J", "second")
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/[A-Z2-7]{26}$`, at)
	status, text, header := call(t, http.MethodGet, at, "", nil)
	require.Equal(t, 200, status)
	require.Contains(t, text, "Unlock &lt;the&gt; wallet")
	require.Contains(t, text, "<li>pays &lt;b&gt;nobody&lt;/b&gt;\ufffd\ufffd[2J</li><li>second</li>")
	require.NotContains(t, text, "\u202e")
	for _, outside := range []string{"http:", "https:", "src=", "<script", "@import", "url("} {
		t.Run(outside, func(t *testing.T) {
			require.NotContains(t, text, outside, "nothing from outside")
		})
	}
	hash := sha256.Sum256([]byte(style))
	require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-"+
		base64.StdEncoding.EncodeToString(hash[:])+"'; form-action 'self'; frame-ancestors 'none'")
	require.Equal(t, "no-store", header.Get("Cache-Control"))
	require.Equal(t, "DENY", header.Get("X-Frame-Options"))

	status, text, _ = call(t, http.MethodPost, at, form("wrong"), nil)
	require.Equal(t, 403, status)
	require.Contains(t, text, "wrong passphrase")
	require.NotContains(t, text, `value="wrong"`)
	status, text, _ = call(t, http.MethodPost, at, form("right"), nil)
	require.Equal(t, 200, status)
	require.Contains(t, text, "Done.")
	require.NoError(t, wait())
	require.Equal(t, []string{"wrong", "right"}, *got)
	status, _, _ = call(t, http.MethodGet, at, "", nil)
	require.Zero(t, status, "it is gone")
}

// Whatever does not come from the page itself never reaches the check, and costs the person no try.
func TestOthersAreRefused(t *testing.T) {
	at, wait, got := page(t)
	good := form("right")
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		method, body string
		change       func(*http.Request)
		status       int
	}{
		"another token": {"POST", good, func(r *http.Request) {
			r.URL.Path = "/" + strings.Repeat("A", 26)
		}, 404},
		"no token":       {"POST", good, func(r *http.Request) { r.URL.Path = "/" }, 404},
		"a longer path":  {"POST", good, func(r *http.Request) { r.URL.Path += "/x" }, 404},
		"no token, get":  {"GET", "", func(r *http.Request) { r.URL.Path = "/" }, 404},
		"another name":   {"POST", good, func(r *http.Request) { r.Host = "evil.example" }, 421},
		"localhost":      {"GET", "", func(r *http.Request) { r.Host = "localhost:" + r.URL.Port() }, 421},
		"no port":        {"GET", "", func(r *http.Request) { r.Host = "127.0.0.1" }, 421},
		"another origin": {"POST", good, header("Origin", "https://evil.example"), 403},
		"origin null":    {"POST", good, header("Origin", "null"), 403},
		"no origin":      {"POST", good, func(r *http.Request) { r.Header.Del("Origin") }, 403},
		"another port":   {"POST", good, header("Origin", "http://127.0.0.1:1"), 403},
		"https": {"POST", good, func(r *http.Request) {
			r.Header.Set("Origin", "https://"+r.Host)
		}, 403},
		"another site":      {"POST", good, header("Sec-Fetch-Site", "cross-site"), 403},
		"a put":             {"PUT", good, nil, 405},
		"JSON":              {"POST", `{"passphrase":"right"}`, header("Content-Type", "application/json"), 400},
		"text":              {"POST", good, header("Content-Type", "text/plain"), 400},
		"no field":          {"POST", "x=y", nil, 400},
		"two passphrases":   {"POST", good + "&" + good, nil, 400},
		"too large":         {"POST", form(strings.Repeat("x", maxForm)), nil, 400},
		"broken escape":     {"POST", "passphrase=%zz", nil, 400},
		"passphrase in URL": {"GET", "", func(r *http.Request) { r.URL.RawQuery = good }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			status, text, _ := call(t, c.method, at, c.body, c.change)
			require.Equal(t, c.status, status, name)
			require.NotContains(t, text, "right", name)
		})
	}
	require.Empty(t, *got)
	status, _, _ := call(t, http.MethodPost, at, good, nil)
	require.Equal(t, 200, status)
	require.NoError(t, wait())
}

func TestThreeTries(t *testing.T) {
	at, wait, got := page(t)
	for range maxTries {
		_, _, _ = call(t, http.MethodPost, at, form("no"), nil)
	}
	require.ErrorContains(t, wait(), "wrong passphrase")
	status, _, _ := call(t, http.MethodPost, at, form("right"), nil)
	require.Zero(t, status)
	require.Len(t, *got, maxTries)
}

func TestDeclined(t *testing.T) {
	at, wait, got := page(t)
	status, _, _ := call(t, http.MethodPost, at, form("right")+"&decline=1", nil)
	require.Equal(t, 200, status)
	require.ErrorIs(t, wait(), ErrDeclined)
	require.Empty(t, *got)
}

// A failure that no other passphrase mends ends the page.
func TestFailure(t *testing.T) {
	fails := func([]byte) (bool, error) { return false, io.ErrUnexpectedEOF }
	at, wait, err := Ask(t.Context(), "x", nil, fails)
	require.NoError(t, err)
	status, text, _ := call(t, http.MethodPost, at, form("right"), nil)
	require.Equal(t, 403, status)
	require.Contains(t, text, "unexpected EOF")
	require.ErrorIs(t, wait(), io.ErrUnexpectedEOF)
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, wait, err := Ask(ctx, "x", nil, func([]byte) (bool, error) { return false, nil })
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, wait(), context.Canceled)
}

func TestExpired(t *testing.T) {
	q := &question{over: make(chan struct{})}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), Expiry, ErrExpired)
		defer cancel()
		time.Sleep(Expiry)
		<-ctx.Done()
		q.finish(context.Cause(ctx))
	})
	require.ErrorIs(t, q.outcome, ErrExpired)
	q.finish(nil)
	require.ErrorIs(t, q.outcome, ErrExpired, "the first end counts")
}

func TestLoopbackOnly(t *testing.T) {
	at, _, _ := page(t)
	where := must.Get(url.Parse(at))(t)
	host, _, err := net.SplitHostPort(where.Host)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
}

// What does not fit on a page is not asked there: nobody confirms what they were not shown.
func TestNothingIsLeftOut(t *testing.T) {
	many := make([]string, maxLines+1)
	for name, lines := range map[string][]string{"too many": many,
		"too long": {strings.Repeat("x", maxText+1)}} {
		_, _, err := Ask(t.Context(), "title", lines, func([]byte) (bool, error) { return false, nil })
		require.ErrorContains(t, err, "more to look at than a page shows", name)
	}
	ctx, end := context.WithCancel(t.Context())
	last := "the last line " + strings.Repeat("x", maxText-20)
	shown := append(many[:maxLines-1:maxLines-1], last)
	page, wait, err := Ask(ctx, "title", shown, func([]byte) (bool, error) { return false, nil })
	require.NoError(t, err)
	r := must.Get(http.Get(page))(t)
	text := must.Get(io.ReadAll(r.Body))(t)
	require.NoError(t, r.Body.Close())
	require.Contains(t, string(text), last)
	end()
	require.ErrorIs(t, wait(), context.Canceled)
}

func TestShown(t *testing.T) {
	require.Equal(t, "a\ufffd\ufffdb\ufffd&lt;", shown("a\u202e\x1bb\n<"))
}
