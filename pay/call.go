package pay

import (
	"context"
	"sync"
	"time"
)

const (
	// LateAnswer is how long an answer takes at least that the client may no longer have waited for. Not
	// every client that gives up says so (Python's SDK does not): its call just never ends.
	LateAnswer = 3 * time.Second
	// LateAnswerRepeats is how long the same call, without an idempotency key, is the same purchase after
	// a late answer.
	LateAnswerRepeats = 10 * time.Minute
	// reaction is how soon after an answer a program that has read it makes its next call. A client that
	// gave up before, or a model that thinks about its next step, is hardly ever that quick.
	reaction = 250 * time.Millisecond
)

// Call is one call of a client, from the moment it is read until it is known whether the client has
// its answer. It is the one place that says who still waits; the engine and the ledger's columns
// derive from it.
//
// Whoever reads calls off a connection makes one for each that may buy something before it reads
// the next message (its zero value is a call whose client waits), lets the call's handler carry it
// in its context (WithCall), and says once how the call ended:
//
//	ends with   when                                             what the call bought
//	Cancel      the client gave up, or its answer did not        goes to the next call for the same
//	            reach it
//	Leave       the client is gone, and may come back for        the same, and the call goes on meanwhile
//	            its answer
//	Deliver     the client has the answer                        is over: the next call for the same
//	                                                             buys again
//
// An answer that comes so late that the client may have given up without saying so (Late) is neither:
// for LateAnswerRepeats what it bought goes to the same call without an idempotency key. A call that
// comes while its client waits for the same one, as if that were lost (Repeats), takes its turn behind it.
//
// Cancel, Leave and Deliver take effect before they return, so a call that is read after a cancellation
// finds the payment of the cancelled one left by its client: the same call directly behind a cancellation is
// one purchase. The ledger is written a moment later, for other processes.
//
// A context without a Call is a caller that waits as long as the context lasts. All methods are
// safe for concurrent use.
type Call struct {
	Began time.Time // when it was read; zero: its answer is never late

	mu        sync.Mutex
	first     *Call     // the same call before it, given up by its client
	lateAt    time.Time // when its late answer was ready
	ended     bool
	delivered bool
	leave     []context.CancelFunc   // of the contexts that carry it
	notify    []func(delivered bool) // called once, when it has ended
}

// Cancel ends the call without its answer having reached the client, and cancels the contexts that
// carry it. After Deliver it does nothing.
func (c *Call) Cancel() { c.end(false, true) }

// Leave ends the call as Cancel does, but for the contexts that carry it: they go on to an answer that the
// client may still come back for.
func (c *Call) Leave() { c.end(false, false) }

// Deliver ends the call with its answer: written to the client, which can no longer say that it
// never came. After Cancel it does nothing.
func (c *Call) Deliver() { c.end(true, false) }

func (c *Call) end(delivered, stop bool) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.delivered = true, delivered
	leave, notify := c.leave, c.notify
	c.leave, c.notify = nil, nil
	c.mu.Unlock()
	if stop {
		for _, f := range leave {
			f()
		}
	}
	for _, f := range notify {
		f(delivered)
	}
}

// Cancelled reports whether the call has ended without its answer.
func (c *Call) Cancelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended && !c.delivered
}

// OnEnd has f called once, with whether the client has the answer: when the call ends, or at once
// if it has. f must not block: a connection's reader calls it.
func (c *Call) OnEnd(f func(delivered bool)) {
	c.mu.Lock()
	if !c.ended {
		c.notify = append(c.notify, f)
		c.mu.Unlock()
		return
	}
	delivered := c.delivered
	c.mu.Unlock()
	f(delivered)
}

// Repeats says that c is first made again, because its client no longer waits for first.
func (c *Call) Repeats(first *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = first
}

// awaitFirst waits for the end of the call that this one repeats, if there is one: what that one
// bought is this one's then. It ends with ctx.
func awaitFirst(ctx context.Context) error {
	c := CallFrom(ctx)
	if c == nil {
		return nil
	}
	c.mu.Lock()
	first := c.first
	c.mu.Unlock()
	if first == nil {
		return nil
	}
	ended := make(chan struct{})
	first.OnEnd(func(bool) { close(ended) })
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answering says that the call's answer is ready, and reports whether it is late. A client that made the
// call again has shown how long it waits at most.
func (c *Call) answering() (late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, waits := time.Now(), LateAnswer
	if c.first != nil {
		waits = min(waits, c.Began.Sub(c.first.Began))
	}
	if !c.Began.IsZero() && now.Sub(c.Began) >= waits {
		c.lateAt = now
	}
	return !c.lateAt.IsZero()
}

// Late reports whether its answer was ready so late that the client may have given up.
func (c *Call) Late() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lateAt.IsZero()
}

// isLeftTo reports whether what the call bought is the other's, a call for the same: its client gave
// it up, or may have when its answer came. Calls that were read before that answer could be known,
// or at once after it, are purchases of their own.
func (c *Call) isLeftTo(other *Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return !c.delivered
	}
	if c.lateAt.IsZero() || other == nil {
		return false
	}
	return other.Began.After(c.lateAt.Add(reaction))
}

type callKey struct{}

// WithCall is a context that carries a call and is cancelled with it. It holds resources until the
// call or ctx ends.
func WithCall(ctx context.Context, c *Call) context.Context {
	ctx, leave := context.WithCancel(context.WithValue(ctx, callKey{}, c))
	c.onCancel(leave)
	return ctx
}

func (c *Call) onCancel(f context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		f()
		return
	}
	c.leave = append(c.leave, f)
}

// CallFrom is the call that a context carries; nil: none.
func CallFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

type agentKey struct{}

// WithAgent is a context whose calls are those of one of the agents that share the wallet, by its name in the
// owner's rules. What it buys counts in its own windows, too, and is nobody else's: no other agent gets,
// replays or goes on with it.
func WithAgent(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, agentKey{}, name)
}

// AgentFrom is the agent whose calls a context's are; "": a caller without a name, as the command line or a
// wallet in the agent's own process.
func AgentFrom(ctx context.Context) string {
	name, _ := ctx.Value(agentKey{}).(string)
	return name
}
