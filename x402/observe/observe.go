// Package observe has the words for what came of asking a facilitator or a network's node, as they are
// counted. None of what such a party said is in them.
package observe

import "time"

// Outcome is what came of a request to a facilitator or to a network's node: whether it is in order, and
// nothing of what it said.
type Outcome string

// A refusal is an answer; what cannot be used, or says that the party is out of order, is an error.
const (
	Answered Outcome = "answered"
	InError  Outcome = "error"
	NoAnswer Outcome = "no_answer"
)

// FacilitatorObserver hears of each request to a facilitator, by the owner's name for it.
type FacilitatorObserver func(name, request string, came Outcome, took time.Duration)

// NodeObserver hears of each question to a network's node.
type NodeObserver func(network string, came Outcome, took time.Duration)
