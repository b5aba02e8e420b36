package pay

import (
	"sync"
	"time"

	"x402-wallet/history"
)

// signings is until when what this process signed may be good, by its monotonic clock, which nobody
// sets: neither the node nor who sets the machine's clock.
type signings struct {
	mu    sync.Mutex
	until map[string]time.Time // by payment
}

// maxSignings bounds it. A payment that is no longer in it goes by the wall clock alone, as one that
// another process signed.
const maxSignings = 10_000

func (s *signings) note(id string, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil || len(s.until) >= maxSignings {
		s.until = map[string]time.Time{}
	}
	s.until[id] = time.Now().Add(life)
}

func (s *signings) areOver(id string) bool {
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
	return end.IsZero() || (e.signings.areOver(p.ID) && !e.Now().Before(end.Add(maxSkew)))
}
