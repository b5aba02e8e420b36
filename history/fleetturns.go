package history

import (
	"context"
	"time"

	"x402-wallet/history/postgres"
	"x402-wallet/x402"
)

// A turn is a row that one process at a time has: it makes it last while it works, and whoever died with it
// loses it after a while. No lock of the server's is used, which a failover would let go of unseen.

// turnTime is how long a turn lasts that is not made to last; turnPoll how often whoever waits for it looks.
const turnTime, turnPoll = aliveFor, 50 * time.Millisecond

// lockTurn waits for a turn, as LockChannel says.
func (e *fleet) lockTurn(ctx context.Context, name string) (unlock func(), err error) {
	leave, err := e.queue(ctx, name)
	if err != nil {
		return nil, err
	}
	holder := newID("turn_")
	for until := time.Now().Add(channelTimeout); ; {
		fence, err := e.turn(ctx, "take", name, holder)
		switch {
		case err == nil && fence > 0:
			return e.holdTurn(name, holder, leave), nil
		case err == nil && time.Now().After(until):
			err = x402.Errorf(x402.LedgerUnavailable, "another process uses the channel for longer than %s",
				channelTimeout)
		}
		if err == nil {
			select {
			case <-time.After(turnPoll):
				continue
			case <-ctx.Done():
				err = outOfTime("wait for a turn at the channel", ctx.Err())
			}
		}
		leave()
		return nil, err
	}
}

// queue has the callers of this process wait for each other.
func (e *fleet) queue(ctx context.Context, name string) (leave func(), err error) {
	e.mu.Lock()
	if e.turns == nil {
		e.turns = map[string]chan struct{}{}
	}
	queue := e.turns[name]
	if queue == nil {
		queue = make(chan struct{}, 1)
		e.turns[name] = queue
	}
	e.mu.Unlock()
	select {
	case queue <- struct{}{}:
		return func() { <-queue }, nil
	case <-ctx.Done():
		return nil, outOfTime("wait for a turn at the channel", ctx.Err())
	}
}

// holdTurn makes a turn last until unlock is called.
func (e *fleet) holdTurn(name, holder string, leave func()) (unlock func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				_ = e.turnOnce(beatEvery, "renew", name, holder)
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		_ = e.turnOnce(2*time.Second, "leave", name, holder) // else it ends by itself
		leave()
	}
}

func (e *fleet) turn(ctx context.Context, do, name, holder string) (fence int64, err error) {
	fence, err = call(
		ctx,
		e,
		scanNumber,
		`SELECT turn(?, ?, ?, ?)`,
		do,
		name,
		holder,
		turnTime.Microseconds(),
	)
	return fence, e.tell(err)
}

// turnOnce is turn without repeating it.
func (e *fleet) turnOnce(most time.Duration, do, name, holder string) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return e.pool.With(ctx, func(c *postgres.Conn) error {
		_, err := scanNumber(queryRow(ctx, fleetConn{c}, `SELECT turn(?, ?, ?, ?)`, do, name, holder,
			turnTime.Microseconds()))
		return err
	})
}
