package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"sync"
	"time"

	"x402-wallet/cli"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/ownuser"
	"x402-wallet/internal/relay"
	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// An owner's command that came by the socket is run by this program, started again with the files that came
// with it (cli/handed.go says which commands, handedchild.go is that program). What a person types goes from
// their terminal to it: this process has the files for a moment, and neither reads nor writes them.

const (
	// maxCommands bounds those that run at a time.
	maxCommands = 16
	// commandTime bounds each: a person who is asked may have to look for the passphrase.
	commandTime = 5 * time.Minute
	// commandGrace is how long one that was told to end may take.
	commandGrace = 5 * time.Second

	// maxWrong is how many wrong passphrases are taken in wrongTime, of all owners together: an agent of the
	// owner's own user could try all day.
	maxWrong  = 5
	wrongTime = 15 * time.Minute
)

// What a command and the service say to each other, on its control connection: a byte each.
const (
	handedAsks    = 'a' // may a person be asked for a passphrase?
	handedYes     = 'y'
	handedBusy    = 'b' // no: another command of theirs asks
	handedTooMany = 'n' // no: too many were wrong
	handedTyped   = 't' // one was typed
)

type commands struct {
	home    string
	service string // its socket
	owners  []socket.User
	log     *slog.Logger

	running, asking places[socket.User]
	wrong           wrongTries
}

func newCommands(a *app, names []string) *commands {
	c := &commands{home: a.home, service: a.env.Service, log: a.log,
		running: places[socket.User]{most: maxCommands},
		// each asks one person: half of 2 is 1
		asking: places[socket.User]{most: 2}, wrong: wrongTries{now: time.Now}}
	for _, name := range names {
		uid, err := ownuser.ID(name)
		if err != nil {
			a.log.Warn("not an owner", "why", err)
			continue
		}
		c.owners = append(c.owners, socket.User(uid))
	}
	return c
}

// check refuses a command that may not be run for its user. Root could be the service's user; that user
// itself may not: MCP servers that the service starts are it, too, and kept from the home.
func (c *commands) check(user socket.User, h *relay.Handed) error {
	self, err := socket.Self()
	if err != nil {
		return err
	}
	if user != socket.Root && (!slices.Contains(c.owners, user) || user == self) {
		return x402.Errorf(x402.PolicyDenied, "user %s is no owner of this wallet's service", user).
			WithHint("whoever administers this machine names the owners: x402-wallet service install " +
				"--owner USER; X402_WALLET_SERVICE=off is a wallet of your own")
	}
	return cli.CheckHanded(h.Args, c.home)
}

func (c *commands) run(ctx context.Context, s *relay.Session) {
	err := c.check(s.User, s.Handed)
	if err == nil && !c.running.take(s.User) {
		err = x402.Errorf(x402.RateLimited, "%d commands run already", maxCommands/2).
			WithHint("try again when one has ended")
	}
	if err != nil {
		c.log.Info("refused an owner's command", "user", s.User, "why", err)
		_ = s.Refuse(err)
		return
	}
	defer c.running.leave(s.User)
	gone, err := s.Take()
	if err != nil {
		_ = s.Refuse(err)
		return
	}
	exit, err := c.start(ctx, s, gone)
	if err := s.Ended(exit, err); err != nil {
		c.log.Debug("who began a command has gone", "why", err)
	}
}

// start starts the program and waits for its end. It is told to end when the session is gone, or ctx is over,
// by the end of its control connection; where that does not help, it is killed.
func (c *commands) start(ctx context.Context, s *relay.Session, gone <-chan struct{}) (exit int, err error) {
	handed := environ.HandedNoTerminal
	if len(s.Handed.Files) > relay.Streams {
		handed = environ.HandedTerminal
	}
	started, control, err := child.Handed{Args: s.Handed.Args, Files: s.Handed.Files,
		Env: environ.Handed(c.home, c.service, handed, s.Handed.NoColor)}.Start()
	s.Handed.Close()
	if err != nil {
		return 0, err
	}
	var talking sync.WaitGroup
	var said conversation
	talking.Go(func() { said = c.answer(control, s.User) })
	over := make(chan struct{})
	go func() {
		_ = started.Wait()
		close(over)
	}()
	late := time.NewTimer(commandTime)
	defer late.Stop()
	select {
	case <-over:
	case <-gone:
	case <-ctx.Done():
		err = x402.Errorf(x402.ServerUnavailable, "the wallet's service ends, and the command with it")
	case <-late.C:
		err = x402.Errorf(x402.Timeout, "the command was ended: it had taken %v", commandTime).
			WithHint("run it again")
	}
	endCommand(control, started, over)
	talking.Wait()
	exit = started.ProcessState.ExitCode()
	if said.typed {
		c.wrong.note(exit == 0)
	}
	if said.asks { // not before: one guess is counted before the next
		c.asking.leave(s.User)
	}
	return exit, err
}

// endCommand ends what still runs, and waits for it.
func endCommand(control *net.UnixConn, started *exec.Cmd, over <-chan struct{}) {
	_ = control.CloseWrite()
	select {
	case <-over:
	case <-time.After(commandGrace):
		_ = started.Process.Kill()
		<-over
	}
	_ = control.Close()
}

type conversation struct {
	asks  bool // a person may be asked, and nobody else of that user
	typed bool // they typed something
}

// answer says to a command whether a person may be asked, until it says no more.
func (c *commands) answer(control *net.UnixConn, user socket.User) (so conversation) {
	said := make([]byte, 1)
	for {
		if _, err := io.ReadFull(control, said); err != nil {
			return so
		}
		if said[0] == handedTyped {
			so.typed = true
			continue
		}
		answer := byte(handedYes)
		switch {
		case c.wrong.tooMany():
			answer = handedTooMany
		case !so.asks && !c.asking.take(user):
			answer = handedBusy
		default:
			so.asks = true
		}
		if _, err := control.Write([]byte{answer}); err != nil {
			return so
		}
	}
}

// wrongTries counts commands that came to no good end after a passphrase was typed.
type wrongTries struct {
	now func() time.Time

	mu    sync.Mutex
	times []time.Time
}

// note counts one; a right one makes up for all before it.
func (w *wrongTries) note(right bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if right {
		w.times = nil
		return
	}
	w.times = append(w.times, w.now())
	w.times = w.times[max(0, len(w.times)-maxWrong):]
}

func (w *wrongTries) tooMany() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.times) == maxWrong && w.now().Sub(w.times[0]) < wrongTime
}

func refusedToAsk(answer byte) error {
	switch answer {
	case handedBusy:
		return errors.New("another command waits for one; try again when it has ended")
	case handedTooMany:
		return fmt.Errorf("%d that came by the service's socket were wrong; wait %v, or run it as the "+
			"service's user", maxWrong, wrongTime)
	}
	return errors.New("the service does not answer")
}
