package seller

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// fakeProxy is an HTTP proxy for CONNECT or one of SOCKS5 (RFC 1928). Whatever it is asked for, it leads to
// one address.
type fakeProxy struct {
	url, to, says string // says is the status of CONNECT
	mu            sync.Mutex
	asked         []string
}

func startProxy(t *testing.T, scheme, to string) *fakeProxy {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &fakeProxy{url: scheme + "://" + l.Addr().String(), to: to, says: "200 OK"}
	serve := map[string]func(net.Conn) (string, bool){"http": p.connect, "socks5": p.socks}[scheme]
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn, serve)
		}
	}()
	return p
}

func (p *fakeProxy) serve(conn net.Conn, greet func(net.Conn) (string, bool)) {
	defer conn.Close()
	target, ok := greet(conn)
	p.mu.Lock()
	p.asked = append(p.asked, target)
	p.mu.Unlock()
	if !ok {
		return
	}
	on, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer on.Close()
	go func() { _, _ = io.Copy(on, conn) }()
	_, _ = io.Copy(conn, on)
}

func (p *fakeProxy) connect(conn net.Conn) (target string, ok bool) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil || r.Method != http.MethodConnect {
		return "no CONNECT", false
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 "+p.says+"\r\n\r\n")
	return r.Host, strings.HasPrefix(p.says, "200")
}

func (p *fakeProxy) socks(conn net.Conn) (target string, ok bool) {
	b := make([]byte, 260)
	read := func(n int) []byte { _, _ = io.ReadFull(conn, b[:n]); return b[:n] }
	read(int(read(2)[1]))
	_, _ = conn.Write([]byte{5, 0})
	switch read(4)[3] {
	case 1:
		target = net.IP(read(4)).String()
	case 3:
		target = string(read(int(read(1)[0])))
	}
	port := read(2)
	target = net.JoinHostPort(target, strconv.Itoa(int(port[0])<<8|int(port[1])))
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return target, true
}

func (p *fakeProxy) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// Everything but policy.loopback goes through the owner's proxy, and nothing that leads to a private address.
func TestTheOwnersProxy(t *testing.T) {
	s, roots := tlsServer(t) // its certificate is for example.com
	here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(here.Close)
	listed := strings.TrimPrefix(here.URL, "http://")
	for _, scheme := range []string{"http", "socks5"} {
		for name, row := range map[string]struct {
			url     string
			answers [][]string
			through []string
			says    string
			code    x402.Code
		}{
			"a name": {"https://example.com/", [][]string{{"8.8.8.8"}},
				[]string{"example.com:443"}, "example.com", ""},
			"a port": {"https://example.com:8443/", [][]string{{"8.8.8.8"}},
				[]string{"example.com:8443"}, "example.com:8443", ""},
			"not resolved here": {"https://example.com/", nil, []string{"example.com:443"}, "example.com",
				""},
			"leads home": {"https://example.com/", [][]string{{"127.0.0.1"}}, nil, "",
				x402.URLBlocked},
			"leads home, too": {"https://example.com/", [][]string{{"8.8.8.8", "10.0.0.1"}}, nil, "",
				x402.URLBlocked},
			"a private address": {"https://10.0.0.1/", nil, nil, "", x402.URLBlocked},
			"metadata":          {"https://[fd00:ec2::254]/", nil, nil, "", x402.URLBlocked},
			"this machine":      {"https://localhost/", nil, nil, "", x402.URLBlocked},
			"a local name":      {"https://db.internal/", nil, nil, "", x402.URLBlocked},
			"plain http":        {"http://example.com/", nil, nil, "", x402.URLBlocked},
			"listed":            {here.URL + "/", nil, nil, "here", ""},
			"the proxy's own":   {"https://127.0.0.1:1/", nil, nil, "", x402.URLBlocked},
			"other certificates": {"https://other.example/", nil, []string{"other.example:443"}, "",
				x402.NetworkError},
		} {
			p := startProxy(t, scheme, s.Listener.Addr().String())
			h := closed(t, New(Options{Resolver: &fakeNet{answers: row.answers}, RootCAs: roots, Proxy: p.url,
				Loopback: []string{listed}}))
			target := strings.Replace(row.url, "127.0.0.1:1/", strings.SplitN(p.url, "://", 2)[1]+"/", 1)
			a, err := h.Ask(t.Context(), Request{URL: target})
			if row.code != "" {
				assert.Equal(t, row.code, code(err), "%s, %s: %v", scheme, name, err)
			} else if assert.NoError(t, err, "%s, %s", scheme, name) {
				assert.Equal(t, row.says, string(a.Content), name)
			}
			assert.Equal(t, row.through, p.targets(), "%s, %s", scheme, name)
		}
	}
}

// A proxy that refuses, ends, or leads elsewhere is an error before anything is sent; a payment gets no
// further.
func TestAProxyThatLies(t *testing.T) {
	s, _ := tlsServer(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for name, change := range map[string]func(*fakeProxy){
		"another's certificate": func(*fakeProxy) {}, // of an authority that nobody trusts
		"no TLS":                func(p *fakeProxy) { p.to = plain.Listener.Addr().String() },
		"nobody there":          func(p *fakeProxy) { p.to = "127.0.0.1:1" },
		"refused":               func(p *fakeProxy) { p.says = "403 no" },
		"asks for a password":   func(p *fakeProxy) { p.says = "407 who are you" },
		"sends elsewhere":       func(p *fakeProxy) { p.says = "302 there\r\nLocation: https://a.example" },
	} {
		p := startProxy(t, "http", s.Listener.Addr().String())
		change(p)
		h := closed(t, New(Options{Resolver: &fakeNet{}, Proxy: p.url, OtherProxy: "HTTPS_PROXY"}))
		_, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
		assert.Equal(t, x402.NetworkError, code(err), "%s: %v", name, err)
		assert.NotContains(t, x402.AsError(err).Hint, "HTTPS_PROXY", "one is set")
		_, err = h.Present(t.Context(), Request{URL: "https://example.com/"}, signed)
		assert.False(t, wasSent(t, err), name)
	}
	h := closed(t, New(Options{Resolver: &fakeNet{}, Proxy: "http://127.0.0.1:1"}))
	_, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
	assert.Contains(t, err.Error(),
		"the proxy of the owner's rules (network.proxy) does not lead to example.com")
}

// Who has a proxy in the environment alone is told which key names it.
func TestTheKeyOfTheProxyIsNamed(t *testing.T) {
	h := closed(t, New(Options{Resolver: &fakeNet{}, OtherProxy: "ALL_PROXY"}))
	_, err := h.Ask(t.Context(), Request{URL: "https://example.com/"})
	require.Equal(t, x402.NetworkError, code(err))
	require.Contains(t, x402.AsError(err).Hint, "proxy under [network] in config.toml; ALL_PROXY")
}

func TestNodesAreReachedThroughTheProxy(t *testing.T) {
	here := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(here.Close)
	for _, scheme := range []string{"http", "socks5"} {
		p := startProxy(t, scheme, "127.0.0.1:1")
		c := NodeClient(nil, p.url)
		_, err := c.Get("https://node.example/")
		require.Error(t, err)
		require.Equal(t, []string{"node.example:443"}, p.targets())
		response := must.Get(c.Get(here.URL))(t)
		require.NoError(t, response.Body.Close())
		require.Len(t, p.targets(), 1)
	}
	_, err := NodeClient(nil, "http://%zz").Get("https://node.example/")
	require.ErrorContains(t, err, "invalid URL escape")
}
