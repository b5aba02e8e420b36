package paywall

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withheld is what priced calls said before they were paid. A tool's progress and log messages can
// tell what its answer is sold for: so until the payment is settled only the numbers of its
// progress leave. Its log messages wait, and are forgotten where the payment does not come.
type withheld struct {
	mu    sync.Mutex // of all that follows
	calls map[*quietCall]bool
	// sessions with a call that ran and was not paid. A log message may come late, so what does not
	// say whose it is could be of that call for as long as the session lasts, and is forgotten.
	unpaid map[weak.Pointer[mcp.ServerSession]]bool
}

// Bounds of what waits for one call; what is beyond them is forgotten.
const (
	maxWaiting      = 100
	maxWaitingBytes = 64 << 10
)

// quietCall is a priced call, for as long as it runs or its sale is open: a tool may go on after the
// sale has ended without it.
type quietCall struct {
	session *mcp.ServerSession
	token   any // of its progress
	ran     bool
	runs    bool
	ended   bool // its sale
	paid    bool
	waiting []func(context.Context)
	bytes   int // of waiting
}

type quietKey struct{}

// toolRun runs a tool for one call.
type toolRun func(context.Context) (*mcp.CallToolResult, error)

// quiet makes a call quiet. run is its tool; end has to be told whether the call was paid, with the
// request's own context.
func (w *withheld) quiet(request *mcp.CallToolRequest, tool toolRun) (run toolRun,
	end func(ctx context.Context, paid bool)) {
	call := &quietCall{session: request.Session, token: request.Params.GetProgressToken()}
	run = func(ctx context.Context) (*mcp.CallToolResult, error) {
		w.change(call, func() { call.ran, call.runs = true, true })
		defer w.change(call, func() { call.runs = false })
		return tool(context.WithValue(ctx, quietKey{}, call))
	}
	return run, func(ctx context.Context, paid bool) {
		var waited []func(context.Context)
		w.change(call, func() {
			call.ended, call.paid = true, paid
			waited, call.waiting = call.waiting, nil
		})
		for _, send := range waited {
			if paid {
				send(ctx)
			}
		}
	}
}

// change changes a call, and remembers it for as long as it matters.
func (w *withheld) change(call *quietCall, by func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by()
	if w.calls == nil {
		w.calls, w.unpaid = map[*quietCall]bool{}, map[weak.Pointer[mcp.ServerSession]]bool{}
	}
	w.calls[call] = true
	if call.ended && !call.runs {
		delete(w.calls, call)
	}
	session := weak.Make(call.session)
	if call.session != nil && call.ran && call.ended && !call.paid && !w.unpaid[session] {
		w.unpaid[session] = true
		runtime.AddCleanup(call.session, w.forget, session)
	}
}

func (w *withheld) forget(session weak.Pointer[mcp.ServerSession]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unpaid, session)
}

// ofNobody is ctx for a message of which it is not known whose it is: several calls of a session may
// run at once, and the server behind does not say of which it speaks.
func ofNobody(ctx context.Context) context.Context {
	return context.WithValue(ctx, quietKey{}, (*quietCall)(nil))
}

// sending is the middleware through which everything leaves that a server says by itself.
func (w *withheld) sending(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		session, _ := request.GetSession().(*mcp.ServerSession)
		switch said := request.GetParams().(type) {
		case *mcp.ProgressNotificationParams:
			if w.mayNotTell(ctx, session, said.ProgressToken) {
				numbers := &mcp.ProgressNotificationParams{ProgressToken: said.ProgressToken,
					Progress: said.Progress, Total: said.Total}
				request = &mcp.ServerRequest[mcp.Params]{Session: session, Params: numbers}
			}
		case *mcp.LoggingMessageParams:
			send := func(ctx context.Context) { _, _ = next(ctx, method, request) } // who left misses it
			if w.keeps(ctx, session, len(jsonOf(said)), send) {
				return nil, nil
			}
		}
		return next(ctx, method, request)
	}
}

// mayNotTell reports whether a progress message is of a call that is not paid: it runs under that
// call's context, or has its token.
func (w *withheld) mayNotTell(ctx context.Context, session *mcp.ServerSession, token any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call, _ := ctx.Value(quietKey{}).(*quietCall); call != nil {
		return !call.paid
	}
	for call := range w.calls {
		if call.session == session && !call.paid && reflect.DeepEqual(call.token, token) {
			return true
		}
	}
	return false
}

// keeps takes a log message that must not leave yet, or ever. One that is not sent under a call's
// context may be of any call of its session: it waits for the one that is not paid, and is
// forgotten where there are several, or was one.
func (w *withheld) keeps(ctx context.Context, session *mcp.ServerSession, size int,
	send func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	call, _ := ctx.Value(quietKey{}).(*quietCall)
	if call == nil && w.unpaid[weak.Make(session)] {
		return true
	}
	if call == nil {
		for other := range w.calls {
			if other.session != session || other.paid {
				continue
			}
			if call != nil {
				return true
			}
			call = other
		}
	}
	if call == nil || call.paid {
		return false
	}
	if !call.ended && len(call.waiting) < maxWaiting && call.bytes+size <= maxWaitingBytes {
		call.waiting = append(call.waiting, send)
		call.bytes += size
	}
	return true
}
