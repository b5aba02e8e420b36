package testworld

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// Service is x402-wallet serve, running.
type Service struct {
	Cmd    *exec.Cmd
	Socket string
	URL    string     // of MCP over HTTP, where it serves that
	Stop   func() int // ends it as an administrator does, and gives its exit code
}

// StartService starts the service of a wallet: bin is the program, env its whole environment. With flags
// --http ADDRESS it has a URL. It is stopped when the test ends.
func StartService(t testing.TB, bin string, env []string, flags ...string) *Service {
	t.Helper()
	dir, err := os.MkdirTemp("", "service-") // a test's own is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return StartServiceAt(t, bin, filepath.Join(dir, "s"), env, flags...)
}

// StartServiceAt is StartService with the socket at a path.
func StartServiceAt(t testing.TB, bin, socket string, env []string, flags ...string) *Service {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"serve", "--socket", socket}, flags...)...)
	cmd.Env = env
	return RunService(t, cmd, socket, len(flags) > 0)
}

// RunService starts a service by a command of the caller's; withURL: it serves HTTP, too.
func RunService(t testing.TB, cmd *exec.Cmd, socket string, withURL bool) *Service {
	t.Helper()
	s := &Service{Socket: socket, Cmd: cmd}
	stderr, err := s.Cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.Cmd.Start())
	lines := bufio.NewReader(stderr)
	ready, err := lines.ReadString('\n')
	require.NoError(t, err, ready)
	require.Contains(t, ready, socket)
	if withURL {
		ready, err = lines.ReadString('\n')
		require.NoError(t, err, ready)
		s.URL = strings.TrimSpace(strings.TrimPrefix(ready, "and at "))
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	s.Stop = sync.OnceValue(func() int {
		_ = s.Cmd.Process.Signal(syscall.SIGTERM)
		_ = s.Cmd.Wait()
		return s.Cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() { s.Stop() })
	return s
}

// Streamable serves server over streamable HTTP. Sessions that clients could not end, because they or
// the way to them were gone, end with the test: make it before what it is served by is told to close.
func Streamable(t testing.TB, server *mcp.Server, o *mcp.StreamableHTTPOptions) http.Handler {
	EndSessions(t, server)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
}

func EndSessions(t testing.TB, server *mcp.Server) {
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	})
}

// Bearer shows an agent's token with each request.
type Bearer string

func (b Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
