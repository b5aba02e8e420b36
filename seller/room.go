package seller

import (
	"context"
	"runtime"
	"sync"
)

// room bounds the memory that large bodies take, however many calls there are at once: one that turns
// out to be large is read on when one of a few places is free, and its seller waits with the rest. What
// was paid for has places of its own, so that no crowd of free answers keeps it waiting.
type room struct{ asked, paid chan struct{} }

const (
	// largeBody is how much of each body is read without a place.
	largeBody = 512 << 10
	// A place is for a body of 32 MiB.
	placesAsked, placesPaid = 2, 4
)

func newRoom() room {
	return room{asked: make(chan struct{}, placesAsked), paid: make(chan struct{}, placesPaid)}
}

// take waits for a place; the returned function gives it back, however often it is called.
func take(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// keepsPlace gives an answer the place that its body took. An answer that nobody releases gives it back
// when nobody has the answer any more.
func (a *Answer) keepsPlace(leave func()) {
	if len(a.Content) <= largeBody { // it was not so large after all
		leave()
		return
	}
	a.leave = leave
	runtime.AddCleanup(a, func(leave func()) { leave() }, leave)
}

// Release says that the content of an answer is not needed any more, so that the next large one may be
// read. Whoever asked calls it when it is done; it may be called again.
func (a *Answer) Release() {
	if a.leave != nil {
		a.leave()
	}
}
