package pay

import (
	"context"
	"slices"
	"sync"
	"time"

	"x402-wallet/x402"
)

// gate lets few of the calls that there are at once be in the engine. More would not be faster, because they
// all wait for one disk and a few processors, and each would take longer than its time: of ten thousand calls
// that are begun together nearly all fail, and of those that are begun one after the other none.
//
// Calls are admitted in order, their hosts by turns, so that one seller's crowd holds up no other's. Whoever
// waits for somebody slow gives its place up meanwhile (awaiting), and comes back before all newcomers: what
// it holds or has sent is to be written down. Nothing is safe because of a place: a call whose time is over
// before it is back goes on without one.
type gate struct {
	mu      sync.Mutex
	taken   int
	back    []*place            // they had a place before, in order
	waiting map[string][]*place // they had none, in order, by host
	turns   []string            // the hosts among them, in the order in which they have their turns
}

const (
	// maxInside is how many calls have a place: as many as one forced write of the ledger takes.
	maxInside = 64
	// tooSlow is how long a seller, a facilitator or the key takes before a call's place goes to another.
	tooSlow = time.Second
)

// place is a call's, and used by one goroutine. Its fields change with the gate's mu held.
type place struct {
	gate     *gate
	host     string
	held     bool
	away     bool          // it waits for somebody
	admitted chan struct{} // closed when it is held
}

type placeKey struct{}

// enter waits until a call may go on, at the longest for its own time, and puts its place into the context. A
// call that is made by one with a place needs none.
func (g *gate) enter(ctx context.Context, host string) (inside context.Context, leave func(), err error) {
	if ctx.Value(placeKey{}) != nil {
		return ctx, func() {}, nil
	}
	p := &place{gate: g, host: host}
	if err := p.take(ctx, g.joinLast); err != nil {
		return nil, nil, x402.Errorf(x402.Timeout, "the call did not have its turn in its time, because of "+
			"the others that are made at the same time: %w", err).
			WithHint("nothing was asked or signed; make the same call again, with fewer others at the same " +
				"time, or with more time (policy.deadline)")
	}
	return context.WithValue(ctx, placeKey{}, p), p.giveUp, nil
}

// take waits for the place, in the queue that it joins. Its error is the context's.
func (p *place) take(ctx context.Context, join func(*place)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g := p.gate
	g.mu.Lock()
	p.admitted = make(chan struct{})
	join(p)
	g.admit()
	g.mu.Unlock()
	select {
	case <-p.admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.held { // since a moment ago
		return nil
	}
	g.quit(p)
	return ctx.Err()
}

// The following are called with mu held.

func (g *gate) joinLast(p *place) {
	if g.waiting == nil {
		g.waiting = map[string][]*place{}
	}
	if len(g.waiting[p.host]) == 0 {
		g.turns = append(g.turns, p.host)
	}
	g.waiting[p.host] = append(g.waiting[p.host], p)
}

func (g *gate) joinBack(p *place) { g.back = append(g.back, p) }

// admit gives free places away.
func (g *gate) admit() {
	for g.taken < maxInside && len(g.back)+len(g.turns) > 0 {
		var p *place
		if len(g.back) > 0 {
			p, g.back = g.back[0], g.back[1:]
		} else {
			host := g.turns[0]
			g.turns = g.turns[1:]
			p = g.waiting[host][0]
			if g.keep(host, g.waiting[host][1:]) {
				g.turns = append(g.turns, host)
			}
		}
		g.taken++
		p.held = true
		close(p.admitted)
	}
}

// keep sets who waits for a host, and reports whether anybody does.
func (g *gate) keep(host string, list []*place) bool {
	if len(list) == 0 {
		delete(g.waiting, host)
		return false
	}
	g.waiting[host] = list
	return true
}

// quit takes a place out of its queue.
func (g *gate) quit(p *place) {
	is := func(other *place) bool { return other == p }
	g.back = slices.DeleteFunc(g.back, is)
	list, waits := g.waiting[p.host]
	if waits && !g.keep(p.host, slices.DeleteFunc(list, is)) {
		g.turns = slices.DeleteFunc(g.turns, func(host string) bool { return host == p.host })
	}
}

func (p *place) release() {
	if p.held {
		p.held = false
		p.gate.taken--
		p.gate.admit()
	}
}

// giveUp gives the place to the next call.
func (p *place) giveUp() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.release()
}

// awaiting says that a call waits for somebody from now on. Should they be slow, its place goes to another
// call. The returned function says that the wait is over, and waits for a place again where it was lost.
func awaiting(ctx context.Context) (over func()) {
	p, is := ctx.Value(placeKey{}).(*place)
	if !is {
		return func() {}
	}
	p.setAway(true)
	timer := time.AfterFunc(tooSlow, func() {
		p.gate.mu.Lock()
		defer p.gate.mu.Unlock()
		if p.away {
			p.release()
		}
	})
	return func() {
		timer.Stop()
		p.setAway(false)
		p.comeBack(ctx)
	}
}

func (p *place) setAway(away bool) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.away = away
}

// comeBack is used by a call that may have lost its place.
func (p *place) comeBack(ctx context.Context) {
	p.gate.mu.Lock()
	held := p.held
	p.gate.mu.Unlock()
	if !held {
		_ = p.take(ctx, p.gate.joinBack) // else it goes on without
	}
}

// pause lets time pass, without a place. Its error is the context's.
func pause(ctx context.Context, d time.Duration) error {
	if p, is := ctx.Value(placeKey{}).(*place); is {
		p.giveUp()
		defer p.comeBack(ctx)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
