package history

import (
	"context"
	"os"
	"strings"
	"time"

	"x402-wallet/history/postgres"
)

// How the processes of a fleet know which of them live: each says so while it works.

const (
	// aliveFor is how long a process is taken for alive after it said so, and beatEvery how often it does
	// while it works: it may miss two.
	aliveFor, beatEvery = 30 * time.Second, 10 * time.Second
)

// instance is this process's id; from its first on it says that it lives, as long as it works.
func (e *fleet) instance() (string, error) {
	e.beats.Lock()
	defer e.beats.Unlock()
	e.mu.Lock()
	id, said := e.self, time.Since(e.beaten) < beatEvery
	e.mu.Unlock()
	if id != "" && said {
		return id, nil
	}
	if id == "" {
		id = newID("run_")
	}
	if err := e.beat(id); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.self == "" && !e.closed {
		e.self, e.beating = id, make(chan struct{})
		over := e.beating
		e.ended.Go(func() { e.keepBeating(id, over) })
	}
	return id, nil
}

func (e *fleet) beat(id string) error {
	host, _ := os.Hostname()
	ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
	defer cancel()
	err := e.pool.With(ctx, func(c *postgres.Conn) error {
		_, err := c.Query(ctx, postgres.Statement{Query: `SELECT beat(?, ?, ?, ?)`,
			Args: []any{id, e.Agent, host, e.aliveFor.Microseconds()}})
		return err
	})
	if err == nil {
		e.mu.Lock()
		e.beaten = time.Now()
		e.mu.Unlock()
	}
	return fleetError(err)
}

// keepBeating says that this process lives while payments of its own are under way.
func (e *fleet) keepBeating(id string, over chan struct{}) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			e.mu.Lock()
			drives := e.driving > 0
			e.mu.Unlock()
			if drives {
				e.beats.Lock()
				_ = e.beat(id)
				e.beats.Unlock()
			}
		}
	}
}

// alive reports whether a process said so lately. Where the server does not answer it is taken for alive:
// nothing can be taken up then anyway. So it is for a while after a failover: nobody could say so before, and
// what was said last may be lost.
func (e *fleet) alive(id string) bool {
	if !strings.HasPrefix(id, "run_") {
		return false
	}
	alive := true
	ctx, cancel := context.WithTimeout(context.Background(), beatEvery)
	defer cancel()
	_ = e.pool.With(ctx, func(c *postgres.Conn) error {
		return queryRow(ctx, fleetConn{c}, `SELECT is_young_epoch(?2) OR EXISTS (SELECT 1 FROM instances
			WHERE id = ?1 AND until > real_clock())`, id, e.aliveFor.Microseconds()).Scan(&alive)
	})
	return alive
}

// name is this process's id, "" before its first payment.
func (e *fleet) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.self
}

// drives counts the payments of this process that are under way: while there are any, it says that it lives.
func (e *fleet) drives(more int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.driving = max(0, e.driving+more)
}
