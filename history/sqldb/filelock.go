package sqldb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"x402-wallet/x402"
)

// FileLock lets the processes on a ledger do something one after the other: write, renew the
// checkpoint, use a channel.
//
// It is a turnstile of two files: whoever is next in line holds the file next until it holds the file
// current, so that a process which has just had the lock cannot overtake it. The kernel releases both
// when a process dies.
//
// SQLite excludes writers too, but a caller that waits there sleeps up to 100 ms between two looks, and finds
// the ledger taken again each time: with 100 callers in six processes some were refused after 5 s,
// while here none waited longer than 0.5 s.
type FileLock struct {
	dir, name     string
	local         chan struct{} // this process's callers queue here
	next, current *os.File
	timeout       time.Duration // for other processes
	poll          time.Duration
}

// poll is how often the process at the head of the queue looks. It is the only one of its process.
const poll = 200 * time.Microsecond

// NewFileLock returns the lock of a name in a wallet's home.
func NewFileLock(home, name string) *FileLock {
	return &FileLock{
		dir: filepath.Join(home, "run"), name: name, local: make(chan struct{}, 1), timeout: lockWait,
		poll: poll,
	}
}

// SetPatience sets how long a caller waits for other processes, and how often it looks.
func (l *FileLock) SetPatience(timeout, poll time.Duration) { l.timeout, l.poll = timeout, poll }

// Lock waits for the other callers of this process until ctx ends, and for other processes no
// longer than the timeout. Its error is LEDGER_UNAVAILABLE, with that of ctx in it. The lock is
// held until unlock is called.
func (l *FileLock) Lock(ctx context.Context) (unlock func(), err error) {
	return l.LockFor(Wait{ctx: ctx})
}

// LockFor is Lock for a caller that has waited already, until a time; without one it waits for the
// timeout, counted from its turn in this process.
func (l *FileLock) LockFor(w Wait) (unlock func(), err error) {
	select {
	case l.local <- struct{}{}:
	case <-w.ctx.Done():
		return nil, l.failed("wait for", w.ctx.Err())
	}
	if w.until.IsZero() {
		w.until = time.Now().Add(l.timeout)
	}
	defer func() {
		if err != nil {
			<-l.local
		}
	}()
	if err := l.open(); err != nil {
		return nil, l.failed("open", err)
	}
	if err := l.take(w, l.next); err != nil {
		return nil, err
	}
	err = l.take(w, l.current)
	if failed := unlockFile(l.next); err == nil && failed != nil {
		err = l.failed("release", failed)
	}
	if err != nil {
		_ = unlockFile(l.current) // a caller that is refused holds nothing
		return nil, err
	}
	return func() {
		_ = unlockFile(l.current)
		<-l.local
	}, nil
}

func (l *FileLock) failed(doing string, err error) error {
	return x402.Errorf(x402.LedgerUnavailable, "%s the lock %s.turn: %w", doing, l.name, err)
}

func (l *FileLock) open() error {
	if l.current != nil {
		return nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	const flags = os.O_CREATE | os.O_RDWR
	next, err := os.OpenFile(filepath.Join(l.dir, l.name+".next"), flags, 0o600)
	if err != nil {
		return err
	}
	current, err := os.OpenFile(filepath.Join(l.dir, l.name+".turn"), flags, 0o600)
	if err != nil {
		next.Close()
		return err
	}
	l.next, l.current = next, current
	return nil
}

func (l *FileLock) take(w Wait, file *os.File) error {
	for {
		held, err := LockFile(file)
		if err != nil {
			return l.failed("take", err)
		}
		if held {
			return nil
		}
		if err := w.over("wait for the lock " + l.name + ".turn"); err != nil {
			return err
		}
		time.Sleep(l.poll)
	}
}

// Close closes the files once no caller of this process holds the lock.
func (l *FileLock) Close() error {
	l.local <- struct{}{}
	defer func() { <-l.local }()
	if l.current == nil {
		return nil
	}
	err := errors.Join(l.next.Close(), l.current.Close())
	l.next, l.current = nil, nil
	return err
}
