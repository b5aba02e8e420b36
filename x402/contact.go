package x402

import "time"

// Contact is what came of a request to a facilitator or to a network's node: whether it is in order, and
// nothing of what it said.
type Contact string

// A refusal is an answer; what cannot be used, or says that the party is out of order, is an error.
const (
	Answered Contact = "answered"
	InError  Contact = "error"
	NoAnswer Contact = "no_answer"
)

// ObserveFacilitator hears of each request to a facilitator, by the owner's name for it.
type ObserveFacilitator func(name, request string, came Contact, took time.Duration)

// ObserveNode hears of each question to a network's node.
type ObserveNode func(network string, came Contact, took time.Duration)
