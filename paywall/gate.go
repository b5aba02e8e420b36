package paywall

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402"
)

// Limits bound what visitors may take of the memory of a Proxy that serves HTTP. Zero values
// are the defaults.
type Limits struct {
	// Sessions is how many there may be at once: 1000. Visitors who bought nothing have half of
	// them, and the oldest such session makes room for the next visitor's. The number of calls under
	// way and of connections goes with it.
	Sessions int
	// Request is how many bytes a request of a session that bought nothing may have: 64 KiB.
	Request int64
	// BehindProxy says that a web server in front writes the visitor's address as the last of
	// X-Forwarded-For. Without it, visitors from this machine cannot be told apart, and are
	// counted in sum only.
	BehindProxy bool
}

const (
	defaultSessions = 1000
	defaultRequest  = 64 << 10
	// perAddress is which part of what visitors without a purchase have goes to one address.
	perAddress = 10
	// maxCalls is how many calls of one session may be under way; of one that bought something.
	maxCalls, maxCallsBought = 32, 100
	// guestLife and buyerLife are how long a session stays without a call.
	guestLife, buyerLife = 10 * time.Minute, time.Hour
	// askedLife is how long who asked for a price is taken for somebody who is about to pay.
	askedLife = time.Minute
	// freeBytes of each body are not counted, so that large bodies of some keep out nobody else's
	// small ones; the number of connections bounds them.
	freeBytes = 4 << 10
	// bodies of guests are guestBodies × Limits.Request in sum, those of buyers buyerBytes
	guestBodies, buyerBytes = 32, 32 << 20
	// guestBodyTime is how long such a body may take to come.
	guestBodyTime = 10 * time.Second
	// maxBatch bounds a JSON-RPC batch over HTTP: each of its calls is a goroutine of the SDK's.
	maxBatch = 100
	// guestAnswers is how many bytes of large answers to guests are being written at once. One has 16 MiB
	// at most, and some copies.
	guestAnswers = 24 << 20
	// writeTime is how long a visitor may take to read writePart bytes.
	writeTime, writePart = 20 * time.Second, 64 << 10
)

// visitor is a session, the stream of a subscription, or one request that has neither.
type visitor struct {
	from   string // an address, or an IPv6 network of 64 bits; "": not told apart
	id     string // of the session
	end    func() // closes the session or the stream; nil: has none
	bought bool
	asked  time.Time // for a price
	last   time.Time // when its last call ended
	calls  int       // under way, as HTTP requests
	leave  func()    // ends what enter began last

	running int             // calls inside the SDK, of some of which nobody waits for the answer any more
	gone    context.Context // ends when the visitor has to go
	dismiss context.CancelFunc
}

// rank is what the visitor of a call has to show for it.
type rank int

const (
	ofGuest rank = iota
	ofPayer      // a payment, of whatever worth
	ofBuyer      // an earlier purchase
)

// origin is where a visitor's calls come from.
type origin struct {
	address  string
	isPaying bool
}

// gate decides who is let in. It knows nothing of MCP but the name of a session: an http.Handler in
// front of the SDK's.
type gate struct {
	Limits
	bodyTime time.Duration
	now      func() time.Time
	life     context.Context // of all calls
	stop     context.CancelFunc

	mu       sync.Mutex
	visitors map[*visitor]struct{} // who are seated
	sessions map[string]*visitor   // those that have a name
	calls    [3]int                // under way, by rank
	from     map[origin]int        // those of who bought nothing
	running  int                   // calls inside the SDK
	passed   int                   // calls at the server behind, of who bought nothing
	passing  map[string]int        // the same by address
	bytes    [2]int64              // of bodies, of guests and of buyers
	waiting  map[string]bool       // HTTP requests that are not answered, by callHeader
	requests int                   // so far
	answers  map[*largeAnswer]bool // that are being written, to who bought nothing

	ending sync.WaitGroup
}

func newGate(l Limits, bodyTime time.Duration) *gate {
	l.Sessions, l.Request = cmp.Or(l.Sessions, defaultSessions), cmp.Or(l.Request, defaultRequest)
	g := &gate{Limits: l, bodyTime: bodyTime, now: time.Now, visitors: map[*visitor]struct{}{},
		sessions: map[string]*visitor{}, from: map[origin]int{},
		passing: map[string]int{}, waiting: map[string]bool{},
		answers: map[*largeAnswer]bool{}}
	g.life, g.stop = context.WithCancel(context.Background())
	return g
}

// refusal is why a request is not let in, as HTTP and as JSON-RPC.
type refusal struct {
	status int
	retry  int // seconds; 0: it is of no use
	why    string
}

// codeBusy is JSON-RPC's for a server that cannot serve at the moment.
const codeBusy = -32000

func (r *refusal) write(rw http.ResponseWriter, body []byte) {
	if r.retry > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(r.retry))
	}
	rw.Header().Set("Cache-Control", "no-store")
	writeJSON(rw, r.status, map[string]any{"jsonrpc": "2.0", "id": idOf(body), "error": map[string]any{
		"code": codeBusy, "message": r.why, "data": map[string]any{"retryAfter": r.retry}}})
}

// idOf is the id of a message of which perhaps only the beginning has come; nil where it is not in
// that. Over an error without it clients end the session.
func idOf(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	start, _ := d.Token()
	for start == json.Delim('{') {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil
		}
		if key == "id" && len(value) < maxName && value[0] != '{' && value[0] != '[' {
			return value
		}
	}
	return nil
}

type visitorKey struct{}

// visitorOf is whose call this is; nil where nobody is counted (stdio). The SDK gives a session's
// calls the values of the context of its first.
func visitorOf(ctx context.Context) *visitor {
	v, _ := ctx.Value(visitorKey{}).(*visitor)
	return v
}

type gateKey struct{}

// gateOf is the gate that a call came through.
func gateOf(ctx context.Context) *gate {
	g, _ := ctx.Value(gateKey{}).(*gate)
	return g
}

// let serves a request if there is room for it. isSessionless says of one without a session that
// it wants none.
func (g *gate) let(next http.Handler, isSessionless func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		// that of the answer before this one on the same connection: not every answer has a body
		_ = http.NewResponseController(rw).SetWriteDeadline(time.Time{})
		sessionless := isSessionless(r)
		v := g.visitor(r, sessionless)
		if v == nil {
			// not as JSON-RPC: clients take that for the call's own failure, and do not begin anew
			http.Error(rw, "session not found", http.StatusNotFound)
			return
		}
		defer g.unseat(v)
		rw = &pacedWriter{ResponseWriter: rw, gate: g, visitor: v}
		body, giveBack, refused := g.read(rw, r, v)
		defer giveBack()
		if refused == nil && r.Method == http.MethodPost {
			var leave func()
			leave, refused = g.enter(v, body, r.Header)
			defer leave()
			if refused == nil && v.id == "" && !sessionless { // it opens a session
				refused = g.seat(v)
			}
		}
		if refused != nil {
			refused.write(rw, body)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method == http.MethodDelete && v.id != "" {
			g.dismiss(v) // the SDK would wait for calls under way
		}
		defer g.await(r)()
		ctx := context.WithValue(context.WithValue(r.Context(), visitorKey{}, v), gateKey{}, g)
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

// callHeader names a request to hasLeft: the SDK passes on headers, and not the request's context. What a
// visitor says in it is overwritten.
const callHeader = "X402-Wallet-Call"

// await names a request until its visitor has the answer, or hung up.
func (g *gate) await(r *http.Request) (over func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	name := strconv.Itoa(g.requests)
	g.waiting[name] = true
	r.Header.Set(callHeader, name)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, name)
	}
}

// hasLeft reports whether nobody waits for the answer of a call any more. Over HTTP of before 2026-07-28
// that does not cancel it.
func hasLeft(ctx context.Context, header http.Header) bool {
	g := gateOf(ctx)
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.waiting[header.Get(callHeader)]
}

// visitor is who makes a request; nil where its session is not known (any more).
func (g *gate) visitor(r *http.Request, sessionless bool) *visitor {
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" || sessionless {
		v := &visitor{from: g.address(r)}
		v.gone, v.dismiss = context.WithCancel(g.life)
		return v
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	return g.sessions[id]
}

// address is where a request comes from, as far as it can be known.
func (g *gate) address(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	at, err := netip.ParseAddr(host)
	if err == nil && at.Unmap().IsLoopback() {
		if !g.BehindProxy {
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

// read reads a request's body. giveBack has to be called when it is not needed any more.
func (g *gate) read(rw http.ResponseWriter, r *http.Request, v *visitor) (
	body []byte, giveBack func(), refused *refusal) {
	g.mu.Lock()
	bought := v.bought
	g.mu.Unlock()
	limit, who, sum, patience := g.Request, 0, guestBodies*g.Request, min(g.bodyTime, guestBodyTime)
	if bought {
		limit, who, sum, patience = maxBody, 1, buyerBytes, g.bodyTime
	}
	counted := int64(0)
	giveBack = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.bytes[who] -= counted
	}
	take := func(n int64) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if n > 0 && g.bytes[who]+n > sum {
			return false
		}
		g.bytes[who] += n
		counted += n
		return true
	}
	control := http.NewResponseController(rw)
	_ = control.SetReadDeadline(time.Now().Add(patience))
	from := http.MaxBytesReader(rw, r.Body, limit)
	for {
		if len(body) == cap(body) {
			size := max(int64(cap(body))*2, freeBytes)
			if !take(max(min(size, limit+1)-max(int64(cap(body)), freeBytes), 0)) {
				return nil, giveBack, &refusal{http.StatusServiceUnavailable, 5,
					"too much is being sent at the moment"}
			}
			body = append(make([]byte, 0, min(size, limit+1)), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch tooLong := (*http.MaxBytesError)(nil); {
		case errors.Is(err, io.EOF):
			_ = control.SetReadDeadline(time.Time{})
			return body, giveBack, nil
		case errors.As(err, &tooLong) && !bought:
			return body, giveBack, &refusal{http.StatusRequestEntityTooLarge, 0,
				fmt.Sprintf("a request has at most %d bytes before its session has bought something", limit)}
		case err != nil:
			return nil, giveBack, &refusal{http.StatusRequestEntityTooLarge, 0,
				"the request is too large, too slow, or cut off"}
		}
	}
}

// messages counts those of a body; false where it is a batch of too many.
func messages(body []byte) (n int, ok bool) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) == 0 || body[0] != '[' {
		return 1, true
	}
	d := json.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token()
	for n <= maxBatch && d.More() {
		var one json.RawMessage
		if d.Decode(&one) != nil {
			break // the SDK says what is wrong with it
		}
		n++
	}
	return n, n > 0 && n <= maxBatch
}

// carriesPayment reports whether a request shows a payment, of whatever worth.
func carriesPayment(header http.Header, body []byte) bool {
	inHeader := func(name string) bool { return header.Get(name) != "" }
	inBody := func(key string) bool { return bytes.Contains(body, []byte(strconv.Quote(key))) }
	return slices.ContainsFunc(x402.PaymentHeaders(), inHeader) ||
		slices.ContainsFunc(x402.PaymentKeys(), inBody)
}

// enter counts a request's calls until leave. Who bought has a share of their own, and so has who
// shows a payment, which no crowd of others fills.
func (g *gate) enter(v *visitor, body []byte, header http.Header) (leave func(), refused *refusal) {
	calls, ok := messages(body)
	if !ok {
		return func() {}, &refusal{http.StatusBadRequest, 0,
			fmt.Sprintf("a batch has 1 to %d messages", maxBatch)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	of, from := ofGuest, origin{address: v.from}
	mayHave, all := maxCalls, g.maxGuestCalls()
	switch {
	case v.bought:
		of, from, mayHave, all = ofBuyer, origin{}, maxCallsBought, 2*all
	case carriesPayment(header, body):
		of, from.isPaying = ofPayer, true
	}
	switch {
	case v.calls > 0 && v.calls+calls > mayHave:
		return func() {}, &refusal{http.StatusTooManyRequests, 1,
			"too many calls of this session are under way"}
	case g.calls[of]+calls > all:
		return func() {}, &refusal{http.StatusServiceUnavailable, 5, "too many calls are under way"}
	case from.address != "" && g.from[from] > 0 && g.from[from]+calls > all/perAddress:
		return func() {}, &refusal{http.StatusTooManyRequests, 5,
			"too many calls from this address are under way"}
	}
	count := func(n int) {
		v.calls += n
		g.calls[of] += n
		if from.address != "" {
			g.from[from] += n
		}
	}
	count(calls)
	isOver := false
	v.leave = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if isOver {
			return
		}
		isOver = true
		count(-calls)
		if g.from[from] == 0 {
			delete(g.from, from)
		}
		v.last = g.now()
	}
	return v.leave, nil
}

// maxGuestCalls is how many calls of those may be under way who bought nothing.
func (g *gate) maxGuestCalls() int { return max(g.Sessions/4, maxBatch) }

// pass counts a call of who bought nothing at the server behind until done. It may take as long as it
// likes, and goes on when its visitor hangs up: so these calls leave half to those that are answered
// here, the first of every visitor.
func (g *gate) pass(v *visitor) (done func(), refused *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	most, own := g.maxGuestCalls()/2, g.passing[v.from]
	if v.from != "" && own >= most/perAddress {
		return nil, &refusal{http.StatusTooManyRequests, 5, "too many calls from this address are under way"}
	}
	if g.passed >= most {
		return nil, &refusal{http.StatusServiceUnavailable, 5, "too many calls are under way"}
	}
	count := func(n int) {
		g.passed += n
		g.passing[v.from] += n
		if g.passing[v.from] == 0 {
			delete(g.passing, v.from)
		}
	}
	count(1)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		count(-1)
	}, nil
}

// seat gives a visitor one of Limits.Sessions. Where they are taken, who has been away the longest
// and bought nothing goes.
func (g *gate) seat(v *visitor) *refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire()
	guests, asking, theirs := 0, 0, 0
	for other := range g.visitors {
		if other.bought {
			continue
		}
		guests++
		if g.isAsking(other) {
			asking++
		}
		if v.from != "" && other.from == v.from {
			theirs++
		}
	}
	half := max(g.Sessions/2, 1)
	guest := func(other *visitor) bool { return !other.bought }
	// those who asked for a price and those who did not each keep a half from a crowd of the other
	first := func(other *visitor) bool { return guest(other) && g.isAsking(other) == (asking > half/2) }
	switch {
	case theirs >= max(half/perAddress, 2):
		if !g.evict(func(other *visitor) bool { return guest(other) && other.from == v.from }) {
			return &refusal{http.StatusTooManyRequests, 5, "too many sessions from this address"}
		}
	case guests >= half:
		if !g.evict(first) && !g.evict(guest) {
			return &refusal{http.StatusServiceUnavailable, 5, "too many sessions"}
		}
	case len(g.visitors) >= g.Sessions:
		away := func(other *visitor) bool { return g.now().Sub(other.last) > askedLife }
		if !g.evict(first) && !g.evict(guest) && !g.evict(away) {
			return &refusal{http.StatusServiceUnavailable, 30, "too many sessions"}
		}
	}
	v.last = g.now()
	g.visitors[v] = struct{}{}
	return nil
}

// isAsking reports whether a visitor asked for a price, and is perhaps about to pay it.
func (g *gate) isAsking(v *visitor) bool { return g.now().Sub(v.asked) < askedLife }

// evict ends the session that has been without a call for the longest, of those that may go.
func (g *gate) evict(may func(*visitor) bool) bool {
	var oldest *visitor
	for v := range g.visitors {
		if v.calls == 0 && v.end != nil && may(v) && (oldest == nil || v.last.Before(oldest.last)) {
			oldest = v
		}
	}
	if oldest == nil {
		return false
	}
	g.remove(oldest)
	return true
}

// expire ends sessions that have been idle for too long.
func (g *gate) expire() {
	for v := range g.visitors {
		life := guestLife
		if v.bought {
			life = buyerLife
		}
		if v.calls == 0 && v.end != nil && g.now().Sub(v.last) > life {
			g.remove(v)
		}
	}
}

// remove takes the seat of a visitor without a call under way, and ends what it has.
func (g *gate) remove(v *visitor) {
	delete(g.visitors, v)
	delete(g.sessions, v.id)
	v.dismiss()
	if v.end != nil {
		g.ending.Go(v.end) // the SDK takes locks of its own there
	}
}

// dismiss is the end of a session that its visitor asked for.
func (g *gate) dismiss(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(v)
}

// unseat ends what a request began that no session was opened for, and gives back its seat.
func (g *gate) unseat(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.id == "" {
		delete(g.visitors, v)
		v.dismiss()
	}
}

// name says what session a seat was taken for. Its visitor may have hung up meanwhile: then there is
// no seat any more, and nobody who could use the session.
func (g *gate) name(v *visitor, id string, end func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, isSeated := g.visitors[v]; !isSeated {
		g.ending.Go(end)
		return
	}
	v.id, v.end = id, end
	g.sessions[id] = v
}

// isNamed reports whether a visitor has opened a session.
func (g *gate) isNamed(v *visitor) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return v.id != ""
}

// park seats a call that stays, the stream of a subscription of who has no session: it is a call
// under way no more, and is ended like a session.
func (g *gate) park(v *visitor) *refusal {
	refused := g.seat(v)
	if refused != nil {
		return refused
	}
	v.leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	v.end = func() {}
	return nil
}

// begin counts a call inside the SDK until done: over HTTP of before 2026-07-28 it goes on when its
// visitor hangs up. Its context ends with its session.
func (g *gate) begin(ctx context.Context, v *visitor) (_ context.Context, done func(), _ *refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mayHave := maxCalls
	if v.bought {
		mayHave = maxCallsBought
	}
	all := 2 * max(g.Sessions, g.maxGuestCalls())
	if v.running >= mayHave || (!v.bought && g.running >= all) {
		return ctx, nil, &refusal{http.StatusTooManyRequests, 5, "too many calls are under way"}
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(v.gone, cancel)
	v.running++
	g.running++
	return ctx, func() {
		stop()
		cancel()
		g.mu.Lock()
		defer g.mu.Unlock()
		v.running--
		g.running--
	}, nil
}

// close ends all calls and sessions.
func (g *gate) close() {
	g.stop()
	g.mu.Lock()
	for v := range g.visitors {
		g.remove(v)
	}
	g.mu.Unlock()
	g.ending.Wait()
}
