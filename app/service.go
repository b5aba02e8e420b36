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

	"x402-wallet/cli"
	"x402-wallet/internal/metrics"
	"x402-wallet/internal/ownuser"
	"x402-wallet/internal/relay"
	"x402-wallet/internal/socket"
	"x402-wallet/tools"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
)

const (
	// socketName is the name of the service's socket in the home.
	socketName = "service.sock"
	// maxSessions bounds the sessions at a time; more are refused.
	maxSessions = 4000
	// maxHellos bounds those who have connected and did not say yet who they are.
	maxHellos = 200
	// acceptPause is the wait for descriptors where there are none.
	acceptPause = 100 * time.Millisecond
)

// Serve runs the MCP server for every agent that comes in by one of the doors, until ctx ends. ready is
// called once agents can.
func (a *app) Serve(ctx context.Context, doors cli.Doors, ready func(cli.Doors)) error {
	if doors.Socket == "" {
		doors.Socket = filepath.Join(a.home, socketName)
	}
	a.tlsKey = doors.Key
	// programs that are started cannot replace it (see closed)
	a.env.Service, _ = filepath.Abs(doors.Socket)
	onSocket, err := relay.Listen(ctx, doors.Socket, 0o666, a.home) // the doorkeeper says who comes in
	if err != nil {
		return err
	}
	defer func() { _ = onSocket.Close() }()
	onHTTP, names, err := listenHTTP(ctx, &doors)
	if err != nil {
		return err
	}
	onMetrics, at, err := listenMetrics(ctx, doors.Metrics)
	if err != nil {
		return err
	}
	doors.Metrics = at
	server := &tools.Server{Version: a.version, Log: a.log, Mounts: true, Open: a.openForAgent,
		Background: backgroundDelay, ApprovalPage: a.approvalPage, Subscriptions: true}
	var calls metrics.Calls
	if onMetrics != nil {
		server.Count, a.watch = calls.Call, countSteps(&calls)
	}
	known := &doorkeeper{load: a.rules, home: a.home, log: a.log}
	server.Account = known.account
	var web *webDoor
	if onHTTP != nil {
		if web, err = a.webDoor(ctx, doors, onHTTP, names, server, known); err != nil {
			return err
		}
		defer web.close()
	}
	ready(doors)
	return server.Serve(ctx, func(ctx context.Context) error {
		var serving sync.WaitGroup
		defer serving.Wait()
		if web != nil {
			for _, l := range web.listeners {
				serving.Go(func() { a.serveHTTP(ctx, l, web.door, web.handler) })
			}
		}
		serving.Go(func() { a.follow(ctx, server) })
		serving.Go(func() { a.keepHomeClosed(ctx) })
		if onMetrics != nil {
			serving.Go(func() {
				a.serveMetrics(ctx, onMetrics, &calls, metrics.Ledger{Read: server.Standing})
			})
		}
		d := &door{a: a, server: server, known: known, owners: newCommands(a, doors.Owners),
			hellos: places[socket.User]{most: maxHellos}, sessions: places[socket.User]{most: maxSessions}}
		serving.Go(func() { d.accept(ctx, onSocket, &serving) })
		<-ctx.Done()
		return nil
	})
}

// door lets agents in that come by the socket.
type door struct {
	a      *app
	server *tools.Server
	known  *doorkeeper
	owners *commands

	hellos   places[socket.User] // of those who did not say yet who they are
	sessions places[socket.User]
}

func (d *door) accept(ctx context.Context, l net.Listener, serving *sync.WaitGroup) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for ctx.Err() == nil {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no descriptors, for a moment
			time.Sleep(acceptPause)
			continue
		}
		user, err := socket.Peer(conn)
		if errors.Is(err, socket.ErrNotYet) { // it takes a place of those who are not known yet
			user, err = "", nil
		}
		if err != nil || !d.hellos.take(user) {
			_ = conn.Close()
			continue
		}
		serving.Go(func() { d.open(ctx, conn, user) })
	}
}

// places are taken by connections, at most half of them by those of one party, which is a user or an address:
// nobody keeps all others out.
type places[Party comparable] struct {
	most int

	mu    sync.Mutex
	taken int
	by    map[Party]int
}

func (p *places[Party]) take(party Party) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.by[party] >= p.most/2 {
		return false
	}
	if p.by == nil {
		p.by = map[Party]int{}
	}
	p.taken++
	p.by[party]++
	return true
}

func (p *places[Party]) leave(party Party) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.by[party]--
	if p.by[party] == 0 {
		delete(p.by, party)
	}
}

// open hears who connected, and serves the session, or runs the owner's command, or refuses it.
func (d *door) open(ctx context.Context, conn net.Conn, user socket.User) {
	session, err := relay.Open(conn)
	d.hellos.leave(user)
	if err != nil {
		d.a.log.Info("a connection that is no agent's", "why", err)
		return
	}
	if session.Handed != nil {
		d.owners.run(ctx, session)
		return
	}
	agent, err := d.known.bySession(session)
	if err == nil {
		agent, err = d.known.asAccount(agent, session.Account)
	}
	if err != nil {
		d.a.log.Warn("refused a session", "user", session.User, "why", err)
		_ = session.Refuse(err)
		return
	}
	user = session.User
	if !d.sessions.take(user) {
		_ = session.Refuse(x402.Errorf(x402.RateLimited, "the service has too many sessions: %d of one "+
			"user, %d of all", maxSessions/2, maxSessions).WithHint("try again when some have ended"))
		return
	}
	defer d.sessions.leave(user)
	if err := session.Admit(); err != nil {
		_ = session.Close()
		return
	}
	d.server.Session(ctx, session, agent)
}

// passToService passes an agent's host on to a service, where there is one for it: the one that the
// environment names, else the home's, else, where the home has no wallet, that of
// the machine, which has a user of its own.
func (a *app) passToService(ctx context.Context, account string) (passed bool, err error) {
	hello := relay.Hello{Token: a.env.Token.Reveal(), Account: account}
	if a.env.Service == "off" {
		return false, nil
	}
	if named := a.env.Service; named != "" {
		err := relay.Pass(ctx, named, a.home, hello, os.Stdin, os.Stdout)
		if errors.Is(err, relay.ErrNone) {
			err = relay.NoneAt(named)
		}
		return true, err
	}
	var places []string
	if a.noHome == nil {
		places = append(places, filepath.Join(a.home, socketName))
	} else if a.env.Home != "" { // who names a home does not mean another wallet
		return false, nil
	}
	if (a.noHome != nil || !owner.Exists(a.home)) && ownuser.Supported(runtime.GOOS) == nil {
		places = append(places, ownuser.Service().Socket)
	}
	for _, place := range places {
		if err := relay.Pass(ctx, place, a.home, hello, os.Stdin, os.Stdout); !errors.Is(err, relay.ErrNone) {
			return true, err
		}
	}
	return false, nil
}
