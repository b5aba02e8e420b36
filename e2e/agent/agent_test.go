package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/e2e/testworld"
	"x402-wallet/x402"
)

type args = map[string]any

type answer struct {
	lost    bool // it never came
	isError bool
	text    string
	fields  map[string]any
}

// str is a field that is a text; "" where it is none.
func (a answer) str(name string) string {
	text, _ := a.fields[name].(string)
	return text
}

func (a answer) status() string { return a.str("status") }

func (a answer) next() (n x402.Next) {
	raw, _ := json.Marshal(a.fields["next"])
	_ = json.Unmarshal(raw, &n)
	return n
}

// step is something that happened in a trial: a call with its answer, or what the person typed.
type step struct {
	at      time.Time
	tool    string
	args    args
	got     answer
	command string // what the person typed; then there is no tool
}

// agent is a scripted model: it sees the task, the tools' answers and nothing else. Its plays are methods'
// callers; what it did is the transcript that the judge reads.
type agent struct {
	t      *testing.T
	home   testworld.Home
	host   *host
	person *person // before whom the wallet's owner sits; nil: nobody is there
	stand  *stand  // where the task says to buy

	mu         sync.Mutex // of what follows
	transcript []step
	said       string // what it told the person at the end
}

func (a *agent) call(tool string, in args) answer { return a.hurried(tool, in, patience) }

// hurried is call of a host that gives up after a time, without saying so to the wallet.
func (a *agent) hurried(tool string, in args, wait time.Duration) answer {
	s := step{at: time.Now(), tool: tool, args: in}
	a.mu.Lock()
	i := len(a.transcript)
	a.transcript = append(a.transcript, s)
	a.mu.Unlock()
	s.got = a.host.call(tool, in, wait)
	a.mu.Lock()
	a.transcript[i] = s
	a.mu.Unlock()
	return s.got
}

func (a *agent) pay(path, maxAmount string, more ...string) answer {
	return a.call("x402_pay", a.order(path, maxAmount, more...))
}

// order are the arguments of a purchase at the trial's own stand; more are further names and values.
func (a *agent) order(path, maxAmount string, more ...string) args {
	in := args{"url": a.stand.url(path)}
	if maxAmount != "" {
		in["maxAmount"] = maxAmount
	}
	for pair := range slices.Chunk(more, 2) {
		in[pair[0]] = pair[1]
	}
	return in
}

// follow makes a call and does what next says, as long as that is this very call: it repeats, waits
// where that is not long, and has the person do their part. What is left is the play's to decide.
func (a *agent) follow(tool string, in args) answer {
	const most = 8
	for range most - 1 {
		got := a.call(tool, in)
		next := got.next()
		switch next.Do {
		case x402.Repeat:
		case x402.Wait:
			if !a.waits(next.At) {
				return got
			}
		case x402.AskPerson:
			if !a.asks(next) {
				return got
			}
		default:
			return got
		}
	}
	return a.call(tool, in)
}

// waits waits until a time that is named, if it is soon.
func (a *agent) waits(at string) bool {
	until, err := time.Parse(time.RFC3339, at)
	if err != nil || time.Until(until) > 20*time.Second {
		return false
	}
	time.Sleep(time.Until(until) + 50*time.Millisecond) // such times are whole seconds
	return true
}

// asks tells the person what next says, who types the command if they are there.
func (a *agent) asks(next x402.Next) bool {
	a.say(next.Say)
	if a.person == nil || next.Command == "" {
		return false
	}
	a.person.types(a.t, next.Command)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.transcript = append(a.transcript, step{at: time.Now(), command: next.Command})
	return true
}

// say tells the person something; the judge looks for the task's answer in all of it.
func (a *agent) say(texts ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said += strings.Join(texts, " ") + "\n"
}

func (a *agent) tell(got answer) {
	next := got.next()
	a.say(got.str("content"), got.str("message"), got.str("hint"), next.Why, next.Say, next.Command, next.At)
}
