package historytest

import (
	"context"
	"slices"
	"sync"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// Uncertain is a ledger whose nth write answers with an error: before it took effect, or after it.
type Uncertain struct {
	*history.Store
	Nth   int // 0: none
	After bool

	mu     sync.Mutex
	writes []string
}

// Write does a write of the ledger, unless it is the one that fails. Guards of tests write by it too.
func (u *Uncertain) Write(what string, do func() error) error {
	u.mu.Lock()
	u.writes = append(u.writes, what)
	fails := len(u.writes) == u.Nth
	u.mu.Unlock()
	if !fails {
		return do()
	}
	if u.After {
		_ = do()
	}
	return x402.Errorf(x402.LedgerUnavailable, "disk error")
}

// Failed is the write that answered with an error; "": there were fewer.
func (u *Uncertain) Failed() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.Nth == 0 || u.Nth > len(u.writes) {
		return ""
	}
	return u.writes[u.Nth-1]
}

func (u *Uncertain) Reserve(ctx context.Context, h history.Hold) (p history.Payment, err error) {
	err = u.Write("Reserve", func() error { p, err = u.Store.Reserve(ctx, h); return err })
	return p, err
}

func (u *Uncertain) Release(ctx context.Context, id, why string) error {
	return u.Write("Release", func() error { return u.Store.Release(ctx, id, why) })
}

func (u *Uncertain) Finish(ctx context.Context, id string, o history.Outcome) (p history.Payment, err error) {
	err = u.Write("Finish", func() error { p, err = u.Store.Finish(ctx, id, o); return err })
	if err != nil {
		p = history.Payment{}
	}
	return p, err
}

func (u *Uncertain) AcquireLease(ctx context.Context, id, from string) (mine bool, err error) {
	err = u.Write("AcquireLease", func() error {
		mine, err = u.Store.AcquireLease(ctx, id, from)
		return err
	})
	return mine && err == nil, err
}

func (u *Uncertain) ReleaseLease(ctx context.Context, id string) error {
	return u.Write("ReleaseLease", func() error { return u.Store.ReleaseLease(ctx, id) })
}

func (u *Uncertain) ClearWaiter(ctx context.Context, id string) error {
	return u.Write("ClearWaiter", func() error { return u.Store.ClearWaiter(ctx, id) })
}

func (u *Uncertain) Deliver(ctx context.Context, id string) error {
	return u.Write("Deliver", func() error { return u.Store.Deliver(ctx, id) })
}

func (u *Uncertain) AttachIdempotencyKey(ctx context.Context, id, key string) (named bool, err error) {
	err = u.Write("AttachIdempotencyKey", func() error {
		named, err = u.Store.AttachIdempotencyKey(ctx, id, key)
		return err
	})
	return named && err == nil, err
}

// SaveChannel implements a channel's ledger.
func (u *Uncertain) SaveChannel(ctx context.Context, c history.Channel) error {
	return u.Write("SaveChannel", func() error { return u.Store.SaveChannel(ctx, c) })
}

// Writes are all that were asked for, in their order.
func (u *Uncertain) Writes() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.writes)
}
