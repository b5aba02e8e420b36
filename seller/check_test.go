package seller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/weburl"
)

// fakeNet answers names from a script and takes every connection to one local server; it notes who
// was called.
type fakeNet struct {
	sync.Mutex
	answers          [][]string // one per lookup; the last is repeated
	lookups, dialled []string
	to               string
}

func (f *fakeNet) LookupNetIP(_ context.Context, _, host string) (ips []netip.Addr, err error) {
	f.Lock()
	defer f.Unlock()
	f.lookups = append(f.lookups, host)
	if len(f.answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for _, ip := range f.answers[0] {
		ips = append(ips, netip.MustParseAddr(ip))
	}
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return ips, nil
}

func (f *fakeNet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.Lock()
	f.dialled = append(f.dialled, address)
	f.Unlock()
	if f.to == "" {
		return nil, fmt.Errorf("nobody there")
	}
	return (&net.Dialer{}).DialContext(ctx, network, f.to)
}

// Refused without a lookup or a connection.
func TestBlockedURLs(t *testing.T) {
	for _, u := range []string{
		"http://api.example.com/", "ftp://api.example.com/", "file:///etc/passwd", "gopher://x/",
		"unix:/run/x", "javascript:alert(1)",
		"//api.example.com/", "/path", "api.example.com", "HTTP://api.example.com",
		"https://me@api.example.com/", "https://me:pw@api.example.com/", "https://good.example@evil.example/",
		"https://@a.example/",
		"https://api.example.com/#x", "https://api.example.com/#",
		"https://api.example.com\\@evil.example/", "https://a.example/\r\nX: y", "https://a.example/\x00",
		" https://a.example/", "https://a.example/a b",
		"https://api.example.com:0/", "https://api.example.com:65536/", "https://api.example.com:/",
		"https://api.example.com:080/", "https://api.example.com:4x/",
		"https://api.example.com./", "https://localhost./", "https://127.0.0.1./", "https://./",
		"https://a..example/", "https://-a.example/", "https:///x", "https:a.example",
		"https://bücher.example/", "https://аpple.com/", "https://example.com%2eevil.org/",
		"https://ａ.example/", "https://a\u200b.example/",
		"https://localhost/", "https://LOCALHOST:8443/", "https://api.localhost/", "https://printer.local/",
		"https://metadata.google.internal/", "https://router.home.arpa/",
		"https://127.0.0.1/", "https://127.8.8.8/", "https://0.0.0.0/", "https://10.1.2.3/",
		"https://172.16.0.1/", "https://192.168.1.1/", "https://100.64.0.1/",
		"https://169.254.169.254/latest/meta-data", "https://100.100.100.200/", "https://168.63.129.16/",
		"https://224.0.0.1/", "https://255.255.255.255/",
		"https://192.0.2.1/", "https://198.18.0.1/", "https://198.51.100.1/", "https://203.0.113.10/",
		"https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
		"https://[::127.0.0.1]/", "https://[64:ff9b::7f00:1]/",
		"https://[64:ff9b:1::1]/", "https://[2002:7f00:1::]/", "https://[fd00:ec2::254]/",
		"https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[2606:4700::1%25eth0]/",
		"https://[ff02::1]/", "https://[2001:db8::1]/", "https://[2001::1]/", "https://[3fff::1]/",
		"https://[fec0::1]/", "https://[::1", "https://[example.com]/",
		"https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://0177.0.0.1/",
		"https://127.1/", "https://127.0.0.01/", "https://127.0.0.1.1/", "https://1/", "https://0/",
		"https://1.2.3.4.0x10/", "", "https://", "https://a.example/" + strings.Repeat("a", maxURL),
		"https://" + strings.Repeat("a.", 130) + "example/",
	} {
		t.Run(u, func(t *testing.T) {
			f := &fakeNet{answers: [][]string{{"8.8.8.8"}}}
			h := closed(t, New(Options{Resolver: f, dial: f.dial}))
			err := h.Check(Request{URL: u})
			require.Error(t, err, u)
			assert.Contains(t, []x402.Code{x402.URLBlocked, x402.InvalidArgument}, code(err), u)
			_, asked := h.Ask(t.Context(), Request{URL: u})
			assert.Equal(t, err.Error(), asked.Error(), u)
			assert.Error(t, must.Err(h.Present(t.Context(), Request{URL: u}, signed)), u)
			assert.Empty(t, f.lookups, u)
			assert.Empty(t, f.dialled, u)
		})
	}
}

func TestAllowedURLs(t *testing.T) {
	h := New(Options{Loopback: []string{"127.0.0.1:4021", "[::1]:4021", "localhost:80", "10.0.0.7:443"}})
	for _, u := range []string{
		"https://api.example.com", "HTTPS://API.example.com:443/a?b=c%20d", "https://8.8.8.8/",
		"https://[2606:4700::1]:8443/", "https://xn--bcher-kva.example/",
		"https://a_b.example.com/", "https://1password.com/", "https://0x.org/",
		"https://api.example.com/ünicode", "https://a.example/%23",
		"http://127.0.0.1:4021/", "https://127.0.0.1:4021/", "http://[::1]:4021/", "http://localhost/",
		"http://LOCALHOST:80/", "https://10.0.0.7/",
	} {
		assert.NoError(t, h.Check(Request{URL: u}), u)
	}
	for _, u := range []string{"http://127.0.0.1:4022/", "http://127.0.0.1/", "https://localhost/",
		"http://localhost:4021/", "http://10.0.0.7/", "http://[::ffff:127.0.0.1]:4021/"} {
		err := h.Check(Request{URL: u})
		assert.Equal(t, x402.URLBlocked, code(err), u)
		assert.Contains(t, x402.AsError(err).Hint, "policy.loopback", u)
	}
	for u, allows := range map[string]bool{ // no rule that config.toml refuses is advised
		"https://10.0.0.7:8443/": true, "http://localhost:4021/": true, "http://[::1]/": true,
		"http://api.example.com/":  false,
		"https://169.254.169.254/": false, "https://printer.local/": false,
		"https://[::ffff:127.0.0.1]/": false, "https://0.0.0.0/": false,
	} {
		err := x402.AsError(h.Check(Request{URL: u}))
		assert.Equal(t, allows, strings.Contains(err.Hint, "can allow exactly"), u)
		assert.Equal(t, x402.URLBlocked, err.Code, u)
	}
}

// Who wrote no https URL is told what they meant, and nothing of a rule that could be loosened.
func TestWhatWasMeantInstead(t *testing.T) {
	for _, raw := range []string{"http://a.example/x", "htps://a.example/x", "a.example/x", "//a.example/x",
		"HTTP://a.example/x"} {
		hint := x402.AsError(New(Options{}).Check(Request{URL: raw})).Hint
		assert.Equal(t, "did you mean: https://a.example/x", hint, raw)
	}
	for _, raw := range []string{"http://", "/x", "http://me:secret@a.example/", "file:///etc/passwd"} {
		hint := x402.AsError(New(Options{}).Check(Request{URL: raw})).Hint
		assert.NotContains(t, hint, "loopback", raw)
		assert.NotContains(t, hint, "secret", raw)
	}
}

func TestHomographIsShownInPunycode(t *testing.T) {
	err := New(Options{}).Check(Request{URL: "https://аpple.com/"}) // the first letter is Cyrillic
	assert.Equal(t, "xn--pple-43d.com", x402.AsError(err).Details["host"])
	assert.Equal(t, "xn--bcher-kva.example", weburl.Punycode("bücher.example"))
}

func TestPublic(t *testing.T) {
	for _, ip := range []string{"8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1",
		"223.255.255.255", "::ffff:8.8.8.8", "2606:4700::1111", "2a00::1"} {
		assert.True(t, public(netip.MustParseAddr(ip)), ip)
	}
	for _, ip := range []string{"0.0.0.0", "10.255.255.255", "172.31.255.255", "100.127.0.1",
		"::ffff:10.0.0.1", "64:ff9b::8.8.8.8", "2001:db8::1", "4000::1", "fe80::1%eth0",
		"2606:4700::1%eth0"} {
		assert.False(t, public(netip.MustParseAddr(ip)), ip)
	}
	assert.False(t, public(netip.Addr{}))
}

// A request that frames itself, or brings a payment of its own, is refused.
func TestRequests(t *testing.T) {
	h := New(Options{})
	for _, name := range []string{"Host", "host", "Content-Length", "Transfer-Encoding", "Connection",
		"Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "proxy-connection", "PAYMENT-SIGNATURE", "payment-required", "X-PAYMENT",
		"X-Payment-Signature", "x-payment-response",
		"Sign-In-With-X", "SIGN-IN-WITH-X", "HTTP2-Settings", "a b", "a:", "", "ü", "a\r\nb",
		strings.Repeat("a", 300)} {
		err := h.Check(Request{URL: "https://a.example", Header: http.Header{name: {"x"}}})
		assert.Equal(t, x402.InvalidArgument, code(err), name)
	}
	for _, value := range []string{"a\r\nHost: evil", "a\nb", "a\x00b", "a\x7f", "\x1b[31m"} {
		err := h.Check(Request{URL: "https://a.example", Header: http.Header{"X-A": {value}}})
		assert.Equal(t, x402.InvalidArgument, code(err), value)
		assert.NotContains(t, err.Error(), value)
	}
	for _, method := range []string{"CONNECT", "TRACE", "get", "GET /", "G\r\nET", "BREW"} {
		assert.Equal(t, x402.InvalidArgument,
			code(h.Check(Request{URL: "https://a.example", Method: method})), method)
	}
	many := http.Header{}
	for i := range maxRequestField + 1 {
		many.Set(fmt.Sprintf("X-%d", i), "a")
	}
	for _, header := range []http.Header{many, {"X-A": {strings.Repeat("a", maxRequestHead)}},
		{"User-Agent": {"Mozilla/5.0"}}} {
		assert.Equal(t, x402.InvalidArgument,
			code(h.Check(Request{URL: "https://a.example", Header: header})))
	}
	assert.Equal(t, x402.InvalidArgument,
		code(h.Check(Request{URL: "https://a.example", Body: make([]byte, maxRequestBody+1)})))

	for _, header := range []http.Header{{"Authorization": {"Bearer x"}}, {"Cookie": {"a=b"}},
		{"accept": {"text/html"}}, {"X-Api-Key": {"é\t"}}} {
		assert.NoError(t, h.Check(Request{URL: "https://a.example", Header: header, Method: "DELETE"}))
	}
}

func tlsServer(t *testing.T) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Host))
	}))
	t.Cleanup(s.Close)
	return s, s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
}

// Each name is resolved once, every answer is checked, and only checked addresses are dialled.
func TestResolution(t *testing.T) {
	s, roots := tlsServer(t) // its certificate is for example.com
	for _, row := range []struct {
		name    string
		answers [][]string
		dialled []string
		code    x402.Code
	}{
		{"public", [][]string{{"8.8.8.8"}}, []string{"8.8.8.8:443"}, ""},
		{"private", [][]string{{"192.168.0.1"}}, nil, x402.URLBlocked},
		{"mapped", [][]string{{"::ffff:127.0.0.1"}}, nil, x402.URLBlocked},
		{"one of two private", [][]string{{"127.0.0.1", "8.8.8.8"}}, []string{"8.8.8.8:443"}, ""},
		{"all private", [][]string{{"127.0.0.1", "::1", "169.254.169.254"}}, nil, x402.URLBlocked},
		{"rebinding: one lookup, then pinned", [][]string{{"8.8.8.8"}, {"127.0.0.1"}},
			[]string{"8.8.8.8:443"}, ""},
		{"IPv4 first", [][]string{{"2606:4700::1", "8.8.8.8"}}, []string{"8.8.8.8:443"}, ""},
		{"nothing", nil, nil, x402.NetworkError},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &fakeNet{answers: row.answers, to: s.Listener.Addr().String()}
			h := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial}))
			a, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
			assert.Equal(t, row.dialled, f.dialled)
			assert.Len(t, f.lookups, 1)
			if row.code != "" {
				assert.Equal(t, row.code, code(err), err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "example.com", string(a.Content))
		})
	}
	t.Run("rebinding between the question and the payment", func(t *testing.T) {
		f := &fakeNet{answers: [][]string{{"8.8.8.8"}, {"127.0.0.1"}}, to: s.Listener.Addr().String()}
		h := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial}))
		must.Get(h.Ask(t.Context(), Request{URL: "https://example.com/"}))(t)
		h.http.transport.CloseIdleConnections() // until then it is the address that was checked
		_, err := h.Present(t.Context(), Request{URL: "https://example.com/"}, signed)
		assert.False(t, wasSent(t, err))
		assert.Equal(t, x402.URLBlocked, code(err))
		assert.Equal(t, []string{"8.8.8.8:443"}, f.dialled)
	})
	t.Run("a name that leads to a listed address is not listed", func(t *testing.T) {
		f := &fakeNet{answers: [][]string{{"127.0.0.1"}}}
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		h := closed(t, New(Options{Resolver: f, RootCAs: roots, Loopback: []string{"127.0.0.1:" + port}}))
		_, err := h.Ask(t.Context(), Request{URL: "https://example.com:" + port})
		assert.Equal(t, x402.URLBlocked, code(err))
	})
	t.Run("the address is checked where the socket connects, too", func(t *testing.T) {
		h := New(Options{})
		_, err := h.http.dialOne(t.Context(), "tcp", s.Listener.Addr().String(), false)
		var stopped *blockedError
		assert.ErrorAs(t, err, &stopped)
	})
}

// A proxy named in the environment sees nothing. (Loopback addresses would never
// go through one, so the seller has a public name here.)
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://9.9.9.9:3128")
	}
	s, roots := tlsServer(t)
	f := &fakeNet{answers: [][]string{{"8.8.8.8"}}, to: s.Listener.Addr().String()}
	m := closed(t, New(Options{Resolver: f, RootCAs: roots, dial: f.dial}))
	must.Get(m.Ask(t.Context(), Request{URL: "https://example.com/"}))(t)
	assert.Equal(t, []string{"8.8.8.8:443"}, f.dialled)
	h := newHTTP(Options{})
	assert.Nil(t, h.transport.Proxy,
		"the environment is read once in a process: what was dialled shows nothing by itself")
}

func TestTLS(t *testing.T) {
	s, roots := tlsServer(t)
	ask := func(o Options, host string) error {
		f := &fakeNet{answers: [][]string{{"8.8.8.8"}}, to: s.Listener.Addr().String()}
		o.Resolver, o.dial = f, f.dial
		return must.Err(closed(t, New(o)).Present(t.Context(), Request{URL: "https://" + host}, signed))
	}
	require.NoError(t, ask(Options{RootCAs: roots}, "example.com"))
	good := s.TLS.Certificates
	var expired *x509.CertPool
	s.TLS.Certificates, expired = expiredCertificate(t)
	late := ask(Options{RootCAs: expired}, "example.com")
	s.TLS.Certificates = good
	for name, err := range map[string]error{
		"unknown authority": ask(Options{}, "example.com"),
		"other host":        ask(Options{RootCAs: roots}, "other.example"),
		"expired":           late,
	} {
		t.Run(name, func(t *testing.T) {
			assert.False(t, wasSent(t, err), name)
			assert.Equal(t, x402.NetworkError, code(err), name)
			assert.Contains(t, err.Error(), "certificate", name)
		})
	}
	s.TLS.MinVersion, s.TLS.MaxVersion = tls.VersionTLS10,
		tls.VersionTLS11 //nolint:gosec // the fault under test
	err := ask(Options{RootCAs: roots}, "example.com")
	assert.Equal(t, x402.NetworkError, code(err))
	assert.Contains(t, err.Error(), "was not sent")
}

// expiredCertificate was good for example.com until a minute ago.
func expiredCertificate(t *testing.T) ([]tls.Certificate, *x509.CertPool) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"example.com"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	leaf := must.Get(x509.ParseCertificate(der))(t)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, pool
}

func TestLocalhostIsThisMachine(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	f := &fakeNet{answers: [][]string{{"8.8.8.8"}}}
	h := closed(t, New(Options{Resolver: f, Loopback: []string{"localhost:" + port}}))
	a := must.Get(h.Ask(within(t, time.Minute), Request{URL: "http://localhost:" + port}))(t)
	assert.Equal(t, "ok", string(a.Content))
	assert.Empty(t, f.lookups)
}

// Whatever passes goes to https or to a listed place, with a host that is in one spelling only.
func FuzzCheckURL(f *testing.F) {
	for _, u := range []string{"https://a.example/", "http://127.0.0.1:4021/x", "https://[2606:4700::1]:1/",
		"https://0x7f.1", "https://a@b/", "https://a.example:443\\@b"} {
		f.Add(u)
	}
	h := New(Options{Loopback: []string{"127.0.0.1:4021"}})
	f.Fuzz(func(t *testing.T, raw string) {
		at, err := h.http.checkURL(raw)
		if err != nil {
			return
		}
		again, err := url.Parse(at.String())
		if err != nil || again.Host != at.Host || again.Scheme != at.Scheme || again.User != nil {
			t.Fatalf("%q reads differently a second time: %v", raw, again)
		}
		if _, err := http.NewRequest("GET", at.String(), nil); err != nil {
			t.Fatalf("%q passes, but cannot be sent: %v", raw, err)
		}
		listed := hostPort(at) == "127.0.0.1:4021"
		if ip, err := netip.ParseAddr(at.Hostname()); err == nil && !public(ip) && !listed {
			t.Fatalf("%q leads to %s", raw, ip)
		}
		if at.Scheme != "https" && !listed {
			t.Fatalf("%q is not https", raw)
		}
		if strings.ContainsFunc(at.Host, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '%' || r == '@' || r == '/'
		}) {
			t.Fatalf("%q has the host %q", raw, at.Host)
		}
	})
}
