package app

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"x402-wallet/internal/relay"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

const (
	// socketName is the name of the service's socket in the home (SPEC §2).
	socketName = "service.sock"
	// maxSessions bounds the sessions at a time; more are refused.
	maxSessions = 2000
	// acceptPause is the wait for descriptors where there are none.
	acceptPause = 100 * time.Millisecond
)

// systemSocket is where the service of a machine listens, which has a user and a home of its own.
func systemSocket() string {
	if runtime.GOOS == "darwin" {
		return "/var/run/x402-wallet/service.sock"
	}
	return "/run/x402-wallet/service.sock"
}

// Serve runs the MCP server for every agent that connects to the socket, until ctx ends. path "" is the one in
// the home. ready is called with the path once agents can connect.
func (a *app) Serve(ctx context.Context, path string, ready func(path string)) error {
	if path == "" {
		path = filepath.Join(a.home, socketName)
	}
	listener, err := relay.Listen(ctx, path, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	ready(path)
	server := &tools.Server{Version: a.version, Log: a.log, Mounts: true, Open: a.openForAgent,
		Background: backgroundDelay}
	d := &door{a: a, sessions: make(chan tools.Session), places: make(chan struct{}, maxSessions)}
	ctx, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go d.accept(ctx, listener)
	return server.Serve(ctx, d.sessions)
}

// door lets agents in.
type door struct {
	a        *app
	sessions chan tools.Session
	places   chan struct{}
}

func (d *door) accept(ctx context.Context, l net.Listener) {
	for ctx.Err() == nil {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors, for a moment
			time.Sleep(acceptPause)
			continue
		}
		go d.open(ctx, conn)
	}
}

// open hears who connected, and begins the session or refuses it.
func (d *door) open(ctx context.Context, conn net.Conn) {
	session, err := relay.Open(conn)
	if err != nil {
		d.a.log.Info("a connection that is no agent's", "why", err)
		return
	}
	if err := d.admits(session); err != nil {
		d.a.log.Warn("refused a session", "user", session.User, "why", err)
		_ = session.Refuse(err)
		return
	}
	select {
	case d.places <- struct{}{}:
	default:
		_ = session.Refuse(x402.Errorf(x402.RateLimited, "the service has %d sessions already", maxSessions).
			WithHint("try again when some have ended"))
		return
	}
	leave := sync.OnceFunc(func() { <-d.places })
	if err := session.Admit(); err != nil {
		leave()
		_ = session.Close()
		return
	}
	select {
	case d.sessions <- &admitted{Session: session, leave: leave}:
	case <-ctx.Done():
		leave()
		_ = session.Close()
	}
}

// admits says who is let in: processes of the service's own user, and root's, who could be it.
func (d *door) admits(s *relay.Session) error {
	if s.User == 0 || int(s.User) == os.Geteuid() {
		return nil
	}
	return x402.Errorf(x402.PolicyDenied, "the wallet's owner does not let user %d in", s.User)
}

// admitted is a session that gives back its place when it ends.
type admitted struct {
	*relay.Session
	leave func()
}

func (s *admitted) Close() error {
	defer s.leave()
	return s.Session.Close()
}

// passToService passes an agent's host on to a service, where there is one for it: the one that the environment
// names, else the home's, else, where the home has no wallet, the machine's.
func (a *app) passToService(ctx context.Context) (passed bool, err error) {
	hello := relay.Hello{Token: a.env.Token.Reveal()}
	if named := a.env.Service; named != "" {
		if named == "off" {
			return false, nil
		}
		err := relay.Pass(ctx, named, hello, os.Stdin, os.Stdout)
		if errors.Is(err, relay.ErrNone) {
			err = x402.Errorf(x402.ServerUnavailable, "no wallet's service listens at %s", named).
				WithHint("start it (x402-wallet serve), or unset X402_WALLET_SERVICE")
		}
		return true, err
	}
	places := []string{filepath.Join(a.home, socketName)}
	if !wallet.Exists(a.home) {
		places = append(places, systemSocket())
	}
	for _, place := range places {
		if err := relay.Pass(ctx, place, hello, os.Stdin, os.Stdout); !errors.Is(err, relay.ErrNone) {
			return true, err
		}
	}
	return false, nil
}
