package tools

import (
	"context"
	"sync"
	"time"

	"x402-wallet/x402"
)

// opener opens the wallet under the owner's rules as they are; it is called until it succeeds, and
// again when those changed. Its errors carry codes (WALLET_NOT_FOUND, …).
type opener = func(ctx context.Context) (*Wallet, error)

// lazy opens the wallet at its first use, so that the server answers before it and also without
// one: `init` may run while the host is already talking to us. When the owner changes the rules it
// opens the wallet again, for the calls that come then; calls under way end with the wallet they
// began with. But where config.toml has become tighter, sealed or not, what such a call has not
// signed yet is refused (POLICY_UNSEALED), and the call has to be made again.
type lazy struct {
	mu      sync.Mutex
	current *openedWallet
	opened  chan struct{} // closed when a wallet is open; nil while nobody waits
	closed  bool
}

// openedWallet is an open wallet and those who use it.
type openedWallet struct {
	*Wallet
	users   int
	retired chan struct{} // closed when there is another one
	unused  chan struct{} // closed when its last use has ended
	closed  chan struct{} // closed when it is closed after that, with err
	err     error
}

// closeTimeout is how long the end waits for those who still use the wallet.
const closeTimeout = time.Second

// get is the wallet under the rules as they are now. done ends its use.
func (l *lazy) get(ctx context.Context, open opener) (w *Wallet, done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, x402.Errorf(x402.Internal, "the wallet is closed")
	}
	if l.current == nil || (l.current.Stale != nil && l.current.Stale()) {
		w, err := open(context.WithoutCancel(ctx)) // one caller's leaving is no reason for the others to fail
		if err != nil {
			return nil, nil, err
		}
		l.retire() // its calls go on
		l.current = &openedWallet{Wallet: w, users: 1, retired: make(chan struct{}),
			unused: make(chan struct{}), closed: make(chan struct{})}
		if l.opened != nil {
			close(l.opened)
			l.opened = nil
		}
	}
	return l.current.Wallet, l.use(l.current), nil
}

// use counts a user in. The holder itself is one, until it is retired; the last one closes.
func (l *lazy) use(s *openedWallet) (done func()) {
	s.users++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.leave()
	})
}

func (s *openedWallet) leave() {
	s.users--
	if s.users > 0 {
		return
	}
	close(s.unused)
	if s.Close != nil {
		s.err = s.Close()
	}
	close(s.closed)
}

func (l *lazy) retire() (s *openedWallet) {
	s = l.current
	if s == nil {
		return nil
	}
	l.current = nil
	close(s.retired)
	s.leave()
	return s
}

// last is the wallet that was opened last, whatever became of the rules; nil when there is none.
func (l *lazy) last() (s *openedWallet, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil, nil
	}
	return l.current, l.use(l.current)
}

// wait waits for an open wallet; nil when ctx ends before.
func (l *lazy) wait(ctx context.Context) (s *openedWallet, done func()) {
	for {
		l.mu.Lock()
		if l.current != nil {
			defer l.mu.Unlock()
			return l.current, l.use(l.current)
		}
		if l.opened == nil {
			l.opened = make(chan struct{})
		}
		opened := l.opened
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil
		case <-opened:
		}
	}
}

// close closes the wallet when its last use has ended; one that does not end in time closes it then.
func (l *lazy) close() error {
	l.mu.Lock()
	l.closed = true
	s := l.retire()
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	select {
	case <-s.unused:
		<-s.closed
		return s.err
	case <-time.After(closeTimeout):
		return nil
	}
}

// Reopening is a wallet for a command that stays: get gives it under the rules as they are, for a use
// that done ends; end closes it when its last use has ended.
func Reopening(open opener) (get func(context.Context) (w *Wallet, done func(), err error),
	end func() error) {
	l := &lazy{}
	return func(ctx context.Context) (*Wallet, func(), error) { return l.get(ctx, open) }, l.close
}
