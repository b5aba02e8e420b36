//go:build unix

package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/relay"
	"x402-wallet/internal/sandbox"
)

// service is x402-wallet serve, running.
type service struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	stop   func() int // ends it as an administrator does, and gives its exit code
}

func startService(t *testing.T, env []string) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "service-") // a test's own is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return startServiceAt(t, filepath.Join(dir, "s"), env)
}

func startServiceAt(t *testing.T, socket string, env []string) *service {
	t.Helper()
	program, err := exec.LookPath("x402-wallet")
	require.NoError(t, err)
	s := &service{t: t, socket: socket,
		cmd: exec.CommandContext(t.Context(), program, "serve", "--socket", socket)}
	s.cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "LOG_LEVEL=error",
		programVariable + "=" + os.Getenv(programVariable)}, env...)
	stderr, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	lines := bufio.NewReader(stderr)
	ready, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, ready, socket)
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	s.stop = sync.OnceValue(func() int {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
		return s.cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// env is what an agent's host of this service is started with: it has no wallet of its own.
func (s *service) env() []string {
	return []string{"X402_WALLET_SERVICE=" + s.socket, "X402_WALLET_HOME=" + s.t.TempDir()}
}

func weather(w *world, query string) string {
	return fmt.Sprintf(`{"url":"%s/weather?%s"}`, w.SellerURL, url.QueryEscape(query))
}

// paymentOf is the payment in a tool's answer.
func paymentOf(t *testing.T, answer string) (id, status string) {
	t.Helper()
	var result struct{ PaymentID, Status string }
	require.NoError(t, json.Unmarshal([]byte(answer), &result), "%s", answer)
	return result.PaymentID, result.Status
}

// Agents of one service share its wallet: what one spends is gone for the others, and each has its answers.
func TestAgentsShareOneService(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	s := startService(t, append(env, passphraseFile(t)))
	var agents []*mcpClient
	for range 3 {
		agents = append(agents, serve(t, s.env()...))
	}
	var paying sync.WaitGroup
	for i, agent := range agents {
		paying.Go(func() {
			for n := range 4 {
				_, status := paymentOf(t, agent.call("x402_pay", weather(w, fmt.Sprintf("%d-%d", i, n))))
				require.Equal(t, "paid", status)
			}
		})
	}
	paying.Wait()
	require.Len(t, w.Settlements(), 12)
	require.Contains(t, agents[0].call("x402_check_balance", "{}"), `"spent":"0.012"`)
	agents[0].leave()
	require.Zero(t, agents[0].cmd.ProcessState.ExitCode())
	require.Contains(t, agents[1].call("x402_check_balance", "{}"), `"spent":"0.012"`, "the others go on")

	_, said := runs(t, 1, append(env, passphraseFile(t)), "serve", "--socket", s.socket)
	require.Contains(t, said, "already")
	require.Zero(t, s.stop())
	require.NoFileExists(t, s.socket)
	agents[1].leave()
	require.Equal(t, 1, agents[1].cmd.ProcessState.ExitCode(), "its host hears that the service is gone")
	_, said = runs(t, 1, s.env(), "mcp")
	require.Contains(t, said, "SERVER_UNAVAILABLE")
}

// deaf is the output of a host that dies with an answer in front of it.
type deaf struct {
	heard chan string
	dies  string // with what contains this
}

func (d deaf) Write(p []byte) (int, error) {
	d.heard <- string(p)
	if strings.Contains(string(p), d.dies) {
		return 0, errors.New("it is gone")
	}
	return len(p), nil
}

// An answer that the host's side did not get goes to the next agent that makes the same call, and is not paid
// again; one that it got is over, and the same call buys again.
func TestAnAnswerIsDeliveredWhenTheHostHasIt(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{}, sandbox.Rules{})
	s := startService(t, append(env, passphraseFile(t)))
	in, says := io.Pipe()
	host := deaf{heard: make(chan string, 10), dies: `"paid`}
	ended := make(chan error, 1)
	go func() { ended <- relay.Pass(t.Context(), s.socket, relay.Hello{}, in, host) }()
	fmt.Fprintln(says, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	require.Contains(t, <-host.heard, "protocolVersion")
	fmt.Fprintln(says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintf(says, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x402_pay","arguments":%s}}`+
		"\n", weather(w, "lost"))
	require.Contains(t, <-host.heard, "paid")
	require.NoError(t, <-ended)
	require.NoError(t, says.Close())
	require.Len(t, w.Settlements(), 1)

	agent := serve(t, s.env()...)
	lost, status := paymentOf(t, agent.call("x402_pay", weather(w, "lost")))
	require.Equal(t, "replayed", status)
	require.Len(t, w.Settlements(), 1, "it is what was paid for")
	time.Sleep(2500 * time.Millisecond) // a cancellation could come so long
	again, _ := paymentOf(t, agent.call("x402_pay", weather(w, "lost")))
	require.NotEqual(t, lost, again)
	require.Len(t, w.Settlements(), 2)
}

// A relay that is killed while its agent's payment is on its way loses nothing, and neither does a service.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	w, env := household(t, sandbox.Options{Delay: 3 * time.Second}, sandbox.Rules{})
	env = append(env, passphraseFile(t))
	s := startService(t, env)
	other := serve(t, s.env()...)
	other.call("x402_pay", weather(w, "unlocks"))
	for i, kill := range []func(agent *mcpClient){
		func(agent *mcpClient) {
			require.NoError(t, agent.cmd.Process.Kill())
			agent.leave()
			time.Sleep(time.Second) // for the service to hear of it: until then both calls wait, and both buy
		},
		func(*mcpClient) {
			require.NoError(t, s.cmd.Process.Kill())
			s.stop()
			s = startServiceAt(t, s.socket, env)
			other = serve(t, s.env()...)
		},
	} {
		call := weather(w, fmt.Sprint("killed ", i))
		agent := serve(t, s.env()...)
		w.Inject("seller slow", 1)
		settled := len(w.Settlements())
		agent.send("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`, call))
		require.Eventually(t, func() bool { return len(w.Settlements()) == settled+1 }, 20*time.Second,
			time.Millisecond)
		kill(agent)
		_, status := paymentOf(t, other.call("x402_pay", call))
		// a seller serves a payment once: of an answer to a service that was killed nothing is left
		require.Contains(t, []string{"paid", "replayed", "paid_not_served"}, status)
		require.Len(t, w.Settlements(), settled+1, "the same call is the same purchase")
	}
}
