// Package locks lets one call at a time use a payment channel, of all processes on a ledger: each voucher
// builds on the one before.
//
// What must stay true: a lock that its holder did not give back is free when that process is dead.
package locks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/turns"
	"x402-wallet/x402"
)

// Book is a ledger whose channels can be locked. It is safe for concurrent use.
type Book struct {
	*history.Store

	mu     sync.Mutex
	byName map[string]*sqldb.FileLock
}

// New returns the book of a ledger, which stays the caller's to close.
func New(s *history.Store) *Book { return &Book{Store: s, byName: map[string]*sqldb.FileLock{}} }

// A call may take its whole deadline, so that a caller that waits for another process looks less often than a
// writer does.
const (
	timeout = 10 * time.Minute
	poll    = 20 * time.Millisecond
)

// LockChannel waits for as long as ctx lives, but for another process on the same computer no longer than
// timeout. The lock is held until unlock is called.
func (b *Book) LockChannel(ctx context.Context, service, key string) (unlock func(), err error) {
	name := fmt.Sprintf("channel-%x", sha256.Sum256([]byte(service+" "+key)))[:24]
	if b.Shared() {
		return b.takeTurn(ctx, name)
	}
	b.mu.Lock()
	l := b.byName[name]
	if l == nil {
		l = sqldb.NewFileLock(b.Home(), name)
		l.SetPatience(timeout, poll)
		b.byName[name] = l
	}
	b.mu.Unlock()
	return l.Lock(ctx)
}

// CloseLocks closes the files of the locks. Nothing may be locked any more.
func (b *Book) CloseLocks() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all error
	for _, l := range b.byName {
		all = errors.Join(all, l.Close())
	}
	return all
}

// takeTurn is LockChannel among replicas: a turn that is renewed until unlock is called. It lasts
// turns.Time after its holder died.
func (b *Book) takeTurn(ctx context.Context, name string) (unlock func(), err error) {
	holder := history.RandomID("run_")
	turn, err := turns.Take(ctx, b, name, holder)
	for errors.Is(err, turns.ErrNone) {
		select {
		case <-ctx.Done():
			return nil, x402.Errorf(x402.LedgerUnavailable, "wait for the channel: %w", ctx.Err())
		case <-time.After(poll):
		}
		turn, err = turns.Take(ctx, b, name, holder)
	}
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(turns.Time / 3)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = turns.Renew(context.WithoutCancel(ctx), b, turn)
			}
		}
	})
	return func() {
		close(stop)
		renewing.Wait()
		_ = turns.Leave(context.WithoutCancel(ctx), b, turn)
	}, nil
}
