package paywall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"x402-wallet/x402/wire"
)

// readBody reads a request's body. release must be called once the body is no longer used.
func (l *limiter) readBody(rw http.ResponseWriter, r *http.Request, v *visitor) (
	body []byte, release func(), refused *refusal) {
	l.mu.Lock()
	bought := v.bought
	l.mu.Unlock()
	limit, class, total, timeout := l.Request, 0, maxGuestBodies*l.Request, min(l.bodyTime, guestBodyTime)
	if bought {
		limit, class, total, timeout = maxBody, 1, maxBuyerBytes, l.bodyTime
	}
	counted := int64(0)
	release = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bodyBytes[class] -= counted
	}
	reserve := func(n int64) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n > 0 && l.bodyBytes[class]+n > total {
			return false
		}
		l.bodyBytes[class] += n
		counted += n
		return true
	}
	control := http.NewResponseController(rw)
	_ = control.SetReadDeadline(time.Now().Add(timeout))
	limited := http.MaxBytesReader(rw, r.Body, limit)
	for {
		if len(body) == cap(body) {
			size := max(int64(cap(body))*2, uncountedBytes)
			if !reserve(max(min(size, limit+1)-max(int64(cap(body)), uncountedBytes), 0)) {
				return nil, release, &refusal{http.StatusServiceUnavailable, 5,
					"too much is being sent at the moment"}
			}
			body = append(make([]byte, 0, min(size, limit+1)), body...)
		}
		n, err := limited.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch tooLong := (*http.MaxBytesError)(nil); {
		case errors.Is(err, io.EOF):
			_ = control.SetReadDeadline(time.Time{})
			return body, release, nil
		case errors.As(err, &tooLong) && !bought:
			return body, release, &refusal{http.StatusRequestEntityTooLarge, 0,
				fmt.Sprintf("a request has at most %d bytes before its session has bought something", limit)}
		case err != nil:
			return nil, release, &refusal{http.StatusRequestEntityTooLarge, 0,
				"the request is too large, too slow, or cut off"}
		}
	}
}

// requestID returns the id of a JSON-RPC message that may be truncated, or nil if what was read does not
// contain it. Clients close their session over an error without an id.
func requestID(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	start, _ := d.Token()
	for start == json.Delim('{') {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if key == "id" && len(value) < maxName && value[0] != '{' && value[0] != '[' {
			return value
		}
	}
	return nil
}

// countMessages counts the messages of a body; ok is false for an empty or too large batch.
func countMessages(body []byte) (n int, ok bool) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 || body[0] != '[' {
		return 1, true
	}
	d := json.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token()
	for n <= maxBatch && d.More() {
		var one json.RawMessage
		if d.Decode(&one) != nil {
			break // the SDK reports what is wrong
		}
		n++
	}
	return n, n > 0 && n <= maxBatch
}

// carriesPayment reports whether a request carries a payment, valid or not.
func carriesPayment(header http.Header, body []byte) bool {
	inHeader := func(name string) bool { return header.Get(name) != "" }
	inBody := func(key string) bool { return bytes.Contains(body, []byte(strconv.Quote(key))) }
	return slices.ContainsFunc(wire.PaymentHeaders(), inHeader) ||
		slices.ContainsFunc(wire.PaymentKeys(), inBody)
}
