package history

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"x402-wallet/history/postgres"
)

// How the processes of a fleet know which of them live: each says so while it works. Those of one home know
// it by locks, too: a call that is made again as soon as its process has died is the same purchase.

const (
	// aliveFor is how long a process is taken for alive after it said so, and beatEvery how often it does
	// while it works: it may miss two.
	aliveFor, beatEvery = 30 * time.Second, 10 * time.Second
)

// instance is this process's id; from its first on it says that it lives, as long as it works.
func (e *fleet) instance() (string, error) {
	e.beats <- struct{}{}
	defer func() { <-e.beats }()
	e.mu.Lock()
	id, said := e.self, time.Since(e.beaten) < beatEvery
	e.mu.Unlock()
	if id != "" && said {
		return id, nil
	}
	isFirst := id == ""
	var lock *instance
	if isFirst {
		id = newID("run_")
		lock = lockInHome(e.Home, id)
	}
	if err := e.beat(id); err != nil {
		if lock != nil {
			lock.release()
		}
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if isFirst && e.closed && lock != nil {
		lock.release()
	}
	if isFirst && !e.closed {
		e.self, e.lock, e.beating = id, lock, make(chan struct{})
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
			drives := len(e.driving) > 0
			e.mu.Unlock()
			if drives {
				e.beats <- struct{}{}
				_ = e.beat(id)
				<-e.beats
			}
		}
	}
}

// alive reports whether a process said so lately. Where the server does not answer it is taken for alive:
// nothing can be taken up then anyway. So it is for a while after a failover: nobody could say so before, and
// what was said last may be lost.
func (e *fleet) alive(id string) bool {
	if !strings.HasPrefix(id, "run_") || e.endedHere(id) {
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

// lockInHome takes a process's lock in its home; nil: there is none to be had, and the process is known by
// what it says alone.
func lockInHome(home, id string) *instance {
	if home == "" {
		return nil
	}
	dir := filepath.Join(home, runFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(dir, id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil
	}
	i := &instance{id: id, file: file}
	held, err := lockFile(file)
	if err != nil || !held || !locksWork(file.Name(), lockFile) {
		i.release()
		return nil
	}
	return i
}

// endedHere reports whether a process of this home has ended: the kernel let go of its lock. Then it is
// said for it, so that no other machine has to wait.
func (e *fleet) endedHere(id string) bool {
	if e.Home == "" || filepath.Base(id) != id {
		return false
	}
	file, err := os.OpenFile(filepath.Join(e.Home, runFolder, id), os.O_RDWR, 0)
	if err != nil {
		return false // none of this home's, or it was said already
	}
	defer file.Close()
	held, err := shareFile(file)
	if err != nil || !held {
		return false
	}
	if e.sayEnded(id) == nil {
		os.Remove(file.Name())
	}
	return true
}

// sayEnded says that a process lives no more.
func (e *fleet) sayEnded(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return e.pool.With(ctx, func(c *postgres.Conn) error {
		_, err := c.Query(ctx, postgres.Statement{Query: `SELECT beat(?, ?, '', 0)`,
			Args: []any{id, e.Agent}})
		return err
	})
}

// name is this process's id, "" before its first payment.
func (e *fleet) name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.self
}

// drives notes which payments of this process are under way: while there are any, it says that it lives.
func (e *fleet) drives(id string, isUnderWay bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.driving == nil {
		e.driving = map[string]bool{}
	}
	if isUnderWay {
		e.driving[id] = true
	} else {
		delete(e.driving, id)
	}
}
