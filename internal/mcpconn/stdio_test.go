package mcpconn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) Close() error { return nil }

func start(t *testing.T, input io.Reader, out *output) *stdio {
	s := Stdio(io.NopCloser(input), out, longest, false).(*stdio)
	require.Empty(t, must.Get(s.Connect(t.Context()))(t).SessionID())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func id(t *testing.T, v any) jsonrpc.ID { return must.Get(jsonrpc.MakeID(v))(t) }

// longest is the longest line here, more than one buffer. With the real 16 MiB the tests would do
// little else.
const longest = 200_000

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// Whatever comes, what is a message gets through and what is none is answered; the session goes on.
func TestStdioSkipsWhatIsNoMessage(t *testing.T) {
	refused := func(id string, code int) string {
		return fmt.Sprintf(`{"error":{"code":%d,"message":"*"},"id":%s,"jsonrpc":"2.0"}`, code, id)
	}
	tooLong := `{"jsonrpc":"2.0","id":5,"method":"` + strings.Repeat("x", longest) + `"}`
	for _, c := range []struct {
		name, input string
		answer      string // to the first line; "": none
		message     bool   // the first line is one
	}{
		{"a request", ping, "", true},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", true},
		{"blanks around", "  \t" + ping + "  ", "", true},
		{"CRLF", ping + "\r", "", true},
		{"a byte order mark", "\xef\xbb\xbf" + ping, "", true},
		{"a byte order mark and a blank line", "\xef\xbb\xbf\r\n" + ping, "", true},
		{"empty lines", "\n\r\n \n" + ping, "", true},
		{"a byte order mark behind an empty line", "\n\xef\xbb\xbf" + ping, "", true},
		{"two byte order marks", "\xef\xbb\xbf\xef\xbb\xbf" + ping, refused("null", -32700), false},
		{"half a byte order mark", "\xef\xbb" + ping, refused("null", -32700), false},
		{"an id that is text", `{"jsonrpc":"2.0","id":"a-1","method":"ping"}`, "", true},
		{"an answer", `{"jsonrpc":"2.0","id":7,"result":{}}`, "", true},
		{"white space inside", "{ \"jsonrpc\" : \"2.0\",\t\"id\":1, \"method\":\"ping\" }", "", true},
		{"no JSON", `hello`, refused("null", -32700), false},
		{"half a message", `{"jsonrpc":"2.0","id":1`, refused("null", -32700), false},
		{"two messages on a line", ping + ping, refused("null", -32700), false},
		{"a batch", "[" + ping + "]", refused("null", -32600), false},
		{"an empty batch", "[]", refused("null", -32600), false},
		{"a number", "5", refused("null", -32600), false},
		{"null", "null", refused("null", -32600), false},
		{"blank", " \t ", "", false},
		{"empty", "", "", false},
		{"only CR", "\r", "", false},
		{"too long", tooLong, refused("null", -32600), false},
		{"an object that is nothing", `{}`, refused("null", -32600), false},
		{"another version", `{"jsonrpc":"1.0","id":5,"method":"ping"}`, refused("5", -32600), false},
		{"no version", `{"id":"x","method":"ping"}`, refused(`"x"`, -32600), false},
		{"a method that is no text", `{"jsonrpc":"2.0","id":7,"method":5}`, refused("7", -32600), false},
		{"an id that is an object", `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, refused("null", -32600),
			false},
		{"an id that is true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, refused("null", -32600), false},
		{"an id that is a fraction", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, refused("1.5", -32600),
			false},
		{"an id that a float cannot hold", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`,
			refused("9007199254740993", -32600), false},
		{"no method", `{"jsonrpc":"2.0"}`, refused("null", -32600), false},
		{"too deep", `{"jsonrpc":"2.0","id":3,"method":"ping","params":` +
			strings.Repeat("[", 1100) + strings.Repeat("]", 1100) + `}`, refused("3", -32600), false},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\xff\"}", refused("8", -32700), false},
		{"not UTF-8 in its id", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}",
			refused("null", -32700), false},
		// or two programs would complain for ever
		{"an answer that is none",
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"your message is none"}}`, "",
			false},
		{"a NUL", "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"a\x00\"}", refused("null", -32700), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := &output{}
			l := start(t, strings.NewReader(c.input+"\n"+`{"jsonrpc":"2.0","method":"the next"}`+"\n"), out)
			if c.message {
				must.Get(l.Read(t.Context()))(t)
			}
			require.Equal(t, "the next", must.Get(l.Read(t.Context()))(t).(*jsonrpc.Request).Method)
			require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
			require.Equal(t, c.answer, withoutMessage(out.String()))
		})
	}
}

// withoutMessage replaces the words of a refusal, of which there is at most one.
func withoutMessage(answer string) string {
	if before, rest, found := strings.Cut(answer, `"message":"`); found {
		_, after, _ := strings.Cut(rest, `"`)
		answer = before + `"message":"*"` + after
	}
	return strings.TrimSuffix(answer, "\n")
}

func TestStdioEnds(t *testing.T) {
	t.Run("a client that died in the middle of a line gets no answer", func(t *testing.T) {
		for _, part := range []string{`{"jsonrpc":"2.0","id":1,"meth`, strings.Repeat("x", longest+1)} {
			out := &output{}
			l := start(t, strings.NewReader(part), out)
			require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
			require.Empty(t, out.String())
		}
	})
	t.Run("the longest message", func(t *testing.T) {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"`, `"}`
		long := head + strings.Repeat("x", longest-len(head)-len(tail)-1) + tail
		l := start(t, strings.NewReader(long+"\n"), &output{})
		m := must.Get(l.Read(t.Context()))(t)
		require.Len(t, m.(*jsonrpc.Request).Method, longest-len(head)-len(tail)-1)
	})
	t.Run("the last line needs no newline", func(t *testing.T) {
		l := start(t, strings.NewReader(ping), &output{})
		must.Get(l.Read(t.Context()))(t)
		require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
	})
}

// Errors without a number get one.
func TestStdioNumbersErrors(t *testing.T) {
	out := &output{}
	l := start(t, strings.NewReader(""), out)
	require.NoError(t, l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Error: errors.New("not now")}))
	require.NoError(t,
		l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 2.0), Error: &jsonrpc.Error{Code: -32601,
			Message: "no such method"}}))
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"not now"}}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}`+"\n", out.String())
}

// An answer that was written in part is an error: the client has not got it.
func TestStdioReportsShortWrites(t *testing.T) {
	s := Stdio(io.NopCloser(strings.NewReader("")), shortOutput{}, longest, false).(*stdio)
	answer := &jsonrpc.Response{ID: id(t, 1.0), Result: json.RawMessage("{}")}
	require.ErrorIs(t, s.Write(t.Context(), answer), io.ErrShortWrite)
}

type shortOutput struct{}

func (shortOutput) Write(p []byte) (int, error) { return len(p) / 2, nil }
func (shortOutput) Close() error                { return nil }

// A batch's messages are read one by one, and the answers to its requests leave together.
func TestStdioAnswersABatchTogether(t *testing.T) {
	out := &output{}
	s := Stdio(io.NopCloser(strings.NewReader(`[{"jsonrpc":"2.0","id":1,"method":"ping"},`+
		`{"jsonrpc":"2.0","method":"notifications/initialized"},7,{"jsonrpc":"2.0","id":"b","method":"ping"}]`+
		"\n[]\n["+strings.Repeat(ping+",", maxBatch)+ping+"]\n"+ping+"\n")), out, longest, true).(*stdio)
	must.Get(s.Connect(t.Context()))(t)
	defer s.Close()
	var methods []string
	var ids []jsonrpc.ID
	for {
		m, err := s.Read(t.Context())
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		r := m.(*jsonrpc.Request)
		methods, ids = append(methods, r.Method), append(ids, r.ID)
	}
	require.Equal(t, []string{"ping", "notifications/initialized", "ping", "ping"}, methods)
	refusals := strings.Count(out.String(), "\n")
	require.Equal(t, 3, refusals, "the number, the empty batch, the one that is too long: %s", out)

	answer := func(id jsonrpc.ID) {
		require.NoError(t, s.Write(t.Context(), &jsonrpc.Response{ID: id, Result: json.RawMessage(`{}`)}))
	}
	answer(ids[2])
	require.Equal(t, refusals, strings.Count(out.String(), "\n"), "the batch is not answered in parts")
	answer(ids[0])
	answer(ids[3]) // by itself, with the id of one that is answered
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")[refusals:]
	require.Len(t, lines, 2)
	require.Equal(t, []struct{ ID any }{{"b"}, {1.0}}, must.JSON[[]struct{ ID any }]([]byte(lines[0]))(t))
	require.Equal(t, byte('{'), lines[1][0])
}
