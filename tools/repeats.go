package tools

import (
	"crypto/sha256"
	"slices"
	"sync"
	"time"
)

// giveUp is the least that a client waits before it gives a call up. One that wants the same twice, and
// makes both calls at once, is quicker.
const giveUp = 750 * time.Millisecond

// repeats finds the calls that are made again because their client gave them up without saying so, as
// Python's SDK does when its time is over. Two equal calls may as well be two purchases. They are told
// apart by the client's silence: who buys twice at once makes the calls one directly behind the other,
// and who buys again has read an answer just before; who gave up has heard and said nothing for a while.
// Only time in which nothing was there to be read counts, so a busy machine makes no repeats.
type repeats struct {
	mu      sync.Mutex
	silence time.Duration // of the client, all in all, but for the read that waits now
	since   time.Time     // when that began; zero: none waits
	open    map[[sha256.Size]byte]*identical
}

// identical are calls with one tool and the same arguments that are not answered, in order.
type identical struct {
	calls []*clientRequest
	last  time.Duration // the silence, when one of them was read or answered
}

// reading says that the client's next message is waited for, or is there.
func (r *repeats) reading(waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silence = r.quiet()
	r.since = time.Time{}
	if waits {
		r.since = time.Now()
	}
}

func (r *repeats) quiet() time.Duration {
	if r.since.IsZero() {
		return r.silence
	}
	return r.silence + time.Since(r.since)
}

// begin takes a call in, behind the one that it repeats, if it does.
func (r *repeats) begin(c *clientRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := r.open[c.same]
	if same == nil {
		same = &identical{}
		if r.open == nil {
			r.open = map[[sha256.Size]byte]*identical{}
		}
		r.open[c.same] = same
	}
	now := r.quiet()
	if now-same.last >= giveUp {
		for _, before := range same.calls {
			before.givenUp = true
		}
	}
	first := slices.IndexFunc(same.calls, func(b *clientRequest) bool { return b.givenUp && !b.repeated })
	if first >= 0 {
		same.calls[first].repeated = true
		c.call.Repeats(same.calls[first].call)
	}
	same.calls, same.last = append(same.calls, c), now
}

// answer takes a call out that is about to be answered, and reports whether it was made again.
func (r *repeats) answer(c *clientRequest) (repeated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := r.open[c.same]
	if same == nil {
		return c.repeated
	}
	same.calls = slices.DeleteFunc(same.calls, func(other *clientRequest) bool { return other == c })
	same.last = r.quiet()
	if len(same.calls) == 0 {
		delete(r.open, c.same)
	}
	return c.repeated
}
