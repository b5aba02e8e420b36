package history

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"x402-wallet/x402"
)

// A ledger in PostgreSQL is shared by replicas of the wallet's service, each with a home of its own. All that
// is said of payments, money and seals is the same there. Two things differ: how replicas know which of them
// live, and how one at a time uses a channel.

// replica is this process among those that share a ledger in PostgreSQL.
type replica struct {
	s        *Store
	aliveFor time.Duration

	mu      sync.Mutex
	id      string        // empty before the first payment
	stop    chan struct{} // closed at the end
	beating sync.WaitGroup
}

const (
	// aliveFor is how long a process counts as alive after it said so, which it does three times in that time.
	// A call that is repeated within that time without a key is another purchase, so the time is short. A
	// process that is wrongly taken for dead loses its holds, or its signed bytes are sent twice, at the worst.
	aliveFor = 10 * time.Second
	// beatTime bounds one such message.
	beatTime = 3 * time.Second
)

// instance is this process's id. From the first call on it says every few seconds that it lives.
func (r *replica) instance() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id != "" {
		return r.id, nil
	}
	id := newID("run_")
	if err := r.beat(id, r.aliveFor); err != nil {
		return "", err
	}
	stop := make(chan struct{})
	r.id, r.stop = id, stop
	r.beating.Go(func() {
		tick := time.NewTicker(r.aliveFor / 10 * 3)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				_ = r.beat(id, 0) // so that nobody has to wait for it
				return
			case <-tick.C:
				_ = r.beat(id, r.aliveFor) // the next one may come through
			}
		}
	})
	return id, nil
}

// serverTime is the server's clock, microseconds: computers that share it need not agree on the time.
const serverTime = `CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)`

func (r *replica) beat(id string, lives time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), beatTime)
	defer cancel()
	host, _ := os.Hostname()
	return r.s.tx(ctx, func(t *tx) error {
		_, err := t.Exec(`INSERT INTO instances (id, host, until) VALUES (?, ?, `+serverTime+` + ?)
			ON CONFLICT (id) DO UPDATE SET until = excluded.until`, id, host, lives.Microseconds())
		if err == nil {
			_, err = t.Exec(`DELETE FROM instances WHERE until < ` + serverTime + ` - ` +
				strconv.FormatInt((24*time.Hour).Microseconds(), 10))
		}
		return err
	})
}

// self is this process's id, or empty before its first payment.
func (r *replica) self() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// alive reports whether a process said so lately. If the server does not answer it is taken for alive:
// nothing can be taken up then anyway.
func (r *replica) alive(id string) bool {
	if id == "" {
		return false
	}
	if id == r.self() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatTime)
	defer cancel()
	alive, err := readOnce(ctx, r.s, func(t *tx) (bool, error) {
		return t.Is(`SELECT EXISTS (SELECT 1 FROM instances WHERE id = ? AND until > `+serverTime+`)`, id)
	})
	return alive || err != nil
}

func (r *replica) close() {
	r.mu.Lock()
	stop := r.stop
	r.stop = nil
	r.mu.Unlock()
	if stop != nil {
		close(stop)
		r.beating.Wait()
	}
}

// lockChannel is Store.LockChannel among replicas: a turn that is renewed until unlock is called. It lasts
// TurnTime after its holder died.
func (r *replica) lockChannel(ctx context.Context, service, key string) (unlock func(), err error) {
	name := fmt.Sprintf("channel-%x", sha256.Sum256([]byte(service+" "+key)))[:24]
	holder := newID("run_")
	var turn Turn
	for {
		turn, err = r.s.TakeTurn(ctx, name, holder)
		if err == nil || err != ErrNoTurn { //nolint:errorlint // it is returned as it is
			break
		}
		select {
		case <-ctx.Done():
			return nil, x402.Errorf(x402.LedgerUnavailable, "wait for the channel: %w", ctx.Err())
		case <-time.After(channelPoll):
		}
	}
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(TurnTime / 3)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = r.s.RenewTurn(context.WithoutCancel(ctx), turn)
			}
		}
	})
	return func() {
		close(stop)
		renewing.Wait()
		_ = r.s.LeaveTurn(context.WithoutCancel(ctx), turn)
	}, nil
}

// Shared reports whether replicas with other homes may use the ledger.
func (s *Store) Shared() bool { return s.replica != nil }
