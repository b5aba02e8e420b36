package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/formtest"
	"x402-wallet/internal/must"
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

// patience is how long a host waits for an answer that is sure to come.
const patience = 40 * time.Second

// host is an MCP host with the wallet as its child process. A call that takes too long it gives up without a
// word, as many hosts do.
type host struct {
	*testworld.Wallet
	elicit string // what its person answers to a question: "accept" or "decline"; "": it cannot ask
}

func startHost(t *testing.T, home testworld.Home, env []string, elicit string) *host {
	h := &host{elicit: elicit}
	options := testworld.WalletOptions{Env: env, IsSilent: true, OnRequest: h.answer}
	if elicit != "" {
		options.Capabilities = map[string]any{"elicitation": map[string]any{}}
	}
	h.Wallet = testworld.StartWalletWith(t, testworld.Build(t), home, options)
	return h
}

func (h *host) answer(method string, params json.RawMessage) (any, error) {
	if method != "elicitation/create" {
		return nil, errors.New("this host does not know it")
	}
	return formtest.Answer(params, h.elicit), nil
}

func (h *host) call(tool string, args map[string]any, wait time.Duration) answer {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	result, err := h.Call(ctx, tool, args)
	var refused *testworld.RPCError
	switch {
	case errors.As(err, &refused):
		return answer{isError: true, text: refused.Error(), fields: map[string]any{"error": "JSON-RPC"}}
	case err != nil:
		return answer{lost: true}
	}
	a := answer{isError: result.IsError, text: result.Text}
	_ = json.Unmarshal([]byte(a.text), &a.fields)
	return a
}

// person is the wallet's owner at a terminal: they type what they are told to, and their passphrase where
// the program asks for it.
type person struct{ home testworld.Home }

func (p *person) key() string { return filepath.Join(p.home.User, ".config", "solana", "id.json") }

func (p *person) types(t *testing.T, command string) {
	t.Helper()
	words := must.Get(p.words(command))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.home.Command(ctx, testworld.Build(t), words...)
	cmd.Env = p.home.Env(lockedOut...)
	terminal := must.Get(pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 100}))(t)
	defer terminal.Close()
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for answered := 0; ; {
		n, err := terminal.Read(buffer)
		seen.Write(buffer[:n])
		asked := prompts.FindAllStringIndex(seen.String(), -1)
		for ; answered < len(asked); answered++ {
			_, _ = terminal.WriteString(answerTo(seen.String()[asked[answered][0]:asked[answered][1]]) + "\n")
		}
		if err != nil { // EIO: the program has ended
			break
		}
	}
	require.NoError(t, cmd.Wait(), "the person typed %s:\n%s", command, &seen)
}

var prompts = regexp.MustCompile(
	`(?m)^(?:New p|Old p|P)assphrase[^\n]*: |^The same again: |^[^\n]*\[[yY]/[nN]\] |^(?:Which|What) \([^)]*\)\? `)

// answerTo is what they answer. Where init offers more than a wallet, they do without for now.
func answerTo(prompt string) string {
	switch {
	case strings.HasPrefix(prompt, "Which (Enter"): // of the MCP clients
		return "0"
	case strings.HasPrefix(prompt, "Which"): // way to unlock
		return "none"
	case strings.HasPrefix(prompt, "What"): // to buy first
		return ""
	case strings.Contains(prompt, "arrived"):
		return "n"
	case strings.Contains(prompt, "/"):
		return "y"
	}
	return testworld.Passphrase
}

func (p *person) words(command string) ([]string, error) {
	command, _, _ = strings.Cut(command, " > ") // that is their shell's part
	words := strings.Fields(command)
	if len(words) < 2 || words[0] != "x402-wallet" {
		return nil, fmt.Errorf("%q is no command of x402-wallet", command)
	}
	for i, word := range words {
		word = strings.Trim(word, `'"`)
		if word == "FILE" {
			word = p.key()
		}
		if rest, ok := strings.CutPrefix(word, "~/"); ok { // their shell's part
			word = filepath.Join(p.home.User, rest)
		}
		words[i] = word
	}
	return words[1:], nil
}

const usage = 2

var (
	understood sync.Map // commands without their ids → error or nil
	ids        = regexp.MustCompile(`\b[a-z]+_[0-9A-Za-z]{8,}`)
)

// understands tells whether the real program takes a command: typed where nobody can be asked for a
// passphrase it fails, but not for its words.
func (p *person) understands(t *testing.T, command string) error {
	words, err := p.words(command)
	if err != nil {
		return err
	}
	key := ids.ReplaceAllString(strings.Join(words, " "), "ID")
	if before, known := understood.Load(key); known {
		err, _ := before.(error)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := p.home.Command(ctx, testworld.Build(t), words...)
	cmd.Env = p.home.Env(lockedOut...)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	isOver := strings.Contains(string(said), `"the approval apr_`) // by the time that this is asked
	if errors.As(err, &exit) && exit.ExitCode() == usage && !isOver {
		err = fmt.Errorf("%s: %s", command, said)
	} else {
		err = nil
	}
	understood.Store(key, err)
	return err
}
