package seller

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// packed is a text in each encoding that sellers use.
func packed(t *testing.T, text string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{"gzip": zipped(t, []byte(text))}
	pack := func(name string, writer func(io.Writer) io.WriteCloser) {
		var b bytes.Buffer
		w := writer(&b)
		must.Get(io.WriteString(w, text))(t)
		require.NoError(t, w.Close())
		all[name] = b.Bytes()
	}
	pack("br", func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) })
	pack("zstd", func(w io.Writer) io.WriteCloser { return must.Get(zstd.NewWriter(w))(t) })
	pack("deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	pack("deflate without a header", func(w io.Writer) io.WriteCloser {
		return must.Get(flate.NewWriter(w, flate.BestSpeed))(t)
	})
	return all
}

// What was paid for, and what asks for payment, is read in every encoding.
func TestEncodings(t *testing.T) {
	challenge := `{"x402Version":1,"accepts":[{"scheme":"exact","network":"base","maxAmountRequired":"10",` +
		`"asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","payTo":"0x1111111111111111111111111111111111111111",` +
		`"resource":"https://example.com/","maxTimeoutSeconds":60}]}`
	for _, text := range []string{"hello", challenge, strings.Repeat("weather ", 100_000)} {
		for name, body := range packed(t, text) {
			encoding, _, _ := strings.Cut(name, " ")
			status := http.StatusOK
			if text == challenge {
				status = http.StatusPaymentRequired
			}
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", encoding)
				w.WriteHeader(status)
				_, _ = w.Write(body)
			})
			a := must.Get(newClient(t, s.URL).Ask(t.Context(), Request{URL: s.URL}))(t)
			assert.Equal(t, text, string(a.Content), name)
			assert.Equal(t, text == challenge, a.Challenge != nil, "%s: %v", name, a.ChallengeErr)
			assert.Empty(t, a.Header.Get("Content-Encoding"), name)
		}
	}
}

// A body that is not in its encoding is kept as it came where it was paid for, and refused before.
func TestEncodings_Mislabelled(t *testing.T) {
	for _, encoding := range []string{"gzip", "zstd"} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			_, _ = io.WriteString(w, `{"temp":20}`)
		})
		h := newClient(t, s.URL)
		assert.Equal(t, x402.ResponseMalformed, code(must.Err(h.Ask(t.Context(), Request{URL: s.URL}))),
			encoding)
		a := must.Get(h.Present(t.Context(), Request{URL: s.URL}, signed))(t)
		assert.Equal(t, `{"temp":20}`, string(a.Content), encoding)
	}
}

// Small bodies that unpack to what is above the limit end there, and a zstd frame whose window takes more
// memory than the web's is refused.
func TestEncodings_Bombs(t *testing.T) {
	for name, body := range packed(t, strings.Repeat("\x00", maxContent+1)) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			encoding, _, _ := strings.Cut(name, " ")
			w.Header().Set("Content-Encoding", encoding)
			_, _ = w.Write(body)
		})
		a := must.Get(newClient(t, s.URL).Ask(within(t, time.Minute), Request{URL: s.URL}))(t)
		assert.True(t, a.Truncated, name)
		assert.Len(t, a.Content, maxContent, name)
		a.Release()
	}
	// a frame header that asks for a window of 128 MiB
	wide := must.Get(base64.StdEncoding.DecodeString("KLUv/QCIAQAAAA=="))(t)
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		_, _ = w.Write(wide)
	})
	require.Error(t, must.Err(newClient(t, s.URL).Ask(t.Context(), Request{URL: s.URL})))
}

// However many sellers send what takes much memory to unpack, and then nothing more, little is taken.
func TestEncodings_ManyAtOnce(t *testing.T) {
	var b bytes.Buffer
	w := brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 5, LGWin: 24})
	must.Get(w.Write(make([]byte, 2*maxContent)))(t)
	require.NoError(t, w.Close())
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = w.Write(b.Bytes()[:b.Len()/2])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := newClient(t, s.URL)
	const sellers = 24
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var asking sync.WaitGroup
	ctx := within(t, 3*time.Second)
	for range sellers {
		asking.Go(func() { _, _ = h.Ask(ctx, Request{URL: s.URL}) })
	}
	most := uint64(0)
	for ctx.Err() == nil {
		runtime.GC()
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
		time.Sleep(50 * time.Millisecond)
	}
	asking.Wait()
	require.Less(t, most-min(most, before.HeapAlloc), uint64(160<<20))
}

// A stream that stays open is served with what came: after its last event at once, else when nothing comes
// any more, or at the end of the call's time.
func TestStreams(t *testing.T) {
	const event = "data: {\"n\":1}\n\n"
	for _, row := range []struct {
		name, kind, body string
		wait             time.Duration // of the call
		most             time.Duration // until the answer
		isCut            bool
	}{
		{"after [DONE]", "text/event-stream", event + "data: [DONE]\n\n", time.Minute, 5 * time.Second,
			false},
		{"[DONE] in Windows' lines", "text/event-stream; charset=utf-8", "data:[DONE]\r\n", time.Minute,
			5 * time.Second, false},
		{"silent", "text/event-stream", event, time.Minute, 20 * time.Second, false},
		{"silent lines of JSON", "application/x-ndjson", "{}\n", time.Minute, 20 * time.Second, false},
		{"[DONE] inside an event", "text/event-stream", "data: say data: [DONE]\n\n", time.Minute,
			20 * time.Second, false},
		{"at the end of the call", "text/event-stream", "", 300 * time.Millisecond, 20 * time.Second, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", row.kind)
				_, _ = io.WriteString(w, row.body)
				_ = http.NewResponseController(w).Flush()
				for tick := 0; row.body == "" && r.Context().Err() == nil; tick++ {
					fmt.Fprintf(w, "data: %d\n\n", tick)
					_ = http.NewResponseController(w).Flush()
					time.Sleep(20 * time.Millisecond)
				}
				<-r.Context().Done()
			})
			h := newClient(t, s.URL)
			h.http.options.quiet = 500 * time.Millisecond
			began := time.Now()
			a := must.Get(h.Present(within(t, row.wait), Request{URL: s.URL}, signed))(t)
			assert.Less(t, time.Since(began), row.most)
			assert.Equal(t, row.isCut, a.Truncated)
			if row.body != "" {
				assert.Equal(t, row.body, string(a.Content))
			}
			assert.NotEmpty(t, a.Content)
		})
	}
}

// Before its first event a stream may be silent as long as the call lasts; what is no stream is cut when it
// falls silent.
func TestStreams_BeforeTheFirstEvent(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", strings.TrimPrefix(r.URL.Path, "/"))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(400 * time.Millisecond)
		_, _ = io.WriteString(w, "data: late\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := newClient(t, s.URL)
	h.http.options.quiet = 100 * time.Millisecond
	a := must.Get(h.Present(within(t, time.Minute), Request{URL: s.URL + "/text/event-stream"}, signed))(t)
	assert.Equal(t, "data: late\n\n", string(a.Content))
	_, err := h.Present(within(t, time.Second), Request{URL: s.URL + "/application/json"}, signed)
	assert.True(t, wasSent(t, err))
}
