package tools

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/mcpconn"
)

// Whatever a client writes: no panic, the session lasts to the end of its input, a number that is
// an id is one it wrote, and what is answered without the SDK is JSON-RPC on a line of its own.
func FuzzStdio(f *testing.F) {
	for _, input := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x402_pay"}}` + "\n" +
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}` + "\n", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]` +
			"\n", "{\n\n\r\n", `{"jsonrpc":"2.0","id":"a","result":{}}` + "\n",
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}` + "\n",
		`{"jsonrpc":"1.0","id":null,"method":7}` + "\n", "\xff\xfe\n", `{"id":{},"method":"ping"}`,
	} {
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		out := &output{}
		in := io.NopCloser(bytes.NewReader(input))
		l := newStdioTransport(in, out, paysByName)
		l.stdio = mcpconn.Stdio(in, out, 1<<10, false)
		_, err := l.Connect(t.Context())
		require.NoError(t, err)
		for { // note, as Read does it; Read would wait for answers at the end
			m, err := l.Connection.Read(t.Context())
			if err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
			r, ok := m.(*jsonrpc.Request)
			if !ok {
				continue
			}
			if n, ok := r.ID.Raw().(int64); ok {
				require.Contains(t, string(input), strconv.FormatInt(n, 10))
			}
			l.note(r)
		}
		require.NoError(t, l.Close())
		for line := range bytes.Lines([]byte(out.String())) {
			require.Equal(t, byte('\n'), line[len(line)-1])
			var answer struct {
				JSONRPC string
				Error   struct{ Code int }
			}
			require.NoError(t, json.Unmarshal(line, &answer))
			require.Equal(t, "2.0", answer.JSONRPC)
			require.Negative(t, answer.Error.Code)
		}
	})
}
