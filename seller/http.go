// Package transport carries a request to a seller: first without payment, then once with it.
//
// What must stay true: no request reaches an address that its owner did not publish to the
// Internet, unless the wallet's owner listed exactly that host and port; a request with a payment
// leaves at most once, on a connection of its own, to the origin it was made for; and nothing a
// seller sends can take unbounded memory or time.
//
// The stock client breaks each of these, measured (reference/security.md findings 7, 9, 13): it
// follows redirects with the payment attached, accepts 10 MiB of headers and a gigabyte out of a
// megabyte of gzip, takes a proxy from the environment, and when a kept-alive connection dies after
// the server read a signed GET, sends it a second time unasked.
//
// The files: mux.go (which of the two). HTTP: http.go (ask, present), check.go (what may be sent),
// dial.go (to which addresses), body.go (what is taken in), errors.go (what the network's errors
// mean outside); node.go is the client for the owner's own nodes and facilitators. MCP: mcp.go (a
// request and its answer), mcpsession.go (sessions, opened and ended), mcpexchange.go (what left
// and what came, read raw), mcptransport.go (where that is noted, and how a payment leaves once),
// mcptools.go (lists of tools, and errors); connections are internal/mcpconn's.
package seller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"x402-wallet/x402"
)

// Request is what a buyer asks for: over HTTP, or, with one of the MCP methods, of an MCP server.
type Request struct {
	Method string // "" is GET
	// MCP: the endpoint, or mcp://<name> of a configured server, and what is asked for as the
	// fragment
	URL    string
	Header http.Header
	Body   []byte // MCP: the arguments, a JSON object; nil: none

	// MCP: hears how far the server is; called by another goroutine; nil: nobody wants to know
	Progress func(Progress)
}

// Answer is what a seller said. All of it is a stranger's.
type Answer struct {
	Status      int
	Header      http.Header
	Content     []byte // decoded if it came as gzip
	ContentType string // a well-formed media type, or ""
	Truncated   bool   // Content is not all there was
	FinalURL    string // what answered, after redirects: a payment for this answer goes there
	Date        time.Time

	Challenge     *x402.Challenge // set when Status is 402 or 412 …
	ChallengeErr  error           // … or why it could not be read
	Settlement    *x402.Settlement
	SettlementErr error
	ToolFailed    bool // MCP: the server says that what it was asked for came to nothing; its Status is 500
}

// Options configure the client. The zero value is right for sellers on the Internet.
type Options struct {
	// exact host:port that http:// and private addresses are allowed for (SPEC §4, policy.loopback)
	Loopback []string
	// "" is "x402-wallet"; never with "Mozilla", which gets an HTML paywall (x402-protocol.md §1.1)
	UserAgent  string
	MaxContent int64          // 0 is 32 MiB
	RootCAs    *x509.CertPool // nil: the system's. For tests; there is no way to skip the check
	Resolver   resolver       // nil: the system's

	dial dialFunc // tests only: what opens a connection to an address that was allowed
}

// Limits (SPEC §10).
const (
	maxContent = 32 << 10 << 10 // SPEC: content stored
	// a 402 header may be 64 KiB (x402.MaxHeader); twice that leaves room for the others
	maxHeaders  = 128 << 10
	maxHops     = 5 // redirects before payment
	connectTime = 10 * time.Second
)

// HTTP is the safe client. It is safe for concurrent use.
type HTTP struct {
	options   Options
	loopback  map[string]bool
	transport http.RoundTripper
}

// New makes a client.
func New(o Options) *HTTP {
	if o.UserAgent == "" {
		o.UserAgent = "x402-wallet"
	}
	if o.MaxContent <= 0 {
		o.MaxContent = maxContent
	}
	h := &HTTP{options: o, loopback: map[string]bool{}}
	for _, entry := range o.Loopback {
		h.loopback[entry] = true
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 multiplexes and resends on its own
	h.transport = &http.Transport{
		// not even from the environment: a project's .env must not see the traffic (security.md
		// C15)
		Proxy:               nil,
		DialContext:         h.dialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		TLSHandshakeTimeout: connectTime,
		Protocols:           protocols,
		// a connection of its own for each request: the transport resends on used ones only
		DisableKeepAlives:      true,
		DisableCompression:     true, // decoded here, under the same limit as everything else
		MaxResponseHeaderBytes: maxHeaders,
	}
	return h
}

// SendError says why a request with a payment has no whole answer. Sent is false only when provably
// not one byte of it left: no connection came about. Anything else may have been read and settled.
type SendError struct {
	Sent bool
	Err  error
}

// Error says on which side of the line it is.
func (e *SendError) Error() string {
	if e.Sent {
		return "the payment was sent: " + e.Err.Error()
	}
	return "the payment was not sent: " + e.Err.Error()
}

// Unwrap gives the *x402.Error.
func (e *SendError) Unwrap() error { return e.Err }

// Ask sends a request without payment. Redirects are followed up to five times within the same
// origin; a request that is neither GET nor HEAD only where the redirect keeps its method (307,
// 308). Errors are *x402.Error.
func (h *HTTP) Ask(ctx context.Context, r Request) (*Answer, error) {
	for hops := 0; ; hops++ {
		at, err := h.check(r)
		if err != nil {
			return nil, err
		}
		response, err := h.send(ctx, r, at, nil)
		if err != nil {
			return nil, refine(ctx, at, err)
		}
		next, err := h.redirect(r, at, response, hops)
		if err != nil || next == "" {
			if err != nil {
				_ = response.Body.Close()
				return nil, err
			}
			answer, err := h.read(response, at)
			if err != nil {
				return nil, refine(ctx, at, err)
			}
			return answer, nil
		}
		_ = response.Body.Close()
		r.URL = next
	}
}

// Present sends a request with one payment or proof header, exactly once: a fresh connection, no
// redirects (a 3xx is the answer). An error is a *SendError. It comes together with an Answer when
// the headers arrived and the body broke off: the receipt is in the headers.
func (h *HTTP) Present(ctx context.Context, r Request, with x402.Attachment) (*Answer, error) {
	at, err := h.check(r)
	if err == nil && !validField(with.Header, with.Value) {
		err = x402.Errorf(x402.Internal, "the payment does not fit into a header")
	}
	if err != nil {
		return nil, &SendError{Err: err}
	}
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := h.send(httptrace.WithClientTrace(ctx, trace), r, at, &with)
	if err != nil {
		return nil, &SendError{Sent: connected.Load(), Err: refine(ctx, at, err)}
	}
	answer, err := h.read(response, at)
	if err != nil {
		answer.Truncated = true
		return answer, &SendError{Sent: true, Err: refine(ctx, at, err)}
	}
	return answer, nil
}

// send makes one exchange on one connection.
func (h *HTTP) send(ctx context.Context, r Request, at *url.URL, payment *x402.Attachment) (*http.Response,
	error) {
	request, err := http.NewRequestWithContext(ctx, methodOf(r), at.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	if r.Header != nil {
		request.Header = canonical(r.Header)
	}
	preset := func(name, value string) {
		if request.Header.Get(name) == "" {
			request.Header.Set(name, value)
		}
	}
	preset("User-Agent", h.options.UserAgent)
	preset("Accept", "application/json, */*;q=0.8")
	if len(r.Body) > 0 && json.Valid(r.Body) {
		preset("Content-Type", "application/json")
	}
	// gzip may come all the same, and is decoded under the limit
	request.Header.Set("Accept-Encoding", "identity")
	if payment != nil {
		// not canonical: the wire spelling of the protocol
		request.Header[payment.Header] = []string{payment.Value}
	}
	response, err := h.transport.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		return nil, errors.New("the seller switched protocols, unasked")
	}
	return response, err
}

func methodOf(r Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// redirect is where an unpaid request goes next; "" when the response is the answer.
func (h *HTTP) redirect(r Request, at *url.URL, response *http.Response, hops int) (string, error) {
	location := response.Header.Get("Location")
	var keepsMethod bool
	switch response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		keepsMethod = true
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		keepsMethod = methodOf(r) == http.MethodGet || methodOf(r) == http.MethodHead
	default:
		return "", nil
	}
	if location == "" {
		return "", nil
	}
	target, err := at.Parse(location)
	if err != nil {
		return "", refuse(location, "the seller redirects to something that is no URL")
	}
	if target.Fragment != "" { // never sent to a server, so nothing is lost
		target.Fragment, target.RawFragment = "", ""
	}
	switch {
	case hops == maxHops:
		return "", refuse(location, "the seller redirects more than 5 times")
	case origin(target) != origin(at):
		return "", refuse(location, "the seller redirects to another origin").
			WithHint("nothing was sent there; if it is meant, ask for that address itself")
	case !keepsMethod:
		return "", refuse(location, "the seller redirects a "+methodOf(r)+" so that it would become a GET").
			WithHint("ask for that address with GET if it is meant")
	}
	return target.String(), nil
}

func refuse(location, why string) *x402.Error {
	return x402.Errorf(x402.RedirectRefused, "%s", why).WithDetail("location", quote(location))
}
