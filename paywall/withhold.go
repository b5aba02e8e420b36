package paywall

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withheld holds back what tools send before their calls are paid. A tool's progress and log messages can
// reveal what its result is sold for: so until a payment is settled only the numbers of the progress are
// sent. Log messages wait, and are discarded if the payment fails.
type withheld struct {
	mu    sync.Mutex // guards the fields below
	calls map[*unpaidCall]bool
	// unpaid has the sessions with a call that ran without being paid. A log message can arrive late, so a
	// message without a call could belong to that one for as long as the session lasts, and is discarded.
	unpaid map[weak.Pointer[mcp.ServerSession]]bool
}

// Bounds of the log messages that wait for one call; any more are discarded.
const (
	maxWaiting      = 100
	maxWaitingBytes = 64 << 10
)

// unpaidCall is a priced call while it runs or its sale is open: a tool may go on after its sale has failed.
type unpaidCall struct {
	session *mcp.ServerSession
	token   any // progress token
	started bool
	running bool
	ended   bool // the sale has
	paid    bool
	waiting []func(context.Context)
	bytes   int // of waiting
}

type unpaidCallKey struct{}

// toolRun runs the tool of one call.
type toolRun func(context.Context) (mcp.Result, error)

// track returns a run that runs the tool with its messages withheld; end must then be called with the
// request's own context, and with whether the call was paid.
func (w *withheld) track(request mcp.Request, meta mcp.Meta, tool toolRun) (run toolRun,
	end func(ctx context.Context, paid bool)) {
	session, _ := request.GetSession().(*mcp.ServerSession)
	call := &unpaidCall{session: session, token: meta["progressToken"]}
	run = func(ctx context.Context) (mcp.Result, error) {
		w.update(call, func() { call.started, call.running = true, true })
		defer w.update(call, func() { call.running = false })
		return tool(context.WithValue(ctx, unpaidCallKey{}, call))
	}
	return run, func(ctx context.Context, paid bool) {
		var waited []func(context.Context)
		w.update(call, func() {
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

// update changes a call under the lock, and keeps it registered while it can still send messages.
func (w *withheld) update(call *unpaidCall, by func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by()
	if w.calls == nil {
		w.calls, w.unpaid = map[*unpaidCall]bool{}, map[weak.Pointer[mcp.ServerSession]]bool{}
	}
	w.calls[call] = true
	if call.ended && !call.running {
		delete(w.calls, call)
	}
	session := weak.Make(call.session)
	if call.session != nil && call.started && call.ended && !call.paid && !w.unpaid[session] {
		w.unpaid[session] = true
		runtime.AddCleanup(call.session, w.forget, session)
	}
}

func (w *withheld) forget(session weak.Pointer[mcp.ServerSession]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.unpaid, session)
}

// withoutCall returns a context for a message that cannot be attributed to a call: several calls of a session
// may run at once, and upstream does not say which one it belongs to.
func withoutCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, unpaidCallKey{}, (*unpaidCall)(nil))
}

// sendingMiddleware is the SDK sending middleware that all of a server's own messages pass through.
func (w *withheld) sendingMiddleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		session, _ := request.GetSession().(*mcp.ServerSession)
		switch said := request.GetParams().(type) {
		case *mcp.ProgressNotificationParams:
			if w.isUnpaid(ctx, session, said.ProgressToken) {
				numbers := &mcp.ProgressNotificationParams{ProgressToken: said.ProgressToken,
					Progress: said.Progress, Total: said.Total}
				request = &mcp.ServerRequest[mcp.Params]{Session: session, Params: numbers}
			}
		case *mcp.LoggingMessageParams:
			send := func(ctx context.Context) { _, _ = next(ctx, method, request) }
			if w.holdBack(ctx, session, len(jsonOf(said)), send) {
				return nil, nil
			}
		}
		return next(ctx, method, request)
	}
}

// isUnpaid reports whether a progress message belongs to an unpaid call, by its context or its progress
// token.
func (w *withheld) isUnpaid(ctx context.Context, session *mcp.ServerSession, token any) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if call, _ := ctx.Value(unpaidCallKey{}).(*unpaidCall); call != nil {
		return !call.paid
	}
	for call := range w.calls {
		if call.session == session && !call.paid && reflect.DeepEqual(call.token, token) {
			return true
		}
	}
	return false
}

// holdBack reports whether a log message must not be sent now; it is queued until its call is paid, or
// discarded. A message without a call's context may belong to any call of its session: it waits for the one
// unpaid call, and is discarded if there are several, or was one before.
func (w *withheld) holdBack(ctx context.Context, session *mcp.ServerSession, size int,
	send func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	call, _ := ctx.Value(unpaidCallKey{}).(*unpaidCall)
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
