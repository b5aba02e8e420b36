package seller

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

func TestHeaderFlood(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/one" {
			w.Header().Set("X", strings.Repeat("a", 200<<10))
		} else {
			for i := range 20_000 {
				w.Header().Set("X-"+strconv.Itoa(i), "a")
			}
		}
	})
	for _, path := range []string{"/one", "/many"} {
		_, err := newClient(t, s.URL).Ask(t.Context(), Request{URL: s.URL + path})
		assert.Equal(t, x402.ResponseTooLarge, code(err), "%s: %v", path, err)
	}
}

func flood(w io.Writer) {
	block := bytes.Repeat([]byte{'x'}, 64<<10)
	for {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestBodyFlood(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/402" {
			w.WriteHeader(402)
		}
		flood(w)
	})
	h := newClient(t, s.URL)
	h.http.options.MaxContent = 1 << 20
	a := must.Get(h.Ask(t.Context(), Request{URL: s.URL + "/402"}))(t)
	assert.Equal(t, x402.ResponseTooLarge, code(a.ChallengeErr))
	assert.Nil(t, a.Challenge)
	assert.Equal(t, x402.MaxBody, len(a.Content))

	a, err := h.Present(t.Context(), Request{URL: s.URL}, signed)
	require.NoError(t, err, "a long answer to a payment is an answer")
	assert.True(t, a.Truncated)
	assert.Equal(t, 1<<20, len(a.Content))
}

func TestContentAtTheLimit(t *testing.T) {
	for _, size := range []int{0, 1, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			for _, chunked := range []bool{false, true} {
				s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if chunked {
						w.(http.Flusher).Flush()
					} else {
						w.Header().Set("Content-Length", strconv.Itoa(size))
					}
					_, _ = w.Write(bytes.Repeat([]byte{'x'}, size))
				})
				h := newClient(t, s.URL)
				h.http.options.MaxContent = 1 << 20
				a := must.Get(h.Ask(t.Context(), Request{URL: s.URL}))(t)
				assert.Equal(t, min(size, 1<<20), len(a.Content))
				assert.Equal(t, size > 1<<20, a.Truncated, size)
			}
		})
	}
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must.Get(w.Write(data))(t)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestGzip(t *testing.T) {
	good := zipped(t, []byte("hello"))
	for _, row := range []struct {
		name, encoding string
		body           []byte
		want           string
		code           x402.Code
	}{
		{"plain", "", []byte("hello"), "hello", ""},
		{"gzip", "gzip", good, "hello", ""},
		{"x-gzip", " X-GZIP ", good, "hello", ""},
		{"two members", "gzip", append(bytes.Clone(good), good...), "hellohello", ""},
		{"an unknown one stays as it is", "compress", []byte("\x1f\x9d\x90"), "\x1f\x9d\x90", ""},
		{"nested stays as it is", "gzip, gzip", zipped(t, good), string(zipped(t, good)), ""},
		{"empty", "gzip", nil, "", ""},
		{"no gzip", "gzip", []byte("not zipped"), "", x402.ResponseMalformed},
		{"cut off", "gzip", good[:len(good)-6], "", x402.NetworkError},
		{"wrong sum", "gzip", append(bytes.Clone(good[:len(good)-8]), make([]byte, 8)...), "",
			x402.ResponseMalformed},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if row.encoding != "" {
					w.Header().Set("Content-Encoding", row.encoding)
				}
				_, _ = w.Write(row.body)
			})
			a, err := newClient(t, s.URL).Ask(t.Context(), Request{URL: s.URL})
			if row.code != "" {
				assert.Equal(t, row.code, code(err), err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, row.want, string(a.Content))
		})
	}
}

// A megabyte that unpacks to a gigabyte takes no more memory than what is kept of it.
func TestGzipBomb(t *testing.T) {
	bomb := bytes.Repeat(zipped(t, make([]byte, 1<<20)), 1024)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		if r.URL.Path == "/402" {
			w.WriteHeader(402)
		}
		_, _ = w.Write(bomb)
	})
	h := newClient(t, s.URL)
	var before, after runtime.MemStats
	debug.FreeOSMemory()
	runtime.ReadMemStats(&before)
	a := must.Get(h.Ask(t.Context(), Request{URL: s.URL}))(t)
	runtime.ReadMemStats(&after)
	assert.True(t, a.Truncated)
	assert.Equal(t, maxContent, len(a.Content))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20),
		"all that was ever allocated, not only what was left")

	a = must.Get(h.Ask(t.Context(), Request{URL: s.URL + "/402"}))(t)
	assert.Equal(t, x402.ResponseTooLarge, code(a.ChallengeErr))
}

// Empty members unpack to nothing, for ever: what goes in is limited too.
func TestEndlessEmptyGzip(t *testing.T) {
	member := bytes.Repeat(zipped(t, nil), 4096)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(402)
		for {
			if _, err := w.Write(member); err != nil {
				return
			}
		}
	})
	_, err := newClient(t, s.URL).Ask(within(t, time.Minute), Request{URL: s.URL})
	assert.Equal(t, x402.NetworkError, code(err), "ended by the limit, not by the clock")
}

func TestMediaType(t *testing.T) {
	for header, want := range map[string]string{
		"application/json": "application/json", "Text/HTML; Charset=UTF-8": "text/html; charset=UTF-8",
		"":                       "",
		"text/plain; boundary=x": "text/plain",
		"Application/vnd.MCP.result+json; charset=utf-8": "application/json; charset=utf-8", "pay now!": "",
		"text":                               "",
		"text/plain; charset=\"ignore all\"": "text/plain", "a/" + strings.Repeat("b", 100): "",
	} {
		assert.Equal(t, want, mediaType(header), header)
	}
}

// Of many large answers at once only a few are in memory: the others are read on when one of those
// before them is released, and come whole. Free ones keep no paid one waiting.
func TestLargeBodiesTakeTurns(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	c := newClient(t, s.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func() (*Answer, error) { return c.Ask(ctx, Request{URL: s.URL}) }
	pay := func() (*Answer, error) {
		return c.Present(ctx, Request{URL: s.URL}, wire.Attachment{Header: "X-PAYMENT", Value: "x"})
	}
	next := func(from chan *Answer, failed chan error) *Answer {
		select {
		case a := <-from:
			return a
		case err := <-failed:
			require.NoError(t, err)
			return nil
		}
	}
	for _, way := range []struct {
		slots int
		taken chan struct{}
		get   func() (*Answer, error)
	}{{slotsAsked, c.http.asked, ask}, {slotsPaid, c.http.paid, pay}} {
		var read atomic.Int32
		var kept []*Answer
		answers, failed := make(chan *Answer), make(chan error, 20)
		for range 20 {
			go func() {
				a, err := way.get()
				if err != nil {
					failed <- err
					return
				}
				read.Add(1)
				answers <- a
			}()
		}
		for range way.slots {
			kept = append(kept, next(answers, failed))
		}
		require.Len(t, way.taken, way.slots)
		for n := way.slots; n < 20; n++ {
			require.EqualValues(t, n, read.Load(), "nobody comes before one has left")
			kept[0].Release()
			kept[0].Release() // once more gives no second slot
			a := next(answers, failed)
			require.Equal(t, body, a.Content)
			require.False(t, a.Truncated)
			kept = append(kept[1:], a)
		}
		require.Empty(t, failed)
		defer runtime.KeepAlive(kept) // the slots of free answers are taken while paid ones are read
	}
	body = []byte("small")
	require.Equal(t, body, must.Get(ask())(t).Content, "what is small needs no slot")
}

// Whoever waits in vain has what came, and knows that it is not all; an answer that nobody released gives
// its slot back when it is garbage collected.
func TestWaitingForASlotEnds(t *testing.T) {
	body := bytes.Repeat([]byte{'x'}, 1<<20)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	c := newClient(t, s.URL)
	var kept []*Answer // else the garbage collector frees their slots
	for range slotsPaid {
		a := must.Get(c.Present(t.Context(), Request{URL: s.URL},
			wire.Attachment{Header: "X-PAYMENT", Value: "x"}))(t)
		kept = append(kept, a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	a, err := c.Present(ctx, Request{URL: s.URL}, wire.Attachment{Header: "X-PAYMENT", Value: "x"})
	require.True(t, wasSent(t, err))
	require.True(t, a.Truncated)
	require.NotEmpty(t, a.Content)
	runtime.KeepAlive(kept)
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(c.http.paid) == 0
	}, time.Minute, 10*time.Millisecond)
}

// A large body takes as much memory as its length says, if that is true, and no more than it has.
func TestAnnouncedBodies(t *testing.T) {
	const limit = 8 << 20
	for _, of := range []struct{ length, announced, most int64 }{
		{3 << 20, 3 << 20, 3<<20 + 1},
		{limit, limit, limit + 1},
		{limit + 5, limit + 5, limit + 1},
		{3 << 20, limit - 1, limit}, // it broke off
		{3 << 20, 1 << 20, limit + 1},
		{3 << 20, -1, limit + 1},
		{1000, limit, largeBody},
	} {
		body := bytes.Repeat([]byte{7}, int(of.length))
		isLarge := func() error { return nil }
		content, more, err := readLimited(bytes.NewReader(body), limit, of.announced, isLarge)
		require.NoError(t, err)
		require.Equal(t, of.length > limit, more)
		require.Equal(t, body[:min(of.length, limit)], content)
		require.LessOrEqual(t, int64(cap(content)), of.most)
	}
}
