package seller

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"x402-wallet/internal/pattern"
)

// maxQuiet is how long a stream of events may be silent between two of them. Servers that keep a stream open
// send a comment every 15 s or so; models that think for minutes do that before their first event.
const maxQuiet = 30 * time.Second

// streamTypes are the media types of answers that may have no end.
var streamTypes = []string{"text/event-stream", "application/x-ndjson", "application/ndjson",
	"application/jsonl", "application/stream+json"}

// lastEvent is the event by which servers of language models end a stream, some without closing it.
var lastEvent = pattern.Lazy(`(?:^|\n)data: ?\[DONE\]\r?\n`)

// longestLastEvent is how many bytes lastEvent takes.
const longestLastEvent = len("\ndata: [DONE]\r\n")

// stream is the body of an answer that its sender may leave open. It ends after lastEvent, and where it has
// begun also when nothing came for a while or the call's time is over: what came until then is the answer.
type stream struct {
	body  io.ReadCloser
	ctx   context.Context
	quiet time.Duration

	began  bool
	last   []byte // the last bytes that came
	isOver bool   // lastEvent came
	isMute atomic.Bool
	isLate bool // the call's time was over first
}

// follow makes a stream of the response's body, if it has the type of one. It returns nil if not.
func follow(response *http.Response, quiet time.Duration) *stream {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if !slices.Contains(streamTypes, kind) {
		return nil
	}
	s := &stream{body: response.Body, ctx: requestContext(response), quiet: quiet}
	response.Body = s
	return s
}

func (s *stream) Read(p []byte) (int, error) {
	if s.isOver || s.isMute.Load() {
		return 0, io.EOF
	}
	if s.began {
		timer := time.AfterFunc(s.quiet, func() {
			s.isMute.Store(true)
			_ = s.body.Close() // ends the Read below
		})
		defer timer.Stop()
	}
	n, err := s.body.Read(p)
	s.began = s.began || n > 0
	s.last = append(s.last, p[:n]...)
	s.isOver = lastEvent().Match(s.last)
	if extra := len(s.last) - longestLastEvent; extra > 0 {
		s.last = slices.Delete(s.last, 0, extra)
	}
	if err == nil || errors.Is(err, io.EOF) || !s.began {
		return n, err
	}
	if s.isMute.Load() {
		return n, io.EOF
	}
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		s.isLate = true
		return n, io.EOF
	}
	return n, err
}

func (s *stream) Close() error { return s.body.Close() }

// isLeftOpen reports whether the stream has ended without an end of its own.
func (s *stream) isLeftOpen() bool { return s != nil && (s.isOver || s.isMute.Load() || s.isLate) }
