package paywall

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what visitors subscribe to.
const (
	maxSubscriptions = 32 // of one session
	maxSubscribed    = 1000
	maxURI           = 2 << 10
)

// subscribeTime is how long the server behind may take over it.
const subscribeTime = 10 * time.Second

// subscribe lets a buyer hear of a resource's changes. The server behind is asked once for all
// buyers: what is told is a URI, and nobody's alone. The SDK's own book of sessions before
// 2026-07-28 is not used: it forgets no URI.
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
		most /= 2 // so that strangers leave something
	}
	if len(uri) > maxURI || theirs >= maxSubscriptions || (!isKnown && len(f.subscribed) >= most) {
		return &jsonrpc.Error{Code: codeBusy, Message: fmt.Sprintf("a session has at most %d subscriptions, "+
			"of %d bytes each, and all at most %d", maxSubscriptions, maxURI, maxSubscribed)}
	}
	if !isKnown {
		limited, cancel := context.WithTimeout(ctx, subscribeTime)
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

// unsubscribe is the end of that.
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
		ctx, cancel := context.WithTimeout(context.Background(), subscribeTime)
		defer cancel()
		_ = upstream.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) // then it tells what nobody hears
	}
}

// subscribeAgain renews them with a session that was opened again.
func (f *Proxy) subscribeAgain(upstream *mcp.ClientSession) {
	f.subscribing.Lock()
	defer f.subscribing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTime)
	defer cancel()
	for uri := range f.subscribed {
		_ = upstream.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	}
}

type updateKey struct{}

// passUpdate tells who subscribed: the streams of 2026-07-28 by the SDK, one after the other; sessions
// each for itself, so that none waits for one that reads nothing.
func (f *Proxy) passUpdate(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
	f.life.Lock()
	defer f.life.Unlock()
	if !f.ended {
		f.tell(nil, r.Params.URI)
	}
}

func (f *Proxy) tellSubscribers(ctx context.Context, uri string) {
	f.subscribing.Lock()
	for session := range f.subscribed[uri] {
		if p := session.InitializeParams(); p != nil && p.ProtocolVersion < sessionless {
			f.tell(session, uri)
		}
	}
	f.subscribing.Unlock()
	_ = f.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
}

// untold is who is being told: a session, or all who subscribed to a URI.
type untold struct {
	session *mcp.ServerSession
	uri     string
}

// tell tells a session of updates, or (nil) all who subscribed to one URI. What changes again before it
// was told is told once.
func (f *Proxy) tell(session *mcp.ServerSession, uri string) {
	f.tellingMu.Lock()
	defer f.tellingMu.Unlock()
	whom := untold{session: session}
	if session == nil {
		whom.uri = uri
	}
	waiting, isTelling := f.telling[whom]
	if isTelling {
		waiting[uri] = true
		return
	}
	waiting = map[string]bool{uri: true}
	f.telling[whom] = waiting
	f.updates.Go(func() {
		for next, ok := f.nextUntold(whom); ok; next, ok = f.nextUntold(whom) {
			f.tellOne(session, next)
		}
	})
}

func (f *Proxy) nextUntold(whom untold) (uri string, ok bool) {
	f.tellingMu.Lock()
	defer f.tellingMu.Unlock()
	waiting := f.telling[whom]
	for uri = range waiting {
		delete(waiting, uri)
		return uri, true
	}
	delete(f.telling, whom)
	return "", false
}

func (f *Proxy) tellOne(session *mcp.ServerSession, uri string) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTime)
	defer cancel()
	if session == nil {
		f.tellSubscribers(ctx, uri)
		return
	}
	said := &mcp.ResourceUpdatedNotificationParams{URI: uri}
	_ = session.NotifyProgress(context.WithValue(ctx, updateKey{}, said), nil)
}

// sendUpdate makes of a notification under passUpdate's context the one that it is: the SDK sends
// updates only to who is in its own book.
func sendUpdate(next mcp.MethodHandler) mcp.MethodHandler {
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
