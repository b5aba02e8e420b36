package x402

import (
	"cmp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Step is what can be done after an answer.
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
	At      string `json:"at,omitempty"`      // RFC 3339, UTC: not before; of Repeat, what Why says
	Command string `json:"command,omitempty"` // what the person types
	Say     string `json:"say,omitempty"`     // one sentence for the person
}

// WithNext sets the next step where it is not the code's own.
func (e *Error) WithNext(next Next) *Error {
	e.Next = &next
	return e
}

// WithCommand says that a person has to act, what to tell them ("": the message), and what they type.
func (e *Error) WithCommand(command, say string) *Error {
	e.FixedBy = ByPerson
	return e.WithNext(Next{Do: AskPerson, Command: command, Say: say})
}

// WaitUntil says that the very same call passes at a time, and not before.
func (e *Error) WaitUntil(at time.Time, why string) *Error {
	return e.WithNext(Next{Do: Wait, Why: why, At: Stamp(at)})
}

// Stamp names a time in whole seconds of UTC, none too early: what is done then is not done too soon.
func Stamp(t time.Time) string {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC().Format(time.RFC3339)
}

// NextStep is the next step after an error: its own, or its code's. Why is left out where the hint says it.
func (e *Error) NextStep() Next {
	code := codes[e.Code]
	next := Next{Do: code.next, Say: code.say}
	switch {
	case e.Next != nil:
		next = *e.Next
	case e.FixableBy() != code.fixedBy: // here it is somebody else's
		next = Next{Do: stepOf[e.FixableBy()]}
	}
	if e.Unsafe && (next.Do == Repeat || next.Do == Wait) {
		next.Do = Change
	}
	switch next.Do {
	case GiveUp:
		next.Why = cmp.Or(next.Why, "the very same call gets the very same answer")
	case AskPerson:
		next.Command = cmp.Or(next.Command, Command(strings.Fields(cmp.Or(code.command, "doctor"))...))
		next.Say = cmp.Or(next.Say, Sentence(e.Message))
	}
	return next
}

// stepOf is the step where only who can act is known.
var stepOf = map[Actor]Step{
	byAgent: Change, ByPerson: AskPerson, ByTime: Repeat, bySeller: GiveUp, byWallet: Repeat,
}

// Sentence makes one of a message. What it begins with stays as it is if that is no word but a name, as of a
// file or a command.
func Sentence(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	first, size := utf8.DecodeRuneInString(message)
	if size == 0 {
		return ""
	}
	word, _, _ := strings.Cut(message, " ")
	if !strings.ContainsAny(strings.TrimRight(word, ".,:;"), `./\_-`) {
		first = unicode.ToUpper(first)
	}
	return string(first) + strings.TrimSuffix(message[size:], ".") + "."
}

// Command is a line of this program for the person to type: each word is one word for their shell, whatever
// a stranger put into it. One that is longer than a stranger's words may be is for the person to fill in.
func Command(words ...string) string {
	line := "x402-wallet"
	for _, word := range words {
		line += " " + shellWord(word)
	}
	return line
}

func shellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@"
	switch {
	case len(word) > maxQuoted:
		return "'...'"
	case word != "" && strings.Trim(word, plain) == "":
		return word
	}
	return "'" + strings.ReplaceAll(Brief(word), "'", `'\''`) + "'"
}
