package network

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

type party struct {
	tcp, full, resumed, requests atomic.Int64
}

// counted is a party's counts at one moment, or the difference of two.
type counted struct{ tcp, full, resumed, requests int64 }

func (p *party) now() counted {
	return counted{p.tcp.Load(), p.full.Load(), p.resumed.Load(), p.requests.Load()}
}

func (c counted) since(before counted) counted {
	return counted{c.tcp - before.tcp, c.full - before.full, c.resumed - before.resumed,
		c.requests - before.requests}
}

// authority is a private certificate authority; file holds its certificate as PEM.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t testing.TB) *authority {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	certificate := must.Get(x509.ParseCertificate(der))(t)
	file := filepath.Join(t.TempDir(), "authority.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(file, encoded, 0o600))
	return &authority{certificate, key, file}
}

func (a *authority) issue(t testing.TB, name string) tls.Certificate {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2),
		DNSNames: []string{name}, NotBefore: a.certificate.NotBefore, NotAfter: a.certificate.NotAfter,
	}, a.certificate, key.Public(), a.key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveFar puts a server behind TLS and a link of this round trip, and returns its port.
func (a *authority) serveFar(t testing.TB, name, target string, rtt time.Duration, p *party) (port string) {
	at := must.Get(url.Parse(target))(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	behind := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // who dials ahead also hangs up
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isOfCall(r) {
				p.requests.Add(1)
			}
			behind.ServeHTTP(w, r)
		})}
	secure := tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{a.issue(t, name)},
		VerifyConnection: func(state tls.ConnectionState) error {
			if state.DidResume {
				p.resumed.Add(1)
			} else {
				p.full.Add(1)
			}
			return nil
		}})
	go func() { _ = server.Serve(secure) }()
	near := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := &slowLink{target: listener.Addr().String(), rtt: rtt, open: map[net.Conn]bool{}}
	go w.accept(near, p)
	t.Cleanup(func() {
		_ = near.Close()
		w.close()
		_ = server.Close()
		transport.CloseIdleConnections()
	})
	_, port, err := net.SplitHostPort(near.Addr().String())
	require.NoError(t, err)
	return port
}

// isOfCall reports whether a request belongs to a paid call and not to what the wallet does afterwards at
// its own time, when it asks the node what became of payments. That reads no balance, and asks for no
// account. (A blockhash both ask for: it is left out.)
func isOfCall(r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	const balanceOf = "0x70a08231"
	return err != nil || slices.ContainsFunc([]string{"eth_chainId", balanceOf, "getGenesisHash",
		"getMultipleAccounts", "getTokenAccountsByDelegate"}, func(asked string) bool {
		return bytes.Contains(body, []byte(asked))
	})
}

// slowLink is a way to a server that delays and does nothing else: any bandwidth, no loss.
//
// The kernel connects a client on loopback at once. So that TCP's own handshake takes its round trip
// nevertheless, what the client says first does not arrive before one and a half of them.
type slowLink struct {
	target string
	rtt    time.Duration

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func (w *slowLink) accept(near net.Listener, p *party) {
	for {
		client, err := near.Accept()
		if err != nil {
			return
		}
		p.tcp.Add(1)
		accepted := time.Now()
		go func() {
			server, err := net.Dial("tcp", w.target)
			if err != nil || !w.keep(client, server) {
				_ = client.Close()
				return
			}
			go w.carry(client, server, accepted)
			w.carry(server, client, accepted)
			w.drop(client, server)
		}()
	}
}

// carry brings what one end says to the other, half a round trip later.
func (w *slowLink) carry(from, to net.Conn, accepted time.Time) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			due := time.Now().Add(w.rtt / 2)
			if earliest := accepted.Add(w.rtt * 3 / 2); due.Before(earliest) {
				due = earliest
			}
			pieces <- piece{buffer[:n], due}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.bytes) // an end that is gone ends its own reading
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}

func (w *slowLink) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		if w.closed {
			_ = conn.Close()
			continue
		}
		w.open[conn] = true
	}
	return !w.closed
}

func (w *slowLink) drop(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(w.open, conn)
	}
}

func (w *slowLink) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for conn := range w.open {
		_ = conn.Close()
	}
}

// serveNames answers every question for an IPv4 address with 127.0.0.1, one round trip later, and
// others with nothing. It counts the questions.
func serveNames(t testing.TB, rtt time.Duration, questions *atomic.Int64) (address string) {
	conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for {
			buffer := make([]byte, 512)
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			questions.Add(1)
			reply := answerName(buffer[:n])
			time.AfterFunc(rtt, func() { _, _ = conn.WriteTo(reply, from) })
		}
	}()
	return conn.LocalAddr().String()
}

// answerName is the answer to a question of one name (RFC 1035 §4.1); nil for what is none.
func answerName(question []byte) []byte {
	const header = 12
	end := header
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the name's end, type and class
	if end > len(question) {
		return nil
	}
	const typeA = 1
	reply := append([]byte{}, question[:end]...)
	reply[2], reply[3] = 0x81, 0x80 // an answer, recursive, without error
	for i := 6; i < header; i++ {
		reply[i] = 0
	}
	if binary.BigEndian.Uint16(question[end-4:]) != typeA {
		return reply
	}
	reply[7] = 1
	// the name of the question, A, IN, 60 s, four bytes
	return append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
}
