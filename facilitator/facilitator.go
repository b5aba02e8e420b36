// Package facilitator brings signed payments to the services that put them on a chain, where the wallet
// settles and not the seller: in the owner's order, with bounded retries, and with one outcome
// at the end.
//
// What must stay true: whatever is posted is posted with the same bytes every time, to every facilitator.
// One EIP-3009 nonce settles once, and one Solana transaction is one transaction, so the same bytes can
// never pay twice; another signature could. And an outcome that became unknown once stays unknown until a
// facilitator settles or the chain says: a later "no" proves nothing about the first try.
//
// @ozskr/x402-solana-mcp resends on timeout and takes an explicit refusal as a reason to go on. It was
// measured to pay six times for one slow facilitator.
//
// The files: settle.go (settle, its table of outcomes, verify), call.go (one exchange), command.go (one
// with a facilitator that is a program), auth.go (credentials), route.go (who is asked for what),
// supported.go (who settles what, and the order), hosted.go (from where well-known ones settle), discovery.go
// (what they list), directory.go (what directories of MPP list).
package facilitator

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"x402-wallet/x402/money"
	"x402-wallet/x402/observe"
	"x402-wallet/x402/wire"
)

// Facilitator is one service, as the owner configured it: at a URL, or a program.
type Facilitator struct {
	Name    string
	URL     string
	Command *Command // nil: it is at URL
	// what the owner gave it to do: networks (CAIP-2, "mainnets" or "testnets"; empty: whatever its
	// /supported says), and of these some payments only
	Networks []string
	Limits   Limits
	Auth     string // how it knows us: "" or "none", "cdp", "payai" or "header"
	KeyID    string
	// the key; for "header" the line "Name: value". A function, so that nothing that prints or
	// encodes a Facilitator can show it, and it is read when it is first needed
	Secret func() (string, error) `json:"-"`
	// for "header": how long the line is used before Secret is asked again; 0: it is asked for each request.
	// Whoever refuses it has it asked again at once
	SecretLife time.Duration
}

// Submission is a signed payment to settle or verify.
type Submission struct {
	Network      string // CAIP-2
	Version      int    // of the protocol: 1 or 2
	Payload      json.RawMessage
	Requirements json.RawMessage
	Validity     time.Duration // how long the payment is still good for: the time for all of settleRun
	// who settles is signed in, so only who holds that key can: Solana's fee payer, upto's facilitator
	Sticky   bool
	FeePayer string // with Sticky: whose
	// what else a facilitator is chosen by: see Terms
	Asset, Symbol string
	Price         money.Dollars
	Payer         string // whose money it is, where the caller knows: who names another is not believed
}

func (s Submission) terms() Terms {
	return Terms{Network: s.Network, Asset: s.Asset, Symbol: s.Symbol, Price: s.Price}
}

// Outcome is what became of a submission.
type Outcome uint8

// NotSent: provably no byte reached a facilitator, so the next may be tried. Refused: one refused, and
// nobody before it may have settled. Unknown: the same bytes only, anywhere. Settled: one says that it did.
const (
	NotSent Outcome = iota
	Refused
	Unknown
	Settled
)

// outcomeNames are for messages.
var outcomeNames = []string{NotSent: "not sent", Refused: "refused", Unknown: "unknown", Settled: "settled"}

// Result is how settleRun ended.
type Result struct {
	Outcome Outcome
	// the last facilitator's words; nil when none could be read. A claim, not a proof
	Settlement  *wire.Settlement
	Facilitator string // the name of the one that decided; "" when none was reached
	Status      int    // of its answer over HTTP; 0: it gave none
	// the first answer that counts was that the payment had been used already: who used it was not
	// this settleRun
	UsedBefore bool
	Err        error // an *x402.Error unless settled
	Tries      []try
}

// try is one POST, or why it could not be made.
type try struct {
	Facilitator string
	Status      int // 0: no answer
	Outcome     Outcome
	Err         error // nil when settled
}

type Options struct {
	// seller.NodeClient; nil: Go's own; redirects and cookies are switched off here in any case
	HTTP *http.Client
	List []Facilitator
	// Directories are lists of services of MPP that Discover reads: URLs, or file:// and a full path.
	Directories []string
	// HasSigner knows the addresses of well-known facilitators that are built in
	Hosted bool
	Now    func() time.Time                           // nil: time.Now
	Sleep  func(context.Context, time.Duration) error // nil: a timer
	// hears of each request: verify, settle, supported or discovery; nil: nobody does
	Observe observe.FacilitatorObserver
	Log     *slog.Logger // what a program said when it failed; nil: silent
}

// Client speaks to the facilitators. It is safe for concurrent use.
type Client struct {
	http   http.Client
	list   []*remote
	hosted bool
	// directories of MPP: Discover alone asks them
	directories []*remote
	now         func() time.Time
	sleep       func(context.Context, time.Duration) error

	observe observe.FacilitatorObserver
	log     *slog.Logger
}

// maxIdle is how many connections to a facilitator are kept: sales that come together ask it together.
const maxIdle = 64

// remote is a facilitator with what is remembered of it.
type remote struct {
	Facilitator
	support  support
	listings listingCache
	token    token

	isDirectory bool // it is no facilitator

	addresses sync.Map // of its paths: see address
}

// New makes a client. Keys are read at their first use, so that a facilitator that is never
// asked needs none.
func New(o Options) *Client {
	c := &Client{hosted: o.Hosted, now: o.Now, sleep: o.Sleep, observe: o.Observe, log: o.Log}
	if o.HTTP != nil {
		c.http = *o.HTTP
	} else if own, ok := http.DefaultTransport.(*http.Transport); ok {
		own = own.Clone()
		own.MaxIdleConnsPerHost = maxIdle
		c.http.Transport = own
	}
	// A redirect would carry the signed payment and our credentials wherever the answer points.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http.Jar = nil
	if c.now == nil {
		c.now = time.Now
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.sleep == nil {
		c.sleep = sleep
	}
	for _, f := range o.List {
		c.list = append(c.list, &remote{Facilitator: f, support: support{lock: make(chan struct{}, 1)}})
	}
	for _, at := range o.Directories {
		c.directories = append(c.directories, directory(at))
	}
	return c
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
