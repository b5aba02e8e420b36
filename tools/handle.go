package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/steps"
	"x402-wallet/pay"
	"x402-wallet/x402"
)

// add registers a tool with its method.
func add[In, Out any](s *Server, t *mcp.Tool, method func(*Wallet, context.Context, In) (Out, error)) {
	register[In, Out](s, t, func(ctx context.Context, request *mcp.CallToolRequest,
		in In) *mcp.CallToolResult {
		var out Out
		w, done, err := s.Wallet(ctx)
		if err == nil {
			defer done()
			out, err = method(w, ctx, in)
		}
		return s.result(request, out, err)
	})
}

// addPurchase registers a tool that pays, and so may have to ask a person.
func addPurchase[In purchase](s *Server, t *mcp.Tool) {
	s.buyers.Store(t.Name, true)
	t.Meta = longAnswers()
	register[In, pay.Result](s, t, func(ctx context.Context, request *mcp.CallToolRequest,
		in In) *mcp.CallToolResult {
		ctx, done := s.progress(ctx, request) // a mounted tool's is its server's
		defer done()
		return s.purchase(ctx, request, digest(t.Name, in), in, func(bought pay.Result) *mcp.CallToolResult {
			seen := pictures(bought)
			if len(seen) > 0 && bought.Content == "" && bought.Next.Do == x402.AskPerson {
				bought.Next.Do = x402.Done
				bought.Next.Why += "; the picture is in this answer, behind the text"
			}
			given := s.result(request, bought, nil)
			given.Content = append(given.Content, seen...)
			return given
		})
	})
}

// register gives a tool its schemas. Arguments are read by us and not by the SDK, so that a wrong
// one is answered with a code and a remedy like everything else.
func register[In, Out any](s *Server, t *mcp.Tool,
	call func(context.Context, *mcp.CallToolRequest, In) *mcp.CallToolResult) {
	t.InputSchema = written(inputSchema[In]())
	if t.OutputSchema == nil {
		t.OutputSchema = written(outputSchema[Out]())
	}
	s.server.AddTool(t, func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		if err := s.arguments(ctx, request, &in); err != nil {
			return failure(err), nil
		}
		return call(ctx, request, in), nil
	})
}

// arguments reads those of a call, and waits for the person where it comes back with their answer.
func (s *Server) arguments(ctx context.Context, request *mcp.CallToolRequest, into any) error {
	if err := ReadArguments(request.Params.Arguments, into); err != nil {
		return err
	}
	return s.unlocking.await(ctx, request)
}

// result is a method's answer or error as the outside sees it, or the question to unlock the wallet.
func (s *Server) result(request *mcp.CallToolRequest, out any, err error) *mcp.CallToolResult {
	if err == nil {
		return answer(out, false)
	}
	coded := x402.AsError(err)
	if question := s.unlocking.ask(s, request, coded); question != nil {
		return question
	}
	if cause := errors.Unwrap(err); coded.Code == x402.Internal || cause != nil {
		logger(s.Log).Warn("a tool failed", "tool", request.Params.Name, "code", coded.Code, "err", err,
			"cause", cause)
	}
	return failure(coded)
}

// withCode gives trouble that has no code the tool's own. What caused it stays inside.
func withCode(code x402.Code, what string, err error) *x402.Error {
	if coded := x402.AsError(err); coded.Code != x402.Internal {
		return coded
	}
	return &x402.Error{Code: code, Message: what,
		Hint: "try again; if it persists, the person finds the reason in the wallet's log", Err: err}
}

// answer is one JSON, as structured content and as text.
func answer(v any, isError bool) *mcp.CallToolResult {
	body := Visible(sure(encode(v)))
	return &mcp.CallToolResult{
		IsError: isError, StructuredContent: json.RawMessage(body),
		Content: []mcp.Content{&mcp.TextContent{Text: string(body)}},
	}
}

// encode writes JSON without escapes for HTML.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(text.Bytes()), err
}

// sure is for what cannot fail: our own types, a key of the right length.
func sure[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func failure(err error) *mcp.CallToolResult { return answer(ErrorOf(err), true) }

// Failure is an error as tools and commands show it.
type Failure struct {
	Error       x402.Code      `json:"error"`
	Message     string         `json:"message"`
	Hint        string         `json:"hint"`
	FixedBy     x402.Actor     `json:"fixedBy"`
	SafeToRetry bool           `json:"safeToRetry"`
	Next        x402.Next      `json:"next"`
	PaymentID   string         `json:"paymentId,omitempty"`
	Spent       string         `json:"spent"`
	Details     map[string]any `json:"details"`

	// What a tool said of its failure, where it failed after a payment: data from a stranger, as in
	// a payment's answer.
	ContentBegin string `json:"contentBegin,omitempty"`
	Content      string `json:"content,omitempty"`
	ContentEnd   string `json:"contentEnd,omitempty"`
}

// ErrorOf makes the outside's form of any error.
func ErrorOf(err error) Failure {
	e := x402.AsError(err)
	f := Failure{
		Error: e.Code, Message: e.Message, Hint: e.Hint, FixedBy: e.FixableBy(), SafeToRetry: !e.Unsafe,
		Next:      e.NextStep(),
		PaymentID: e.PaymentID, Spent: e.Spent, Details: e.Details, Content: e.Content,
	}
	f.ContentBegin, f.ContentEnd = pay.Marks(f.Content)
	if f.Spent == "" {
		f.Spent = "0"
	}
	if f.Details == nil {
		f.Details = map[string]any{}
	}
	return f
}

// hidden are the letters that a reader does not see: controls, those that turn the direction of
// writing, and everything that is not drawn: tags and variation selectors, in which whole sentences
// have been hidden from people and shown to models.
var hidden = []*unicode.RangeTable{
	unicode.C, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
}

// Visible writes hidden letters of a text as \uXXXX, so that whoever reads it as it stands, as a
// model does, sees that they are there. Tabs and ends of lines are meant; a JSON
// text, in which they are white space, means the same as before.
func Visible(text []byte) []byte {
	plain := func(r rune) bool {
		printable := r >= ' ' && r < 0x7f
		return printable || r == '\n' || r == '\r' || r == '\t'
	}
	at := bytes.IndexFunc(text, func(r rune) bool { return !plain(r) })
	if at < 0 {
		return text
	}
	out := append(make([]byte, 0, len(text)+64), text[:at]...)
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		switch high, low := utf16.EncodeRune(r); {
		case plain(r) || !unicode.In(r, hidden...):
			out = append(out, text[at:at+size]...)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		at += size
	}
	return out
}

func visible(text string) string { return string(Visible([]byte(text))) }

// traced is a call's context with how it is made, and the trace that the agent's host names for it. A mounted
// tool's name is its server's: it is not said.
func traced(ctx context.Context, call *mcp.CallToolRequest) context.Context {
	name := "tools/call"
	if strings.HasPrefix(call.Params.Name, "x402_") {
		name += " " + call.Params.Name
	}
	var header http.Header
	if call.Extra != nil {
		header = call.Extra.Header
	}
	return steps.Calling(ctx, name, steps.Named(call.Params.Meta, header))
}
