package relay

import (
	"context"
	"errors"
	"time"

	"x402-wallet/x402"
)

// A service may be restarted, or die, while a host's session goes on. Then the relay begins another session
// with the one that comes after it, as the host began its own, and the host's requests that were not answered
// are answered with an error that says so: what became of them only the very same call finds out.

const (
	// patience is how long a service that is gone is waited for, and how long one has to stay before another
	// one is.
	patience = 30 * time.Second
	// firstPause is how soon after that it is looked for; the pauses double, up to maxPause.
	firstPause, maxPause = 20 * time.Millisecond, time.Second
)

// waits is how long services that are gone were waited for.
type waits struct {
	patience time.Duration
	since    time.Time // the first of them
	pause    time.Duration
	began    time.Time // the session with the newest
}

func (w *waits) opened() { w.began = time.Now() }

// broken notes that a session ended. Sessions that end soon after they began are one wait.
func (w *waits) broken() {
	if w.since.IsZero() || time.Since(w.began) >= w.patience {
		w.since, w.pause = time.Now(), firstPause
	}
}

// next waits, as long as it is of use.
func (w *waits) next(ctx context.Context, hostGone <-chan struct{}) bool {
	left := w.patience - time.Since(w.since)
	if left <= 0 {
		return false
	}
	pause := time.NewTimer(min(w.pause, left))
	defer pause.Stop()
	w.pause = min(2*w.pause, maxPause)
	select {
	case <-pause.C:
		return true
	case <-hostGone:
	case <-ctx.Done():
	}
	return false
}

// again finds the service that comes after one that is gone. What the host says meanwhile waits for it.
func (p *passing) again(ctx context.Context, w *waits) (*link, error) {
	p.mu.Lock()
	p.link = nil
	p.mu.Unlock()
	w.broken()
	for w.next(ctx, p.hostGone) {
		l, err := p.open(ctx)
		if err == nil {
			err = p.resume(l)
		}
		switch {
		case err == nil:
			return l, nil
		case !errors.Is(err, ErrNone) && !x402.HasCode(err, x402.ServerUnavailable) &&
			!x402.HasCode(err, x402.RateLimited):
			return nil, err // it is there, and refuses the session
		}
	}
	return nil, x402.Errorf(x402.ServerUnavailable, "the wallet's service ended the session, and did "+
		"not come back").
		WithHint("start the session again; a payment that was sent stays held, and the very same call " +
			"goes on with it")
}

// resume begins the host's session with another service, and tells the host what that leaves unanswered.
func (p *passing) resume(l *link) error {
	_ = l.conn.SetDeadline(time.Now().Add(dialTime))
	err := p.replay(l)
	if err == nil {
		err = l.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		l.close()
		return err
	}
	p.mu.Lock()
	told := p.talk.restarted()
	p.mu.Unlock()
	p.use(l)
	for _, line := range told {
		if err := p.tell(line); err != nil {
			l.close()
			return err
		}
	}
	return nil
}

// replay begins the session as the host began it. Its answer the host has already; one that it still waits
// for comes to it as any other.
func (p *passing) replay(l *link) error {
	t := &p.talk // the host says nothing now: it waits for a link
	if t.initialize == nil {
		return nil
	}
	if err := l.say(t.initialize); err != nil {
		return unreachable(err)
	}
	if t.version == "" {
		return nil
	}
	for {
		line, err := l.from.next()
		if err != nil {
			return unreachable(err)
		}
		if err := l.passedOn(len(line)); err != nil {
			return unreachable(err)
		}
		id, version := answered(line)
		if !t.isInitialize(id) {
			continue // it has nothing to say before that
		}
		if version != t.version {
			return x402.Errorf(x402.SessionTerminated, "the wallet's service was replaced by another "+
				"version, with which this session cannot go on").WithHint("start the session again")
		}
		break
	}
	if t.initialized == nil {
		return nil
	}
	if err := l.say(t.initialized); err != nil {
		return unreachable(err)
	}
	return nil
}
