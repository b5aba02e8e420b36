package processes

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
)

// rows is a process that says every few seconds, in a row of the server, that it lives. All Stores that it
// has of a ledger are this one process.
type rows struct {
	db       *sqldb.DB
	aliveFor time.Duration

	mu      sync.Mutex
	stores  int
	id      string        // empty before Join
	stop    chan struct{} // closed at the end
	beating sync.WaitGroup
}

const (
	// usualLife is how long a process counts as alive after it said so, which it does three times in that
	// time. A call that is repeated within that time without a key is another purchase, so the time is short.
	// A process that is wrongly taken for dead loses its holds, or its signed bytes are sent twice, at the
	// worst.
	usualLife = 10 * time.Second
	// beatTime bounds one such message.
	beatTime = 3 * time.Second
)

// Rows returns the maker of processes of a ledger on a server. aliveFor is for how long a process counts as
// alive after it said so; default 10 s.
func Rows(db *sqldb.DB, aliveFor time.Duration) func() history.Process {
	p := &rows{db: db, aliveFor: cmp.Or(aliveFor, usualLife)}
	return func() history.Process {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stores++
		return p
	}
}

func (p *rows) Join() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.id != "" {
		return p.id, nil
	}
	id := history.RandomID("run_")
	if err := p.beat(id, p.aliveFor); err != nil {
		return "", err
	}
	stop := make(chan struct{})
	p.id, p.stop = id, stop
	p.beating.Go(func() {
		tick := time.NewTicker(p.aliveFor / 10 * 3)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				_ = p.beat(id, 0) // so that nobody has to wait for it
				return
			case <-tick.C:
				_ = p.beat(id, p.aliveFor) // the next one may come through
			}
		}
	})
	return id, nil
}

// serverTime is the server's clock, microseconds: computers that share it need not agree on the time.
const serverTime = `CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)`

func (p *rows) beat(id string, lives time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), beatTime)
	defer cancel()
	host, _ := os.Hostname()
	return p.db.Write(ctx, func(t *sqldb.Tx) error {
		_, err := t.Exec(`INSERT INTO instances (id, host, until) VALUES (?, ?, `+serverTime+` + ?)
			ON CONFLICT (id) DO UPDATE SET until = excluded.until`, id, host, lives.Microseconds())
		if err == nil {
			_, err = t.Exec(`DELETE FROM instances WHERE until < ` + serverTime + ` - ` +
				strconv.FormatInt((24*time.Hour).Microseconds(), 10))
		}
		return err
	})
}

func (p *rows) Self() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// Alive takes a process for alive if the server does not answer: nothing can be taken up then anyway.
func (p *rows) Alive(id string) bool {
	if id == "" {
		return false
	}
	if id == p.Self() {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), beatTime)
	defer cancel()
	var alive bool
	err := p.db.Once(ctx, func(t *sqldb.Tx) (err error) {
		alive, err = t.Is(`SELECT EXISTS (SELECT 1 FROM instances WHERE id = ? AND until > `+serverTime+`)`, id)
		return err
	})
	return alive || err != nil
}

// Leave ends the process with its last Store.
func (p *rows) Leave() {
	p.mu.Lock()
	p.stores--
	isLast := p.stores == 0 && p.stop != nil
	if isLast {
		close(p.stop)
		p.id, p.stop = "", nil
	}
	p.mu.Unlock()
	if isLast {
		p.beating.Wait()
	}
}
