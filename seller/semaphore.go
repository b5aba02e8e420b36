package seller

import (
	"context"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// bodySemaphores bound the memory that large bodies take, however many calls there are at once: one that
// turns out to be large is read on when one of a few slots is free, and its seller waits with the rest.
// What was paid for has slots of its own, so that no crowd of free answers keeps it waiting.
type bodySemaphores struct {
	asked, paid chan struct{}
	// of bodies whose decoder takes much memory before anything comes out of it (isHeavy)
	heavyAsked, heavyPaid chan struct{}

	idle *time.Timer  // runs since the last slot became free, and gives memory back
	left atomic.Int32 // how often it will
}

const (
	// largeBody is how much of each body is read without a slot.
	largeBody = 512 << 10
	// A slot is for a body of 32 MiB.
	slotsAsked, slotsPaid = 2, 4
	// A slot is for a decoder of 16 MiB.
	heavySlotsAsked, heavySlotsPaid = 4, 8
	// slotsIdle is how long all slots have to be free until the memory of what had them is given back to
	// the system.
	slotsIdle, slotsIdleAgain = time.Second, 5 * time.Second
)

func newBodySemaphores() *bodySemaphores {
	s := &bodySemaphores{asked: make(chan struct{}, slotsAsked), paid: make(chan struct{}, slotsPaid),
		heavyAsked: make(chan struct{}, heavySlotsAsked), heavyPaid: make(chan struct{}, heavySlotsPaid)}
	s.idle = time.AfterFunc(time.Hour, func() {
		if !s.isIdle() {
			return
		}
		debug.FreeOSMemory()
		if s.left.Add(-1) > 0 { // the last body may still have been given out
			s.idle.Reset(slotsIdleAgain)
		}
	})
	s.idle.Stop()
	return s
}

func (s *bodySemaphores) isIdle() bool { return len(s.asked)+len(s.paid) == 0 }

// acquireSlot waits for a free slot; the returned function gives it back, however often it is called.
func (s *bodySemaphores) acquireSlot(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() {
		<-slots
		if s.isIdle() {
			s.left.Store(3)
			s.idle.Reset(slotsIdle)
		}
	}), nil
}

// unpacking waits for a slot of those whose decoder is heavy; done gives it back. Others need none.
func (s *bodySemaphores) unpacking(response *http.Response, isPaid bool) (done func(), err error) {
	if !isHeavy(response) {
		return func() {}, nil
	}
	slots := s.heavyAsked
	if isPaid {
		slots = s.heavyPaid
	}
	ctx := requestContext(response)
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return func() {}, ctx.Err()
	}
}

// keepSlot has an answer hold the slot of its body until it is released. Of an answer that nobody
// releases, the slot is free again when the answer is garbage collected.
func (a *Answer) keepSlot(release func()) {
	if len(a.Content) <= largeBody { // it was not so large after all
		release()
		return
	}
	a.releaseSlot = release
	runtime.AddCleanup(a, func(release func()) { release() }, release)
}

// Release says that the content of an answer is not needed any more, so that the next large one may be
// read. Whoever asked calls it when it is done; it may be called again.
func (a *Answer) Release() {
	if a.releaseSlot != nil {
		a.releaseSlot()
	}
}
