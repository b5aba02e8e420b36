package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"x402-wallet/x402"
)

// turns lets the processes on a ledger write one after the other. SQLite excludes them too, but who
// waits there sleeps up to
// 100 ms between two looks, and finds the ledger taken again each time by a process that has much to write.
//
// It is a turnstile: who is next holds the file next until it holds the file writing, so who has
// just written cannot be next again before it. The kernel lets go of both when a process dies.
type turns struct {
	dir, name     string
	own           chan struct{} // this process's writers queue here
	next, writing *os.File
	patience      time.Duration // with other processes
	poll          time.Duration
}

// poll is how often the one who waits looks. It is the only one of its process.
const poll = 200 * time.Microsecond

func newTurns(home, name string) *turns {
	return &turns{dir: filepath.Join(home, "run"), name: name, own: make(chan struct{}, 1),
		patience: lockWait, poll: poll}
}

// take waits for this writer's turn, but not longer than lockWait for other processes. give ends
// the turn.
func (t *turns) take(ctx context.Context) (give func(), err error) {
	select {
	case t.own <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		if err != nil {
			<-t.own
		}
	}()
	if err := t.open(); err != nil {
		return nil, x402.Errorf(x402.LedgerUnavailable, "open the ledger's locks: %w", err)
	}
	until := time.Now().Add(t.patience)
	if err := t.wait(ctx, t.next, until); err != nil {
		return nil, err
	}
	err = t.wait(ctx, t.writing, until)
	if err := errors.Join(err, unlock(t.next)); err != nil {
		_ = unlock(t.writing) // who gets no turn holds none
		return nil, err
	}
	return func() {
		_ = unlock(t.writing)
		<-t.own
	}, nil
}

func (t *turns) open() (err error) {
	if t.writing != nil {
		return nil
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	const flags = os.O_CREATE | os.O_RDWR
	next, err := os.OpenFile(filepath.Join(t.dir, t.name+".next"), flags, 0o600)
	if err != nil {
		return err
	}
	writing, err := os.OpenFile(filepath.Join(t.dir, t.name+".turn"), flags, 0o600)
	if err != nil {
		next.Close()
		return err
	}
	t.next, t.writing = next, writing
	return nil
}

func (t *turns) wait(ctx context.Context, file *os.File, until time.Time) error {
	for {
		held, err := lock(file)
		if err != nil {
			return x402.Errorf(x402.LedgerUnavailable, "lock the ledger: %w", err)
		}
		if held {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(until) {
			return x402.Errorf(x402.LedgerUnavailable, "other processes held the ledger for more than %s",
				t.patience).WithHint(hintHeld)
		}
		time.Sleep(t.poll)
	}
}

// close lets go of the files once no writer of this process is at work.
func (t *turns) close() error {
	t.own <- struct{}{}
	defer func() { <-t.own }()
	if t.writing == nil {
		return nil
	}
	err := errors.Join(t.next.Close(), t.writing.Close())
	t.next, t.writing = nil, nil
	return err
}
