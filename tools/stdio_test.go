package tools

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/pay"
)

type ends struct {
	mu   sync.Mutex
	list []string
}

// watch notes the end of the call that a request carries; a notification carries none.
func (e *ends) watch(m jsonrpc.Message) {
	r, ok := m.(*jsonrpc.Request)
	if !ok || r.Extra == nil {
		return
	}
	call := r.Extra.(*mcp.RequestExtra).TokenInfo.Extra[callKey].(*pay.Call)
	call.OnEnd(func(delivered bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		what := "cancelled"
		if delivered {
			what = "delivered"
		}
		e.list = append(e.list, what)
	})
}

func (e *ends) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string{}, e.list...)
}

func paysByName(tool string) bool { return tool == payName }

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
func start(t *testing.T, input io.Reader, out *output) *stdioTransport {
	l := newStdioTransport(io.NopCloser(input), out, paysByName)
	require.Empty(t, must.Get(l.Connect(t.Context()))(t).SessionID())
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func id(t *testing.T, v any) jsonrpc.ID { return must.Get(jsonrpc.MakeID(v))(t) }

func cancelOne(l *stdioTransport) {
	one, _ := jsonrpc.MakeID(1.0)
	l.cancel(one)
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestStdioEnd(t *testing.T) {
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	run("the last line needs no newline", func(t *testing.T) {
		l := start(t, strings.NewReader(ping), &output{})
		must.Get(l.Read(t.Context()))(t)
		_ = l.Write(t.Context(), &jsonrpc.Response{ID: id(t, 1.0), Result: json.RawMessage("{}")})
		require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
	})
	run("requests from a file are answered", func(t *testing.T) {
		l := start(t, strings.NewReader(ping+"\n"), &output{})
		must.Get(l.Read(t.Context()))(t)
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
	run("but not for ever, and not while a payment is open", func(t *testing.T) {
		for _, request := range []string{ping, payRequest("1")} {
			l := start(t, strings.NewReader(request+"\n"), &output{})
			must.Get(l.Read(t.Context()))(t)
			began := time.Now()
			require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
			waited := map[string]time.Duration{ping: lastAnswers}[request]
			require.Equal(t, waited, time.Since(began))
		}
	})
	run("closing ends a read", func(t *testing.T) {
		in, _ := io.Pipe()
		l := newStdioTransport(in, &output{}, paysByName)
		_, _ = l.Connect(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { l.Close() })
		require.Equal(t, io.EOF, must.Err(l.Read(t.Context())))
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

// A call is delivered when its answer was written whole to a client that did not cancel; else it is
// cancelled. It ends once.
func TestStdioEndsCalls(t *testing.T) {
	const delivered, cancelledNow = "delivered", "cancelled"
	type row struct {
		name    string
		request string // default: a payment
		failed  error  // instead of a result
		before  string
		after   string                // lines of the client before and after the answer is written
		while   func(*stdioTransport) // the answer is being written
		short   bool
		broken  error
		soon    bool // the time for cancelling passes at once
		silent  bool // the answer is not written
		ends    string
	}
	for _, c := range []row{
		{name: "a purchase, later", soon: true, ends: delivered},
		{name: "a purchase, when the session ends", ends: delivered},
		{name: "a protocol error", failed: errors.New("no"), ends: delivered},
		{name: "another tool's answer", request: historyRequest("1"), soon: true, ends: delivered},
		{name: "cancelled before", before: cancelled("1"), silent: true, ends: cancelledNow},
		{name: "cancelled before, by text", request: payRequest(`"a"`), before: cancelled(`"a"`),
			silent: true, ends: cancelledNow},
		{name: "another tool's call, cancelled before", request: historyRequest("1"), before: cancelled("1"),
			silent: true, ends: cancelledNow},
		{name: "cancelled at the same moment", after: cancelled("1"), ends: cancelledNow},
		{name: "cancelled while it is written", while: cancelOne, ends: cancelledNow},
		{name: "cancelled while it is written in part", while: cancelOne, short: true, ends: cancelledNow},
		{name: "the session ends while it is written", while: func(l *stdioTransport) {
			l.Close()
		}, ends: delivered},
		{name: "cancelled twice", after: cancelled("1") + "\n" + cancelled("1"), ends: cancelledNow},
		{name: "another request cancelled", before: cancelled("2"), after: cancelled(`"1"`), ends: delivered},
		{name: "a second request by its id", before: payRequest("1"), after: cancelled("1"),
			ends: cancelledNow},
		{name: "a request by its id after the answer", after: historyRequest("1"), ends: delivered},
		{name: "written in part", short: true, ends: cancelledNow},
		{name: "not written", broken: io.ErrClosedPipe, silent: true, ends: cancelledNow},
		{name: "no cancellation but nonsense",
			after: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}` +
				"\n" + `{"jsonrpc":"2.0","method":"notifications/cancelled"}`, ends: delivered},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, client := io.Pipe()
			out := &output{short: c.short, err: c.broken}
			l := newStdioTransport(in, out, paysByName)
			if c.while != nil {
				out.while = func() { c.while(l) }
			}
			l.lateCancel = time.Hour
			if c.soon {
				l.lateCancel = time.Millisecond
			}
			_, _ = l.Connect(t.Context())
			say := func(lines string) (last jsonrpc.Message) {
				for line := range strings.Lines(lines) {
					go io.WriteString(client, strings.TrimSuffix(line, "\n")+"\n")
					m := must.Get(l.Read(t.Context()))(t)
					last = m
				}
				return last
			}
			m := say(cmp.Or(c.request, payRequest("1")))
			e := &ends{}
			e.watch(m)
			say(c.before)
			answer := &jsonrpc.Response{ID: m.(*jsonrpc.Request).ID, Error: c.failed}
			if c.failed == nil {
				answer.Result = json.RawMessage(`{"content":[]}`)
			}
			err := l.Write(t.Context(), answer)
			require.Equal(t, c.short || c.broken != nil, err != nil)
			require.Equal(t, c.silent, out.String() == "")
			if c.ends == delivered && !c.soon && c.while == nil {
				require.Empty(t, e.all(), "its cancellation may still come")
			}
			say(c.after)
			if c.soon {
				require.Eventually(t, func() bool {
					return len(e.all()) > 0
				}, time.Minute, time.Millisecond)
			}
			require.NoError(t, l.Close())
			require.NoError(t, l.Close())
			require.Equal(t, []string{c.ends}, e.all(), "once")
		})
	}
}

func historyRequest(id string) string {
	return strings.Replace(payRequest(id), payName, "x402_history", 1)
}

// Reading a cancellation cancels the call before the next message is read, and takes no time: a
// ping behind 50 of them is answered at once.
func TestPingBehindCancellationsIsAnsweredAtOnce(t *testing.T) {
	w := richWorld(t)
	answers := make(chan struct{})
	w.wallet.Engine.Transport = holding{w.wallet.Engine.Transport, answers}
	c := w.serve(t)
	const calls = 50
	var text strings.Builder
	for i := range calls {
		fmt.Fprintf(&text,
			`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x402_pay","arguments":{"url":"%s/weather?%d"}}}`+"\n",
			1000+i, w.SellerURL, i)
	}
	c.raw(text.String())
	require.Eventually(t, func() bool {
		return len(w.Settlements()) == calls
	}, 60*time.Second, 5*time.Millisecond)
	text.Reset()
	for i := range calls {
		text.WriteString(cancelled(fmt.Sprint(1000+i)) + "\n")
	}
	began := time.Now()
	c.raw(text.String() + strings.Replace(ping, `"id":1`, `"id":77`, 1) + "\n")
	require.Contains(t, c.hear(), `"id":77`)
	require.Less(t, time.Since(began), 10*time.Second)
	close(answers)
}

// What the SDK cannot read it describes by its own types, and repeats: that is not passed on.
func TestParamsOfAnotherShapeAreExplained(t *testing.T) {
	out := &output{}
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":5}}` +
		"\n" +
		`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":5}}` + "\n" +
		`{"jsonrpc":"2.0","id":4,"method":"prompts/get","params":[]}` + "\n")
	require.NoError(t, (&Server{}).Run(t.Context(), io.NopCloser(in), out))
	for _, id := range []string{"1", "3", "4"} {
		t.Run(id, func(t *testing.T) {
			require.Contains(t, out.String(), `"id":`+id+
				`,"error":{"code":-32602,"message":"the params are not of the form that this method takes"}}`)
		})
	}
}

// Many answers at once, some of them large, among refusals: every line whole, every call ends once.
func TestStdioManyAtOnce(t *testing.T) {
	const calls, large = 40, 1 << 20
	in, client := io.Pipe()
	out := &output{}
	e := &ends{}
	l := newStdioTransport(in, out, paysByName)
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
		e.watch(r)
		wait.Go(func() {
			time.Sleep(5 * time.Millisecond)
			answer, _ := json.Marshal(map[string]any{"status": "paid", "paymentId": fmt.Sprint("pay_",
				r.ID.Raw()), "content": content(int(r.ID.Raw().(int64)))})
			_ = l.Write(t.Context(),
				&jsonrpc.Response{ID: r.ID, Result: json.RawMessage(`{"structuredContent":` + string(answer) +
					`}`)})
		})
	}
	wait.Wait()
	require.NoError(t, l.Close())
	require.Len(t, e.all(), calls)
	refusals, answers := 0, 0
	for line := range strings.Lines(out.String()) {
		a := must.JSON[struct {
			ID     *int
			Error  json.RawMessage
			Result struct{ StructuredContent struct{ Content string } }
		}]([]byte(line))(t)
		if a.ID == nil {
			refusals++
			continue
		}
		answers++
		require.Equal(t, content(*a.ID), a.Result.StructuredContent.Content)
	}
	delivered, lost := 0, 0
	for _, what := range e.all() {
		if what == "delivered" {
			delivered++
		} else {
			lost++
		}
	}
	require.Equal(t, calls, refusals)
	require.GreaterOrEqual(t, answers, delivered)
	require.GreaterOrEqual(t, lost, 1)
}
