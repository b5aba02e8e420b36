package tools

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"x402-wallet/pay"
	"x402-wallet/x402"
)

const (
	// sessionIdle is how long a session over HTTP may say nothing.
	sessionIdle = 30 * time.Minute
	// bodyTime is how long a request may take to come: for 16 MiB that is 2 Mbit/s.
	bodyTime = time.Minute
	// storedEvents bounds what is kept of all sessions' answers for clients that lost their connection.
	storedEvents = 32 << 20
	// metadataPath is where clients learn how to get in (RFC 9728, MCP authorization).
	metadataPath = "/.well-known/oauth-protected-resource"
	// sessionless is the first version of MCP that has no sessions.
	sessionless = "2026-07-28"
	// tokenLife is what the SDK is told about tokens, which are good until they are revoked: each request
	// shows its own.
	tokenLife = time.Hour
)

// Agents says whose a request is.
type Agents interface {
	ByToken(token string) (agent string, ok bool)
	// ByCertificate is by the subject of a client certificate that was verified (RFC 2253).
	ByCertificate(subject string) (agent string, ok bool)
}

// HTTP is MCP's streamable HTTP transport, at /mcp, for agents that show a token or a certificate. It is to
// be used while Serve serves. Web pages are kept out: cross-origin requests, and names that were made to
// resolve to this machine (DNS rebinding).
func (s *Server) HTTP(agents Agents) http.Handler {
	one := func(*http.Request) *mcp.Server { return s.server }
	events := mcp.NewMemoryEventStore(nil)
	events.SetMaxBytes(storedEvents)
	before := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: x402.MaxMCPMessage, EventStore: events, SessionTimeout: sessionIdle})
	sessions := &httpSessions{server: s.server, next: before, most: cmp.Or(s.httpSessions, maxHTTPSessions),
		open: map[*httpSession]bool{}}
	s.overHTTP = sessions
	since := mcp.NewStreamableHTTPHandler(one, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: x402.MaxMCPMessage, Stateless: true, PropagateRequestCancellation: true})
	front := &httpFront{agents: agents, next: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
			since.ServeHTTP(rw, r)
		} else {
			sessions.ServeHTTP(rw, r)
		}
	})}
	mux := http.NewServeMux()
	mux.Handle("/mcp", http.NewCrossOriginProtection().Handler(front))
	mux.HandleFunc("GET "+metadataPath, metadata)
	mux.HandleFunc("GET "+metadataPath+"/mcp", metadata)
	return mux
}

// metadata says what the way in is: a bearer token.
func metadata(rw http.ResponseWriter, r *http.Request) {
	auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: base(r) + "/mcp", ResourceName: "x402-wallet", BearerMethodsSupported: []string{"header"},
	}).ServeHTTP(rw, r)
}

func base(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// httpFront lets agents in, and knows what became of the answers to their calls.
type httpFront struct {
	agents   Agents
	next     http.Handler
	guessing guessing
}

func (f *httpFront) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	agent, known := f.who(r)
	if !known {
		rw.Header().Set("Connection", "close") // nothing more of it is read
	}
	if !known && f.guessing.tooMany(r.RemoteAddr, time.Now()) {
		rw.Header().Set("Retry-After", strconv.Itoa(int(wrongTime.Seconds())))
		http.Error(rw, "too many wrong tokens", http.StatusTooManyRequests)
		return
	}
	c := &pay.Call{Began: time.Now()}
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		if !known {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{UserID: agent, Expiration: time.Now().Add(tokenLife),
			Extra: map[string]any{callKey: c, agentKey: agent}}, nil
	}
	letIn := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{
		ResourceMetadataURL: base(r) + metadataPath + "/mcp"})
	served := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { f.serve(rw, r, c) })
	letIn(served).ServeHTTP(rw, r)
}

// who says whose a request is: by its token, or without one by its certificate.
func (f *httpFront) who(r *http.Request) (agent string, known bool) {
	if token := bearer(r); token != "" {
		return f.agents.ByToken(token)
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return "", false
	}
	agent, known = f.agents.ByCertificate(r.TLS.PeerCertificates[0].Subject.String())
	if known {
		r.Header.Set("Authorization", "Bearer certificate") // the SDK lets nobody in without one
	}
	return agent, known
}

// bearer is the token that a request shows; "" is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// serve serves an agent's request, which carries one call at most.
func (f *httpFront) serve(rw http.ResponseWriter, r *http.Request, c *pay.Call) {
	if r.Method != http.MethodPost {
		f.next.ServeHTTP(rw, r)
		return
	}
	body, err := readBody(rw, r)
	if err != nil {
		http.Error(rw, "the request is too large, too slow, or cut off", http.StatusRequestEntityTooLarge)
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		http.Error(rw, "batches are not supported", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	out := &answerWriter{ResponseWriter: rw}
	f.next.ServeHTTP(out, r)
	if out.failed || r.Context().Err() != nil {
		c.Leave() // it may come back for the answer, on a stream of its session or by the same call
	} else {
		c.Deliver()
	}
}

// readBody takes a request's body, which has to come in time.
func readBody(rw http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(rw)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, x402.MaxMCPMessage))
	_ = connection.SetReadDeadline(time.Time{}) // from here on a read is how its going away is heard of
	return body, err
}

// answerWriter notes whether the answer could be written.
type answerWriter struct {
	http.ResponseWriter
	failed bool
}

func (w *answerWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.failed = w.failed || err != nil
	return n, err
}

// FlushError implements what http.ResponseController flushes by.
func (w *answerWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.failed = w.failed || err != nil
	return err
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const (
	// maxWrong is how many wrong tokens are answered from one address in wrongTime; right ones always are.
	maxWrong  = 20
	wrongTime = time.Minute
	// maxGuessers bounds the addresses that are kept.
	maxGuessers = 10_000
)

// guessing counts wrong tokens by address. No token can be guessed; it is the work and the log that are kept
// small.
type guessing struct {
	mu    sync.Mutex
	since time.Time
	wrong map[string]int
}

// tooMany counts one more.
func (g *guessing) tooMany(address string, now time.Time) bool {
	host, _, _ := net.SplitHostPort(address)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrong == nil || now.Sub(g.since) >= wrongTime {
		g.since, g.wrong = now, map[string]int{}
	}
	if _, counted := g.wrong[host]; !counted && len(g.wrong) >= maxGuessers {
		return true
	}
	g.wrong[host]++
	return g.wrong[host] > maxWrong
}
