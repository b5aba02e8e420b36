package paywall

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A way in that costs (OfEntry): initialize is sold, once for each session, and nothing else is answered in a
// session that did not buy it. MCP without sessions (2026-07-28) has nothing that could be paid once, so its
// requests are refused, and its clients go on with initialize.

const initialize = "initialize"

// door keeps the sessions that may come in.
type door struct {
	mu       sync.Mutex
	sessions map[weak.Pointer[mcp.ServerSession]]bool
}

func (d *door) open(session *mcp.ServerSession) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions == nil {
		d.sessions = map[weak.Pointer[mcp.ServerSession]]bool{}
	}
	if key := weak.Make(session); !d.sessions[key] {
		d.sessions[key] = true
		runtime.AddCleanup(session, d.forget, key)
	}
}

func (d *door) forget(session weak.Pointer[mcp.ServerSession]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, session)
}

func (d *door) isOpen(session *mcp.ServerSession) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[weak.Make(session)]
}

// entryMiddleware is the SDK receiving middleware that lets in who paid.
func (w *Paywall) entryMiddleware(next mcp.MethodHandler) mcp.MethodHandler {
	t := w.priced(OfEntry, "")
	if t == nil {
		return next
	}
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		session, _ := request.GetSession().(*mcp.ServerSession)
		r, isInitialize := request.(*mcp.ServerRequest[*mcp.InitializeParams])
		switch {
		case method == "ping" || strings.HasPrefix(method, "notifications/"):
		case session == nil:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "there is no session"}
		case isInitialize:
			return w.sellEntry(ctx, t, session, r, func(ctx context.Context) (mcp.Result, error) {
				return next(ctx, method, request)
			})
		case w.door.isOpen(session):
		default:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
				Message: "this server sells sessions: the first request is initialize, which is paid for"}
		}
		return next(ctx, method, request)
	}
}

func (w *Paywall) sellEntry(ctx context.Context, t *tool, session *mcp.ServerSession,
	request *mcp.ServerRequest[*mcp.InitializeParams], run toolRun) (mcp.Result, error) {
	if entry, isPaid := ctx.Value(entryKey{}).(*entry); isPaid { // over HTTP, where the session stays secret
		answered, err := run(ctx)
		if err == nil {
			entry.isMade = true
			w.door.open(session)
		}
		return answered, err
	}
	isMade := false
	answered, r, err := w.sellMCP(ctx, asked{tool: t, request: request, meta: request.Params.Meta,
		extra: request.Extra, run: func(ctx context.Context) (mcp.Result, error) {
			given, err := run(ctx)
			isMade = err == nil
			return given, err
		}})
	if isMade && err == nil && r.answer == deliver {
		w.door.open(session)
	}
	return answered, err
}

type entryKey struct{}

// entry is a session that is being sold over HTTP.
type entry struct{ isMade bool }

// sellEntries sells initialize by the HTTP status 402, in front of an MCP server's handler. Any other request
// goes on, and finds the door closed where its session was not sold.
func (w *Paywall) sellEntries(next http.Handler) http.Handler {
	t := w.priced(OfEntry, "")
	if t == nil {
		return next
	}
	sold := w.HTTP(t.label(), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		made := &entry{}
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), entryKey{}, made)))
		if held, ok := rw.(*bufferedAnswer); ok && !made.isMade && held.Status < http.StatusBadRequest {
			held.Status = http.StatusBadGateway // an error of JSON-RPC, which is not sold
		}
	}))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Mcp-Session-Id") != "" {
			next.ServeHTTP(rw, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
		if err != nil {
			http.Error(rw, "the request is too large, or cut off", http.StatusRequestEntityTooLarge)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			Method string `json:"method"`
		}
		if json.Unmarshal(body, &message) == nil && message.Method == initialize {
			sold.ServeHTTP(rw, r)
			return
		}
		next.ServeHTTP(rw, r)
	})
}
