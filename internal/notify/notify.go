// Package notify tells the owner of what waits for them: what the ledger has as alerts.
//
// What must stay true: telling neither delays a payment nor changes one. Alerts are rows of the ledger; one
// process at a time tells them, whoever wrote them, by goroutines of this package's own, and there is a bound
// to how often anybody is told, and how long that takes. An alert is told once, unless the process that tells
// it dies before it has noted that: then it is told again, under the same id. And nobody is told by what the
// owner did not seal.
//
// The files: notice.go (what is told), notify.go (when), send.go (by all ways), command.go, webhook.go
// and desktop.go (how).
package notify

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/turns"
)

const (
	// perMinute is how often in a minute of the clock the owner is told something: an agent that asks and
	// asks makes no flood. What comes beyond that is told as one, when the minute is over.
	perMinute = 6
	// lookEvery is how long what another process wrote, and cannot tell itself, waits.
	lookEvery = 30 * time.Second
	// turnEvery is how long a process waits that has something to tell while another one tells; the other one
	// mostly tells that, too.
	turnEvery = time.Second
	// closeTime is how long a process that ends waits for what is being told.
	closeTime = 2 * time.Second
	// turnName is the turn of who tells, for all processes on a ledger.
	turnName = "alerts"
)

// tryAgain is how long is waited after each failure but the last: alerts.MaxTries.
var tryAgain = [alerts.MaxTries - 1]time.Duration{10 * time.Second, 2 * time.Minute}

// Way is one way to tell the owner.
type Way interface {
	// Name says which way it is, as in config.toml, and to what or whom it leads, without a secret.
	Name() (way, to string)
	// Tell has a bound of its own.
	Tell(ctx context.Context, n Notice) error
}

// Notifier tells the owner of the ledger's alerts, by every way. Set its fields before Begin; Close it.
type Notifier struct {
	Store *history.Store
	// Sealed says why the rules that name the ways are not the owner's; then nobody is told.
	Sealed func(ctx context.Context) error
	// Page is where the owner decides on an approval in a browser; "", or nil: nowhere.
	Page func(approvalID string) string
	Log  *slog.Logger
	// Ending counts what is still told after Close.
	Ending *sync.WaitGroup

	ways    []Way
	holder  string                     // this notifier's name, for turns
	taken   map[string]map[string]bool // by alert, the ways that told it while others failed
	refused bool                       // Sealed did, the last time
	woken   chan struct{}
	closing chan struct{}
	stop    context.CancelFunc // nil before Begin
	working sync.WaitGroup
	end     sync.Once
}

func New(ways ...Way) *Notifier {
	return &Notifier{ways: ways, holder: rand.Text(), taken: map[string]map[string]bool{},
		woken: make(chan struct{}, 1), closing: make(chan struct{}), Ending: &sync.WaitGroup{}}
}

// Wake says that this process wrote an alert. It returns at once.
func (n *Notifier) Wake() {
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// Begin begins to tell what is there, and what comes.
func (n *Notifier) Begin() {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.working.Go(func() { n.work(ctx) })
}

// Close ends it, and does not wait: what is to be told has closeTime to get through, and what was not is told
// by the next process. then is called when the ledger is not used any more.
func (n *Notifier) Close(then func()) {
	n.end.Do(func() {
		if n.stop == nil {
			then()
			return
		}
		close(n.closing)
		n.Ending.Go(func() {
			defer then()
			defer time.AfterFunc(closeTime, n.stop).Stop()
			n.working.Wait()
			n.stop()
		})
	})
}

// work looks what is to be told, until the notifier is closed or ctx ends.
func (n *Notifier) work(ctx context.Context) {
	for {
		again := time.NewTimer(n.look(ctx, false))
		select {
		case <-n.woken:
			again.Stop()
		case <-again.C:
		case <-n.closing:
			again.Stop()
			n.finish(ctx)
			return
		}
	}
}

// finish tells what is left of what came before the end, where there is something.
func (n *Notifier) finish(ctx context.Context) {
	for ctx.Err() == nil && n.look(ctx, true) < lookEvery {
		select {
		case <-ctx.Done():
		case <-time.After(turnEvery / 10):
		}
	}
}

// look tells what is due, and says after what time to look again. At the end of the process what was held
// back is due.
func (n *Notifier) look(ctx context.Context, isEnd bool) (again time.Duration) {
	again, err := n.tellDue(ctx, isEnd)
	switch {
	case errors.Is(err, turns.ErrNone):
		return turnEvery
	case err != nil && ctx.Err() == nil:
		n.Log.Warn("look what the owner is to be told", "err", err)
	}
	return again
}

// tellDue tells what is due, as one process at a time does.
func (n *Notifier) tellDue(ctx context.Context, isEnd bool) (time.Duration, error) {
	again, waits, err := n.untilNext(ctx)
	if err != nil || !waits || (again > 0 && !isEnd) {
		return again, err
	}
	if err := n.checkSealed(ctx); err != nil {
		return lookEvery, nil
	}
	turn, err := turns.Take(ctx, n.Store, turnName, n.holder)
	if err != nil {
		return lookEvery, err
	}
	defer func() { _ = turns.Leave(context.WithoutCancel(ctx), n.Store, turn) }() // or it ends by itself
	for {
		isDone, err := n.tellSome(ctx, turn, isEnd)
		if err != nil {
			return lookEvery, err
		}
		if isDone {
			break
		}
	}
	if isEnd { // what is left now is the next process's
		return lookEvery, nil
	}
	again, _, err = n.untilNext(ctx)
	return again, err
}

// untilNext is how long the next alert waits, lookEvery at most; 0: it is due. waits: there is one.
func (n *Notifier) untilNext(ctx context.Context) (again time.Duration, waits bool, err error) {
	next, waits, err := alerts.Next(ctx, n.Store)
	if err != nil || !waits {
		return lookEvery, false, err
	}
	return min(max(time.Until(next), 0), lookEvery), true, nil
}

// checkSealed is what Sealed says; it is logged where it changed.
func (n *Notifier) checkSealed(ctx context.Context) error {
	err := n.Sealed(ctx)
	if err != nil && !n.refused {
		n.Log.Warn("the owner is not told of what waits for them", "why", err)
	}
	n.refused = err != nil
	return err
}

// tellSome tells a part of what is due, and holds back what is too much. It reports whether nothing is left.
func (n *Notifier) tellSome(ctx context.Context, turn turns.Turn, isEnd bool) (isDone bool, err error) {
	minute := time.Now().Truncate(time.Minute)
	due, recent, err := alerts.Due(ctx, n.Store, turn, isEnd, minute)
	if err != nil || len(due) == 0 {
		return true, err
	}
	room := perMinute - recent
	if isEnd {
		room++ // one more, which stands for all that is left
	}
	p := plan(due, room, isEnd)
	if len(p.later) > 0 {
		if err := alerts.HoldBack(ctx, n.Store, turn, minute.Add(time.Minute), ids(p.later)...); err != nil {
			return false, err
		}
	}
	if err := n.send(ctx, turn, p.told(n.Page)); err != nil {
		return false, err
	}
	// at the end what failed is due again, and must not be tried again
	return isEnd || len(p.single)+len(p.asOne) == 0, nil
}

// planned is what is done about what is due.
type planned struct{ single, asOne, later []alerts.Alert }

// plan divides what is due where room notices may be told now. Questions come last, because an agent can ask
// many. As long as there is room each is told by itself, and what is more is held back; what was held back is
// told as one with all that came meanwhile, but for what is no question.
func plan(due []alerts.Alert, room int, isEnd bool) (p planned) {
	slices.SortStableFunc(due, func(a, b alerts.Alert) int { return cmp.Compare(rank(a), rank(b)) })
	switch {
	case room <= 0:
		p.later = due
	case len(due) <= room && !slices.ContainsFunc(due, wasHeldBack):
		p.single = due
	case isEnd || slices.ContainsFunc(due, wasPutOff):
		others := slices.IndexFunc(due, func(a alerts.Alert) bool { return rank(a) > 0 })
		if others < 0 {
			others = len(due)
		}
		alone := min(others, room-1)
		if isEnd {
			alone = min(room, len(due)) - 1
		}
		p.single, p.asOne = due[:alone], due[alone:]
	default:
		p.single, p.later = due[:room], due[room:]
	}
	if len(p.asOne) == 1 {
		p.single, p.asOne = append(p.single, p.asOne[0]), nil
	}
	return p
}

func rank(a alerts.Alert) int {
	if a.Kind == alerts.Approval {
		return 1
	}
	return 0
}

// wasHeldBack tells what was too much from what failed; both were put off.
func wasHeldBack(a alerts.Alert) bool { return wasPutOff(a) && a.Attempts == 0 }

func wasPutOff(a alerts.Alert) bool { return !a.Next.IsZero() }

func ids(alerts []alerts.Alert) (list []string) {
	for _, a := range alerts {
		list = append(list, a.ID)
	}
	return list
}
