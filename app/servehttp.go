package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"x402-wallet/cli"
	"x402-wallet/internal/loopback"
	"x402-wallet/x402"
)

// Timeouts of agents' connections. The answer to a call and a session's stream have none.
const (
	idleTime = 2 * time.Minute
	// lastFlush is how long answers may take to be written at the end.
	lastFlush = time.Second
	maxHeader = 16 << 10
	// maxConnections bounds the connections at a time: half of the descriptors that the unit gives, so that
	// sellers, nodes and the ledger have theirs.
	maxConnections = 8000
)

// boundedListener closes connections that find no place, before anything is read of them.
type boundedListener struct {
	net.Listener
	places places[netip.Addr]
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := partyOf(conn)
		if l.places.take(from) {
			leave := sync.OnceFunc(func() { l.places.leave(from) })
			return &placedConn{Conn: conn, leave: leave}, nil
		}
		_ = conn.Close()
	}
}

// partyOf is where a connection comes from: of IPv6 the network, in which one party has all addresses.
func partyOf(conn net.Conn) netip.Addr {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	from := at.AddrPort().Addr().Unmap()
	if from.Is6() {
		const network = 64
		return netip.PrefixFrom(from, network).Masked().Addr()
	}
	return from
}

type placedConn struct {
	net.Conn
	leave func()
}

func (c *placedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite is called by net/http after an answer to a request that it did not read to its end.
func (c *placedConn) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// listenHTTP opens the door over HTTP, if there is to be one, and puts its address into doors. Without TLS it
// is one of this machine alone: a token is read by whoever carries it. names are the hosts that it answers to
// besides that of the owner's rules: those of its certificate, or this machine's.
func listenHTTP(ctx context.Context, doors *cli.Doors) (l net.Listener, names func(string) bool, err error) {
	if doors.HTTP == "" {
		return nil, nil, nil
	}
	fail := func(err error) (net.Listener, func(string) bool, error) {
		return nil, nil, x402.Errorf(x402.SetupFailed, "nothing can be served at %s: %w", doors.HTTP, err)
	}
	var config *tls.Config
	names = loopback.Local
	if doors.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(doors.Certificate, doors.Key)
		if err != nil {
			return fail(err)
		}
		names = certified(pair.Leaf)
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"}}
		config.ClientCAs, err = authorities(doors.ClientCA)
		if err != nil {
			return fail(err)
		}
		if config.ClientCAs != nil {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	l, err = new(net.ListenConfig).Listen(ctx, "tcp", doors.HTTP)
	if err != nil {
		return fail(err)
	}
	at := l.Addr().(*net.TCPAddr)
	if config == nil && !at.IP.IsLoopback() {
		_ = l.Close()
		return nil, nil, x402.Errorf(x402.InvalidArgument, "%s can be reached from other machines, and "+
			"without TLS whoever carries a token can read it", doors.HTTP).
			WithHint("give --tls-certificate and --tls-key, or serve at 127.0.0.1 behind a proxy that has " +
				"TLS")
	}
	doors.HTTP = at.String()
	l = &boundedListener{Listener: l, places: places[netip.Addr]{most: maxConnections}}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, names, nil
}

// certified are the hosts that a certificate is for, with any port.
func certified(c *x509.Certificate) func(host string) bool {
	return func(host string) bool { return c.VerifyHostname(loopback.Name(host)) == nil }
}

// authorities are those of a PEM file ("": nil), whose certificates agents may show.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

// serveHTTP serves those whom a door lets in until ctx ends, and then what is being written.
func (a *app) serveHTTP(ctx context.Context, l net.Listener, door loopback.Door, handler http.Handler) {
	server := door.Server(handler)
	server.IdleTimeout, server.MaxHeaderBytes = idleTime, maxHeader
	server.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		flush, cancel := context.WithTimeout(context.Background(), lastFlush)
		defer cancel()
		_ = server.Shutdown(flush)
		_ = server.Close() // streams are left
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("the service over HTTP has ended", "why", err)
		stop()
		return
	}
	<-ended
}
