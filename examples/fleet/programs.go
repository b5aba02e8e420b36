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
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// running is a program that runs beside the story.
type running struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	mu      sync.Mutex
	printed bytes.Buffer
}

// Write takes the lines that the program prints.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.printed.Write(p)
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.printed.String()
}

// wallet is the wallet's program in a home, with nothing of this person's environment.
func (s *story) wallet(ctx context.Context, home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"X402_WALLET_HOME=" + home, "HOME=" + s.dir, "TMPDIR=" + s.dir, "LOG_LEVEL=info"}
	return cmd
}

// start starts a program. The end of the story stops it.
func (s *story) start(cmd *exec.Cmd) (*running, error) {
	r := &running{name: "x402-wallet " + strings.Join(cmd.Args[1:], " "), cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = r, r, 5*time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", r.name, err)
	}
	go func() {
		_ = cmd.Wait()
		close(r.ended)
	}()
	s.atEnd(func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-r.ended:
		case <-time.After(20 * time.Second):
			r.kill()
		}
		return nil
	})
	return r, nil
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}

// prints waits until the program has printed this, and returns the expression's group.
func (r *running) prints(ctx context.Context, pattern string) (string, error) {
	expression := regexp.MustCompile(pattern)
	for {
		hasEnded := false
		select {
		case <-r.ended:
			hasEnded = true
		default:
		}
		if found := expression.FindStringSubmatch(r.text()); found != nil {
			return found[1], nil
		}
		if hasEnded || ctx.Err() != nil {
			return "", fmt.Errorf("%s does not print %q; it printed:\n%s", r.name, pattern, r.text())
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

// command runs a command of the wallet's to its end, which has to be a good one.
func (s *story) command(ctx context.Context, home string, args ...string) (string, error) {
	cmd := s.wallet(ctx, home, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("x402-wallet %s: %w\n%s%s", strings.Join(args, " "), err, &out, &problems)
	}
	return out.String(), nil
}

// types runs a command that asks the owner for the passphrase, on its one-time page.
func (s *story) types(ctx context.Context, home string, args ...string) error {
	r, err := s.start(s.wallet(ctx, home, append(args, "--page")...))
	if err != nil {
		return err
	}
	page, err := r.prints(ctx, `(http://127\.0\.0\.1:\d+/\S+)`)
	if err == nil {
		err = s.submit(ctx, page)
	}
	if err != nil {
		r.kill()
		return err
	}
	<-r.ended
	if !r.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s\n%s", r.name, r.cmd.ProcessState, r.text())
	}
	return nil
}

// submit sends the form of a one-time page as a browser does.
func (s *story) submit(ctx context.Context, page string) error {
	form := url.Values{"passphrase": {passphrase}}
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
		return fmt.Errorf("the owner's page answers %s: %s", answer.Status, text)
	}
	return nil
}

// bearer shows an agent's token with each request.
type bearer string

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// answer is the part of a tool's answer that the story looks at.
type answer struct {
	Status, Price, PaymentID string // of a payment
	Error, Message, Hint     string // of a refusal
	Next                     struct{ Do string }
	text                     string
}

// connect opens a session of an agent with a service.
func (s *story) connect(ctx context.Context, endpoint, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "x402-wallet demo", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true,
		HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
}

// call calls a tool of the wallet's, and again where the answer says so.
func call(ctx context.Context, session *mcp.ClientSession, tool string, arguments any) (got answer, err error) {
	const most = 5
	for range most {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return got, err
		}
		structured, err := json.Marshal(result.StructuredContent)
		got = answer{text: string(structured)}
		if err = errors.Join(err, json.Unmarshal(structured, &got)); err != nil || got.Next.Do != "repeat" {
			return got, err
		}
	}
	return got, nil
}
