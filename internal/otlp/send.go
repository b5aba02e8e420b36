package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"x402-wallet/x402"
)

const (
	// sendTime bounds one try.
	sendTime = 10 * time.Second
	// maxPause is the longest that a collector can make us wait before another one (Retry-After).
	maxPause = 30 * time.Second
	// maxReply bounds what a collector says.
	maxReply = 64 << 10
)

// pauses are before the tries of a batch: a collector that restarts is back within seconds.
var pauses = []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// send brings a batch to the collector. lost is how many of its spans the collector does not have, and why.
func (x *Exporter) send(ctx context.Context, batch []span) (lost int, why string) {
	if err := x.isSealed(ctx); err != nil {
		return len(batch), "the rules that name the collector are not sealed"
	}
	body, err := x.body(batch)
	if err != nil {
		return len(batch), err.Error()
	}
	list := x.pauses
	if list == nil {
		list = pauses
	}
	var asked time.Duration // by the collector
	for _, pause := range list {
		if !wait(ctx, max(asked, jittered(pause))) {
			return len(batch), "the wallet ended before they were sent"
		}
		r := x.post(ctx, body)
		if !r.again {
			if r.err != nil {
				return min(r.rejected, len(batch)), r.err.Error()
			}
			return 0, ""
		}
		err, asked = r.err, r.pause
		if asked > maxPause {
			break
		}
	}
	return len(batch), err.Error()
}

// jittered is a pause, a fifth longer or shorter, so that many wallets do not come back at once.
func jittered(pause time.Duration) time.Duration {
	return time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // no secret
}

func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// body is an ExportTraceServiceRequest, compressed.
func (x *Exporter) body(batch []span) ([]byte, error) {
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	err := json.NewEncoder(packed).Encode(requestOf(x.Of, batch))
	err = errors.Join(err, packed.Close())
	return out.Bytes(), err
}

// reply is what became of one try.
type reply struct {
	again    bool          // another one may come through
	pause    time.Duration // not before that
	rejected int           // spans that the collector does not have, where it is not tried again
	err      error         // nil: it has all of them
}

// all is more than there are in a batch.
const all = 1 << 30

// post makes one try. What may be tried again OTLP says: no answer, 429, 502, 503 and 504.
func (x *Exporter) post(ctx context.Context, body []byte) reply {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.URL, bytes.NewReader(body))
	if err != nil {
		return reply{rejected: all, err: errors.New("endpoint in config.toml is not a URL")}
	}
	if x.Headers != nil {
		request.Header, err = x.Headers()
		if err != nil {
			return reply{rejected: all, err: fmt.Errorf("headers_file: %w", err)}
		}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Content-Encoding", "gzip")
	request.Header.Set("User-Agent", "x402-wallet")
	client := *x.HTTP
	// what the owner's collector is told is for no other
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		return reply{again: true, err: withoutURL(err)}
	}
	defer func() { _ = answer.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return reply{again: true, pause: retryAfter(answer.Header), err: statusError(answer.StatusCode)}
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return reply{rejected: all, err: statusError(answer.StatusCode)}
	}
	return partly(said)
}

func statusError(status int) error {
	return fmt.Errorf("the collector answers with HTTP status %d", status)
}

// partly reads an ExportTraceServiceResponse: a collector may have taken only some. What cannot be read says
// nothing.
func partly(said []byte) reply {
	var response struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"` // an int64, so a text
			ErrorMessage  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	_ = json.Unmarshal(said, &response)
	n, _ := strconv.Atoi(response.PartialSuccess.RejectedSpans.String())
	if n <= 0 {
		return reply{}
	}
	return reply{rejected: n, err: fmt.Errorf("the collector rejects some: %s",
		x402.Quote(response.PartialSuccess.ErrorMessage))}
}

// retryAfter reads the header (RFC 9110 §10.2.3): seconds or a date; 0 when there is none.
func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// withoutURL takes Go's words with the URL in them off an error.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}
