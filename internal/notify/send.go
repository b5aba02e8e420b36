package notify

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/turns"
)

type message struct {
	Notice
	alerts []alerts.Alert
}

// told are the messages of a plan, in their order.
func (p planned) told(page func(string) string) (list []message) {
	for _, a := range p.single {
		at := ""
		if page != nil && a.Kind == alerts.Approval {
			at = page(history.ListOf(a.Subject))
		}
		list = append(list, message{notice(a, at), []alerts.Alert{a}})
	}
	if len(p.asOne) > 0 {
		list = append(list, message{more(p.asOne), p.asOne})
	}
	return list
}

// send tells messages by every way. The ways do not wait for one another; each message is marked when all of
// them have done what they can.
func (n *Notifier) send(ctx context.Context, turn turns.Turn, messages []message) error {
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel()
	failures := make([][]error, len(messages))
	tried := make([]sync.WaitGroup, len(messages))
	for i := range messages {
		failures[i] = make([]error, len(n.ways))
		tried[i].Add(len(n.ways))
	}
	for w, way := range n.ways {
		toTell := n.untold(way, messages)
		telling.Go(func() {
			for i, m := range messages {
				if toTell[i] {
					failures[i][w] = n.tell(ctx, way, m.Notice)
				}
				tried[i].Done()
			}
		})
	}
	for i, m := range messages {
		if err := n.holdTurn(ctx, turn, &tried[i]); err != nil {
			return err
		}
		if err := n.mark(ctx, turn, m, failures[i]); err != nil {
			return err
		}
	}
	return nil
}

// holdTurn renews the turn until what is done in it is done.
func (n *Notifier) holdTurn(ctx context.Context, turn turns.Turn, tried *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		tried.Wait()
		close(done)
	}()
	renew := time.NewTicker(turns.Time / 3)
	defer renew.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-renew.C:
			if err := turns.Renew(ctx, n.Store, turn); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// untold says of each message whether a way has still to tell it: another one may have failed then.
func (n *Notifier) untold(way Way, messages []message) (list []bool) {
	name, _ := way.Name()
	for _, m := range messages {
		list = append(list, !n.taken[m.Alert][name])
	}
	return list
}

func (n *Notifier) tell(ctx context.Context, way Way, notice Notice) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := n.tellNow(ctx, way, notice)
	if err != nil {
		name, to := way.Name()
		n.Log.Warn("the owner was not told of what waits for them", "by", name, "to", to, "notice", notice.ID,
			"why", err)
	}
	return err
}

// tellNow tells a notice; a defect here stops no payment.
func (n *Notifier) tellNow(ctx context.Context, way Way, notice Notice) (err error) {
	defer func() {
		if p := recover(); p != nil {
			n.Log.Error("telling the owner panicked", "type", fmt.Sprintf("%T", p), "stack",
				string(debug.Stack()))
			err = fmt.Errorf("the wallet had an internal error")
		}
	}()
	return way.Tell(ctx, notice)
}

// mark notes what came of a message, by each way. Where some ways told it and others failed, it is tried
// again by these; in the end it is told if one of them did.
func (n *Notifier) mark(ctx context.Context, turn turns.Turn, m message, failures []error) error {
	failed, told := 0, map[string]bool{}
	for w, way := range n.ways {
		name, _ := way.Name()
		if failures[w] != nil {
			failed++
		} else {
			told[name] = true
		}
	}
	if failed > 0 && ctx.Err() != nil { // this process ends; that is no fault of the way
		return ctx.Err()
	}
	ctx = context.WithoutCancel(ctx) // what was told is noted although the process ends
	attempts := m.alerts[0].Attempts
	for _, a := range m.alerts {
		attempts = min(attempts, a.Attempts)
	}
	isLast := attempts+1 >= alerts.MaxTries
	delete(n.taken, m.Alert)
	if failed == 0 || (isLast && len(told) > 0) {
		return alerts.MarkTold(ctx, n.Store, turn, m.Alert, ids(m.alerts)...)
	}
	again := time.Now()
	if isLast {
		n.Log.Error("the owner cannot be told of what waits for them, which is given up: x402-wallet alerts "+
			"lists it", "notice", m.ID)
	} else {
		if len(n.taken) >= maxTaken { // then some are told once more
			clear(n.taken)
		}
		n.taken[m.Alert] = told
		again = again.Add(tryAgain[attempts])
	}
	return alerts.MarkFailed(ctx, n.Store, turn, again, ids(m.alerts)...)
}

// maxTaken bounds what is known of messages that some ways told and others did not.
const maxTaken = 100

// Outcome is what came of a test of one way.
type Outcome struct {
	Way, To string
	Err     error // nil: it was told
}

// Test tells a test notice by every way, and says what came of each.
func (n *Notifier) Test(ctx context.Context) []Outcome {
	list, notice := make([]Outcome, len(n.ways)), test()
	var telling sync.WaitGroup
	for i, way := range n.ways {
		telling.Go(func() {
			o := &list[i]
			o.Way, o.To = way.Name()
			o.Err = n.Sealed(ctx)
			if o.Err == nil {
				o.Err = n.tellNow(ctx, way, notice)
			}
		})
	}
	telling.Wait()
	return list
}
