package paywall

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// maxGuestResponseBytes bounds the large responses to guests that are being written at once. One has at
	// most 16 MiB, and there are some copies of it.
	maxGuestResponseBytes = 24 << 20
	// writeTime is how long a client may take to read writePart bytes.
	writeTime, writePart = 20 * time.Second, 64 << 10
)

// pacedWriter gives a client writeTime to read each part of a response: a client that reads nothing would
// take memory, and hold up notifications to all clients. It also limits large responses in total.
type pacedWriter struct {
	http.ResponseWriter
	limiter *limiter
	visitor *visitor
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *pacedWriter) Write(text []byte) (n int, err error) {
	a := &largeResponse{size: int64(len(text)), control: http.NewResponseController(p.ResponseWriter)}
	if len(text) > writePart && p.limiter != nil {
		defer p.limiter.trackResponse(p.visitor, a)()
	}
	for first := true; first || len(text) > 0; first = false {
		part := text[:min(len(text), writePart)]
		if !a.extendDeadline() {
			return n, errReadTooSlowly
		}
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil {
			return n, err
		}
		text = text[len(part):]
	}
	return n, nil
}

// largeResponse is a response of more than writePart bytes that is being written.
type largeResponse struct {
	size    int64
	since   time.Time
	control *http.ResponseController

	mu        sync.Mutex
	isAborted bool
}

var errReadTooSlowly = errors.New("the answer was read too slowly, and others wait")

// extendDeadline sets the write deadline of the next part; false if the response was aborted.
func (a *largeResponse) extendDeadline() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isAborted {
		_ = a.control.SetWriteDeadline(time.Now().Add(writeTime))
	}
	return !a.isAborted
}

func (a *largeResponse) abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isAborted = true
	_ = a.control.SetWriteDeadline(time.Now())
}

// trackResponse counts a large response until it is written. If those to visitors that bought nothing have
// too many bytes in total, the oldest are aborted.
func (l *limiter) trackResponse(v *visitor, a *largeResponse) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.bought {
		return func() {}
	}
	a.since = l.now()
	l.responses[a] = true
	for {
		total, oldest := int64(0), a
		for one := range l.responses {
			total += one.size
			if one.since.Before(oldest.since) {
				oldest = one
			}
		}
		if total <= maxGuestResponseBytes || oldest == a {
			break
		}
		delete(l.responses, oldest)
		oldest.abort()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.responses, a)
	}
}
