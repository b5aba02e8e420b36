package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type running struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	out   string        // the file of what it prints
}

// wallet is the wallet's program in a home, with nothing of this person's environment.
func (s *story) wallet(ctx context.Context, home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"X402_WALLET_HOME=" + home, "HOME=" + s.dir, "TMPDIR=" + s.dir}
	return cmd
}

// start starts a program. The end of the story stops it.
func (s *story) start(cmd *exec.Cmd) *running {
	out, err := os.CreateTemp(s.dir, "out-")
	check(err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 5*time.Second
	check(cmd.Start())
	r := &running{cmd: cmd, ended: make(chan struct{}), out: out.Name()}
	go func() {
		_ = cmd.Wait()
		close(r.ended)
	}()
	s.atEnd(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-r.ended:
		case <-time.After(20 * time.Second):
			r.kill()
		}
	})
	return r
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}

func (r *running) printed() string {
	text, err := os.ReadFile(r.out)
	check(err)
	return string(text)
}

// fails ends the story because of a program.
func (r *running) fails(why string) {
	failf("%s: %s; it printed:\n%s", strings.Join(r.cmd.Args, " "), why, r.printed())
}

// prints waits until the program has printed this, and returns the expression's group.
func (r *running) prints(ctx context.Context, pattern string) string {
	expression := regexp.MustCompile(pattern)
	for {
		if found := expression.FindStringSubmatch(r.printed()); found != nil {
			return found[1]
		}
		select {
		case <-r.ended:
			r.fails("it ended without " + pattern)
		case <-ctx.Done():
			r.fails("it did not print " + pattern)
		case <-time.After(tick):
		}
	}
}

// tick is the time between two looks at something that comes in a moment.
const tick = 20 * time.Millisecond

// command runs a command of the wallet's to its end, and returns what it answers.
func (s *story) command(ctx context.Context, home string, args ...string) string {
	out, err := s.wallet(ctx, home, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("x402-wallet %s: %w\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	check(err)
	return string(out)
}

// types runs a command that asks the owner for the passphrase on a one-time page, and sends the page's form
// as a browser does.
func (s *story) types(ctx context.Context, home string, args ...string) {
	command := s.start(s.wallet(ctx, home, append(args, "--page")...))
	page := command.prints(ctx, `(http://127\.0\.0\.1:\d+/\S+)`)
	form := url.Values{"passphrase": {passphrase}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, page, strings.NewReader(form.Encode()))
	check(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+r.Host)
	answer, err := http.DefaultClient.Do(r)
	check(err)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		command.fails("its page answers " + answer.Status)
	}
	<-command.ended
	if !command.cmd.ProcessState.Success() {
		command.fails(command.cmd.ProcessState.String())
	}
}

// bearer shows an agent's token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// answer is the part of a tool's answer that the story looks at.
type answer struct {
	Status, Price  string // of a payment
	Error, Message string // of a refusal
	Next           struct{ Do string }
	text           string
}

// call calls a tool of the wallet's, and again where the answer says so.
func call(ctx context.Context, session *mcp.ClientSession, tool string, arguments any) (got answer,
	err error) {
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
