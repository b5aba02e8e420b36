package tools

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/mcpconn"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// A mounted server's tools stand beside the wallet's own, as <server>__<tool>. What the agent sees
// of them, and what it gets from them, is mounted.go; here is when they come and go. A call is a
// purchase like x402_call_tool's.

const (
	// mountTimeout is how long the first tools/list waits for servers that are still starting. Not
	// every host listens to list_changed, and a command is there in a second; what takes longer is
	// announced when it comes.
	mountTimeout = 2 * time.Second
	// mountPause is how soon a server's tools are asked for again, however often it says that they changed.
	mountPause = time.Second
	// mountRetry and mountRetryMost are how soon a server that gave no list is asked again:
	// doubling, because asking may start a command.
	mountRetry     = 10 * time.Second
	mountRetryMost = 10 * time.Minute
)

type mounts struct {
	// closed when the client said its first word after hello: from then on servers are started
	greeted  chan struct{}
	greeting sync.Once
	listed   chan struct{} // closed when every server was asked once, or none can be

	mu     sync.Mutex // what is shown follows the wallet of this moment
	mirror *mcpconn.Mirror
}

// mount begins to show tools; stop ends it.
func (s *Server) mount(ctx context.Context) (stop func()) {
	m := &s.mounts
	m.greeted, m.listed = make(chan struct{}), make(chan struct{})
	m.mirror = &mcpconn.Mirror{Log: logger(s.Log)}
	ctx, cancel := context.WithCancel(ctx)
	var mounting sync.WaitGroup
	mounting.Go(func() {
		settled := sync.OnceFunc(func() { close(m.listed) })
		defer settled()
		select {
		case <-ctx.Done():
			return
		case <-m.greeted:
		}
		if _, done, err := s.Wallet(ctx); err == nil {
			done()
		} else {
			settled() // it may be made later
		}
		s.each(ctx, func(ctx context.Context, w *Wallet) { s.showAll(ctx, w, settled) })
	})
	return func() { cancel(); mounting.Wait() }
}

// listing tells mount when to begin, and lets tools/list wait for what is about to come. A call of a mounted
// tool waits, too: a gateway without sessions calls in a process that never listed.
func (s *Server) listing(next mcp.MethodHandler) mcp.MethodHandler {
	if !s.Mounts {
		return next
	}
	m := &s.mounts
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		if method != "initialize" && method != "server/discover" && method != "ping" {
			m.greeting.Do(func() { close(m.greeted) })
		}
		call, isCall := request.(*mcp.CallToolRequest)
		mayCome := isCall && !strings.HasPrefix(call.Params.Name, "x402_") && !s.pays(call.Params.Name)
		if method == "tools/list" {
			if w, done := s.lazy.last(); w != nil { // the owner may have changed the rules
				done()
				if _, done, err := s.Wallet(ctx); err == nil {
					done()
				}
			}
		}
		if method == "tools/list" || mayCome {
			select {
			case <-m.listed:
			case <-ctx.Done():
			case <-time.After(mountTimeout):
			}
		}
		return next(ctx, method, request)
	}
}

// showAll shows what a wallet mounts for as long as ctx lasts, and nothing else. Servers that the
// wallet before it mounted too stay.
func (s *Server) showAll(ctx context.Context, w *Wallet, settled func()) {
	s.mounts.mu.Lock()
	for _, server := range s.mounts.mirror.Groups() {
		if !slices.Contains(w.Mounts, server) {
			s.replaceMounted(server, nil)
		}
	}
	s.mounts.mu.Unlock()
	var all, first sync.WaitGroup
	first.Add(len(w.Mounts))
	for _, server := range w.Mounts {
		all.Go(func() {
			tried := sync.OnceFunc(first.Done)
			defer tried()
			s.show(ctx, w, server, tried)
		})
	}
	first.Wait()
	settled()
	all.Wait()
	<-ctx.Done()
}

// show follows one server.
func (s *Server) show(ctx context.Context, w *Wallet, server string, tried func()) {
	defer s.caught("mount " + server)
	log := logger(s.Log).With("server", server)
	var news <-chan struct{}
	endpoint, err := w.endpoint(server)
	if err == nil {
		news, err = w.Servers.Changes(endpoint)
	}
	if err != nil {
		log.Warn("not mounted", "err", err)
		return
	}
	for wait := mountRetry; ctx.Err() == nil; {
		var again <-chan time.Time
		if list, _, err := w.toolsOf(ctx, server); err == nil {
			shown := w.mountedTools(server, list, log)
			s.mounts.mu.Lock()
			if ctx.Err() == nil { // else the wallet is another one by now
				s.replaceMounted(server, shown)
			}
			s.mounts.mu.Unlock()
			wait = mountRetry
		} else if ctx.Err() == nil {
			log.Warn("the tools of a mounted server cannot be listed", "err", err, "again", wait)
			again = time.After(wait)
			wait = min(2*wait, mountRetryMost)
		}
		tried()
		select {
		case <-ctx.Done():
		case <-time.After(mountPause):
		}
		select {
		case <-ctx.Done():
		case <-news:
		case <-again:
		}
	}
}

// replaceMounted replaces what is shown of a server. What is the same stays, so that hosts hear of nothing.
func (s *Server) replaceMounted(server string, list []mountedTool) {
	var items []mcpconn.Item
	for _, m := range list {
		items = append(items, mcpconn.Item{Name: m.shown.Name, Definition: m.definition, Add: func() {
			s.buyers.Store(m.shown.Name, true)
			s.server.AddTool(m.shown, s.mountedHandler(server, m))
		}})
	}
	s.mounts.mirror.Replace(server, items, func(name string) {
		s.server.RemoveTools(name)
		s.buyers.Delete(name)
	})
}

func (s *Server) mountedHandler(server string, m mountedTool) mcp.ToolHandler {
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return s.callMounted(ctx, request, server, m), nil
	}
}

func (s *Server) callMounted(ctx context.Context, request *mcp.CallToolRequest, server string,
	m mountedTool) *mcp.CallToolResult {
	var given map[string]json.RawMessage
	if err := s.arguments(ctx, request, &given); err != nil {
		return failure(err)
	}
	fit(given, m.shown.InputSchema)
	in := mountedCall{progress: progress(ctx, request, logger(s.Log)),
		CallIn: CallIn{Server: server, Tool: m.name, Arguments: sure(encode(given))}}
	return s.purchase(ctx, request, digest(request.Params.Name, given), in,
		func(bought pay.Result) *mcp.CallToolResult { return mountedResult(bought, protocolOf(request)) })
}

type mountedCall struct {
	CallIn
	progress func(seller.Progress)
}

func (in mountedCall) request(w *Wallet) (pay.Request, error) {
	if !slices.Contains(w.Mounts, in.Server) {
		return pay.Request{}, x402.Errorf(x402.ToolNotFound, "the owner has unmounted this server").
			WithHint("list the tools again")
	}
	q, err := in.CallIn.request(w)
	q.Progress = in.progress
	return q, err
}

// maxProgress is how often a server may say within one call that it is getting on. Honest ones
// count to a hundred.
const maxProgress = 1000

// progress passes on to the client what a server says while it works, under the client's own token;
// nil where it gave none.
func progress(ctx context.Context, request *mcp.CallToolRequest, log *slog.Logger) func(seller.Progress) {
	token := request.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	var mu sync.Mutex
	said, last := 0, 0.0
	return func(p seller.Progress) {
		mu.Lock()
		defer mu.Unlock()
		said++
		increases := said == 1 || p.Done > last // as it must (MCP, progress)
		if ctx.Err() != nil || said > maxProgress || !increases {
			return
		}
		last = p.Done
		err := request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
			Progress: p.Done, Total: p.Total, Message: x402.Clip(visible(p.Message), maxWord)})
		if err != nil {
			log.Debug("pass progress on", "err", err)
		}
	}
}
