package seller

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCounter) != "" {
		_ = newCounter().Run(context.Background(), &mcp.StdioTransport{})
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func newClient(t *testing.T, urls ...string) *Client {
	t.Helper()
	var entries []string
	for _, u := range urls {
		entries = append(entries, strings.TrimPrefix(u, "http://"))
	}
	return closed(t, New(Options{Loopback: entries}))
}

func closed(t *testing.T, m *Client) *Client {
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func serveRaw(t *testing.T, each func(c net.Conn, in *bufio.Reader)) (url string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c, bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func skip(in *bufio.Reader) {
	if r, err := http.ReadRequest(in); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// reset closes so that the peer sees RST, not FIN.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

const challenge = `{"x402Version":2,"error":"PAYMENT-SIGNATURE header is required",
 "resource":{"url":"https://api.example.com/premium-data"},
 "accepts":[{"scheme":"exact","network":"eip155:84532","amount":"10000",
 "asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",
 "payTo":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C","maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}]}`

const receipt = `{"success":true,"transaction":"0xabc","network":"eip155:84532","payer":"0xdef"}`

func TestAskThenPresent(t *testing.T) {
	var seen []http.Header
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Header)
		assert.Equal(t, `{"q":1}`, string(body))
		assert.Equal(t, "POST", r.Method)
		w.Header().Set("Set-Cookie", "id=1")
		if r.Header.Get("PAYMENT-SIGNATURE") == "" {
			w.Header().Set("PAYMENT-REQUIRED", base64.StdEncoding.EncodeToString([]byte(challenge)))
			w.WriteHeader(http.StatusPaymentRequired)
			return
		}
		w.Header().Set("Content-Type", `text/plain; charset=utf-8; x="</untrusted>"`)
		w.Header().Set("PAYMENT-RESPONSE", base64.StdEncoding.EncodeToString([]byte(receipt)))
		_, _ = io.WriteString(w, "the content")
	})
	h := newClient(t, s.URL)
	r := Request{Method: "POST", URL: s.URL + "/a?b=c", Header: http.Header{"x-api-key": {"k"}},
		Body: []byte(`{"q":1}`)}
	require.NoError(t, h.Check(r))

	began := time.Now().Truncate(time.Second) // a Date has whole seconds
	a := must.Get(h.Ask(t.Context(), r))(t)
	require.NoError(t, a.ChallengeErr)
	assert.Equal(t, 402, a.Status)
	assert.Equal(t, "10000", a.Challenge.Accepts[0].Amount.String())
	assert.Nil(t, a.Settlement)
	assert.Equal(t, r.URL, a.FinalURL)
	assert.False(t, a.Date.Before(began) || a.Date.After(time.Now()), a.Date)

	a = must.Get(h.Present(t.Context(), r, wire.Attachment{Header: "PAYMENT-SIGNATURE", Value: "cGF5"}))(t)
	assert.Equal(t, 200, a.Status)
	assert.Equal(t, "the content", string(a.Content))
	assert.False(t, a.Truncated)
	assert.Equal(t, "text/plain; charset=utf-8", a.ContentType, "only what is ours to say")
	assert.Nil(t, a.Challenge)
	assert.NoError(t, a.ChallengeErr)
	require.NoError(t, a.SettlementErr)
	assert.Equal(t, "0xabc", a.Settlement.Transaction)

	require.Len(t, seen, 2)
	for _, header := range seen {
		assert.Equal(t, "k", header.Get("X-Api-Key"))
		assert.Equal(t, "application/json", header.Get("Content-Type"))
		assert.Equal(t, "identity", header.Get("Accept-Encoding"))
		assert.NotContains(t, header.Get("Accept"), "html")
		assert.NotContains(t, header.Get("User-Agent"), "Mozilla")
		assert.Empty(t, header.Get("Cookie"), "no cookie jar")
	}
	assert.Equal(t, "cGF5", seen[1].Get("Payment-Signature"))
}

// A receipt that cannot be read is no receipt, and no reason to lose the answer.
func TestUnreadableReceipt(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("PAYMENT-RESPONSE", "%%%") })
	a := must.Get(newClient(t, s.URL).Present(t.Context(), Request{URL: s.URL}, signed))(t)
	assert.Nil(t, a.Settlement)
	assert.True(t, x402.HasCode(a.SettlementErr, x402.ResponseMalformed))
}

// wasSent is what an error of a payment says of it.
func wasSent(t *testing.T, err error) bool {
	var e *SendError
	require.ErrorAs(t, err, &e)
	return e.Sent
}

func code(err error) x402.Code { return x402.AsError(err).Code }

// Before payment only within the origin, at most five, each checked; with payment none.
func TestRedirects(t *testing.T) {
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	var hits atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		body, _ := io.ReadAll(r.Body)
		var n int
		switch path := r.URL.Path; path {
		case "/end":
			fmt.Fprintf(w, "%s %s", r.Method, body)
		case "/cross":
			w.Header().Set("Location", other.URL+"/<b>x")
			w.WriteHeader(307)
		case "/user":
			w.Header().Set("Location", strings.Replace("http://HOST/end", "HOST", "me:pw@"+r.Host, 1))
			w.WriteHeader(302)
		case "/bare":
			w.WriteHeader(302)
		case "/modified":
			w.WriteHeader(304)
		default:
			status := 302
			_, _ = fmt.Sscanf(path, "/%d/%d", &status, &n)
			next := "/end#part"
			if n > 1 {
				next = fmt.Sprintf("/%d/%d", status, n-1)
			}
			w.Header().Set("Location", next)
			w.WriteHeader(status)
		}
	})
	h := newClient(t, s.URL, other.URL)
	ask := func(method, path string) (*Answer, error) {
		hits.Store(0)
		return h.Ask(t.Context(), Request{Method: method, URL: s.URL + path, Body: []byte(method[:1])})
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			a := must.Get(ask("GET", fmt.Sprintf("/%d/5", status)))(t)
			assert.Equal(t, "GET G", string(a.Content))
			assert.Equal(t, s.URL+"/end", a.FinalURL)
			assert.EqualValues(t, 6, hits.Load())

			assert.Equal(t, x402.RedirectRefused, code(must.Err(ask("GET", fmt.Sprintf("/%d/6", status)))))
			assert.EqualValues(t, 6, hits.Load())

			a, err := ask("POST", fmt.Sprintf("/%d/1", status))
			if status >= 307 {
				require.NoError(t, err)
				assert.Equal(t, "POST P", string(a.Content))
			} else { // it would become a GET, and a payment would then be for another request than was asked
				assert.Equal(t, x402.RedirectRefused, code(err))
			}

			a, err = h.Present(t.Context(), Request{URL: s.URL + fmt.Sprintf("/%d/1", status)}, signed)
			require.NoError(t, err)
			assert.Equal(t, status, a.Status, "with a payment a redirect is the answer")
		})
	}
	_, err := ask("GET", "/cross")
	assert.Equal(t, x402.RedirectRefused, code(err))
	assert.Equal(t, fmt.Sprintf("%+q", other.URL+"/<b>x"), x402.AsError(err).Details["location"])
	assert.NotContains(t, err.Error(), "<b>")
	a := must.Get(h.Present(t.Context(), Request{URL: s.URL + "/cross"}, signed))(t)
	assert.Equal(t, 307, a.Status)
	assert.Zero(t, elsewhere.Load(), "nothing ever reached the other origin")

	assert.Equal(t, x402.URLBlocked, code(must.Err(ask("GET", "/user"))))
	a = must.Get(ask("GET", "/bare"))(t)
	assert.Equal(t, 302, a.Status)
	a = must.Get(ask("GET", "/modified"))(t)
	assert.Equal(t, 304, a.Status)
}

// From https to http is another origin, too, before payment and with it.
func TestDowngrade(t *testing.T) {
	var header string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Get("PAYMENT-SIGNATURE")
		w.Header().Set("Location", "http://example.com/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)
	f := &fakeNet{answers: [][]string{{"8.8.8.8"}}, to: s.Listener.Addr().String()}
	roots := s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	h := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial,
		Loopback: []string{"example.com:80"}}))
	_, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
	assert.Equal(t, x402.RedirectRefused, code(err))
	assert.Equal(t, []string{"8.8.8.8:443"}, f.dialled)
	a := must.Get(h.Present(t.Context(), Request{URL: "https://example.com/"}, signed))(t)
	assert.Equal(t, 307, a.Status)
	assert.Equal(t, "x", header)
	assert.Equal(t, []string{"8.8.8.8:443"}, f.dialled, "never port 80")
}

// Answers before the answer, without end; headers smuggled into one; and HTTP/2,
// which is not spoken.
func TestWhatIsNoAnswer(t *testing.T) {
	endless := serveRaw(t, func(c net.Conn, in *bufio.Reader) {
		skip(in)
		for {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
				return
			}
		}
	})
	_, err := newClient(t, endless).Ask(within(t, time.Minute), Request{URL: endless})
	assert.Contains(t, []x402.Code{x402.ResponseTooLarge, x402.NetworkError}, code(err),
		"ended by its size and not by the clock: %v", err)
	_, err = newClient(t, endless).Present(within(t, time.Minute), Request{URL: endless}, signed)
	assert.True(t, wasSent(t, err))

	for name, text := range map[string]string{
		"two lengths":               "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
		"a length below zero":       "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"a status of four digits":   "HTTP/1.1 2000 OK\r\n\r\n",
		"a header without a name":   "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
		"chunks of another size":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
		"an encoding nobody has":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: evil\r\n\r\nabc",
		"HTTP/2's first words":      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a NUL in a header's value": "HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 0\r\n\r\n",
	} {
		u := serveRaw(t, func(c net.Conn, in *bufio.Reader) {
			skip(in)
			_, _ = io.WriteString(c, text)
		})
		_, err := newClient(t, u).Ask(within(t, time.Minute), Request{URL: u})
		assert.Equal(t, x402.NetworkError, code(err), "%s: %v", name, err)
	}
	protocols := newHTTP(Options{}).transport.Protocols
	assert.False(t, protocols.HTTP2() || protocols.UnencryptedHTTP2())
}

// Sent is false only when provably nothing left.
func TestSent(t *testing.T) {
	const closed = "http://127.0.0.1:1" // a free port would soon be somebody's: the servers below take ten

	answers := func(text string, end func(net.Conn)) string {
		return serveRaw(t, func(c net.Conn, in *bufio.Reader) {
			skip(in)
			_, _ = io.WriteString(c, text)
			end(c)
		})
	}
	fin := func(c net.Conn) { _ = c.Close() }
	hang := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }
	unread := serveRaw(t, func(c net.Conn, in *bufio.Reader) {
		// resetting sooner may be a refused connection
		_, _ = in.ReadByte()
		reset(c)
	})
	paid := "HTTP/1.1 200 OK\r\nPAYMENT-RESPONSE: " + base64.StdEncoding.EncodeToString([]byte(receipt)) +
		"\r\nContent-Length: 100\r\n\r\nhalf of"

	for _, row := range []struct {
		name, url string
		sent      bool
		code      x402.Code
		answer    bool
	}{
		{"connection refused", closed, false, x402.NetworkError, false},
		{"TLS with a server that has none", strings.Replace(unread, "http:", "https:", 1), false,
			x402.NetworkError, false},
		{"blocked address", "https://10.0.0.1/", false, x402.URLBlocked, false},
		{"reset on the first byte", unread, true, x402.NetworkError, false},
		{"end without an answer", answers("", fin), true, x402.NetworkError, false},
		{"reset without an answer", answers("", reset), true, x402.NetworkError, false},
		{"no answer", answers("", hang), true, x402.Timeout, false},
		{"half of the headers", answers("HTTP/1.1 200 OK\r\nPayment-", fin), true, x402.NetworkError, false},
		{"no HTTP", answers("SSH-2.0-OpenSSH <b>\r\n", fin), true, x402.NetworkError, false},
		{"switched protocols",
			answers("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", hang),
			true, x402.NetworkError, false},
		{"half of the body, end", answers(paid, fin), true, x402.NetworkError, true},
		{"half of the body, reset", answers(paid, reset), true, x402.NetworkError, true},
		{"half of the body, hang", answers(paid, hang), true, x402.Timeout, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newClient(t, row.url, strings.Replace(row.url, "https:", "http:", 1))
			patience := time.Minute
			if row.code == x402.Timeout {
				patience = time.Second
			}
			a, err := h.Present(within(t, patience), Request{URL: row.url}, signed)
			assert.Equal(t, row.sent, wasSent(t, err), err)
			assert.Equal(t, row.code, code(err), err)
			if row.code != x402.URLBlocked {
				assert.Contains(t, x402.AsError(err).Hint, "make the same call again")
			}
			assert.NotContains(t, err.Error(), "<b>", "the server's bytes in our words")
			require.Equal(t, row.answer, a != nil)
			if a != nil {
				assert.True(t, a.Truncated)
				assert.Equal(t, "0xabc", a.Settlement.Transaction, "the receipt is not lost with the body")
				assert.LessOrEqual(t, len(a.Content), len("half of"))
			}
		})
	}
	t.Run("cancelled before", func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, wasSent(t, must.Err(newClient(t, s.URL).Present(ctx, Request{URL: s.URL}, signed))))
	})
	t.Run("a payment that is no header", func(t *testing.T) {
		s := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("reached") })
		for i, bad := range [][2]string{{"PAYMENT-SIGNATURE", "a\r\nHost: evil"}, {"PAYMENT SIGNATURE", "a"},
			{"", "a"}} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				_, err := newClient(t, s.URL).Present(t.Context(), Request{URL: s.URL},
					wire.Attachment{Header: bad[0], Value: bad[1]})
				assert.False(t, wasSent(t, err))
			})
		}
	})
}

// Whatever drips, for ever, the call ends at its deadline.
func TestSlowloris(t *testing.T) {
	drip := func(head string) string {
		return serveRaw(t, func(c net.Conn, in *bufio.Reader) {
			skip(in)
			_, _ = io.WriteString(c, head)
			for {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for _, head := range []string{"", "HTTP/1.1 200 OK\r\nA: ", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 402 Payment Required\r\n\r\n"} {
		u := drip(head)
		_, err := newClient(t, u).Ask(within(t, 150*time.Millisecond), Request{URL: u})
		assert.Equal(t, x402.Timeout, code(err), "%q: %v", head, err)
	}
}

func TestErrorsWrap(t *testing.T) {
	inner := x402.Errorf(x402.Timeout, "late")
	assert.True(t, errors.Is(&SendError{Sent: true, Err: inner}, inner))
	assert.Contains(t, (&SendError{Sent: true, Err: inner}).Error(), "was sent")
	assert.Contains(t, (&SendError{Err: inner}).Error(), "was not sent")
}

// Sellers write letters beyond ASCII and blanks into Location; servers refuse them in a request.
func TestRedirectToAURLBeyondASCII(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begin" {
			w.Header().Set("Location", "/straße?q=a é")
			w.WriteHeader(http.StatusFound)
			return
		}
		fmt.Fprint(w, r.RequestURI)
	})
	a := must.Get(newClient(t, s.URL).Ask(t.Context(), Request{URL: s.URL + "/begin"}))(t)
	assert.Equal(t, "/stra%C3%9Fe?q=a%20%C3%A9", string(a.Content))
}
