package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/relay"
)

// session is one agent's.
type session struct {
	says  io.Writer
	hears *bufio.Reader
	next  int
}

// openSession opens one at a service, without a process of its own.
func openSession(ctx context.Context, socket string) *session {
	in, says := io.Pipe()
	hears, out := io.Pipe()
	go func() {
		_ = relay.Pass(ctx, socket, relay.Hello{}, in, out)
		_ = out.Close()
	}()
	c := &session{says: says, hears: bufio.NewReader(hears)}
	c.begin()
	return c
}

func (c *session) begin() {
	c.ask("initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	_, _ = io.WriteString(c.says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
}

// ask is the text of the answer; "" where the session has ended.
func (c *session) ask(method, params string) string {
	c.next++
	_, err := fmt.Fprintf(c.says, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.next, method, params)
	if err != nil {
		return ""
	}
	for {
		line, err := c.hears.ReadString('\n')
		if err != nil {
			return ""
		}
		var m struct{ ID int }
		if json.Unmarshal([]byte(line), &m) == nil && m.ID == c.next {
			return line
		}
	}
}

// startPinger begins a session in a process of its own, so that what it waits for is the service, and not
// whoever else lives in the test's process. The returned function ends it: how long each ping took, in order.
func startPinger(t *testing.T, socket string) (end func() []time.Duration) {
	t.Helper()
	program, err := exec.LookPath("pinger")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, socket)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	until, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return func() (pings []time.Duration) {
		require.NoError(t, until.Close())
		require.NoError(t, cmd.Wait())
		require.NoError(t, json.Unmarshal(out.Bytes(), &pings))
		slices.Sort(pings)
		return pings
	}
}

// pinger is that process. It pings until its standard input ends.
func pinger() {
	s := openSession(context.Background(), os.Args[1])
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	pings := []time.Duration{}
	for {
		asked := time.Now()
		if s.ask("ping", "{}") == "" {
			fmt.Fprintln(os.Stderr, "the session that pings has ended")
			os.Exit(1)
		}
		pings = append(pings, time.Since(asked))
		select {
		case <-ended:
			_ = json.NewEncoder(os.Stdout).Encode(pings)
			os.Exit(0)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
