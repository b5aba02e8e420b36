package paywall

import "maps"

// Load is what a Proxy has at a moment.
type Load struct {
	Running  int            // sales
	Sessions int            // of clients over HTTP
	Calls    map[string]int // concurrent requests over HTTP, of guests, payers and buyers
	Refused  map[int]uint64 // requests that found no place so far, by HTTP status
}

// Load says so. It may be called at any time.
func (f *Proxy) Load() Load {
	load := Load{Running: int(f.Paywall.running.Load()), Calls: map[string]int{}}
	l := f.limits.Load()
	if l == nil { // over stdio nothing is limited
		return load
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	load.Sessions, load.Refused = len(l.sessions), maps.Clone(l.refused)
	for rank, name := range map[rank]string{ofGuest: "guest", ofPayer: "payer", ofBuyer: "buyer"} {
		load.Calls[name] = l.calls[rank]
	}
	return load
}

func (l *limiter) countRefusal(r *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[int]uint64{}
	}
	l.refused[r.status]++
}
