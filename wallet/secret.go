package wallet

import (
	"context"
	"os"
	"runtime"
)

// secret is memory for what nobody else may see: pages of its own, which the system is asked to keep
// out of swap and core files. Where it does not, the secret lies there all the same, and
// [LockedMemory] says why.
//
// It is Go's own memory, whose large objects share no span with others and never move, and not from
// mmap: crypto/ed25519 keeps a weak pointer to its key, and a weak pointer to memory that Go did not
// allocate ends the process.
type secret struct {
	bytes []byte
	held  error // why the system did not take them; nil when it did
}

// ownSpan is more than the largest object that Go puts beside others (32 KiB).
const ownSpan = 64 << 10

// newSecret is memory for size bytes, all zero; the caller wipes it. A page on either side keeps the
// pages it lies on from being anybody else's.
func newSecret(size int) *secret {
	page := os.Getpagesize()
	all := make([]byte, max(page+size+page, ownSpan))
	s := &secret{bytes: all[page : page+size : page+size]}
	s.held = holdPages(s.bytes)
	inCoreFiles(s.bytes, false)
	return s
}

// wipe clears the secret and gives its pages back. What is read of it afterwards is zeros. A nil s is fine.
func (s *secret) wipe() {
	if s == nil {
		return
	}
	s.bytes = s.bytes[:cap(s.bytes)]
	clear(s.bytes)
	inCoreFiles(s.bytes, true)
	releasePages(s.bytes)
}

// withCleanStack runs f, which handles secrets, and overwrites what it left on the stack. Before that
// the stack is made large enough: one that grows is copied, and the old one is not overwritten.
func withCleanStack(f func()) {
	overwriteStack()
	defer overwriteStack()
	f()
}

// overwriteStack writes zeros over what functions that have returned left below its caller: more
// than any of those here, and of the libraries, takes.
//
//go:noinline
func overwriteStack() {
	var below [16 << 10]byte
	runtime.KeepAlive(&below)
}

// Size is how many bytes each private key has.
const secretSize = 32

// await runs a read that cannot be interrupted. When ctx ends first, what comes later is wiped.
func await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type answer struct {
		data []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		data, err := read()
		done <- answer{data: data, err: err}
	}()
	select {
	case a := <-done:
		return a.data, a.err
	case <-ctx.Done():
		go func() { clear((<-done).data) }()
		return nil, ctx.Err()
	}
}
