package tools

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"x402-wallet/pay"
)

// metadataPath is where clients learn how to get in (RFC 9728, MCP authorization).
const metadataPath = "/.well-known/oauth-protected-resource"

const (
	// tokenLife is what the SDK is told about tokens that are good until they are revoked: each request shows
	// its own.
	tokenLife = time.Hour
	// lookAgain is how often it is asked whether the agent that opened a stream would still be let in.
	lookAgain = 15 * time.Second
)

// Agents says whose a request is.
type Agents interface {
	ByToken(token string) (agent string, ok bool)
	// ByAccessToken is by a token of the owner's authorization server, and until when it is good. The error
	// is for the log.
	ByAccessToken(ctx context.Context, token string) (agent string, until time.Time, err error)
	// ByCertificate is by the subject of a client certificate that was verified (RFC 2253).
	ByCertificate(subject string) (agent string, ok bool)
	// Resource is what clients are told about the way in.
	Resource() Resource
}

// Resource is how clients know MCP over HTTP (RFC 9728).
type Resource struct {
	Origin   string // where it is reached; "": wherever it is asked
	Issuer   string // the authorization server whose access tokens are taken; "": none is
	Audience string // whom they have to be for
}

// at is where a request reaches the service, without a path.
func (s Resource) at(r *http.Request) string {
	switch {
	case s.Origin != "":
		return s.Origin
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// metadata says what the way in is: a bearer token, and who gives them out. No scopes: what an agent may do
// is in the owner's rules.
func (f *httpFront) metadata(rw http.ResponseWriter, r *http.Request) {
	known := f.agents.Resource()
	out := &oauthex.ProtectedResourceMetadata{Resource: known.at(r) + mcpPath, ResourceName: "x402-wallet",
		BearerMethodsSupported: []string{"header"}}
	if known.Issuer != "" {
		out.AuthorizationServers = []string{known.Issuer}
		if known.Origin == "" {
			out.Resource = known.Audience
		}
	}
	auth.ProtectedResourceMetadataHandler(out).ServeHTTP(rw, r)
}

// httpFront lets agents in, and knows what became of the answers to their calls.
type httpFront struct {
	agents    Agents
	log       *slog.Logger
	next      http.Handler
	lookAgain time.Duration
	writeTime time.Duration
	guesses   Guesses
	calls     share // that are not answered yet
}

type caller struct {
	agent string
	known bool
	until time.Time // when its token expires; zero: it does not
	shown bool      // it shows a token, or a certificate that was verified
	why   error     // its token is not known
}

func (f *httpFront) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	who := f.who(r)
	if !who.known {
		f.refuse(rw, r, who)
		return
	}
	ctx := r.Context()
	if isStream(r) {
		var cancel context.CancelFunc
		ctx, cancel = f.whileKnown(r, who)
		defer cancel()
	}
	c := &pay.Call{Began: time.Now()}
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: who.agent, Expiration: time.Now().Add(tokenLife),
			Extra: map[string]any{callKey: c, agentKey: who.agent}}, nil
	}
	served := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { f.serve(rw, r, who.agent, c) })
	auth.RequireBearerToken(verify, nil)(served).ServeHTTP(rw, asKnown(ctx, r))
}

// asKnown is a request of somebody who was let in, as the SDK takes it: with some bearer token, of which it
// need not know more.
func asKnown(ctx context.Context, r *http.Request) *http.Request {
	out := r.Clone(ctx)
	out.Header.Set("Authorization", "Bearer known")
	return out
}

// whileKnown ends a stream's context with its token, or soon after whoever opened it would not be let in any
// more. A call that has begun goes on to its answer.
func (f *httpFront) whileKnown(r *http.Request, who caller) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		again := time.NewTicker(f.lookAgain)
		defer again.Stop()
		var expired <-chan time.Time // nil, and so never, where the token does not expire
		if !who.until.IsZero() {
			expired = time.After(time.Until(who.until))
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-expired:
				cancel()
			case <-again.C:
				if now := f.who(r); !now.known || now.agent != who.agent {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

// refuse answers who is not known. It says the same for whatever is wrong; the log says what.
func (f *httpFront) refuse(rw http.ResponseWriter, r *http.Request, who caller) {
	rw.Header().Set("Connection", "close") // nothing more of it is read
	if who.shown && f.guesses.TooMany(r.RemoteAddr, time.Now()) {
		rw.Header().Set("Retry-After", strconv.Itoa(int(wrongTime.Seconds())))
		http.Error(rw, "too many wrong tokens", http.StatusTooManyRequests)
		return
	}
	says, invalid := "no bearer token", ""
	if who.why != nil {
		f.log.Info("refused a token", "from", r.RemoteAddr, "why", who.why)
		says, invalid = "invalid token", `error="invalid_token", `
	}
	rw.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer %sresource_metadata=%q", invalid,
		f.agents.Resource().at(r)+metadataPath+mcpPath))
	http.Error(rw, says, http.StatusUnauthorized)
}

// who says whose a request is: by its token, or without one by its certificate.
func (f *httpFront) who(r *http.Request) (who caller) {
	if token := bearer(r); token != "" {
		who.shown = true
		who.agent, who.known = f.agents.ByToken(token)
		if !who.known {
			who.agent, who.until, who.why = f.agents.ByAccessToken(r.Context(), token)
			who.known = who.why == nil
		}
		return who
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return who
	}
	who.shown = true
	who.agent, who.known = f.agents.ByCertificate(r.TLS.PeerCertificates[0].Subject.String())
	return who
}

// bearer is the token that a request shows; "" is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

const (
	// maxWrong is how many wrong tokens are answered from one address in wrongTime; right ones always are.
	maxWrong  = 20
	wrongTime = time.Minute
	// maxGuessers bounds the addresses that are kept.
	maxGuessers = 10_000
)

// Guesses counts wrong answers by address. None can be guessed; it is the work and the log that are kept
// small.
type Guesses struct {
	mu    sync.Mutex
	since time.Time
	wrong map[string]int
}

// TooMany counts one more.
func (g *Guesses) TooMany(address string, now time.Time) bool {
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
