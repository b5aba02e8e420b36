package history

import (
	"errors"
	"os"
	"sync"

	"x402-wallet/x402"
)

// walSync makes commits durable. SQLite only appends them to the ledger's log, ledger.db-wal
// (synchronous=NORMAL): a commit outlives its process then, but perhaps not a power cut. Before a change
// that has to is answered, the log is flushed here, apart from the transaction: others are written meanwhile,
// and all that were committed when a flush begins share it (commit.go). The log is flushed from its
// beginning, so what is durable includes all that was committed before it, by whichever process. SQLite
// itself flushes the log before it copies it into ledger.db
// (https://www.sqlite.org/pragma.html#pragma_synchronous).
type walSync struct {
	path  string
	flush func(*os.File) error // flushData; tests put something else here

	mu      sync.Mutex
	written flushState
	flushed flushState    // what had been written when the last flush that succeeded began
	running chan struct{} // closed when the flush that runs has ended; nil: none runs
	// Once a flush failed the kernel may take pages for written that are not, and the next one would say
	// nothing of it: this process makes nothing durable any more.
	failed error
}

// flushState is a state of the log: how many transactions of this process are in it, and the newest row of
// the audit chain that is, whoever wrote it.
type flushState struct {
	commits uint64
	row     int64
}

// committed counts a transaction of this process, after its commit; row is the last of the audit chain then,
// 0: it is not known. What it returns is for durable.
func (w *walSync) committed(row int64) flushState {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written.commits++
	w.written.row = max(w.written.row, row)
	return flushState{commits: w.written.commits}
}

// durable returns when what was committed is on the disk: so many transactions of this process, and a row of
// the audit chain, with all that was committed before them. Its error is LEDGER_UNAVAILABLE: what was
// committed is in the ledger, and may be lost in a power cut.
func (w *walSync) durable(what flushState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written.row = max(w.written.row, what.row)
	isFlushed := func() bool { return w.flushed.commits >= what.commits && w.flushed.row >= what.row }
	for w.failed == nil && !isFlushed() {
		if w.running != nil {
			running := w.running
			w.mu.Unlock()
			<-running
			w.mu.Lock()
			continue
		}
		w.run()
	}
	if w.failed != nil {
		return x402.Errorf(x402.LedgerUnavailable, "flush the ledger to the disk: %w", w.failed).
			WithHint("the disk of the wallet's home failed, or files of the ledger were taken away: " +
				"see to it, restart the wallet's processes, and run x402-wallet history verify")
	}
	return nil
}

// underWay is closed when the flush that runs has ended; nil: none runs.
func (w *walSync) underWay() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// run flushes once, for all that is written by now. It is called with mu held.
func (w *walSync) run() {
	written, running := w.written, make(chan struct{})
	w.running = running
	w.mu.Unlock()
	err := w.flushOnce()
	w.mu.Lock()
	w.running = nil
	close(running)
	if err != nil {
		w.failed = err
		return
	}
	w.flushed = written
}

// flushOnce opens the log anew: should SQLite have replaced it, a file that was kept open would be another.
func (w *walSync) flushOnce() error {
	file, err := os.OpenFile(w.path, os.O_RDWR, 0) // Windows flushes only what may be written to
	if err != nil {
		return err
	}
	return errors.Join(w.flush(file), file.Close())
}
