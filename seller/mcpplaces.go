package seller

import (
	"context"
	"net/url"
	"time"

	"x402-wallet/x402"
)

// What an MCP server keeps for a session (what was bought in it, where its caller stands, what it says
// about a call that goes on) is one agent's. So agents that share the wallet share no session, and no
// program of a command either, which cannot tell them apart. Here is how many sessions there are at a time,
// and when one that nobody uses ends.

const (
	// maxEndpoints is how many servers are kept at a time for one agent: it may name any number of URLs.
	maxEndpoints = 32
	// maxAllEndpoints bounds them for all agents.
	maxAllEndpoints = 256
	// maxPrograms bounds those that are commands for all agents: a process each, at least. No agent can have
	// more than half of them.
	maxPrograms = 64
	// maxUnused is how long a session is kept that its agent does not use. One of a caller without a name
	// stays.
	maxUnused = 30 * time.Minute
)

type place struct{ agent, url string }

func (p *endpoint) place() place { return place{p.agent, p.url.String()} }

func (p *endpoint) isProgram() bool { return p.url.Scheme == commandScheme }

// endpointAt finds the endpoint of a URL for the agent whose context it is, and counts its caller in; release
// counts it out. When there are too many, one that is unused is closed.
func (m *Client) endpointAt(ctx context.Context, at *url.URL) (*endpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, x402.Errorf(x402.ServerUnavailable, "the wallet is being closed")
	}
	key := place{m.options.Agent(ctx), at.String()}
	p := m.endpoints[key]
	if p == nil {
		p = &endpoint{mcp: m, agent: key.agent, url: at, turn: make(chan struct{}, 1),
			entry: make(chan struct{}, 1)}
		if err := m.makeRoom(p); err != nil {
			return nil, err
		}
		m.endpoints[key] = p
	}
	if p.unused != nil {
		p.unused.Stop()
	}
	p.users++
	return p, nil
}

// endpointNamed is endpointAt, by the URL as text.
func (m *Client) endpointNamed(ctx context.Context, endpoint string) (*endpoint, error) {
	at, err := m.parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	return m.endpointAt(ctx, at)
}

func (m *Client) release(p *endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.users--
	p.used = time.Now()
	if p.users == 0 && p.agent != "" && !m.closed {
		p.unused = time.AfterFunc(m.options.unused, func() { m.endUnused(p) })
	}
}

// endUnused ends an endpoint that nobody has used since its time was set.
func (m *Client) endUnused(p *endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	isKept := m.endpoints[p.place()] == p
	if isKept && p.users == 0 && time.Since(p.used) >= m.options.unused {
		m.remove(p)
	}
}

// makeRoom ends what is unused where there are too many to have p as well.
func (m *Client) makeRoom(p *endpoint) error {
	for _, limit := range []struct {
		most   int
		counts func(*endpoint) bool
		what   string
	}{
		{maxEndpoints, func(o *endpoint) bool { return o.agent == p.agent }, "MCP servers"},
		{maxPrograms, func(o *endpoint) bool { return o.isProgram() && p.isProgram() },
			"programs of MCP servers"},
		{maxAllEndpoints, func(*endpoint) bool { return true }, "MCP servers of all agents"},
	} {
		if !m.evict(limit.most, limit.counts) {
			return x402.Errorf(x402.ServerUnavailable, "%d %s are in use; no more at a time", limit.most,
				limit.what).WithNext(x402.Next{Do: x402.Wait, Why: "other calls have to end first"})
		}
	}
	return nil
}

// evict makes room for one more among those that count: of the agent that has the most of them and uses not
// all, the one that is unused longest is closed. It reports whether there is room.
func (m *Client) evict(most int, counts func(*endpoint) bool) bool {
	all, of := 0, map[string]int{}
	for _, p := range m.endpoints {
		if counts(p) {
			all++
			of[p.agent]++
		}
	}
	if all < most {
		return true
	}
	var oldest *endpoint
	for _, p := range m.endpoints {
		if p.users > 0 || !counts(p) {
			continue
		}
		if oldest == nil || of[p.agent] > of[oldest.agent] ||
			(of[p.agent] == of[oldest.agent] && p.used.Before(oldest.used)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	m.remove(oldest)
	return true
}

// remove gives up an endpoint that has no users, and ends its session; the MCP's lock is held.
func (m *Client) remove(p *endpoint) {
	delete(m.endpoints, p.place())
	if p.unused != nil {
		p.unused.Stop()
	}
	m.dropped.Go(p.close)
}
