//go:build !race

package pay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// The book of channels with a deposit, in the ledger in memory and in the simulation.

// channelName is what a channel's row goes by.
type channelName struct{ service, key string }

var errMemConflict = errors.New("more than that, or something else under that nonce, was signed in this " +
	"channel already")

// goesOn refuses a step that does not go on from what a channel is; nil: a payment through none.
func (l *memLedger) goesOn(to *history.Channel) error {
	if to == nil {
		return nil
	}
	from, known := l.channels[channelName{to.Service, to.Key}]
	if known && (to.Nonce <= from.Nonce || to.Amount.Cmp(from.Amount) < 0) {
		return errMemConflict
	}
	return nil
}

func (l *memLedger) put(c history.Channel) {
	c.Updated = l.now()
	l.channels[channelName{c.Service, c.Key}] = c
}

func (s *memStore) Channel(ctx context.Context, service, key string) (history.Channel, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return history.Channel{}, err
	}
	defer end()
	c, known := s.channels[channelName{service, key}]
	if !known {
		return c, history.ErrNotFound
	}
	return c, nil
}

func (s *memStore) BatchChannels(ctx context.Context) (list []history.Channel, err error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, c := range s.channels {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b history.Channel) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Key, b.Key))
	})
	return list, nil
}

func (s *memStore) BatchChannelsWith(ctx context.Context, host string) ([]history.Channel, error) {
	all, err := s.BatchChannels(ctx)
	return slices.DeleteFunc(all, func(c history.Channel) bool { return c.Server != host }), err
}

func (s *memStore) SaveChannel(ctx context.Context, c history.Channel) error {
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	old, known := s.channels[channelName{c.Service, c.Key}]
	if known && (old.Nonce != c.Nonce || old.Amount != c.Amount || string(old.Signed) != string(c.Signed)) {
		return errMemConflict
	}
	s.put(c)
	return nil
}

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

// drawChannel is a channel's row, which goes on from what is known, or not.
func (w *twins) drawChannel() history.Channel {
	id := fmt.Sprint("0x", w.source, w.draw(1, "channel"))
	return history.Channel{Service: id, Key: "k", Server: w.source, Network: testNetwork, Source: w.source,
		ID: id, Nonce: uint64(w.draw(2, "nonce")), Amount: money.NewAmount(uint64(w.draw(2, "promised"))),
		Claimed: money.NewAmount(uint64(w.draw(9, "claimed")))}
}

// drawVoucher is the next voucher of a channel that is known, or one that is none; nil: the payment has none.
func (w *twins) drawVoucher(i int) *history.Channel {
	c := w.drawChannel()
	known, err := w.mem[i].Channel(w.ctx, c.Service, c.Key)
	if err != nil || w.draw(1, "no voucher") == 0 {
		return nil
	}
	if w.draw(3, "not the next") > 0 {
		c.Nonce = known.Nonce + 1
		c.Amount, _ = known.Amount.Add(c.Amount)
	}
	return &c
}

// compareChannels requires that both know the same channels.
func (w *twins) compareChannels(i int) {
	real, err := w.real[i].BatchChannelsWith(w.ctx, w.source)
	require.NoError(w.t, err)
	mem, err := w.mem[i].BatchChannelsWith(w.ctx, w.source)
	require.NoError(w.t, err)
	require.Len(w.t, mem, len(real))
	for k := range real {
		real[k].Updated, mem[k].Updated = time.Time{}, time.Time{}
		require.Equal(w.t, real[k], mem[k])
		c, err := w.mem[i].Channel(w.ctx, real[k].Service, real[k].Key)
		require.NoError(w.t, err)
		c.Updated = time.Time{}
		require.Equal(w.t, real[k], c)
	}
}
