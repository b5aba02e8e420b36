package seller

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

type watched struct {
	net.Conn
	beforePayment func() // is called before a payment is written
	payments      *atomic.Int32
}

func (c *watched) Write(p []byte) (int, error) {
	isPayment := bytes.Contains(p, []byte("PAYMENT-SIGNATURE: "))
	if isPayment {
		c.beforePayment()
	}
	n, err := c.Conn.Write(p)
	if isPayment && n > 0 {
		c.payments.Add(1)
	}
	return n, err
}

// closing is a seller that closes a kept connection when a payment comes.
type closing struct {
	when       string // "before" the payment is written, or "after" it was read
	close      func(net.Conn)
	payments   atomic.Int32 // written by the client
	connection atomic.Int32
	once       sync.Once     // closes now
	now        chan struct{} // to close before the payment is written
	closed     chan struct{}
}

// start gives a client that has asked the seller once, so that a connection is kept.
func (s *closing) start(t *testing.T, r *Request) *Client {
	t.Helper()
	s.now, s.closed = make(chan struct{}), make(chan struct{})
	raw := serveRaw(t, func(c net.Conn, in *bufio.Reader) {
		isFirst := s.connection.Add(1) == 1
		for paid := false; ; {
			if isFirst && paid && s.when == "before" {
				<-s.now
				s.close(c)
				close(s.closed)
				return
			}
			request, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, request.Body)
			if isFirst && request.Header.Get("Payment-Signature") != "" {
				s.close(c)
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			paid = true // the next one is
		}
	})
	r.URL = raw
	entry := strings.TrimPrefix(raw, "http://")
	m := closed(t, New(Options{Loopback: []string{entry},
		dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return &watched{Conn: conn, payments: &s.payments, beforePayment: s.beforePayment}, err
		}}))
	m.http.transport.IdleConnTimeout = time.Hour
	must.Get(m.Ask(t.Context(), *r))(t)
	return m
}

func (s *closing) beforePayment() {
	if s.when == "before" {
		s.once.Do(func() { close(s.now) })
		<-s.closed
	}
}

var paidRequests = map[string]Request{
	"GET":                 {Method: "GET"},
	"HEAD":                {Method: "HEAD"},
	"GET with a body":     {Method: "GET", Body: []byte("x")},
	"OPTIONS":             {Method: "OPTIONS"},
	"DELETE":              {Method: "DELETE"},
	"POST":                {Method: "POST", Body: []byte("x")},
	"POST without a body": {Method: "POST"},
	"POST with a key": {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}},
		Body: []byte("x")},
	"POST with a key and no body":   {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}},
	"DELETE with a key and no body": {Method: "DELETE", Header: http.Header{"X-Idempotency-Key": {"k"}}},
	"PUT with a key": {Method: "PUT", Header: http.Header{"X-Idempotency-Key": {"k"}},
		Body: []byte("x")},
}

// A seller closes the kept connection just before the payment is written, or just after it was read. The
// payment is written once, whatever net/http makes of the request's method.
func TestPayment_KeptConnectionCloses(t *testing.T) {
	for name, r := range paidRequests {
		for _, when := range []string{"before", "after"} {
			for _, how := range []string{"FIN", "RST"} {
				t.Run(name+", "+how+" "+when, func(t *testing.T) {
					s := &closing{when: when, close: func(c net.Conn) { _ = c.Close() }}
					if how == "RST" {
						s.close = reset
					}
					h := s.start(t, &r)
					_, err := h.Present(t.Context(), r, signed)
					assert.LessOrEqual(t, s.payments.Load(), int32(1))
					if err == nil { // nothing could be written to the first connection
						assert.Equal(t, "POST without a body, before", name+", "+when)
						return
					}
					assert.True(t, wasSent(t, err))
					assert.EqualValues(t, 1, s.connection.Load(), "nobody dials to send it again")
				})
			}
		}
	}
	t.Run("net/http by itself writes a GET twice", func(t *testing.T) {
		r := Request{Method: "GET"}
		s := &closing{when: "after", close: func(c net.Conn) { _ = c.Close() }}
		h := s.start(t, &r)
		plain := must.Get(http.NewRequestWithContext(t.Context(), "GET", r.URL, nil))(t)
		plain.Header[signed.Header] = []string{signed.Value}
		_ = must.Get(h.http.transport.RoundTrip(plain))(t).Body.Close()
		assert.EqualValues(t, 2, s.payments.Load(), "the control no longer shows the fault")
	})
}

// refusing speaks HTTP/2 by hand: it answers the first stream of a connection, and refuses the second one,
// which net/http takes for leave to send the request again. It counts the streams.
func refusing(t *testing.T, streams *atomic.Int32) string {
	t.Helper()
	const (
		data, headers, rstStream, settings, ack = 0, 1, 3, 4, 1
		endStream, endHeaders, refusedStream    = 1, 4, 7
	)
	return serveRaw(t, func(c net.Conn, in *bufio.Reader) {
		context.AfterFunc(t.Context(), func() { _ = c.Close() })
		write := func(kind, flags byte, stream uint32, payload ...byte) {
			frame := append([]byte{0, 0, byte(len(payload)), kind, flags}, 0, 0, 0, 0)
			binary.BigEndian.PutUint32(frame[5:], stream)
			_, _ = c.Write(append(frame, payload...))
		}
		if _, err := io.ReadFull(in, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		write(settings, 0, 0)
		head := make([]byte, 9)
		for {
			if _, err := io.ReadFull(in, head); err != nil {
				return
			}
			length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
			kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
			if _, err := in.Discard(length); err != nil {
				return
			}
			switch {
			case kind == settings && flags&ack == 0:
				write(settings, ack, 0)
			case kind == headers:
				if streams.Add(1) == 2 {
					write(rstStream, 0, stream, 0, 0, 0, refusedStream)
					continue
				}
				write(headers, endStream|endHeaders, stream, 0x88) // HPACK: status 200
			}
		}
	})
}

// HTTP/2 is not spoken. If it were, a payment that is refused there would not be sent again either.
func TestPayment_RefusedOverHTTP2(t *testing.T) {
	start := func(t *testing.T, streams *atomic.Int32, r *Request) *Client {
		t.Helper()
		r.URL = refusing(t, streams)
		h := newClient(t, r.URL)
		h.http.transport.Protocols.SetHTTP1(false)
		h.http.transport.Protocols.SetUnencryptedHTTP2(true)
		must.Get(h.Ask(t.Context(), *r))(t)
		return h
	}
	for name, r := range paidRequests {
		if name == "POST without a body" {
			continue // is sent as it is: HTTP/1.1 does not repeat it
		}
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int32
			h := start(t, &streams, &r)
			assert.True(t, wasSent(t, must.Err(h.Present(t.Context(), r, signed))))
			assert.EqualValues(t, 2, streams.Load())
		})
	}
	t.Run("net/http by itself sends a GET twice", func(t *testing.T) {
		var streams atomic.Int32
		r := Request{Method: "GET"}
		h := start(t, &streams, &r)
		plain := must.Get(http.NewRequestWithContext(t.Context(), "GET", r.URL, nil))(t)
		_ = must.Get(h.http.transport.RoundTrip(plain))(t).Body.Close()
		assert.EqualValues(t, 3, streams.Load(), "the control no longer shows the fault")
	})
}

// What keeps a payment from being sent again does not show on the wire: a server sees the same framing as
// of the question.
func TestPayment_Framing(t *testing.T) {
	framing := func(t *testing.T, r Request, pay bool) (lines []string) {
		t.Helper()
		var head []byte
		s := serveRaw(t, func(c net.Conn, in *bufio.Reader) {
			for !bytes.Contains(head, []byte("\r\n\r\n")) {
				b, err := in.ReadByte()
				if err != nil {
					return
				}
				head = append(head, b)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		})
		r.URL = s
		h := newClient(t, s)
		var err error
		if pay {
			_, err = h.Present(t.Context(), r, signed)
		} else {
			_, err = h.Ask(t.Context(), r)
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(head)) {
			name, _, _ := strings.Cut(line, ":")
			if name == "Content-Length" || name == "Transfer-Encoding" || name == "Connection" {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
	for _, row := range []struct {
		r    Request
		want []string
	}{
		{Request{Method: "GET"}, nil},
		{Request{Method: "HEAD"}, nil},
		{Request{Method: "OPTIONS"}, nil},
		{Request{Method: "DELETE"}, nil},
		{Request{Method: "POST"}, []string{"Content-Length: 0"}},
		{Request{Method: "POST", Body: []byte("abc")}, []string{"Content-Length: 3"}},
		{Request{Method: "PATCH", Body: []byte("abc")}, []string{"Content-Length: 3"}},
		{Request{Method: "GET", Body: []byte("abc")}, []string{"Content-Length: 3"}},
	} {
		for _, pay := range []bool{false, true} {
			assert.Equal(t, row.want, framing(t, row.r, pay), "%s, %d bytes, paid: %v", row.r.Method,
				len(row.r.Body), pay)
		}
	}
}
