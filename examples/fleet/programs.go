package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// running is a program that serves until it is stopped.
type running struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	mu   sync.Mutex
	text bytes.Buffer // what it said
}

// Write takes what it says.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// serve starts a program, which stop ends.
func (s *story) serve(name string, cmd *exec.Cmd) (*running, error) {
	r := &running{name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = r, r, 5*time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.atEnd(r.stop)
	go func() {
		_ = cmd.Wait()
		close(r.ended)
	}()
	return r, nil
}

func (r *running) stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(20 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	return nil
}

// says waits for what it says, and is the expression's group.
func (r *running) says(ctx context.Context, pattern string) (string, error) {
	expression := regexp.MustCompile(pattern)
	for {
		over := false
		select {
		case <-r.ended:
			over = true
		default:
		}
		if found := expression.FindStringSubmatch(r.said()); found != nil {
			return found[1], nil
		}
		if over || ctx.Err() != nil {
			return "", fmt.Errorf("%s does not say %q; it said:\n%s", r.name, pattern, r.said())
		}
		pause(ctx)
	}
}

// pause is the time between two looks at something that comes in a moment.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// wallet is the wallet's program with nothing of this person's environment but these variables.
func (s *story) wallet(ctx context.Context, home string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = append([]string{"X402_WALLET_HOME=" + home, "HOME=" + s.dir, "TMPDIR=" + s.dir}, env...)
	return cmd
}

// does runs a command of the wallet's to its end, which has to be a good one.
func (s *story) does(ctx context.Context, home string, args ...string) (said string, err error) {
	cmd := s.wallet(ctx, home, []string{"LOG_LEVEL=error"}, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("x402-wallet %s: %w\n%s%s", strings.Join(args, " "), err, &out, &problems)
	}
	return out.String(), nil
}

// types is the owner who gives a command their passphrase, on its one-time page.
func (s *story) types(ctx context.Context, args ...string) error {
	cmd := s.wallet(ctx, s.owner(), []string{"LOG_LEVEL=error"}, append(args, "--page", "--json")...)
	var out bytes.Buffer
	r := &running{name: "x402-wallet " + strings.Join(args, " "), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &out, r
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = cmd.Wait()
		close(r.ended)
	}()
	page, err := r.says(ctx, `(http://127\.0\.0\.1:\d+/\S+)`)
	if err == nil {
		err = s.answers(ctx, page)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-r.ended
		return err
	}
	<-r.ended
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s\n%s%s", r.name, cmd.ProcessState, &out, r.said())
	}
	return nil
}

// answers sends the form of a one-time page as a browser does.
func (s *story) answers(ctx context.Context, page string) error {
	form := url.Values{"passphrase": {s.passphrase}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, page, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+r.Host)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("the page of the owner's command says %s: %s", answer.Status, text)
	}
	return nil
}

// agent is an agent's host: it speaks MCP with x402-wallet mcp.
type agent struct {
	name    string
	session *mcp.ClientSession
	log     *running

	mu     sync.Mutex
	counts map[string]int // of its calls, by outcome and code
}

// answer is what of the wallet's answers the story looks at.
type answer struct {
	Status, Price, PaymentID string // of a payment
	Error, Message, Hint     string // of a refusal
	Next                     struct{ Do string }
	Details                  map[string]any // of a refusal
	text                     string
}

// host starts an agent's host in a home.
func (s *story) host(ctx context.Context, name, home string) (*agent, error) {
	a := &agent{name: name, counts: map[string]int{}, log: &running{name: name}}
	cmd := s.wallet(ctx, home, []string{"LOG_LEVEL=warn"}, "mcp")
	cmd.Stderr, cmd.WaitDelay = a.log, 5*time.Second
	client := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet demo", Version: "1"}, nil)
	var err error
	a.session, err = client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s's wallet did not start: %w\n%s", name, err, a.log.said())
	}
	s.atEnd(a.session.Close)
	return a, nil
}

// calls has an agent call a tool of the wallet's, and again where the answer says so.
func (a *agent) calls(ctx context.Context, tool string, arguments any) (got answer, err error) {
	const most = 5
	for range most {
		if got, err = a.callsOnce(ctx, tool, arguments); err != nil || got.Next.Do != "repeat" {
			break
		}
	}
	return got, err
}

func (a *agent) callsOnce(ctx context.Context, tool string, arguments any) (got answer, err error) {
	result, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return got, fmt.Errorf("%s: %w\n%s", a.name, err, a.log.said())
	}
	var texts []string
	for _, c := range result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	got.text = strings.Join(texts, "\n")
	structured, err := json.Marshal(result.StructuredContent)
	if err == nil {
		err = json.Unmarshal(structured, &got)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if got.Error != "" {
		a.counts["failed "+got.Error]++
	} else {
		a.counts[got.Status]++
	}
	return got, err
}

// atEnd notes what is to be done when all is over, the last first.
func (s *story) atEnd(do func() error) { s.ends = append(s.ends, do) }

func (s *story) end() (err error) {
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

func (s *story) at(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}
