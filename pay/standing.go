package pay

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Queue is how many calls are being made, and how many wait for their turn. Those that wait for somebody slow
// are in neither.
func (e *Engine) Queue() (working, waiting int) {
	g := &e.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting = len(g.back)
	for _, list := range g.waiting {
		waiting += len(list)
	}
	return g.taken, waiting
}

// IsOverdue reports whether a payment without an end should have had one by now: what was signed for it is
// good for nothing any more, and the chain would know.
func (e *Engine) IsOverdue(p history.Payment) bool {
	end := p.Evidence.ExpiresAt
	return !end.IsZero() && !e.Now().Before(end.Add(maxSkew))
}

// LastFunds is what could be spent out of a source when something was paid from it last, by this process.
type LastFunds struct {
	Network, Asset string // the asset's symbol
	Source         string // agent, delegation, allowance or vault
	Dollars        money.Dollars
	Read           time.Time
}

// LastFunds are those of all sources, in order. No node is asked.
func (e *Engine) LastFunds() []LastFunds {
	e.lastFunds.mu.Lock()
	defer e.lastFunds.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.lastFunds.by), func(a, b LastFunds) int {
		return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Asset, b.Asset),
			cmp.Compare(a.Source, b.Source))
	})
}

// lastFunds remembers what was read, for networks and assets that the owner's rules know. The zero value
// knows nothing.
type lastFunds struct {
	mu sync.Mutex
	by map[[3]string]LastFunds
}

func (l *lastFunds) note(o option, funds x402.Funds) {
	source := "agent"
	switch {
	case o.source != nil:
		source = o.source.Name()
	case funds.Allowance != nil:
		source = "allowance"
	case funds.Delegated != nil:
		source = "delegation"
	}
	read := LastFunds{Network: o.Network, Asset: o.asset.Symbol, Source: source,
		Dollars: o.asset.Dollars(funds.Free), Read: funds.ReadAt}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[[3]string]LastFunds{}
	}
	l.by[[3]string{read.Network, read.Asset, read.Source}] = read
}
