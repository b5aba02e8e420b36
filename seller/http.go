package seller

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/weburl"
	"x402-wallet/x402/wire"
)

// Limits of one call.
const (
	maxContent = 32 << 10 << 10 // content stored
	// a 402 header may be 64 KiB (x402.MaxHeader); twice that leaves room for the others
	maxHeaders  = 128 << 10
	maxHops     = 5 // redirects before payment
	connectTime = 10 * time.Second
	// idleTime is how long a connection is kept for the next request: shorter than the 5 s after which many
	// servers close one, because a payment that meets a closing connection may be lost. maxIdle is how many
	// connections are kept.
	idleTime       = 4 * time.Second
	maxIdle        = 64
	maxIdleOfOne   = 8
	maxTLSSessions = 256
	maxSlurp       = 4 << 10 // what is read of a redirect's body, in bytes
)

// httpClient is the safe client. It is safe for concurrent use.
type httpClient struct {
	options   Options
	loopback  map[string]bool
	resolver  resolver
	transport *http.Transport
	proxy     *proxy // nil: none
	*bodySemaphores
}

func newHTTP(o Options) *httpClient {
	h := &httpClient{options: o, loopback: map[string]bool{}, resolver: o.Resolver,
		bodySemaphores: newBodySemaphores()}
	for _, entry := range o.Loopback {
		h.loopback[entry] = true
	}
	if h.resolver == nil {
		h.resolver = net.DefaultResolver
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	h.transport = &http.Transport{
		// never from the environment: a project's .env must not see the traffic
		Proxy:       nil,
		DialContext: h.dialContext,
		// A session is resumed with whoever proved to be that host within this process's life.
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(maxTLSSessions)},
		TLSHandshakeTimeout:    connectTime,
		Protocols:              protocols,
		IdleConnTimeout:        idleTime,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdleOfOne,
		DisableCompression:     true, // decoded here, under the same limit as everything else
		MaxResponseHeaderBytes: maxHeaders,
	}
	var err error
	h.proxy, err = newProxy(o.Proxy)
	switch {
	case err != nil: // the rules were not checked
		h.transport.Proxy = func(*http.Request) (*url.URL, error) { return nil, err }
	case h.proxy != nil:
		h.transport.Proxy = h.through
	}
	return h
}

func (h *httpClient) close() { h.transport.CloseIdleConnections() }

// ask asks, and goes where redirects within the origin lead.
func (h *httpClient) ask(ctx context.Context, r Request) (*Answer, error) {
	for hops := 0; ; hops++ {
		at, err := h.check(r)
		if err != nil {
			return nil, err
		}
		response, err := h.send(ctx, r, at, nil)
		if err != nil {
			return nil, h.notReached(refine(ctx, at, err))
		}
		next, err := h.redirect(r, at, response, hops)
		if err != nil || next == "" {
			if err != nil {
				_ = response.Body.Close()
				return nil, err
			}
			if asksForPayment(response.StatusCode) {
				r.Cookies.take(at, response)
			}
			answer, err := h.read(response, at, h.asked, cmp.Or(r.MaxContent, h.options.MaxContent))
			if err != nil {
				return nil, refine(ctx, at, err)
			}
			return answer, nil
		}
		if n := response.ContentLength; n > 0 && n <= maxSlurp { // so that its connection can be kept
			_, _ = io.CopyN(io.Discard, response.Body, maxSlurp)
		}
		_ = response.Body.Close()
		r.URL = next
	}
}

func (h *httpClient) present(ctx context.Context, r Request, with wire.Attachment) (*Answer, error) {
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
	answer, err := h.read(response, at, h.paid, h.options.MaxContent)
	if err != nil {
		answer.Truncated = true
		return answer, &SendError{Sent: true, Err: refine(ctx, at, err)}
	}
	return answer, nil
}

// send makes one exchange, on a kept connection if there is one.
func (h *httpClient) send(ctx context.Context, r Request, at *url.URL, payment *wire.Attachment) (
	*http.Response, error) {
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
		r.Cookies.give(at, request)
	}
	if payment != nil || !mayRepeat(request.Method) {
		sendOnce(request, r.Body)
	}
	if trace := steps.PassedOn(ctx); trace != "" {
		preset(steps.Header, trace)
	}
	response, err := h.transport.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		return nil, errors.New("the seller switched protocols, unasked")
	}
	return response, err
}

// sendOnce has net/http send a request at most once. On a kept connection that turns out to be closed,
// net/http sends a request again if its method is GET, HEAD or OPTIONS or if it has an Idempotency-Key;
// over HTTP/2 also if the server goes away or refuses the stream. It does none of this when the body cannot
// be read again.
func sendOnce(request *http.Request, body []byte) {
	hasKey := request.Header.Get("Idempotency-Key") != "" || request.Header.Get("X-Idempotency-Key") != ""
	hasLength := false // an empty body is announced, too
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		hasLength = true
	}
	if len(body) == 0 && hasLength && !hasKey {
		return // HTTP/1.1 sends it once as it is, with Content-Length: 0
	}
	request.Body, request.GetBody = io.NopCloser(bytes.NewReader(body)), nil
	request.ContentLength = int64(len(body))
	if len(body) == 0 && !hasLength {
		// no chunks, and no header about a body: the server sees what it sees without one
		request.TransferEncoding = []string{"identity"}
	}
}

// mayRepeat reports whether a question may be asked twice.
func mayRepeat(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func methodOf(r Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// redirect is where an unpaid request goes next; "" when the response is the answer.
func (h *httpClient) redirect(r Request, at *url.URL, response *http.Response, hops int) (string, error) {
	location := response.Header.Get("Location")
	var keepsMethod bool
	switch response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		keepsMethod = true
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		keepsMethod = mayRepeat(methodOf(r))
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
			WithHint("nothing was sent there; if it is meant, ask for that address itself").
			WithNext(x402.Next{Do: x402.Change, Why: "the address in details.location can be asked itself"})
	case !keepsMethod:
		return "", refuse(location, "the seller redirects a "+methodOf(r)+" so that it would become a GET").
			WithHint("ask for that address with GET if it is meant")
	}
	return weburl.Fold(target.String()), nil
}

// Onward is the request to which the answer to a payment leads by a redirect within its origin: a GET without
// body and payment. ok is false where it leads nowhere, where the same request would have to be made again,
// with the payment (307, 308), and where another origin would be asked.
func Onward(r Request, a *Answer) (next Request, ok bool) {
	switch a.Status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if !mayRepeat(methodOf(r)) {
			return next, false
		}
	default:
		return next, false
	}
	at, err := url.Parse(a.FinalURL)
	location := a.Header.Get("Location")
	if err != nil || location == "" || IsMCP(r.Method) {
		return next, false
	}
	target, err := at.Parse(location)
	if err != nil || origin(target) != origin(at) {
		return next, false
	}
	target.Fragment, target.RawFragment = "", ""
	header := r.Header.Clone()
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language",
		"Content-Location"} {
		header.Del(name)
	}
	return Request{URL: target.String(), Header: header}, true
}

func refuse(location, why string) *x402.Error {
	return x402.Errorf(x402.RedirectRefused, "%s", why).WithDetail("location", x402.Quote(location))
}
