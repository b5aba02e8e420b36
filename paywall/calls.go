package paywall

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// acquire counts the calls of a request until release. Buyers have limits of their own, and so have calls
// that carry a payment, so that no crowd of others can use those up.
func (l *limiter) acquire(v *visitor, body []byte, header http.Header) (release func(), refused *refusal) {
	calls, ok := countMessages(body)
	if !ok {
		return func() {}, &refusal{http.StatusBadRequest, 0,
			fmt.Sprintf("a batch has 1 to %d messages", maxBatch)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	rank, from := ofGuest, origin{address: v.address}
	maxOwn, maxAll := maxCalls, l.maxGuestCalls()
	switch {
	case v.bought:
		rank, from, maxOwn, maxAll = ofBuyer, origin{}, maxCallsBought, 2*maxAll
	case carriesPayment(header, body):
		rank, from.isPaying = ofPayer, true
	}
	switch {
	case v.calls > 0 && v.calls+calls > maxOwn:
		return func() {}, &refusal{http.StatusTooManyRequests, 1,
			"too many calls of this session are under way"}
	case l.calls[rank]+calls > maxAll:
		return func() {}, &refusal{http.StatusServiceUnavailable, 5, "too many calls are under way"}
	case from.address != "" && l.callsFrom[from] > 0 && l.callsFrom[from]+calls > maxAll/addressShare:
		return func() {}, &refusal{http.StatusTooManyRequests, 5,
			"too many calls from this address are under way"}
	}
	count := func(n int) {
		v.calls += n
		l.calls[rank] += n
		if from.address != "" {
			l.callsFrom[from] += n
		}
	}
	count(calls)
	isReleased := false
	v.release = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if isReleased {
			return
		}
		isReleased = true
		count(-calls)
		if l.callsFrom[from] == 0 {
			delete(l.callsFrom, from)
		}
		v.lastCall = l.now()
	}
	return v.release, nil
}

func (l *limiter) maxGuestCalls() int { return max(l.Sessions/4, maxBatch) }

// acquireUpstream counts an upstream call of a visitor that bought nothing until done. Such a call can take
// any time and goes on when its client hangs up, so these calls leave half of the limit to calls that the
// paywall answers itself, as it does the first call of every visitor.
func (l *limiter) acquireUpstream(v *visitor) (done func(), refused *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, own := l.maxGuestCalls()/2, l.upstreamCallsFrom[v.address]
	if v.address != "" && own >= limit/addressShare {
		return nil, &refusal{http.StatusTooManyRequests, 5, "too many calls from this address are under way"}
	}
	if l.upstreamCalls >= limit {
		return nil, &refusal{http.StatusServiceUnavailable, 5, "too many calls are under way"}
	}
	count := func(n int) {
		l.upstreamCalls += n
		l.upstreamCallsFrom[v.address] += n
		if l.upstreamCallsFrom[v.address] == 0 {
			delete(l.upstreamCallsFrom, v.address)
		}
	}
	count(1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		count(-1)
	}, nil
}

// acquireHandler counts a call inside the SDK until done: over HTTP before MCP 2026-07-28 it goes on when its
// client hangs up. The returned context is cancelled when the session is closed.
func (l *limiter) acquireHandler(ctx context.Context, v *visitor) (
	_ context.Context, done func(), _ *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maxOwn := maxCalls
	if v.bought {
		maxOwn = maxCallsBought
	}
	maxAll := 2 * max(l.Sessions, l.maxGuestCalls())
	if v.handlers >= maxOwn || (!v.bought && l.handlers >= maxAll) {
		return ctx, nil, &refusal{http.StatusTooManyRequests, 5, "too many calls are under way"}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(v.ctx, cancel)
	v.handlers++
	l.handlers++
	return ctx, func() {
		stop()
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		v.handlers--
		l.handlers--
	}, nil
}

// callHeader identifies a request for isAbandoned: the SDK passes on headers, but not the request's context.
// A value that the client sent is overwritten.
const callHeader = "X402-Wallet-Call"

// trackPending registers a request until it is answered or its client hangs up.
func (l *limiter) trackPending(r *http.Request) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requestCount++
	name := strconv.Itoa(l.requestCount)
	l.pending[name] = true
	r.Header.Set(callHeader, name)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pending, name)
	}
}

// isAbandoned reports whether the client of a call has hung up. Over HTTP before MCP 2026-07-28 that does not
// cancel the call.
func isAbandoned(ctx context.Context, header http.Header) bool {
	l := limiterFrom(ctx)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.pending[header.Get(callHeader)]
}
