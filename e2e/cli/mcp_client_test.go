//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

type mcpClient struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	from   io.ReadCloser // what out reads
	log    *bytes.Buffer // of stderr, once the program has ended
	nextID int
	leave  func() // and wait for the program's end
}

// serve starts the program as an MCP server. The environment is only what is given.
func serve(t *testing.T, env ...string) *mcpClient {
	c, ok := tryServe(t, command(t, env, "mcp"))
	require.True(t, ok, "the server did not start")
	return c
}

func tryServe(t *testing.T, cmd *exec.Cmd) (c *mcpClient, ok bool) {
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	log := &bytes.Buffer{}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	require.NoError(t, cmd.Start())
	c = &mcpClient{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out), from: out, log: log}
	c.leave = sync.OnceFunc(func() {
		in.Close()
		_ = cmd.Wait()
	})
	c.out.Buffer(nil, 1<<20)
	t.Cleanup(c.leave)
	c.send("initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	if !c.out.Scan() {
		return c, false
	}
	fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c, true
}

func (c *mcpClient) send(method, params string) {
	c.nextID++
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.nextID, method, params)
}

func (c *mcpClient) hear() json.RawMessage {
	require.True(c.t, c.out.Scan(), "the server ended")
	var answer struct{ Result json.RawMessage }
	require.NoError(c.t, json.Unmarshal(c.out.Bytes(), &answer), "%s", c.out.Text())
	return answer.Result
}

func (c *mcpClient) ask(method, params string) json.RawMessage {
	c.send(method, params)
	return c.hear()
}

func (c *mcpClient) call(tool, arguments string) string {
	var result struct{ Content []struct{ Text string } }
	require.NoError(c.t,
		json.Unmarshal(c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)),
			&result))
	return result.Content[0].Text
}
