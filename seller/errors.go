package seller

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	"x402-wallet/x402"
)

// failure is what ended an exchange, for the log. net/http and the MCP SDK put the server's own words
// into theirs, a status line or a method for one, however long they are.
type failure struct{ cause error }

func (f failure) Error() string { return x402.Brief(f.cause.Error()) }
func (f failure) Unwrap() error { return f.cause }

// hostOf is a URL's host as it stands in our own words: a name may have 253 letters.
func hostOf(at *url.URL) string { return x402.Brief(at.Host) }

// refine turns what the network did into an error of the outside. The message is in our own words:
// net/http quotes the server's bytes in some of its errors.
func refine(ctx context.Context, at *url.URL, err error) error {
	if known, ok := errors.AsType[*x402.Error](err); ok {
		return known
	}
	if is[*blockedError](err) {
		e := private(at, at.Hostname())
		e.Err = failure{err}
		return e
	}
	host, why := hostOf(at), failure{err}
	timed, isNet := errors.AsType[net.Error](err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || (isNet && timed.Timeout()) {
		return &x402.Error{Code: x402.Timeout, Message: "no complete answer from " + host + " in time",
			Hint: "make the same call again", Err: why}
	}
	// http.Transport has no error value for this.
	if strings.Contains(err.Error(), "server response headers exceeded") {
		return (&x402.Error{Code: x402.ResponseTooLarge, Message: "the seller's headers are too long",
			Err: why}).
			WithDetail("limit", maxHeaders)
	}
	if errors.Is(err, errMislabelled) || errors.Is(err, gzip.ErrChecksum) {
		return &x402.Error{Code: x402.ResponseMalformed, Message: "the answer of " + host +
			" is not in the encoding that it names", Err: why}
	}
	return &x402.Error{Code: x402.NetworkError, Message: networkMessage(ctx, host, err), Err: why,
		Hint: "make the same call again, if the host's name is right and this machine is on the network"}
}

// notReached adds to an error of a request without a payment that there is a proxy which is not used.
func (h *httpClient) notReached(err error) error {
	e, ok := errors.AsType[*x402.Error](err)
	isOut := ok && (e.Code == x402.NetworkError || e.Code == x402.Timeout)
	if !isOut || h.proxy != nil || h.options.OtherProxy == "" {
		return err
	}
	told := *e
	told.Hint = "if a proxy is needed here, the owner writes it as proxy under [network] in config.toml; " +
		h.options.OtherProxy + " of the environment is ignored"
	return &told
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isOfProxy reports whether an error is the proxy's. http.Transport has no error value for a proxy's refusal.
func isOfProxy(err error) bool {
	at, ok := errors.AsType[*net.OpError](err)
	return ok && (at.Op == "proxyconnect" || strings.HasPrefix(at.Op, "socks"))
}

func networkMessage(ctx context.Context, host string, err error) string {
	switch {
	case ctx.Err() != nil:
		return "the call was cancelled before " + host + " answered"
	case isOfProxy(err):
		return "the proxy of the owner's rules (network.proxy) does not lead to " + host
	case is[*net.DNSError](err):
		return "the name " + host + " cannot be resolved"
	case is[*tls.CertificateVerificationError](err), is[x509.UnknownAuthorityError](err):
		return host + " does not prove who it is: its certificate is not valid for that name and time"
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err):
		return "no TLS connection with " + host + " came about"
	case errors.Is(err, syscall.ECONNREFUSED):
		return host + " refuses connections"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection with " + host + " broke off"
	default:
		return "the exchange with " + host + " failed"
	}
}
