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
	// maxAskedHosts bounds how many hosts are remembered with what they were paid in, recentPayments how many
	// payments of the ledger are remembered that way when the first call is made.
	maxAskedHosts  = 1024
	recentPayments = 100
	// maxGuesses is how many networks are read while a seller is asked of whom nothing is known.
	maxGuesses = 2
)

// paidIn remembers what hosts were paid in last. The zero value knows none.
type paidIn struct {
	mu     sync.Mutex
	isRead bool              // what the ledger knows was noted
	last   map[string]option // of each its scheme, network and asset alone; none where nothing was paid yet
	newest option            // of all of them
}

func (m *paidIn) note(host string, o option) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = option{Requirement: x402.Requirement{Scheme: o.Way(), Network: o.Network}, asset: o.asset}
	m.set(host, m.newest)
}

// set is called with m.mu held.
func (m *paidIn) set(host string, o option) {
	if m.last == nil || len(m.last) >= maxAskedHosts {
		m.last = map[string]option{}
	}
	m.last[host] = o
}

// get is what a host was paid in last, nothing if it was not paid. isFirst reports, once, that it was not
// even asked.
func (m *paidIn) get(host string) (o, newest option, isFirst bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, known := m.last[host]
	if !known {
		m.set(host, option{})
	}
	return o, m.newest, !known
}

// needsLedger reports, once, that nothing was asked for yet.
func (m *paidIn) needsLedger() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.isRead
	m.isRead = true
	return !was
}

// guess is what a host may ask to be paid in: what it was paid in last, also by earlier processes as far as
// the ledger's last payments go (isPaid). At its first question it is what was paid in last elsewhere, or
// else what the owner prefers. Where it was asked before and wanted no money, it is nothing. An error is no
// reason not to pay.
func (e *Engine) guess(ctx context.Context, host string) (guesses []option, isPaid bool) {
	if e.paidIn.needsLedger() {
		recent, err := e.Store.Recent(ctx, recentPayments)
		if err != nil {
			e.Log.Debug("read what was paid last", "err", err)
		}
		for _, p := range slices.Backward(recent) {
			_, isOne := e.channelled(p.Scheme)
			if asset, ok := e.Assets.Asset(p.Network, p.Asset); ok && !isOne {
				e.paidIn.note(p.Host, option{asset: asset,
					Requirement: x402.Requirement{Scheme: p.Scheme, Network: p.Network}})
			}
		}
	}
	last, newest, isFirst := e.paidIn.get(host)
	switch {
	case last.Network != "":
		return []option{last}, true
	case !isFirst:
		return nil, false
	case newest.Network != "":
		return []option{newest}, false
	}
	for _, network := range e.Policy.Prefer {
		if asset, ok := e.Assets.Named(network, ""); ok && len(guesses) < maxGuesses {
			guesses = append(guesses, option{asset: asset,
				Requirement: x402.Requirement{Scheme: e.simplest(), Network: network}})
		}
	}
	return guesses, false
}

// readings are the third budget layer, read while the seller is asked. What the wallet pays meanwhile
// counts as held: the ledger goes by when a reading began (x402.Funds.ReadAt).
type readings []*reading

type reading struct {
	of    option
	end   context.CancelFunc
	done  chan struct{} // closed when the rest is known
	funds x402.Funds
	err   error
	taken bool
}

// readAhead begins to read what a host may ask to be paid in, and to unlock the keys where it was paid
// before. It reads nothing while no node may be asked, because the rules are not sealed.
func (e *Engine) readAhead(ctx context.Context, host string) (all readings) {
	guesses, isPaid := e.guess(ctx, host)
	if len(guesses) == 0 || e.Guard.CheckConfig(ctx) != nil {
		return nil
	}
	if isPaid {
		e.unlockAhead()
	}
	for _, of := range guesses {
		of = e.sources(ctx, host, of)[0]
		scheme, ok := e.payer(of)
		if !ok {
			continue
		}
		r := &reading{of: of, done: make(chan struct{}), err: context.Canceled}
		limited, end := context.WithCancel(ctx)
		r.end = end
		go func() {
			defer close(r.done)
			r.funds, r.err = readFunds(limited, scheme, of)
		}()
		all = append(all, r)
	}
	return all
}

// unlockAhead begins to unlock the keys beside a reading of the chain.
func (e *Engine) unlockAhead() {
	if e.UnlockAhead != nil {
		e.UnlockAhead()
	}
}

// stop ends the readings, and waits for that.
func (all readings) stop() {
	for _, r := range all {
		r.end()
	}
	for _, r := range all {
		<-r.done
	}
}

// take gives, once, what was read of an option's asset, if it is not too old and covers the price. Nothing
// is refused by it: the chain is read again then.
func (all readings) take(ctx context.Context, o option, now time.Time) (funds x402.Funds, ok bool) {
	i := slices.IndexFunc(all, func(r *reading) bool {
		return !r.taken && r.of.Way() == o.Way() && r.of.Network == o.Network && r.of.asset == o.asset &&
			r.of.sourceName() == o.sourceName()
	})
	if i < 0 {
		return funds, false
	}
	r := all[i]
	r.taken = true
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // whichever of the two was picked
		return funds, false
	}
	ok = r.err == nil && now.Sub(r.funds.ReadAt).Abs() <= aheadLife &&
		o.Amount.Cmp(o.within(r.funds).Free) <= 0
	return r.funds, ok
}

// with are the readings of a batch, and what one more of its payments read. What Permit2 may move is left
// out: how much of it counts is different for each option.
func (all readings) with(of option, funds x402.Funds) readings {
	isRead := slices.ContainsFunc(all, func(r *reading) bool { return r.funds.ReadAt.Equal(funds.ReadAt) })
	if isRead || funds.Permitted != nil || of.isChannelled() {
		return all
	}
	done := make(chan struct{})
	close(done)
	return append(readings{{of: of, end: func() {}, done: done, funds: funds}}, all...)
}

// again are the readings of a batch for its next payment: what the ledger holds since then it counts itself.
func (all readings) again() (fresh readings) {
	for _, r := range all {
		one := *r
		one.taken = false
		fresh = append(fresh, &one)
	}
	return fresh
}
