// Package notify tells the owner of what waits for them: a question about a payment, a freeze.
//
// What must stay true: telling neither delays a payment nor changes one. What is new is put aside and told
// later, by goroutines of this package's own; there is a bound to how much is put aside, how often anybody is
// told, and how long that takes. A notice may be lost, because the question itself is in the ledger. And
// nobody is told by what the owner did not seal.
//
// The files: notice.go (what is told), notify.go (when), command.go, webhook.go, desktop.go (how; on macOS
// osascript.go).
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"x402-wallet/history"
)

const (
	// perMinute is how many notices a minute are told one by one: an agent that asks and asks makes no
	// flood. What comes beyond them is told as one, when the minute is over.
	perMinute = 6
	// maxWaiting bounds the notices that are put aside for one way; the others are counted.
	maxWaiting = 20
	// closeTime is how long a process that ends waits for what is being told.
	closeTime = 2 * time.Second
)

// Way is one way to tell the owner.
type Way interface {
	// Name says which way it is, as in config.toml, and to what or whom it leads, without a secret.
	Name() (way, to string)
	// Tell has a bound of its own.
	Tell(ctx context.Context, n Notice) error
}

// Notifier tells the owner of what is new, by every way. It implements history.Waits. Set its fields before
// its first use; Close it.
type Notifier struct {
	// Sealed says why the rules that name the ways are not the owner's; then nobody is told. It is not called
	// after Close.
	Sealed func(ctx context.Context) error
	// Page is where the owner decides on an approval in a browser; "", or nil: nowhere.
	Page func(approvalID string) string
	Log  *slog.Logger
	// Ending counts what is still told after Close.
	Ending *sync.WaitGroup

	lines   []*line
	begin   sync.Once
	working sync.WaitGroup
	stop    context.CancelFunc // nil: it has nothing to do yet
	closing chan struct{}

	checking sync.RWMutex // held while Sealed is asked
	closed   bool
	last     error // what Sealed said when it was closed
}

var _ history.Waits = (*Notifier)(nil)

// New makes a notifier of these ways.
func New(ways ...Way) *Notifier {
	n := &Notifier{closing: make(chan struct{}), Ending: &sync.WaitGroup{}}
	for _, way := range ways {
		n.lines = append(n.lines, &line{way: way, woken: make(chan struct{}, 1)})
	}
	return n
}

// Asked implements history.Waits.
func (n *Notifier) Asked(a history.Approval) {
	page := ""
	if n.Page != nil {
		page = n.Page(a.ID)
	}
	n.add(approval(a, page))
}

// Frozen implements history.Waits. Of what the owner stopped nobody has to tell them.
func (n *Notifier) Frozen(f history.Freeze) {
	if f.By != "owner" {
		n.add(freeze(f))
	}
}

func (n *Notifier) add(notice Notice) {
	n.begin.Do(n.work)
	for _, l := range n.lines {
		l.add(notice)
	}
}

// work begins to deliver: most processes never have to.
func (n *Notifier) work() {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	for _, l := range n.lines {
		n.working.Go(func() { n.deliver(ctx, l) })
	}
}

// Close ends it, and does not wait: what is to be told has closeTime to get through, and what comes now is
// not told.
func (n *Notifier) Close() {
	n.begin.Do(func() {})
	n.checking.Lock()
	defer n.checking.Unlock()
	if n.closed || n.stop == nil {
		return
	}
	n.last, n.closed = n.Sealed(context.Background()), true
	close(n.closing)
	n.Ending.Go(func() {
		defer time.AfterFunc(closeTime, n.stop).Stop()
		n.working.Wait()
		n.stop()
	})
}

// isSealed is what Sealed says.
func (n *Notifier) isSealed(ctx context.Context) error {
	n.checking.RLock()
	defer n.checking.RUnlock()
	if n.closed {
		return n.last
	}
	return n.Sealed(ctx)
}

// deliver tells what comes by one way, until the notifier is closed and nothing is left.
func (n *Notifier) deliver(ctx context.Context, l *line) {
	var minute time.Time // when it ends
	told := 0            // in it
	for l.wait(n.closing) {
		now := time.Now()
		if !now.Before(minute) {
			minute, told = now.Add(time.Minute), 0
		}
		if told < perMinute {
			told++
			n.tell(ctx, l.way, l.first())
			continue
		}
		select {
		case <-time.After(minute.Sub(now)):
		case <-n.closing:
		}
		minute, told = time.Now().Add(time.Minute), 1
		n.tell(ctx, l.way, l.all())
	}
}

func (n *Notifier) tell(ctx context.Context, way Way, notice Notice) {
	name, to := way.Name()
	err := n.tellNow(ctx, way, notice)
	if err != nil {
		n.Log.Warn("the owner was not told of what waits for them", "by", name, "to", to, "notice", notice.ID,
			"why", err)
	}
}

// tellNow tells it at once, where the owner sealed the way.
func (n *Notifier) tellNow(ctx context.Context, way Way, notice Notice) (err error) {
	defer func() {
		if p := recover(); p != nil { // a defect here stops no payment
			n.Log.Error("telling the owner panicked", "type", fmt.Sprintf("%T", p), "stack",
				string(debug.Stack()))
			err = fmt.Errorf("the wallet had an internal error")
		}
	}()
	if err := n.isSealed(ctx); err != nil {
		return err
	}
	return way.Tell(ctx, notice)
}

// Outcome is what came of a test of one way.
type Outcome struct {
	Way, To string
	Err     error // nil: it was told
}

// Test tells a test notice by every way, and says what came of each.
func (n *Notifier) Test(ctx context.Context) []Outcome {
	list, notice := make([]Outcome, len(n.lines)), test()
	var telling sync.WaitGroup
	for i, l := range n.lines {
		telling.Go(func() {
			o := &list[i]
			o.Way, o.To = l.way.Name()
			o.Err = n.tellNow(ctx, l.way, notice)
		})
	}
	telling.Wait()
	return list
}

// line is what is to be told by one way.
type line struct {
	way   Way
	woken chan struct{}

	mu      sync.Mutex
	waiting []Notice // at most maxWaiting
	over    int      // how many came beyond those
}

func (l *line) add(n Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) < maxWaiting {
		l.waiting = append(l.waiting, n)
	} else {
		l.over++
	}
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// wait reports whether there is something to tell; false comes after the end alone.
func (l *line) wait(closing <-chan struct{}) bool {
	for {
		if l.len() > 0 {
			return true
		}
		select {
		case <-l.woken:
		case <-closing:
			return l.len() > 0
		}
	}
}

func (l *line) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) + l.over
}

// first takes the oldest notice, or the sum of those that were only counted. There is one.
func (l *line) first() Notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		count := l.over
		l.over = 0
		return more(count)
	}
	n := l.waiting[0]
	l.waiting = l.waiting[1:]
	return n
}

// all takes everything as one notice. There is something.
func (l *line) all() Notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := len(l.waiting) + l.over
	n := more(count)
	if count == 1 && l.over == 0 {
		n = l.waiting[0]
	}
	l.waiting, l.over = nil, 0
	return n
}
