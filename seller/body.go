package seller

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// read takes in an answer within the limits; a large one takes one of the slots. It always closes
// the body. The Answer is never nil: with an error it holds what came.
func (h *httpClient) read(response *http.Response, at *url.URL, slots chan struct{}, limit int64) (*Answer,
	error) {
	defer response.Body.Close()
	a := &Answer{Status: response.StatusCode, Header: response.Header, FinalURL: at.String(),
		ContentType: mediaType(response.Header.Get("Content-Type"))}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		a.Date = date
	}
	a.Settlement, a.SettlementErr = wire.ReadSettlement(response.Header)

	asks := asksForPayment(a.Status)
	if asks {
		limit = x402.MaxBody
	}
	events := follow(response, h.options.quiet)
	done, err := h.unpacking(response, slots == h.paid)
	defer done()
	var body io.Reader
	if err == nil {
		body, err = decoded(response, limit, slots == h.paid)
	}
	if err == nil {
		release := func() {}
		isLarge := func() error {
			acquired, err := h.acquireSlot(requestContext(response), slots)
			if err == nil {
				release = acquired
			}
			return err
		}
		a.Content, a.Truncated, err = readLimited(body, limit, response.ContentLength, isLarge)
		if events.isLeftOpen() {
			err = nil // its encoding has no end either
			a.Truncated = a.Truncated || events.isLate
		}
		a.keepSlot(release)
	}
	switch {
	case asks && err == nil && a.Truncated: // what is in a header is there all the same
		a.Challenge, a.ChallengeErr = wire.ReadChallenge(a.Status, response.Header, nil)
		if a.ChallengeErr != nil {
			a.ChallengeErr = x402.Errorf(x402.ResponseTooLarge,
				"the seller's challenge is longer than %d bytes", limit).WithDetail("limit", limit)
		}
	case asks && err == nil:
		a.Challenge, a.ChallengeErr = wire.ReadChallenge(a.Status, response.Header, a.Content)
	case asks: // the header may hold it all; whatever it says, the answer is known to be broken
		a.ChallengeErr = x402.Errorf(x402.ResponseMalformed, "the seller's challenge broke off")
	}
	return a, err
}

// asksForPayment reports whether an answer of a status may hold a challenge.
func asksForPayment(status int) bool {
	return status == http.StatusPaymentRequired || status == http.StatusPreconditionFailed
}

// requestContext is the context of the request that a response answers.
func requestContext(response *http.Response) context.Context {
	if response.Request == nil {
		return context.Background()
	}
	return response.Request.Context()
}

// readLimited reads up to limit bytes and says whether there was more. The buffer grows to the
// limit in one step once it is large, so that a flood costs little more memory than what is kept of
// it; isLarge is called before. With an error it gives what came before.
func readLimited(from io.Reader, limit, announced int64, isLarge func() error) (
	content []byte, more bool, err error) {
	const small = 64 << 10
	size := int64(small)
	if announced > 0 {
		size = min(announced+1, largeBody) // one more, to meet the end without growing
	}
	buffer := make([]byte, 0, min(size, limit+1))
	for int64(len(buffer)) <= limit {
		if len(buffer) == cap(buffer) {
			size = int64(cap(buffer)) * 4
			switch {
			case announced > largeBody && int64(len(buffer)) <= announced:
				size = announced + 1
			case size > largeBody:
				size = limit + 1
			}
			if size > largeBody {
				if err := isLarge(); err != nil {
					return trimmed(buffer), false, err
				}
			}
			buffer = append(make([]byte, 0, min(size, limit+1)), buffer...)
		}
		n, err := from.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		switch {
		case int64(len(buffer)) > limit: // there was more; how it ended does not matter
		case errors.Is(err, io.EOF):
			return trimmed(buffer), false, nil
		case err != nil:
			return trimmed(buffer), false, err
		}
	}
	return buffer[:limit], true, nil
}

// trimmed gives back a buffer that is mostly empty.
func trimmed(buffer []byte) []byte {
	if len(buffer) < cap(buffer)/2 {
		return slices.Clone(buffer)
	}
	return buffer
}

// mediaType is a Content-Type reduced to type and charset, since it stands in a field of ours; ""
// when it is none.
func mediaType(header string) string {
	kind, parameters, err := mime.ParseMediaType(header)
	if err != nil || !strings.Contains(kind, "/") || len(kind) > 100 {
		return ""
	}
	if kind == ContentType { // is our word for what a tool gave, and nobody else's
		kind = "application/json"
	}
	keep := map[string]string{}
	if charset := parameters["charset"]; token().MatchString(charset) && len(charset) <= 40 {
		keep["charset"] = charset
	}
	return mime.FormatMediaType(kind, keep)
}
