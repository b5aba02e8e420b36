// Package guarded is where secrets lie: memory that the system is asked to keep out of swap and core files,
// and values that print as [redacted] and that nobody outside of the wallet's packages can read.
package guarded

import (
	"context"
	"os"
	"runtime"
)

// Memory is memory for what nobody else may see: pages of its own, which the system is asked to keep
// out of swap and core files. Where it does not, the secret lies there all the same, and
// wallet.LockedMemory says why.
//
// It is Go's own memory, whose large objects share no span with others and never move, and not from
// mmap: crypto/ed25519 keeps a weak pointer to its key, and a weak pointer to memory that Go did not
// allocate ends the process.
type Memory struct {
	Bytes []byte
	Held  error // why the system did not take them; nil when it did
}

// ownSpan is more than the largest object that Go puts beside others (32 KiB).
const ownSpan = 64 << 10

// New is memory for size bytes, all zero; the caller wipes it. A page on either side keeps the
// pages it lies on from being anybody else's.
func New(size int) *Memory {
	page := os.Getpagesize()
	all := make([]byte, max(page+size+page, ownSpan))
	s := &Memory{Bytes: all[page : page+size : page+size]}
	s.Held = holdPages(s.Bytes)
	inCoreFiles(s.Bytes, false)
	return s
}

// Wipe clears the secret and gives its pages back. What is read of it afterwards is zeros. A nil s is fine.
func (s *Memory) Wipe() {
	if s == nil {
		return
	}
	s.Bytes = s.Bytes[:cap(s.Bytes)]
	clear(s.Bytes)
	inCoreFiles(s.Bytes, true)
	releasePages(s.Bytes)
}

// WithCleanStack runs f, which handles secrets, and overwrites what it left on the stack. Before that
// the stack is made large enough: one that grows is copied, and the old one is not overwritten.
func WithCleanStack(f func()) {
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
const Size = 32

// Await runs a read that cannot be interrupted. When ctx ends first, what comes later is wiped.
func Await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
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
