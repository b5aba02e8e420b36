package pay

import (
	"context"
	"slices"
	"sync"
	"time"

	"x402-wallet/x402"
)

const (
	// aheadLife is how old a reading of the chain may be that was begun before the seller was asked.
	aheadLife = 3 * time.Second
	// maxPaidHosts bounds how many hosts are remembered with what they were paid in, recentPayments how many
	// payments of the ledger are remembered that way when the first call is made.
	maxPaidHosts   = 1024
	recentPayments = 100
)

// paidIn remembers what hosts were paid in last. The zero value knows none.
type paidIn struct {
	mu     sync.Mutex
	isRead bool              // what the ledger knows was noted
	last   map[string]option // of each its scheme, network and asset alone
}

func (m *paidIn) note(host string, o option) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || len(m.last) >= maxPaidHosts {
		m.last = map[string]option{}
	}
	m.last[host] = option{Requirement: x402.Requirement{Scheme: o.Scheme, Network: o.Network}, asset: o.asset}
}

func (m *paidIn) get(host string) (o option, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, known = m.last[host]
	return o, known
}

// isFirst reports, once, that nothing was asked for yet.
func (m *paidIn) isFirst() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.isRead
	m.isRead = true
	return !was
}

// paidBefore is what a host was paid in last, also by earlier processes as far as the ledger's last payments
// go. It is a guess of what will be asked for: an error is no reason not to pay.
func (e *Engine) paidBefore(ctx context.Context, host string) (o option, known bool) {
	if e.paidIn.isFirst() {
		recent, err := e.Store.Recent(ctx, recentPayments)
		if err != nil {
			e.Log.Debug("read what was paid last", "err", err)
		}
		for _, p := range slices.Backward(recent) {
			if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok {
				e.paidIn.note(p.Host, option{asset: asset,
					Requirement: x402.Requirement{Scheme: p.Scheme, Network: p.Network}})
			}
		}
	}
	return e.paidIn.get(host)
}

// reading is the third budget layer, read while the seller is asked. What the wallet pays meanwhile counts
// as held: the ledger goes by when a reading began (x402.Funds.ReadAt).
type reading struct {
	of    option
	end   context.CancelFunc
	done  chan struct{} // closed when the rest is known
	funds x402.Funds
	err   error
	taken bool
}

// readAhead begins to read what a host was paid in last, and to unlock the keys; nil: it was paid nothing
// yet, or no node may be asked, because the rules are not sealed.
func (e *Engine) readAhead(ctx context.Context, host string) *reading {
	of, known := e.paidBefore(ctx, host)
	scheme, ok := e.scheme(of.Scheme, of.Network)
	if !known || !ok || e.Guard.CheckConfig(ctx) != nil {
		return nil
	}
	e.unlockAhead()
	r := &reading{of: of, done: make(chan struct{}), err: context.Canceled}
	ctx, r.end = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		r.funds, r.err = scheme.Funds(ctx, of.Network, of.asset)
	}()
	return r
}

// unlockAhead begins to unlock the keys beside a reading of the chain.
func (e *Engine) unlockAhead() {
	if e.UnlockAhead != nil {
		e.UnlockAhead()
	}
}

// stop ends the reading, and waits for that.
func (r *reading) stop() {
	if r != nil {
		r.end()
		<-r.done
	}
}

// take gives, once, what was read of an option's asset, if it is not too old and covers the price. Nothing is
// refused by it: the chain is read again then.
func (r *reading) take(ctx context.Context, o option, now time.Time) (funds x402.Funds, ok bool) {
	if r == nil || r.taken || r.of.Scheme != o.Scheme || r.of.Network != o.Network || r.of.asset != o.asset {
		return funds, false
	}
	r.taken = true
	select {
	case <-r.done:
	case <-ctx.Done():
		return funds, false
	}
	ok = r.err == nil && now.Sub(r.funds.ReadAt).Abs() <= aheadLife && o.Amount.Cmp(r.funds.Free) <= 0
	return r.funds, ok
}
