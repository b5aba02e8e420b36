//go:build !race

package pay

import (
	"context"
	"errors"

	"x402-wallet/history"
)

// The book of channels with a deposit, in the simulation.

// channelName is what a channel's row goes by.
type channelName struct{ service, key string }

// simLock is a channel's lock, which the kernel takes from a process that dies.
type simLock struct {
	by       *process
	released chan struct{}
}

// LockChannel lets one call at a time have a host's channels, of all processes.
func (w *simStore) LockChannel(ctx context.Context, service, key string) (unlock func(), err error) {
	s, name := w.s, channelName{service, key}
	for {
		s.at(ctx, w.p, "LockChannel")
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		held := s.locks[name]
		if held == nil {
			break
		}
		select {
		case <-held.released:
		case <-ctx.Done():
		}
		w.p.survive()
	}
	mine := &simLock{by: w.p, released: make(chan struct{})}
	s.locks[name] = mine
	return func() { s.unlock(name, mine) }, nil
}

func (s *sim) unlock(name channelName, l *simLock) {
	if s.locks[name] == l {
		delete(s.locks, name)
		close(l.released)
	}
}

// unlockAll is what the kernel does when a process ends.
func (s *sim) unlockAll(p *process) {
	for name, l := range s.locks {
		if l.by == p {
			s.unlock(name, l)
		}
	}
}

func (w *simStore) Channel(ctx context.Context, service, key string) (history.Channel, error) {
	c, err := w.Store.Channel(ctx, service, key)
	err = w.look(ctx, "Channel", err)
	noteUnsaved(ctx, err)
	return c, err
}

func (w *simStore) BatchChannels(ctx context.Context) ([]history.Channel, error) {
	list, err := w.Store.BatchChannels(ctx)
	return list, w.look(ctx, "BatchChannels", err)
}

func (w *simStore) BatchChannelsWith(ctx context.Context, host string) ([]history.Channel, error) {
	list, err := w.Store.BatchChannelsWith(ctx, host)
	return list, w.look(ctx, "BatchChannelsWith", err)
}

func (w *simStore) SaveChannel(ctx context.Context, c history.Channel) error {
	err := w.change(ctx, "SaveChannel", func() error {
		err := w.Store.SaveChannel(ctx, c)
		if err == nil {
			w.s.booked(c)
		}
		return err
	})
	noteUnsaved(ctx, err)
	return err
}

// noteUnsaved notes that a call could not write down what it knows of a channel.
func noteUnsaved(ctx context.Context, err error) {
	if c := actorOf(ctx).call; c != nil && err != nil && !errors.Is(err, history.ErrNotFound) {
		c.unsaved = true
	}
}
