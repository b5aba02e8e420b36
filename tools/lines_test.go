package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/require"
)

// heard notes what lines tells of purchases.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) pays(tool string) bool              { return tool == payName }
func (h *heard) delivered(status, paymentID string) { h.note("delivered " + status + " " + paymentID) }
func (h *heard) lost(paymentID string)              { h.note("lost " + paymentID) }

func (h *heard) note(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, what)
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.list...)
}

// output takes what is written; short makes it take less, err nothing.
type output struct {
	lockedText
	short bool
	err   error
	while func() // the answer is on its way
}

func (o *output) Write(p []byte) (int, error) {
	if o.while != nil {
		o.while()
	}
	if o.err != nil {
		return 0, o.err
	}
	if o.short {
		p = p[:len(p)/2]
	}
	return o.lockedText.Write(p)
}

func (o *output) Close() error { return nil }

// start gives a connection that reads this input to its end.
func start(t *testing.T, input io.Reader, out *output) (*lines, *heard) {
	h := &heard{}
	l := newLines(io.NopCloser(input), out, h)
	l.maxLine = longest
	c, err := l.Connect(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.SessionID())
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, h
}

func id(t *testing.T, v any) jsonrpc.ID {
	made, err := jsonrpc.MakeID(v)
	require.NoError(t, err)
	return made
}

// longest is the longest line here, more than one buffer. With the real 16 MiB the tests would do
// little else.
const longest = 200_000

func cancelOne(l *lines) {
	one, _ := jsonrpc.MakeID(1.0)
	l.cancel(one)
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// Whatever comes, what is a message gets through and what is none is answered; the session goes on.
func TestLinesRead(t *testing.T) {
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
			l, _ := start(t, strings.NewReader(c.input+"\n"+`{"jsonrpc":"2.0","method":"the next"}`+"\n"),
				out)
			if c.message {
				m, err := l.Read(t.Context())
				require.NoError(t, err)
				if r, ok := m.(*jsonrpc.Request); ok {
					delete(l.open, r.ID) // answered, as far as the end of the input is concerned
				}
			}
			m, err := l.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, "the next", m.(*jsonrpc.Request).Method)
			_, err = l.Read(t.Context())
			require.Equal(t, io.EOF, err)
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

func TestLinesEnd(t *testing.T) {
	t.Run("the last line needs no newline", func(t *testing.T) {
		l, _ := start(t, strings.NewReader(ping), &output{})
		_, err := l.Read(t.Context())
		require.NoError(t, err)
		_ = l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Result: json.RawMessage("{}")})
		_, err = l.Read(t.Context())
		require.Equal(t, io.EOF, err)
	})
	t.Run("a client that died in the middle of a line gets no answer", func(t *testing.T) {
		for _, part := range []string{`{"jsonrpc":"2.0","id":1,"meth`, strings.Repeat("x", longest+1)} {
			out := &output{}
			l, _ := start(t, strings.NewReader(part), out)
			_, err := l.Read(t.Context())
			require.Equal(t, io.EOF, err)
			require.Empty(t, out.String())
		}
	})
	t.Run("the longest message", func(t *testing.T) {
		head, tail := `{"jsonrpc":"2.0","id":1,"method":"`, `"}`
		long := head + strings.Repeat("x", longest-len(head)-len(tail)-1) + tail
		l, _ := start(t, strings.NewReader(long+"\n"), &output{})
		m, err := l.Read(t.Context())
		require.NoError(t, err)
		require.Len(t, m.(*jsonrpc.Request).Method, longest-len(head)-len(tail)-1)
	})
	t.Run("requests from a file are answered", func(t *testing.T) {
		l, _ := start(t, strings.NewReader(ping+"\n"), &output{})
		_, err := l.Read(t.Context())
		require.NoError(t, err)
		ended := make(chan error)
		go func() { _, err := l.Read(t.Context()); ended <- err }()
		select {
		case <-ended:
			t.Fatal("the input ended while a request was open")
		case <-time.After(lastAnswers / 10):
		}
		require.NoError(t,
			l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Result: json.RawMessage("{}")}))
		require.Equal(t, io.EOF, <-ended)
	})
	t.Run("but not for ever, and not while a payment is open", func(t *testing.T) {
		for _, request := range []string{ping, payRequest("1")} {
			l, _ := start(t, strings.NewReader(request+"\n"), &output{})
			_, err := l.Read(t.Context())
			require.NoError(t, err)
			began := time.Now()
			_, err = l.Read(t.Context())
			require.Equal(t, io.EOF, err)
			if request == ping {
				require.GreaterOrEqual(t, time.Since(began), lastAnswers)
			} else {
				require.Less(t, time.Since(began), lastAnswers)
			}
		}
	})
	t.Run("closing ends a read", func(t *testing.T) {
		in, _ := io.Pipe()
		l := newLines(in, &output{}, &heard{})
		_, _ = l.Connect(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { l.Close() })
		_, err := l.Read(t.Context())
		require.Equal(t, io.EOF, err)
		require.NoError(t, l.Close())
	})
}

func payRequest(id string) string {
	return `{"jsonrpc":"2.0","id":` + id +
		`,"method":"tools/call","params":{"name":"x402_pay","arguments":{"url":"https://a.example"}}}`
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id +
		`,"reason":"no time"}}`
}

func answered(structured string, isError bool) json.RawMessage {
	text, _ := json.Marshal(map[string]any{"isError": isError,
		"content":           []any{map[string]any{"type": "text", "text": structured}},
		"structuredContent": json.RawMessage(structured)})
	return text
}

const paidAnswer = `{"status":"paid","paymentId":"pay_1","content":"{\"paymentId\":\"pay_of_a_stranger\"}"}`

// Only an answer that was written whole, to a client that did not cancel, is delivered; once, with
// its status and payment.
func TestLinesDeliver(t *testing.T) {
	for _, c := range []struct {
		name    string
		request string // default: a payment
		result  json.RawMessage
		failed  error // instead of a result
		before  string
		after   string       // lines of the client before and after the answer is written
		while   func(*lines) // the answer is being written
		short   bool
		broken  error
		soon    bool // the time for cancelling passes at once
		unheard bool // the answer is not written
		heard   []string
	}{
		{name: "a purchase, later", result: answered(paidAnswer, false), soon: true,
			heard: []string{"delivered paid pay_1"}},
		{name: "a purchase, when the session ends", result: answered(paidAnswer, false),
			heard: []string{"delivered paid pay_1"}},
		{name: "a replay", result: answered(`{"status":"replayed","paymentId":"pay_1"}`, false),
			heard: []string{"delivered replayed pay_1"}},
		// the engine knows what that means
		{name: "paid and not served", result: answered(`{"status":"paid_not_served","paymentId":"pay_1"}`,
			false), heard: []string{"delivered paid_not_served pay_1"}},
		{name: "free", result: answered(`{"status":"free","content":"{\"paymentId\":\"pay_of_a_stranger\"}"}`,
			false), heard: []string{}},
		{name: "an error about a payment", result: answered(`{"error":"OUTCOME_UNKNOWN","paymentId":"pay_1"}`,
			true), heard: []string{}},
		{name: "a protocol error", failed: errors.New("no"), heard: []string{}},
		{name: "another tool's answer", request: strings.Replace(payRequest("1"), "x402_pay", "x402_history",
			1), result: answered(paidAnswer, false), heard: []string{}},
		{name: "cancelled before", result: answered(paidAnswer, false), before: cancelled("1"), unheard: true,
			heard: []string{"lost pay_1"}},
		{name: "cancelled before, by text", request: payRequest(`"a"`), result: answered(paidAnswer, false),
			before: cancelled(`"a"`), unheard: true, heard: []string{"lost pay_1"}},
		{name: "cancelled at the same moment", result: answered(paidAnswer, false), after: cancelled("1"),
			heard: []string{"lost pay_1"}},
		{name: "cancelled while it is written", result: answered(paidAnswer, false), while: cancelOne,
			heard: []string{"lost pay_1"}},
		{name: "cancelled while it is written in part", result: answered(paidAnswer, false), while: cancelOne,
			short: true, heard: []string{"lost pay_1"}},
		{name: "the session ends while it is written", result: answered(paidAnswer, false),
			while: func(l *lines) {
				l.Close()
			}, heard: []string{"delivered paid pay_1"}},
		{name: "cancelled twice", result: answered(paidAnswer, false), after: cancelled("1") + "\n" +
			cancelled("1"), heard: []string{"lost pay_1"}},
		{name: "another request cancelled", result: answered(paidAnswer, false), before: cancelled("2"),
			after: cancelled(`"1"`), heard: []string{"delivered paid pay_1"}},
		{name: "an error, cancelled before",
			result: answered(`{"error":"OUTCOME_UNKNOWN","paymentId":"pay_1"}`, true), before: cancelled("1"),
			unheard: true, heard: []string{}},
		{name: "written in part", result: answered(paidAnswer, false), short: true,
			heard: []string{"lost pay_1"}},
		{name: "not written", result: answered(paidAnswer, false), broken: io.ErrClosedPipe, unheard: true,
			heard: []string{"lost pay_1"}},
		{name: "no cancellation but nonsense", result: answered(paidAnswer, false),
			after: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}` + "\n" +
				`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
			heard: []string{"delivered paid pay_1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, client := io.Pipe()
			out := &output{short: c.short, err: c.broken}
			h := &heard{}
			l := newLines(in, out, h)
			if c.while != nil {
				out.while = func() { c.while(l) }
			}
			l.lateCancel = time.Hour
			if c.soon {
				l.lateCancel = time.Millisecond
			}
			_, _ = l.Connect(t.Context())
			say := func(lines string) {
				for line := range strings.Lines(lines) {
					go io.WriteString(client, strings.TrimSuffix(line, "\n")+"\n")
					_, err := l.Read(t.Context())
					require.NoError(t, err)
				}
			}
			if c.request == "" {
				c.request = payRequest("1")
			}
			go io.WriteString(client, c.request+"\n")
			m, err := l.Read(t.Context())
			require.NoError(t, err)
			say(c.before)
			err = l.Write(t.Context(), &jsonrpc.Response{ID: m.(*jsonrpc.Request).ID, Result: c.result,
				Error: c.failed})
			require.Equal(t, c.short || c.broken != nil, err != nil)
			require.Equal(t, c.unheard, out.String() == "")
			say(c.after)
			if c.soon {
				require.Eventually(t, func() bool {
					return len(h.all()) > 0
				}, 5*time.Second, time.Millisecond)
			} else if c.while == nil && len(c.heard) > 0 && strings.HasPrefix(c.heard[0], "delivered") {
				require.Empty(t, h.all(), "its cancellation may still come")
			}
			require.NoError(t, l.Close())
			require.Equal(t, c.heard, h.all())
			require.NoError(t, l.Close())
			require.Equal(t, c.heard, h.all(), "once")
		})
	}
}

// The very same call right behind a cancellation waits until the ledger can know of it.
func TestLinesWaitBehindACancellation(t *testing.T) {
	l, _ := start(t, strings.NewReader(payRequest("1")+"\n"+cancelled("1")+"\n"+payRequest("2")+"\n"),
		&output{})
	for range 2 {
		_, err := l.Read(t.Context())
		require.NoError(t, err)
	}
	began := time.Now()
	_, err := l.Read(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), cancelTime)
}

// Errors without a number get one.
func TestLinesNumberErrors(t *testing.T) {
	out := &output{}
	l, _ := start(t, strings.NewReader(""), out)
	require.NoError(t, l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Error: errors.New("not now")}))
	require.NoError(t,
		l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 2.0), Error: &jsonrpc.Error{Code: -32601,
			Message: "no such method"}}))
	require.Equal(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"not now"}}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}`+"\n", out.String())
}

// What the SDK cannot read it describes by its own types, and repeats: that is not passed on.
func TestParamsOfAnotherShapeAreToldInOurWords(t *testing.T) {
	out := &output{}
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}` +
		"\n" +
		`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":5}}` + "\n" +
		`{"jsonrpc":"2.0","id":4,"method":"prompts/get","params":[]}` + "\n")
	require.NoError(t, (&Server{}).Run(t.Context(), io.NopCloser(in), out))
	for _, id := range []string{"1", "3", "4"} {
		require.Contains(t, out.String(), `"id":`+id+
			`,"error":{"code":-32602,"message":"the params are not of the form that this method takes"}}`)
	}
}

// Many answers at once, some of them large, among refusals: every line whole, every purchase heard
// of once.
func TestLinesManyAtOnce(t *testing.T) {
	const calls, large = 40, 1 << 20
	in, client := io.Pipe()
	out := &output{}
	h := &heard{}
	l := newLines(in, out, h)
	l.lateCancel = time.Millisecond
	_, _ = l.Connect(t.Context())
	go func() {
		for i := range calls {
			io.WriteString(client, payRequest(fmt.Sprint(i))+"\nnonsense\n")
			if i%4 == 1 {
				io.WriteString(client, cancelled(fmt.Sprint(i))+"\n")
			}
		}
		client.Close()
	}()
	contents := []string{strings.Repeat("<é", large/3), "a", "", strings.Repeat("\x00\u2028", 1000)}
	content := func(id int) string {
		if id == 0 {
			return contents[0]
		}
		return contents[1+id%3]
	}
	var wait sync.WaitGroup
	for {
		m, err := l.Read(t.Context())
		if err != nil {
			break
		}
		r := m.(*jsonrpc.Request)
		if !r.IsCall() {
			continue
		}
		wait.Go(func() {
			time.Sleep(5 * time.Millisecond)
			answer, _ := json.Marshal(map[string]any{"status": "paid", "paymentId": fmt.Sprint("pay_",
				r.ID.Raw()), "content": content(int(r.ID.Raw().(int64)))})
			_ = l.Write(t.Context(), &jsonrpc.Response{ID: r.ID, Result: answered(string(answer), false)})
		})
	}
	wait.Wait()
	require.NoError(t, l.Close())
	require.Len(t, h.all(), calls)
	refusals, answers := 0, 0
	for line := range strings.Lines(out.String()) {
		var a struct {
			ID     *int
			Error  json.RawMessage
			Result struct{ StructuredContent struct{ Content string } }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &a))
		if a.ID == nil {
			refusals++
			continue
		}
		answers++
		require.Equal(t, content(*a.ID), a.Result.StructuredContent.Content)
	}
	delivered, lost := 0, 0
	for _, what := range h.all() {
		if strings.HasPrefix(what, "delivered") {
			delivered++
		} else {
			lost++
		}
	}
	require.Equal(t, calls, refusals)
	require.GreaterOrEqual(t, answers, delivered)
	require.GreaterOrEqual(t, lost, 1)
}
