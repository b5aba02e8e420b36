package facilitator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
	"x402-wallet/x402/observe"
)

const (
	connectTime = 5 * time.Second // for a name, TCP and TLS
	shortCall   = 5 * time.Second // for /verify and /supported
	maxReply    = 1 << 20         // the longest real one is a /supported of some 100 KiB
)

// reply is what one exchange brought; that of a program is one over HTTP with the status 200.
type reply struct {
	status    int
	header    http.Header
	body      []byte
	err       error // no whole answer
	connected bool  // a connection came about, so bytes may have left
	unusable  bool  // it will not go better a second time: bad URL, bad credentials
}

func (c *Client) call(ctx context.Context, f *remote, method, path string, ask url.Values,
	body []byte) reply {
	began := time.Now()
	var r reply
	if f.Command != nil {
		r = c.run(ctx, f, path, body)
	} else {
		r = c.exchange(ctx, f, method, path, ask, body)
	}
	if c.observe != nil && !errors.Is(ctx.Err(), context.Canceled) { // else it was not given its time
		request, _, _ := strings.Cut(path, "/") // discovery has several
		c.observe(f.Name, request, r.contact(), time.Since(began))
	}
	return r
}

// contact is what came of an exchange. That it does not know us is an error that the owner is
// to be told of.
func (r reply) contact() observe.Outcome {
	switch {
	case r.err != nil && r.status == 0 && !r.unusable:
		return observe.NoAnswer
	case r.err != nil, r.status >= 500, r.status/100 == 3:
		return observe.InError
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout,
		http.StatusTooManyRequests:
		return observe.InError
	}
	return observe.Answered
}

// exchange makes one: a GET with a question, or a POST with a body. The stock transport
// resends by itself only what it has not begun to write, and a POST never otherwise, so one call is
// one POST.
func (c *Client) exchange(ctx context.Context, f *remote, method, path string, ask url.Values,
	body []byte) reply {
	at, err := f.address(path, ask)
	if err != nil {
		return reply{err: err, unusable: true}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slow := time.AfterFunc(connectTime, func() { cancel(errNoConnection) })
	defer slow.Stop()
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		connected.Store(true)
		slow.Stop()
	}}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, at,
		bytes.NewReader(body))
	if err != nil {
		return reply{err: errors.New("its URL cannot be used"), unusable: true}
	}
	request.Header.Set("User-Agent", "x402-wallet")
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if trace := steps.Traceparent(ctx); trace != "" {
		request.Header.Set(steps.Header, trace)
	}
	if err := c.authorize(f, request); err != nil {
		return reply{err: fmt.Errorf("its credentials: %w", err), unusable: true}
	}
	response, err := c.http.Do(request)
	if err != nil {
		isLate := errors.Is(ctx.Err(), context.DeadlineExceeded) ||
			errors.Is(context.Cause(ctx), errNoConnection)
		if isLate && !connected.Load() {
			err = errNoConnection
		}
		return reply{err: failure{cause: err}, connected: connected.Load()}
	}
	defer response.Body.Close()
	r := reply{status: response.StatusCode, header: response.Header, connected: true}
	if r.status == http.StatusUnauthorized || r.status == http.StatusForbidden {
		f.forget()
	}
	most := int64(maxReply)
	if f.isDirectory {
		most = maxDirectory
	}
	r.body, r.err = io.ReadAll(io.LimitReader(response.Body, most+1))
	r.body = redact(r.body, request.Header)
	if r.err == nil && int64(len(r.body)) > most {
		r.err = fmt.Errorf("its answer is longer than %d bytes", most)
	}
	return r
}

// address is the URL of a path of the facilitator's, with a question or without; those are made once.
func (f *remote) address(path string, ask url.Values) (string, error) {
	made, _ := f.addresses.Load(path)
	if text, isMade := made.(string); isMade && ask == nil {
		return text, nil
	}
	at, err := url.Parse(f.URL)
	if err != nil || at.Host == "" { // not quoted: it may hold a key
		return "", errors.New("its URL cannot be read")
	}
	at = at.JoinPath(path)
	if ask != nil {
		at.RawQuery = ask.Encode()
		return at.String(), nil
	}
	f.addresses.Store(path, at.String())
	return at.String(), nil
}

// redact takes our credentials out of an answer: services repeat a key that they do not know, and
// an agent reads why they refused.
func redact(text []byte, header http.Header) []byte {
	for name, values := range header {
		switch name {
		case "User-Agent", "Accept", "Content-Type", "Traceparent":
			continue
		}
		for _, value := range values {
			for _, word := range strings.Fields(value) { // "Bearer …"
				if len(word) >= 16 { // what is shorter is no key, and may be a word of theirs
					text = bytes.ReplaceAll(text, []byte(word), []byte("***"))
				}
			}
		}
	}
	return text
}

var errNoConnection = errors.New("no connection in time")

// failure is what became of an exchange, in words for the outside: net/http puts the URL and a
// server's bytes into its own.
type failure struct{ cause error }

func (f failure) Error() string {
	timed, isNet := errors.AsType[net.Error](f.cause)
	_, isName := errors.AsType[*net.DNSError](f.cause)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](f.cause)
	switch {
	case errors.Is(f.cause, errNoConnection):
		return errNoConnection.Error()
	case isNet && timed.Timeout():
		return "no answer in time"
	case isName:
		return "its name cannot be resolved"
	case isCertificate:
		return "its certificate is not valid for that name and time"
	case errors.Is(f.cause, syscall.ECONNREFUSED):
		return "it refuses connections"
	}
	return "the exchange with it failed"
}

func (f failure) Unwrap() error { return f.cause }

// begin notes that a facilitator is asked, by its name and host of config.toml.
func begin(ctx context.Context, f *remote, what string) (context.Context, *steps.Span) {
	ctx, step := steps.Begin(ctx, steps.Facilitator)
	if step != nil {
		step.Asked(f.Name, f.host(), what)
	}
	return ctx, step
}

// host is without user, path and query, in which keys are; of a program it is its name.
func (f *remote) host() string {
	if f.Command != nil {
		return f.Command.name()
	}
	at, err := url.Parse(f.URL)
	if err != nil {
		return ""
	}
	return at.Host
}

// stepCodes are why a try to settle failed, as steps say it.
var stepCodes = [...]string{NotSent: string(x402.FacilitatorError), Refused: string(x402.SettlementFailed),
	Unknown: string(x402.OutcomeUnknown), Settled: ""}

// codeIf is that of a facilitator that gave no answer which could be used.
func codeIf(failed bool) string {
	if failed {
		return string(x402.FacilitatorError)
	}
	return ""
}
