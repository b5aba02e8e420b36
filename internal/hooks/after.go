package hooks

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/turns"
	"x402-wallet/internal/child"
)

const (
	// lookEvery is how long what another process left, or the chain decides later, waits.
	lookEvery = 30 * time.Second
	// turnEvery is how long a process waits that has something to tell while another one tells.
	turnEvery = time.Second
	// closeTime is how long a process that ends goes on to begin telling: what it has begun has its time.
	closeTime = 2 * time.Second
	// tellWithin is how old a payment may be that the program did not take.
	tellWithin = 7 * 24 * time.Hour
)

// tryAgain is how long is waited after a failure, the last one for ever.
var tryAgain = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}

// teller tells what came of payments, in a goroutine of its own.
type teller struct {
	woken   chan struct{}
	closing chan struct{}
	begun   bool
	working sync.WaitGroup
	end     sync.Once

	holder string           // this teller's name, for turns
	failed map[string]retry // what was not taken, by payment
}

// retry is when a payment that was not taken is told again.
type retry struct {
	failures int
	next     time.Time
}

// Begin begins to tell what is to be told, and what comes; it does nothing where there is no program for it.
func (h *Hooks) Begin() {
	if len(h.After.Argv) == 0 {
		return
	}
	h.teller = teller{woken: make(chan struct{}, 1), closing: make(chan struct{}), begun: true,
		holder: rand.Text(), failed: map[string]retry{}}
	h.teller.working.Go(h.work)
}

// Wake says that something may have come of a payment. It returns at once.
func (h *Hooks) Wake() {
	if h == nil || !h.teller.begun {
		return
	}
	select {
	case h.teller.woken <- struct{}{}:
	default:
	}
}

// Close ends it, and does not wait; then is called when the ledger is not used any more. What is not told by
// then the next process tells.
func (h *Hooks) Close(then func()) {
	h.teller.end.Do(func() {
		if !h.teller.begun {
			then()
			return
		}
		close(h.teller.closing)
		h.Ending.Go(func() {
			defer then()
			h.teller.working.Wait()
		})
	})
}

func (h *Hooks) work() {
	for {
		timer := time.NewTimer(h.look(nil))
		select {
		case <-h.teller.woken:
			timer.Stop()
		case <-timer.C:
		case <-h.teller.closing:
			timer.Stop()
			h.look(time.After(closeTime))
			return
		}
	}
}

// look tells what is due, and says after what time to look again. With an end nothing is begun after it.
func (h *Hooks) look(end <-chan time.Time) (again time.Duration) {
	due, again, err := h.due(context.Background())
	switch {
	case err != nil:
		h.Log.Warn("look what the program of hooks.after is to be told", "err", err)
		return lookEvery
	case len(due) == 0:
		return again
	}
	if err := h.Sealed(context.Background()); err != nil {
		h.Log.Warn("the program of hooks.after is told nothing", "why", err)
		return lookEvery
	}
	err = h.inTurn(func(ctx context.Context) error { return h.tellAll(ctx, due, end) })
	switch {
	case errors.Is(err, turns.ErrNone):
		return turnEvery
	case err != nil:
		h.Log.Warn("tell the program of hooks.after", "err", err)
		return lookEvery
	}
	return tryAgain[0]
}

// due are the payments in the outbox that are over, and were not told in vain a short while ago; again is
// after what time to look next. What the ledger does not know leaves the outbox.
func (h *Hooks) due(ctx context.Context) (list []history.Payment, again time.Duration, err error) {
	ids, err := h.waiting()
	if err != nil {
		return nil, 0, err
	}
	again = lookEvery
	for _, id := range ids {
		if wait := time.Until(h.teller.failed[id].next); wait > 0 {
			again = min(again, wait)
			continue
		}
		p, err := h.Store.Payment(ctx, id)
		switch {
		case errors.Is(err, history.ErrNotFound):
			err = h.done(id)
		case err == nil && !p.State.Unfinished():
			list = append(list, p)
		}
		if err != nil {
			return list, 0, err
		}
	}
	return list, again, nil
}

// inTurn does what one process of this home does at a time.
func (h *Hooks) inTurn(do func(ctx context.Context) error) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	turn, err := turns.Take(ctx, h.Store, h.turnName(), h.teller.holder)
	if err != nil {
		return err
	}
	defer func() { _ = turns.Leave(context.WithoutCancel(ctx), h.Store, turn) }() // or it ends by itself
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer stop()
	renewing.Go(func() {
		tick := time.NewTicker(turns.Time / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := turns.Renew(ctx, h.Store, turn); errors.Is(err, turns.ErrNone) {
					stop() // somebody else tells now
					return
				}
			}
		}
	})
	return do(ctx)
}

// turnName is the turn of who tells, for all processes on this home of this machine.
func (h *Hooks) turnName() string {
	host, _ := os.Hostname() // else all homes of that path take turns
	sum := sha256.Sum256([]byte(host + "\n" + h.Dir))
	return "hooks " + hex.EncodeToString(sum[:8])
}

// tellAll tells of payments one after the other. One that is not taken keeps none of the others back.
func (h *Hooks) tellAll(ctx context.Context, due []history.Payment, end <-chan time.Time) error {
	for _, p := range due {
		select {
		case <-end:
			return nil
		default:
		}
		if err := h.tell(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// tell tells of one payment. Who told it and died before the outbox had that tells it again.
func (h *Hooks) tell(ctx context.Context, p history.Payment) error {
	if isThere, err := h.isWaiting(p.ID); err != nil || !isThere {
		return err
	}
	_, _, err := h.After.Ask(ctx, event(after, p).line(), child.Limits{Time: h.Limit})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		h.complain("after", p.ID, err)
		if time.Since(p.Created) < tellWithin {
			r := h.teller.failed[p.ID]
			wait := tryAgain[min(r.failures, len(tryAgain)-1)]
			h.teller.failed[p.ID] = retry{failures: r.failures + 1, next: time.Now().Add(wait)}
			return nil
		}
		h.Log.Error("the program of hooks.after did not take what came of a payment, which is given up",
			"payment", p.ID)
	}
	delete(h.teller.failed, p.ID)
	return h.done(p.ID)
}
