package x402

import "time"

// Step is what can be done after an answer (SPEC §7).
type Step string

// The steps. Repeat is the very same call again; Change is another call; Wait is the very same call,
// not before Next.At; AskPerson is the person's to do, by Next.Command; GiveUp says that no call and no
// person of this wallet helps.
const (
	Repeat    Step = "repeat"
	Change    Step = "change"
	AskPerson Step = "ask_person"
	Wait      Step = "wait"
	GiveUp    Step = "give_up"
	Done      Step = "none"
)

// Next is the next step after an answer: the one thing that a model, or a program, has to read to go on.
// All of it is our own words.
type Next struct {
	Do      Step   `json:"do"`
	Why     string `json:"why,omitempty"`
	At      string `json:"at,omitempty"`      // RFC 3339, UTC: not before
	Command string `json:"command,omitempty"` // what the person types
	Say     string `json:"say,omitempty"`     // one sentence for the person
}

// WithNext sets the next step where it is not the code's own.
func (e *Error) WithNext(next Next) *Error {
	e.Next = &next
	return e
}

// WithCommand says that a person has to act, what to tell them, and what they type.
func (e *Error) WithCommand(command, say string) *Error {
	e.FixedBy = ByPerson
	return e.WithNext(Next{Do: AskPerson, Command: command, Say: say})
}

// WaitUntil says that the very same call passes at a time, and not before.
func (e *Error) WaitUntil(at time.Time, why string) *Error {
	return e.WithNext(Next{Do: Wait, Why: why, At: at.UTC().Format(time.RFC3339)})
}

// NextStep is the next step after an error: its own, or its code's. Why is left out where the hint says it.
func (e *Error) NextStep() Next {
	if e.Next != nil {
		return *e.Next
	}
	code, by := codes[e.Code], e.FixableBy()
	next := Next{Do: code.next, Command: code.command}
	if by != code.fixedBy { // here it is somebody else's
		next = Next{Do: stepOf[by]}
	}
	if next.Do == AskPerson {
		next.Say = e.Message
	}
	if e.Unsafe && (next.Do == Repeat || next.Do == Wait) {
		next.Do = Change
	}
	return next
}

// stepOf is the step where only who can act is known.
var stepOf = map[Actor]Step{
	byAgent: Change, ByPerson: AskPerson, ByTime: Wait, bySeller: GiveUp, byWallet: Repeat,
}
