package seller

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// nameLife is how long a name's addresses are used before it is looked up again.
	nameLife = 30 * time.Second
	// maxNames bounds how many names are remembered.
	maxNames = 1024
)

// names is a resolver that remembers answers for nameLife, and failures not at all. It checks no
// address: whoever dials does, each time, so a remembered answer passes no rule that a new one would not.
// Look-ups of one name at the same time are one.
type names struct {
	find resolver
	now  func() time.Time

	mu    sync.Mutex
	known map[string]*lookup
}

// lookup is a name's answer, or the wait for it.
type lookup struct {
	done  chan struct{} // closed when the rest is known
	ips   []netip.Addr
	err   error
	gone  bool // whoever asked left: it says nothing about the name
	until time.Time
}

// systemNames are the system's, for sellers and nodes.
var systemNames = newNames(system{})

// system is the resolver that net.Dial would use.
type system struct{}

func (system) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, network, host)
}

func newNames(find resolver) *names {
	return &names{find: find, now: time.Now, known: map[string]*lookup{}}
}

// LookupNetIP implements resolver.
func (n *names) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	for {
		l, isOurs := n.entry(host)
		if isOurs {
			n.ask(ctx, l, network, host)
			return l.ips, l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !l.gone {
			return l.ips, l.err
		}
	}
}

// entry is a name's answer that is still good or awaited; otherwise a new one, which is the caller's to find.
func (n *names) entry(host string) (l *lookup, isOurs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if l := n.known[host]; l != nil && (l.until.IsZero() || now.Before(l.until)) {
		return l, false
	}
	delete(n.known, host)
	if len(n.known) >= maxNames {
		for other, l := range n.known { // any one that is not awaited
			if !l.until.IsZero() {
				delete(n.known, other)
				break
			}
		}
	}
	l = &lookup{done: make(chan struct{})}
	if len(n.known) < maxNames {
		n.known[host] = l
	}
	return l, true
}

func (n *names) ask(ctx context.Context, l *lookup, network, host string) {
	ips, err := n.find.LookupNetIP(ctx, network, host)
	n.mu.Lock()
	defer n.mu.Unlock()
	l.ips, l.err, l.gone = ips, err, err != nil && ctx.Err() != nil
	l.until = n.now().Add(nameLife)
	if (err != nil || len(ips) == 0) && n.known[host] == l {
		delete(n.known, host)
	}
	close(l.done)
}

// forget has a name looked up anew: nobody answered at its addresses.
func (n *names) forget(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.known[host]; l != nil && !l.until.IsZero() {
		delete(n.known, host)
	}
}
