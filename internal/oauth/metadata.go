package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"x402-wallet/x402"
)

const (
	// maxMetadata bounds a server's metadata, and maxKeySet its keys, in bytes.
	maxMetadata = 64 << 10
	maxKeySet   = 256 << 10
	// maxAnswerHeader bounds what comes before them.
	maxAnswerHeader = 64 << 10
)

type publisher struct {
	server Server
	http   *http.Client
}

func newPublisher(s Server) *publisher {
	// No proxy but the rules', because the environment is not the owner; no redirect: the server shall not
	// choose another.
	return &publisher{server: s, http: &http.Client{
		Transport: &http.Transport{Proxy: s.through, ForceAttemptHTTP2: true, DisableKeepAlives: true,
			MaxResponseHeaderBytes: maxAnswerHeader},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// through is the proxy that a request to the server goes through; nil: none.
func (s Server) through(r *http.Request) (*url.URL, error) {
	ip, err := netip.ParseAddr(r.URL.Hostname())
	if s.Proxy == "" || r.URL.Hostname() == "localhost" || (err == nil && ip.IsLoopback()) {
		return nil, nil
	}
	return url.Parse(s.Proxy)
}

func (p *publisher) keys(ctx context.Context) (map[string]key, error) {
	address := p.server.KeysURL
	if address == "" {
		var err error
		if address, err = p.keysURL(ctx); err != nil {
			return nil, err
		}
	}
	text, err := p.get(ctx, address, maxKeySet)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return keys, nil
}

// keysURL is where the server's metadata says that its keys are.
func (p *publisher) keysURL(ctx context.Context) (string, error) {
	at, err := metadataURLs(p.server.Issuer)
	if err != nil {
		return "", err
	}
	var text []byte
	for _, address := range at {
		text, err = p.get(ctx, address, maxMetadata)
		if err == nil || !errors.Is(err, errNotThere) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	var said struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := x402.DecodeStrict(text, maxMetadata, &said); err != nil {
		return "", fmt.Errorf("the authorization server's metadata: %w", err)
	}
	if said.Issuer != p.server.Issuer {
		return "", errors.New("the authorization server's metadata is another issuer's")
	}
	isHTTPS := strings.HasPrefix(said.Keys, "https://")
	if !isHTTPS && !isBeside(said.Keys, p.server.Issuer) { // http is for an issuer of this machine
		return "", errors.New("the authorization server's metadata has no https jwks_uri")
	}
	return said.Keys, nil
}

// metadataURLs are where an issuer's metadata may be (RFC 8414, OpenID Connect Discovery, MCP authorization).
func metadataURLs(issuer string) ([]string, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, err
	}
	const oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	origin, path := u.Scheme+"://"+u.Host, strings.TrimRight(u.EscapedPath(), "/")
	list := []string{origin + oauth + path, origin + openid + path}
	if path != "" {
		list = append(list, origin+path+openid)
	}
	return list, nil
}

func isBeside(a, b string) bool {
	u, errU := url.Parse(a)
	v, errV := url.Parse(b)
	return errU == nil && errV == nil && u.Scheme == v.Scheme && u.Host == v.Host
}

var errNotThere = errors.New("is not there")

func (p *publisher) get(ctx context.Context, address string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := p.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode >= 400 && answer.StatusCode < 500:
		return nil, fmt.Errorf("%s %w (status %d)", address, errNotThere, answer.StatusCode)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", address, answer.StatusCode)
	}
	return io.ReadAll(io.LimitReader(answer.Body, limit+1)) // one more, which the decoder refuses
}
