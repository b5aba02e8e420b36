// Package seller carries a request to a seller: first without payment, then once with it.
//
// What must stay true: no request reaches an address that its owner did not publish to the
// Internet, unless the wallet's owner listed exactly that host and port; a request with a payment
// leaves at most once, to the origin it was made for; and nothing a
// seller sends can take unbounded memory or time.
//
// The stock client breaks each of these, measured: it follows redirects with the payment attached,
// accepts 10 MiB of headers and a gigabyte out of a megabyte of gzip, takes a proxy from the
// environment, and when a kept-alive connection dies after the server read a signed GET, sends it a
// second time unasked.
//
// The files: client.go (which of the two). HTTP: http.go (ask, present), check.go (what may be
// sent), dial.go (to which addresses), body.go (what is taken in), encoding.go (its
// encodings), stream.go (streams that stay open), errors.go (what the network's errors
// mean outside); node.go is the client for the owner's own nodes and facilitators. MCP: mcp.go (a request
// and its answer), mcpsession.go (sessions, kept and ended), mcpopen.go (how one is opened), mcpexchange.go
// (what left and what came, read raw), mcptransport.go (where that is noted, and how a payment leaves
// once), mcptools.go (lists of tools, and errors); connections are internal/mcpconn's.
package seller

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"x402-wallet/internal/child"
	"x402-wallet/x402/wire"
)

// Request is what a buyer asks for: over HTTP, or, with one of the MCP methods, of an MCP server.
type Request struct {
	Method string // "" is GET
	// MCP: the endpoint, or mcp://<name> of a configured server, and what is asked for as the fragment
	URL    string
	Header http.Header
	Body   []byte // MCP: the arguments, a JSON object; nil: none

	MaxContent int64 // HTTP: bytes of content that are taken of an answer to a question; 0: as many as of any
	// HTTP: of this call alone; nil: what a seller sets is dropped
	Cookies *Cookies
	// MCP: hears how far the server is; called by another goroutine; nil: nobody wants to know
	Progress func(Progress)
}

// Answer is what a seller said. All of it is a stranger's.
type Answer struct {
	Status      int
	Header      http.Header
	Content     []byte // decoded if it came as gzip
	ContentType string // a well-formed media type, or ""
	Truncated   bool   // Content is not all there was
	FinalURL    string // what answered, after redirects: a payment for this answer goes there
	Date        time.Time

	Challenge     *wire.Challenge // set when Status is 402 or 412 …
	ChallengeErr  error           // … or why it could not be read
	Settlement    *wire.Settlement
	SettlementErr error
	ToolFailed    bool // MCP: the server says that what it was asked for came to nothing; its Status is 500

	releaseSlot func() // gives back the slot that a large Content takes; nil: it has none (Release)
}

// Progress is what a server says while it works. The message is a stranger's.
type Progress struct {
	Done, Total float64
	Message     string
}

// The MCP methods that can be bought.
const (
	CallTool     = "tools/call"
	ReadResource = "resources/read"
	GetPrompt    = "prompts/get"
	Initialize   = "initialize"
)

// IsMCP reports whether a method is one of an MCP server, and not of HTTP.
func IsMCP(method string) bool {
	return slices.Contains([]string{CallTool, ReadResource, GetPrompt, Initialize}, method)
}

// Server is a paid MCP server of the owner's: a command, or a URL.
type Server struct {
	Command []string
	Env     []string      // the command's, all of it
	Sandbox child.Sandbox // what the command is kept from
	URL     string
}

// Options configure the client. The zero value is right for sellers on the Internet.
type Options struct {
	// exact host:port that http:// and private addresses are allowed for (policy.loopback)
	Loopback []string
	// Proxy is what everything but those goes through, "http://…", "https://…" or "socks5://…"; "": nothing
	Proxy string
	// OtherProxy is a variable of the environment that names a proxy, which is not used; "": there is none
	OtherProxy string
	// "" is "x402-wallet"; never with "Mozilla", which gets an HTML paywall
	UserAgent  string
	MaxContent int64          // 0 is 32 MiB
	RootCAs    *x509.CertPool // nil: the system's. For tests; there is no way to skip the check
	Resolver   resolver       // nil: the system's

	Servers map[string]Server // MCP: by name, as config.toml has them
	// Agent names who makes a call, of those that share the wallet: each has sessions of its own with MCP
	// servers. "" is a caller without a name; nil: all are.
	Agent   func(context.Context) string
	Version string // MCP: what we say of ourselves
	Log     *slog.Logger

	// tests only
	dial    dialFunc      // what opens a connection to an address that was allowed
	silence time.Duration // 0 is maxSilence
	unused  time.Duration // 0 is maxUnused
	quiet   time.Duration // 0 is maxQuiet
}

// Client is the way to sellers: over HTTP, and of tools, resources and prompts of MCP servers. It
// is safe for concurrent use; Close ends what it started.
//
// A session with an MCP server is opened when it is first needed, is shared by all calls of one agent, and is
// opened again when it has died. A request with a payment leaves at most once all the same: what
// dies after it left is not tried again.
type Client struct {
	options Options
	http    *httpClient     // its address rules, dialling and limits hold for MCP servers at a URL, too
	life    context.Context // until Close
	end     context.CancelFunc

	mu        sync.Mutex
	endpoints map[place]*endpoint
	changes   map[string]chan struct{}
	closed    bool

	dropped sync.WaitGroup // sessions whose calls are not over
}

// New makes a client. Nothing is started before it is asked for.
func New(o Options) *Client {
	if o.UserAgent == "" {
		o.UserAgent = "x402-wallet"
	}
	if o.MaxContent <= 0 {
		o.MaxContent = maxContent
	}
	if o.silence == 0 {
		o.silence = maxSilence
	}
	if o.unused == 0 {
		o.unused = maxUnused
	}
	if o.quiet == 0 {
		o.quiet = maxQuiet
	}
	if o.Agent == nil {
		o.Agent = func(context.Context) string { return "" }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Client{options: o, http: newHTTP(o), endpoints: map[place]*endpoint{},
		changes: map[string]chan struct{}{}}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// Check says whether a request may be made at all, without starting or asking anything.
func (m *Client) Check(r Request) (err error) {
	if IsMCP(r.Method) {
		_, err = m.check(r)
	} else {
		_, err = m.http.check(r)
	}
	return err
}

// Ask sends a request without payment. Over HTTP redirects are followed up to five times within the
// same origin; a request that is neither GET nor HEAD only where the redirect keeps its method
// (307, 308). Whether an MCP server then works for nothing is its own affair, so it is sent once,
// and again only when provably nothing of it left. Errors are *x402.Error, or an *EntryError.
func (m *Client) Ask(ctx context.Context, r Request) (*Answer, error) {
	if IsMCP(r.Method) {
		return m.askMCP(ctx, r)
	}
	return m.http.ask(ctx, r)
}

// Present sends a request with one payment or proof, at most once: over HTTP on the connection
// that brought the challenge, if it is still open, and a 3xx is the answer. An error is a *SendError. It
// comes together with an Answer when the headers arrived and the body broke off: the receipt is in the
// headers.
func (m *Client) Present(ctx context.Context, r Request, with wire.Attachment) (*Answer, error) {
	if IsMCP(r.Method) {
		return m.presentMCP(ctx, r, with)
	}
	return m.http.present(ctx, r, with)
}

// SendError says why a request with a payment has no whole answer. Sent is false only when provably
// not one byte of it left: there was no connection. Anything else may have been read and settled.
type SendError struct {
	Sent bool
	Err  error
}

// Error says on which side of the line it is.
func (e *SendError) Error() string {
	if e.Sent {
		return "the payment was sent: " + e.Err.Error()
	}
	return "the payment was not sent: " + e.Err.Error()
}

func (e *SendError) Unwrap() error { return e.Err }
