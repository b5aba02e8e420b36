package main

// A lock is a row's: one transaction has it, and the others wait in the order in which they came.
type lock struct {
	busy    bool
	owner   int32
	waiting []int32 // calls
	gone    int     // of these
}

func (l *lock) queue() int { return len(l.waiting) - l.gone }

func (l *lock) push(c int32) { l.waiting = append(l.waiting, c) }

func (l *lock) pop() int32 {
	c := l.waiting[l.gone]
	l.gone++
	if l.gone == len(l.waiting) || l.gone > 1024 {
		l.waiting = append(l.waiting[:0], l.waiting[l.gone:]...)
		l.gone = 0
	}
	return c
}
