// Package otlp tells a collector of OpenTelemetry's of calls and their steps, as spans: OTLP over HTTP, in
// JSON (opentelemetry.io/docs/specs/otlp, 1.x).
//
// What must stay true: it delays no payment and changes none. What has ended is put aside, up to a bound, and
// sent by a goroutine of this package's own; what finds no room is dropped and counted. A collector hears
// nothing that the owner did not choose it for, and no secret: a report has none.
//
// It is written by hand, because OpenTelemetry's SDK would add a fifth to the wallet, and every start would
// pay for it. Its bytes are read back by OpenTelemetry's own types in the tests.
//
// The files: otlp.go (what is put aside, and when it leaves), send.go (one batch on its way), span.go (a
// report as spans).
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"x402-wallet/internal/steps"
)

const (
	// maxWaiting bounds the spans that are put aside: some hundred calls, a few megabytes.
	maxWaiting = 4096
	// maxBatch is how many spans leave at once, and batchWait for how long the first of them waits.
	maxBatch  = 512
	batchWait = 2 * time.Second
	// closeTime is how long a process that ends waits for what is being sent.
	closeTime = 2 * time.Second
)

// Exporter sends spans. Set its fields before its first use; Close it.
type Exporter struct {
	URL     string // whole; may hold a key: never in an error
	HTTP    *http.Client
	Headers func() (http.Header, error) // read for each batch; nil: there are none
	// Sealed says why the rules that name the collector are not the owner's; then nothing is sent. It is not
	// called after Close. nil: they need no seal
	Sealed func(ctx context.Context) error
	Of     Resource
	Log    *slog.Logger
	// Ending counts what is still being sent after Close
	Ending *sync.WaitGroup

	// tests only
	wait   time.Duration   // 0: batchWait
	pauses []time.Duration // nil: pauses

	// made with the first span
	woken   chan struct{}
	closing chan struct{} // closed by Close
	working chan struct{} // closed when nothing is being sent any more
	stop    context.CancelFunc

	checking sync.RWMutex // held while Sealed is asked

	mu      sync.Mutex
	waiting []span
	closed  bool
	sealed  error // what Sealed said when it was closed
	lost    int   // spans that no collector has
	told    bool  // that some are lost
}

// Add puts a call's spans aside, if it is sampled. It does not wait.
func (x *Exporter) Add(r steps.Report) {
	if !r.Trace.Sampled {
		return
	}
	list := spansOf(r)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return
	case len(x.waiting)+len(list) > maxWaiting:
		x.lose(len(list), "more is put aside than the collector takes")
		return
	}
	if x.closing == nil {
		x.work()
	}
	x.waiting = append(x.waiting, list...)
	x.wake()
}

func (x *Exporter) wake() {
	select {
	case x.woken <- struct{}{}:
	default:
	}
}

// lose counts spans that are not sent, and says so the first time. It is called with x.mu held.
func (x *Exporter) lose(n int, why string) {
	x.lost += n
	if !x.told {
		x.told = true
		x.Log.Warn("spans are dropped, and this is said once", "why", why)
	}
}

// work begins to send: most processes never have to. It is called with x.mu held.
func (x *Exporter) work() {
	x.woken, x.closing, x.working = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	x.stop = stop
	go func() {
		defer close(x.working)
		defer x.caught()
		x.deliver(ctx)
	}()
}

// caught is deferred where the goroutine begins: a defect here stops no payment.
func (x *Exporter) caught() {
	if p := recover(); p != nil {
		x.Log.Error("sending spans panicked", "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
		x.mu.Lock()
		x.closed = true
		x.mu.Unlock()
	}
}

// deliver sends what comes, until the exporter is closed and nothing is left.
func (x *Exporter) deliver(ctx context.Context) {
	for {
		batch, isClosed := x.next(ctx)
		if len(batch) == 0 {
			if isClosed {
				return
			}
			continue
		}
		if lost, why := x.send(ctx, batch); lost > 0 {
			x.mu.Lock()
			x.lose(lost, why)
			x.mu.Unlock()
		}
	}
}

// next waits for spans, and for others to go with them; isClosed: no more will come.
func (x *Exporter) next(ctx context.Context) (batch []span, isClosed bool) {
	select {
	case <-x.woken:
	case <-x.closing:
	}
	full := time.NewTimer(cmp.Or(x.wait, batchWait))
	defer full.Stop()
	for isWaiting := true; isWaiting && !x.hasBatch(); {
		select {
		case <-x.woken:
		case <-full.C:
			isWaiting = false
		case <-x.closing:
			isWaiting = false
		case <-ctx.Done():
			isWaiting = false
		}
	}
	return x.take()
}

func (x *Exporter) hasBatch() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.waiting) >= maxBatch
}

func (x *Exporter) take() (batch []span, isClosed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := min(len(x.waiting), maxBatch)
	batch, x.waiting = x.waiting[:n:n], x.waiting[n:]
	if len(x.waiting) > 0 { // not all of it
		x.wake()
	}
	return batch, x.closed
}

// Close ends it, and does not wait: what is put aside has closeTime to get through (Ending), and what comes
// now is not sent.
func (x *Exporter) Close() {
	if !x.isBusy() {
		return
	}
	x.checking.Lock()
	defer x.checking.Unlock()
	var sealed error
	if x.Sealed != nil {
		sealed = x.Sealed(context.Background())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.closed, x.sealed = true, sealed
	close(x.closing)
	x.Ending.Go(x.end)
}

// isBusy reports whether it has anything to end; where it has not, it has ended.
func (x *Exporter) isBusy() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closing == nil {
		x.closed = true
	}
	return !x.closed
}

func (x *Exporter) end() {
	defer time.AfterFunc(closeTime, x.stop).Stop()
	<-x.working
	x.stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lost > 0 {
		x.Log.Warn("spans were dropped", "spans", x.lost)
	}
}

func (x *Exporter) isSealed(ctx context.Context) error {
	x.checking.RLock()
	defer x.checking.RUnlock()
	x.mu.Lock()
	isClosed, last := x.closed, x.sealed
	x.mu.Unlock()
	if isClosed || x.Sealed == nil {
		return last
	}
	return x.Sealed(ctx)
}
