package pay

import (
	"context"
	"sync"
)

// turns lets this process do one thing at a time of those that have the same name: each transaction of an
// account comes after the one before it, and each approval of a token. Of several processes the ledger, or
// the chain, takes one. The zero value is ready.
type turns struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// begin waits for its turn; the returned function ends it.
func (t *turns) begin(ctx context.Context, name string) (end func(), err error) {
	t.mu.Lock()
	if t.busy == nil {
		t.busy = map[string]chan struct{}{}
	}
	turn, known := t.busy[name]
	if !known {
		turn = make(chan struct{}, 1)
		t.busy[name] = turn
	}
	t.mu.Unlock()
	if ctx.Err() != nil { // who left does not take a turn by chance
		return nil, ctx.Err()
	}
	select {
	case turn <- struct{}{}:
		return sync.OnceFunc(func() { <-turn }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
