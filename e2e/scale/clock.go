package main

import "math"

// An instant is a time, or a span of it, in microseconds of the simulation's own clock.
type instant int64

const (
	millisecond instant = 1_000
	second              = 1_000 * millisecond
	never       instant = math.MaxInt64
)

func (t instant) seconds() float64 { return float64(t) / float64(second) }

// An event is something that happens to who (a call, a group, a database: by kind) at a time. id tells
// an event from one that is no longer meant.
type event struct {
	at   instant
	who  int32
	id   uint32
	kind kind
}

type kind uint8

// A clock hands out events in the order of their times. It is a heap of four branches: half as deep as
// one of two, and what a run mostly does is ask it.
type clock struct {
	now  instant
	heap []event
}

func (c *clock) after(span instant, k kind, who int32, id uint32) {
	e := event{at: c.now + span, who: who, id: id, kind: k}
	c.heap = append(c.heap, e)
	i := len(c.heap) - 1
	for i > 0 && e.at < c.heap[(i-1)/4].at {
		c.heap[i] = c.heap[(i-1)/4]
		i = (i - 1) / 4
	}
	c.heap[i] = e
}

// next goes to the next event; false when there is none.
func (c *clock) next() (event, bool) {
	if len(c.heap) == 0 {
		return event{}, false
	}
	first, last := c.heap[0], c.heap[len(c.heap)-1]
	c.heap = c.heap[:len(c.heap)-1]
	if len(c.heap) > 0 {
		c.sink(last)
	}
	c.now = first.at
	return first, true
}

func (c *clock) sink(e event) {
	i, n := 0, len(c.heap)
	for {
		least := 4*i + 1
		if least >= n {
			break
		}
		for j := least + 1; j < min(4*i+5, n); j++ {
			if c.heap[j].at < c.heap[least].at {
				least = j
			}
		}
		if c.heap[least].at >= e.at {
			break
		}
		c.heap[i] = c.heap[least]
		i = least
	}
	c.heap[i] = e
}
