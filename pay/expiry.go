package pay

import (
	"sync"
	"time"

	"x402-wallet/history"
)

// localExpiries knows until when the signatures that this process made may be valid, by its monotonic
// clock, which nobody can set: neither the node, nor whoever sets the machine's clock.
type localExpiries struct {
	mu    sync.Mutex
	until map[string]time.Time // by payment
}

// maxLocalExpiries bounds them. A payment that is no longer among them goes by the wall clock alone, as
// one that another process signed.
const maxLocalExpiries = 10_000

func (s *localExpiries) note(id string, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil || len(s.until) >= maxLocalExpiries {
		s.until = map[string]time.Time{}
	}
	s.until[id] = time.Now().Add(life)
}

func (s *localExpiries) passed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, here := s.until[id]
	return !here || time.Now().After(until)
}

// isOver reports whether a signed payment is past its end by our own clocks too, and not only by the
// word of a node: by the wall clock, and in the process that signed it by the time that has passed
// since, so that setting the clock forward ends nothing either. The chain's clock may be behind ours
// by what is allowed when a payment is signed (maxSkew). What has no end of its own, as a channel's
// voucher, is not asked about here.
func (e *Engine) isOver(p history.Payment) bool {
	end := p.Evidence.ExpiresAt
	return end.IsZero() || (e.localExpiries.passed(p.ID) && !e.Now().Before(end.Add(maxSkew)))
}

// isSkew reports whether a payment ended by the wall clock less than maxSkew ago: that the chain has come to
// its end is no surprise then.
func (e *Engine) isSkew(p history.Payment) bool {
	since := e.Now().Sub(p.Evidence.ExpiresAt)
	return since >= 0 && since < maxSkew
}
