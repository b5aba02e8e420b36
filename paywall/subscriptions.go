package paywall

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of subscriptions.
const (
	maxSubscriptions = 32   // of one session
	maxSubscribed    = 1000 // URIs of all sessions
	maxURI           = 2 << 10
)

// subscribeTimeout is how long upstream may take to answer.
const subscribeTimeout = 10 * time.Second

// subscribe subscribes a session to a resource's changes. Upstream has one subscription for all buyers: an
// update is only a URI, which is private to nobody. The SDK's own list of subscriptions before MCP 2026-07-28
// is not used, because it never forgets a URI.
func (f *Proxy) subscribe(ctx context.Context, session *mcp.ServerSession, uri string) error {
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	theirs := 0
	for _, who := range f.subscribed {
		if who[session] {
			theirs++
		}
	}
	who, isKnown := f.subscribed[uri]
	most := maxSubscribed
	if !hasBought(ctx) {
		most /= 2 // guests leave half to buyers
	}
	if len(uri) > maxURI || theirs >= maxSubscriptions || (!isKnown && len(f.subscribed) >= most) {
		return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("a session has at most %d subscriptions, "+
			"of %d bytes each, and all at most %d", maxSubscriptions, maxURI, maxSubscribed)}
	}
	if !isKnown {
		limited, cancel := context.WithTimeout(ctx, subscribeTimeout)
		defer cancel()
		_, err := callUpstream(limited, f, nil, &mcp.SubscribeParams{URI: uri}, func(s *mcp.ClientSession,
			ctx context.Context, p *mcp.SubscribeParams) (struct{}, error) {
			return struct{}{}, s.Subscribe(ctx, p)
		})
		if err != nil {
			return err
		}
		who = map[*mcp.ServerSession]bool{}
		f.subscribed[uri] = who
	}
	who[session] = true
	return nil
}

// unsubscribe ends a subscription, and upstream's with the last one.
func (f *Proxy) unsubscribe(session *mcp.ServerSession, uri string) {
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	f.unsubscribeLocked(session, uri)
}

func (f *Proxy) unsubscribeAll(session *mcp.ServerSession) {
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	for uri := range f.subscribed {
		f.unsubscribeLocked(session, uri)
	}
}

func (f *Proxy) unsubscribeLocked(session *mcp.ServerSession, uri string) {
	who := f.subscribed[uri]
	delete(who, session)
	if who == nil || len(who) > 0 {
		return
	}
	delete(f.subscribed, uri)
	f.mu.Lock()
	upstream := f.session
	f.mu.Unlock()
	if upstream != nil {
		ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
		defer cancel()
		_ = upstream.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) // if it fails, updates are ignored
	}
}

// resubscribe renews all subscriptions in a new upstream session.
func (f *Proxy) resubscribe(upstream *mcp.ClientSession) {
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	for uri := range f.subscribed {
		_ = upstream.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	}
}

type updateKey struct{}

// forwardUpdate notifies the subscribers of a resource: the streams of MCP 2026-07-28 through the SDK, one
// after the other, and each session by itself, so that none waits for one that does not read.
func (f *Proxy) forwardUpdate(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
	f.closeMu.Lock()
	defer f.closeMu.Unlock()
	if !f.isClosed {
		f.queueUpdate(nil, r.Params.URI)
	}
}

func (f *Proxy) notifySubscribers(ctx context.Context, uri string) {
	f.subscribing.Lock()
	for session := range f.subscribed[uri] {
		if isLegacy(session) {
			f.queueUpdate(session, uri)
		}
	}
	f.subscribing.Unlock()
	_ = f.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
}

// updateTarget is who is notified: one session, or all subscribers of a URI.
type updateTarget struct {
	session *mcp.ServerSession
	uri     string
}

// queueUpdate queues an update for a session, or (nil) for all subscribers of the URI. Updates of one URI
// that are still queued are sent as one.
func (f *Proxy) queueUpdate(session *mcp.ServerSession, uri string) {
	f.updateQueueMu.Lock()
	defer f.updateQueueMu.Unlock()
	target := updateTarget{session: session}
	if session == nil {
		target.uri = uri
	}
	waiting, isQueued := f.updateQueue[target]
	if isQueued {
		waiting[uri] = true
		return
	}
	waiting = map[string]bool{uri: true}
	f.updateQueue[target] = waiting
	f.background.Go(func() {
		for next, ok := f.nextUpdate(target); ok; next, ok = f.nextUpdate(target) {
			f.notify(session, next)
		}
	})
}

func (f *Proxy) nextUpdate(target updateTarget) (uri string, ok bool) {
	f.updateQueueMu.Lock()
	defer f.updateQueueMu.Unlock()
	waiting := f.updateQueue[target]
	for uri = range waiting {
		delete(waiting, uri)
		return uri, true
	}
	delete(f.updateQueue, target)
	return "", false
}

func (f *Proxy) notify(session *mcp.ServerSession, uri string) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	if session == nil {
		f.notifySubscribers(ctx, uri)
		return
	}
	said := &mcp.ResourceUpdatedNotificationParams{URI: uri}
	_ = session.NotifyProgress(context.WithValue(ctx, updateKey{}, said), nil)
}

// rewriteUpdate is the sending middleware that turns a notification in forwardUpdate's context into the
// resource update that it stands for: the SDK sends updates only to the subscribers that it knows itself.
func rewriteUpdate(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		said, ok := ctx.Value(updateKey{}).(*mcp.ResourceUpdatedNotificationParams)
		session, isServer := request.GetSession().(*mcp.ServerSession)
		if !ok || !isServer || method != "notifications/progress" {
			return next(ctx, method, request)
		}
		return next(ctx, "notifications/resources/updated",
			&mcp.ServerRequest[*mcp.ResourceUpdatedNotificationParams]{Session: session, Params: said})
	}
}
