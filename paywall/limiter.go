package paywall

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Limits bound the memory that visitors can take from a Proxy that serves HTTP. Zero values mean the
// defaults.
type Limits struct {
	// Sessions is the maximum number of concurrent sessions: 1000. Sessions that bought nothing can take half
	// of them; the oldest of those makes room for a new visitor's session. The limits of concurrent calls and
	// of connections are derived from it.
	Sessions int
	// Request is the maximum size in bytes of a request of a session that bought nothing: 64 KiB.
	Request int64
	// BehindProxy says that a reverse proxy appends the visitor's address to X-Forwarded-For. Without it,
	// visitors that connect from this machine cannot be told apart, and are only limited in total.
	BehindProxy bool
}

const (
	defaultSessions = 1000
	defaultRequest  = 64 << 10
	// addressShare is the reciprocal of the share of the guests' limits that one address can take.
	addressShare = 10
	// maxCalls is the maximum number of concurrent calls of a session; maxCallsBought applies once it bought
	// something.
	maxCalls, maxCallsBought = 32, 100
	// guestIdleTime and buyerIdleTime are how long a session is kept without a call.
	guestIdleTime, buyerIdleTime = 10 * time.Minute, time.Hour
	// askedTime is how long a visitor that was told a price is expected to pay.
	askedTime = time.Minute
	// uncountedBytes of each body are not counted, so that a few large bodies do not keep out small ones; the
	// number of connections bounds these bytes.
	uncountedBytes = 4 << 10
	// All concurrent guests' bodies together have at most maxGuestBodies × Limits.Request bytes, those of
	// buyers maxBuyerBytes.
	maxGuestBodies, maxBuyerBytes = 32, 32 << 20
	// guestBodyTime is the read timeout of a guest's body.
	guestBodyTime = 10 * time.Second
	// maxBatch bounds a JSON-RPC batch over HTTP: the SDK starts a goroutine for each of its calls.
	maxBatch = 100
)

// visitor is a client session, the stream of a subscription, or a single request that has neither.
type visitor struct {
	address  string // an IPv4 address or an IPv6 /64 network; "": unknown
	id       string // the Mcp-Session-Id; "": none
	close    func() // closes the session or stream; nil: there is none
	bought   bool
	askedAt  time.Time // when it was last told a price
	lastCall time.Time // when its last call ended
	calls    int       // concurrent HTTP calls
	release  func()    // undoes the latest acquire

	handlers int             // calls inside the SDK, including those whose client hung up
	ctx      context.Context // cancelled when the visitor is removed
	cancel   context.CancelFunc
}

// rank is what a visitor has shown so far; each rank has call limits of its own.
type rank int

const (
	ofGuest rank = iota
	ofPayer      // the call carries a payment, valid or not
	ofBuyer      // the session bought something before
)

// origin is the key by which the calls of one address are counted.
type origin struct {
	address  string
	isPaying bool
}

// limiter admits or refuses requests (admission control), as an http.Handler in front of the SDK's. Of MCP it
// knows only the session ID.
type limiter struct {
	Limits
	bodyTime time.Duration
	now      func() time.Time
	ctx      context.Context // of all calls
	cancel   context.CancelFunc

	mu                sync.Mutex
	visitors          map[*visitor]struct{}   // that count toward Limits.Sessions
	sessions          map[string]*visitor     // by Mcp-Session-Id
	calls             [3]int                  // concurrent, by rank
	callsFrom         map[origin]int          // concurrent, of visitors that bought nothing
	handlers          int                     // calls inside the SDK
	upstreamCalls     int                     // concurrent upstream calls of visitors that bought nothing
	upstreamCallsFrom map[string]int          // the same by address
	bodyBytes         [2]int64                // of bodies in memory: of guests, and of buyers
	pending           map[string]bool         // unanswered HTTP requests, by callHeader
	requestCount      int                     // total, for callHeader
	responses         map[*largeResponse]bool // being written, to visitors that bought nothing
	refused           map[int]uint64          // requests so far, by HTTP status

	closing sync.WaitGroup
}

func newLimiter(limits Limits, bodyTime time.Duration) *limiter {
	limits.Sessions = cmp.Or(limits.Sessions, defaultSessions)
	limits.Request = cmp.Or(limits.Request, defaultRequest)
	l := &limiter{Limits: limits, bodyTime: bodyTime, now: time.Now, visitors: map[*visitor]struct{}{},
		sessions: map[string]*visitor{}, callsFrom: map[origin]int{}, upstreamCallsFrom: map[string]int{},
		pending: map[string]bool{}, responses: map[*largeResponse]bool{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// limitHTTP is the middleware that serves a request if the limits allow it. isSessionless reports whether a
// request without a session ID wants no session.
func (l *limiter) limitHTTP(next http.Handler, isSessionless func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// reset the deadline of the previous response on this connection: not every response has a body
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{})
		sessionless := isSessionless(r)
		v := l.visitorFor(r, sessionless)
		if v == nil {
			// not a JSON-RPC error: clients take that for a failure of the call, and open no new session
			http.Error(rw, "session not found", http.StatusNotFound)
			return
		}
		defer l.dropSessionless(v)
		rw = &pacedWriter{ResponseWriter: rw, limiter: l, visitor: v}
		body, release, refused := l.readBody(rw, r, v)
		defer release()
		if refused == nil && r.Method == http.MethodPost {
			var releaseCalls func()
			releaseCalls, refused = l.acquire(v, body, r.Header)
			defer releaseCalls()
			if refused == nil && v.id == "" && !sessionless { // it will open one
				refused = l.addSession(v)
			}
		}
		if refused != nil {
			l.countRefusal(refused)
			refused.write(rw, body)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodDelete && v.id != "" {
			l.endSession(v) // the SDK would wait for running calls, or find it closed already
			rw.WriteHeader(http.StatusNoContent)
			return
		}
		defer l.trackPending(r)()
		ctx := context.WithValue(context.WithValue(r.Context(), visitorKey{}, v), limiterKey{}, l)
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// visitorFor returns the visitor that makes a request; nil if its session ID is not known (any more).
func (l *limiter) visitorFor(r *http.Request, sessionless bool) *visitor {
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" || sessionless {
		v := &visitor{address: l.addressOf(r)}
		v.ctx, v.cancel = context.WithCancel(l.ctx)
		return v
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	return l.sessions[id]
}

// addressOf returns the address that a request comes from; "" if it cannot be known.
func (l *limiter) addressOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	at, err := netip.ParseAddr(host)
	if err == nil && at.Unmap().IsLoopback() {
		if !l.BehindProxy {
			return ""
		}
		all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		at, err = netip.ParseAddr(strings.TrimSpace(all[len(all)-1]))
	}
	if err != nil {
		return ""
	}
	at = at.Unmap().WithZone("")
	if at.Is4() {
		return at.String()
	}
	network, _ := at.Prefix(64) // one household or one server has all of it
	return network.String()
}

type visitorKey struct{}

// visitorFrom returns the visitor that makes a call; nil over stdio, where nothing is limited. The SDK gives
// all calls of a session the context values of its first one.
func visitorFrom(ctx context.Context) *visitor {
	v, _ := ctx.Value(visitorKey{}).(*visitor)
	return v
}

type limiterKey struct{}

// limiterFrom returns the limiter that admitted a call; nil over stdio.
func limiterFrom(ctx context.Context) *limiter {
	l, _ := ctx.Value(limiterKey{}).(*limiter)
	return l
}

// refusal is why a request is refused, for an HTTP response or a JSON-RPC error.
type refusal struct {
	status     int
	retryAfter int // seconds; 0: retrying does not help
	message    string
}

// codeBusy is the JSON-RPC error code of a server that is temporarily busy.
const codeBusy = -32000

func (r *refusal) rpcError() *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeBusy, Message: r.message,
		Data: jsonOf(map[string]any{"retryAfter": r.retryAfter})}
}

// write answers a request with the refusal. body is what was read of the request.
func (r *refusal) write(rw http.ResponseWriter, body []byte) {
	if r.retryAfter > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(r.retryAfter))
	}
	rw.Header().Set("Cache-Control", "no-store")
	writeJSON(rw, r.status, map[string]any{"jsonrpc": "2.0", "id": requestID(body), "error": r.rpcError()})
}

// Load is what a Proxy has at a moment.
type Load struct {
	Running  int            // sales
	Sessions int            // of clients over HTTP
	Calls    map[string]int // concurrent requests over HTTP, of guests, payers and buyers
	Refused  map[int]uint64 // requests that found no place so far, by HTTP status
}

// Load says so. It may be called at any time.
func (f *Proxy) Load() Load {
	load := Load{Running: int(f.Paywall.running.Load()), Calls: map[string]int{}}
	l := f.limits.Load()
	if l == nil { // over stdio nothing is limited
		return load
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	load.Sessions, load.Refused = len(l.sessions), maps.Clone(l.refused)
	for rank, name := range map[rank]string{ofGuest: "guest", ofPayer: "payer", ofBuyer: "buyer"} {
		load.Calls[name] = l.calls[rank]
	}
	return load
}

func (l *limiter) countRefusal(r *refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[int]uint64{}
	}
	l.refused[r.status]++
}
