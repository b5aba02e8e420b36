package paywall

import "net/http"

// addSession counts a visitor toward Limits.Sessions. If they are used up, the session that bought nothing
// and has been idle the longest is closed.
func (l *limiter) addSession(v *visitor) *refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	guests, asking, sameAddress := 0, 0, 0
	for other := range l.visitors {
		if other.bought {
			continue
		}
		guests++
		if l.askedRecently(other) {
			asking++
		}
		if v.address != "" && other.address == v.address {
			sameAddress++
		}
	}
	half := max(l.Sessions/2, 1)
	isGuest := func(other *visitor) bool { return !other.bought }
	// guests that were told a price and guests that were not each keep half of the sessions from a crowd of
	// the other
	goesFirst := func(other *visitor) bool {
		return isGuest(other) && l.askedRecently(other) == (asking > half/2)
	}
	switch {
	case sameAddress >= max(half/addressShare, 2):
		if !l.evict(func(other *visitor) bool { return isGuest(other) && other.address == v.address }) {
			return &refusal{http.StatusTooManyRequests, 5, "too many sessions from this address"}
		}
	case guests >= half:
		if !l.evict(goesFirst) && !l.evict(isGuest) {
			return &refusal{http.StatusServiceUnavailable, 5, "too many sessions"}
		}
	case len(l.visitors) >= l.Sessions:
		isIdle := func(other *visitor) bool { return l.now().Sub(other.lastCall) > askedTime }
		if !l.evict(goesFirst) && !l.evict(isGuest) && !l.evict(isIdle) {
			return &refusal{http.StatusServiceUnavailable, 30, "too many sessions"}
		}
	}
	v.lastCall = l.now()
	l.visitors[v] = struct{}{}
	return nil
}

// askedRecently reports whether a visitor was told a price and may be about to pay it.
func (l *limiter) askedRecently(v *visitor) bool { return l.now().Sub(v.askedAt) < askedTime }

// evict closes the longest idle session of those that mayGo reports; false if there is none.
func (l *limiter) evict(mayGo func(*visitor) bool) bool {
	var oldest *visitor
	for v := range l.visitors {
		isOlder := oldest == nil || v.lastCall.Before(oldest.lastCall)
		if v.calls == 0 && v.close != nil && isOlder && mayGo(v) {
			oldest = v
		}
	}
	if oldest == nil {
		return false
	}
	l.remove(oldest)
	return true
}

// expire closes sessions that have been idle for too long.
func (l *limiter) expire() {
	for v := range l.visitors {
		timeout := guestIdleTime
		if v.bought {
			timeout = buyerIdleTime
		}
		if v.calls == 0 && v.close != nil && l.now().Sub(v.lastCall) > timeout {
			l.remove(v)
		}
	}
}

// remove forgets a visitor, cancels its calls and closes its session or stream.
func (l *limiter) remove(v *visitor) {
	delete(l.visitors, v)
	delete(l.sessions, v.id)
	v.cancel()
	if v.close != nil {
		l.closing.Go(v.close) // asynchronously: the SDK takes its own locks
	}
}

// endSession closes a session on its client's request (DELETE).
func (l *limiter) endSession(v *visitor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(v)
}

// dropSessionless forgets the visitor of a request that opened no session, and cancels what the request
// started.
func (l *limiter) dropSessionless(v *visitor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.id == "" {
		delete(l.visitors, v)
		v.cancel()
	}
}

// openSession records the session that a request opened. If its client hung up meanwhile, the visitor is
// already gone, nobody could use the session, and it is closed.
func (l *limiter) openSession(v *visitor, id string, closeSession func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, isKnown := l.visitors[v]; !isKnown {
		l.closing.Go(closeSession)
		return
	}
	v.id, v.close = id, closeSession
	l.sessions[id] = v
}

func (l *limiter) hasSession(v *visitor) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return v.id != ""
}

// addStream counts the stream of a subscription without a session as a session: it no longer counts as a
// call, and is closed like a session.
func (l *limiter) addStream(v *visitor) *refusal {
	refused := l.addSession(v)
	if refused != nil {
		return refused
	}
	v.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	v.close = func() {}
	return nil
}

func (l *limiter) close() {
	l.cancel()
	l.mu.Lock()
	for v := range l.visitors {
		l.remove(v)
	}
	l.mu.Unlock()
	l.closing.Wait()
}
