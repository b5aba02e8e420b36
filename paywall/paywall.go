// Package paywall charges for things: the tools of an MCP server, or the paths of an HTTP server
// (SPEC §8). It asks for payment, has a facilitator verify what is shown, lets the tool run, has it
// settled, and gives the receipt with what was bought.
//
// What must stay true: nothing is given away and nothing is taken for nothing. What was bought
// leaves only when its payment is settled; a tool that failed is never settled; one payment has one
// run, in whatever process it is shown; and a payment is compared with all of what was asked
// (network, asset, amount, payee), never with its name alone. The order of steps in sale.go and the
// table in outcome.go hold that. Nothing here can spend: there is no key in this package.
//
// The files: offer.go (what a call costs), payment.go (what a buyer shows, and whether it is for
// that), sale.go and settle.go (the life of one sale), outcome.go (its table), challenge.go
// (asking), mcp.go and http.go (the two ways a call comes), book.go (where sales are written),
// front.go and mirror.go (the wall in front of another MCP server).
package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/x402"
)

// What a sale can fail with, for Hooks.Ended and errors.Is (seeds/000, "Error States").
var (
	ErrPaymentRequired     = errors.New("no payment was shown")
	ErrPaymentRejected     = errors.New("the payment is not good for this")
	ErrInvalidRequest      = errors.New("the payment cannot be read")
	ErrPaymentUsed         = errors.New("the payment has been used")
	ErrVerifyUnavailable   = errors.New("no facilitator could verify the payment")
	ErrToolExecutionFailed = errors.New("the tool failed; nothing was settled")
	ErrTooLate             = errors.New("the payment would have expired before it was settled")
	ErrGone                = errors.New("the buyer went away before it was settled")
	ErrAborted             = errors.New("a hook stopped the sale")
	ErrSettlementFailed    = errors.New("the payment was not settled")
	ErrSettlementUnknown   = errors.New("whether the payment was settled is not known")
	ErrLedger              = errors.New("the book of sales could not be written")
	ErrPrice               = errors.New("what this costs cannot be told")
)

// Dialect is the words a challenge is written in (reference/x402-protocol.md §7). Payments are read
// in all of them.
type Dialect string

// The dialects.
const (
	Result     Dialect = "result"     // a tool result that is an error: the x402 MCP transport, V1 and V2
	Error      Dialect = "error"      // JSON-RPC error 402: seeds/000 and 004
	X402MCP    Dialect = "x402-mcp"   // npm x402-mcp: V1, keys with a dot
	Cloudflare Dialect = "cloudflare" // npm agents: V2, the challenge in _meta
)

// Facilitators verify and settle. *facilitator.Client does.
type Facilitators interface {
	Verify(ctx context.Context, s facilitator.Submission) (valid bool, reason string, err error)
	Settle(ctx context.Context, s facilitator.Submission) facilitator.Result
	Supported(ctx context.Context, network string) ([]facilitator.Kind, error)
}

// Book is where sales are written: *history.Store, or NewBook for what need not outlive the
// process.
type Book interface {
	// *history.SoldBefore when the payment had its run
	OpenSale(ctx context.Context, sale history.Sale) (history.Sale, error)
	MoveSale(ctx context.Context, sale history.Sale) error
	DropSale(ctx context.Context, id string) error
	SaleOf(ctx context.Context, trace string) (history.Sale, error) // history.ErrNoSale
}

// Hooks are called on the way, in the goroutine of the sale. An error of those before the
// settlement stops the sale: nothing is given and nothing is taken. Those after it can change
// nothing any more; their panics are logged. Nil hooks are passed over.
type Hooks struct {
	BeforeVerify func(context.Context, *Sale) error
	AfterVerify  func(context.Context, *Sale) error
	BeforeRun    func(context.Context, *Sale) error
	// failed: of the tool; it is not settled then
	AfterRun     func(ctx context.Context, sale *Sale, failed bool) error
	BeforeSettle func(context.Context, *Sale) error
	AfterSettle  func(context.Context, *Sale)
	// every request; sale has no ID before its payment was taken
	Ended func(ctx context.Context, sale *Sale, err error)
}

// Options of New.
type Options struct {
	Tools        []Tool // what costs something; everything else is free
	Facilitators Facilitators
	Book         Book    // nil: NewBook(); then a restart forgets which payments had their run
	Version      int     // of challenges: 2, which 0 means, or 1
	Dialect      Dialect // "" is Result
	VerifyOnly   bool    // settle nothing: to try, or where something else settles
	Hooks        Hooks
	Assets       *x402.Registry // nil: the built-in ones
	// Fate asks the chain what became of a payment, where a facilitator leaves it open. nil: nobody
	// is asked.
	Status func(ctx context.Context, evidence x402.Evidence) (x402.Status, error)
	Now    func() time.Time // nil: time.Now
	Log    *slog.Logger     // nil: silent
}

// Wall charges. It is safe for concurrent use.
type Wall struct {
	options Options
	tools   map[string]*tool
	now     func() time.Time
	log     *slog.Logger
	kinds   kinds

	settleTime time.Duration // what settling needs before a payment expires
	doubtTime  time.Duration // how long the chain is asked about a settlement that is open
	leftTime   time.Duration // after which a settlement that nobody ended is open

	mu     sync.Mutex
	closed bool
	sales  sync.WaitGroup
}

const (
	// settleTime: facilitators refuse what expires within six seconds (x402 2.27), and need a
	// moment themselves.
	settleTime = 8 * time.Second
	// doubtTime is how long a buyer waits for the chain when the facilitator did not tell: some
	// Base blocks, a Solana confirmation.
	doubtTime = 15 * time.Second
	// leftTime is how long a facilitator may take to settle before its process is taken for dead;
	// the chain decides then.
	leftTime = time.Minute
	// defaultTimeout is maxTimeoutSeconds where the seller says nothing: the reference server's.
	defaultTimeout = 300 * time.Second
	shortTimeout   = 15 * time.Second // less leaves no time to run in
	longTimeout    = time.Hour        // more is a cheque that lies about for an hour
)

// New checks everything that can be checked without a buyer, and says all that is wrong at once.
func New(o Options) (*Wall, error) {
	w := &Wall{options: o, tools: map[string]*tool{}, now: o.Now, log: o.Log, settleTime: settleTime,
		doubtTime: doubtTime, leftTime: leftTime}
	if w.now == nil {
		w.now = time.Now
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.options.Assets == nil {
		w.options.Assets = x402.NewRegistry(nil)
	}
	if w.options.Book == nil {
		w.options.Book = NewBook()
	}
	if w.options.Version == 0 {
		w.options.Version = 2
		if o.Dialect == X402MCP {
			w.options.Version = 1
		}
	}
	if w.options.Dialect == "" {
		w.options.Dialect = Result
	}
	faults := w.faults()
	for i := range o.Tools {
		t, err := w.checked(o.Tools[i])
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if _, twice := w.tools[t.Name]; twice {
			faults = append(faults,
				fmt.Errorf("the tool %q has two prices: each tool has one entry, with several options",
					t.Name))
		}
		w.tools[t.Name] = t
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Wall) faults() (faults []error) {
	o := w.options
	known := []Dialect{Result, Error, X402MCP, Cloudflare}
	switch {
	case !slices.Contains(known, o.Dialect):
		faults = append(faults, fmt.Errorf("%q is no dialect; there are %q", o.Dialect, known))
	case o.Version != 1 && o.Version != 2:
		faults = append(faults, fmt.Errorf("version %d: there are 1 and 2", o.Version))
	case o.Dialect == X402MCP && o.Version != 1:
		faults = append(faults, errors.New("the dialect x402-mcp is version 1"))
	case o.Dialect == Cloudflare && o.Version != 2:
		faults = append(faults, errors.New("the dialect cloudflare is version 2"))
	}
	if o.Facilitators == nil && len(o.Tools) > 0 {
		faults = append(faults,
			errors.New("there is no facilitator: one has to verify what buyers show, and to settle it"))
	}
	return faults
}

// Check asks the facilitators whether they settle what is asked for. What it finds is a warning: a
// facilitator may be down now and up when the first buyer comes.
func (w *Wall) Check(ctx context.Context) (warnings []string) {
	asked := map[string]bool{}
	for _, t := range w.options.Tools {
		if w.tools[t.Name] == nil {
			continue
		}
		for _, o := range w.tools[t.Name].options {
			key := o.Network
			if asked[key] {
				continue
			}
			asked[key] = true
			kinds, err := w.options.Facilitators.Supported(ctx, o.Network)
			settles := slices.ContainsFunc(kinds, func(k facilitator.Kind) bool {
				return k.Version == w.options.Version && k.Scheme == "exact"
			})
			switch {
			case settles:
			case err != nil:
				warnings = append(warnings, fmt.Sprintf("no facilitator says that it settles on %s: %v",
					x402.Title(o.Network), err))
			default:
				warnings = append(warnings, fmt.Sprintf("no facilitator settles version %d payments on %s",
					w.options.Version, x402.Title(o.Network)))
			}
		}
	}
	return warnings
}

// Close waits for the sales under way, until ctx ends; new ones are refused from now on.
func (w *Wall) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	done := make(chan struct{})
	go func() { w.sales.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sales are under way: %w", ctx.Err())
	}
}

// enter counts a sale; false when the wall is closed.
func (w *Wall) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.sales.Add(1)
	return true
}

// Prices is what is charged for, for lists: each tool's name and what it asks, for people
// ("$0.01"); "" where it is computed.
func (w *Wall) Prices() map[string]string {
	all := map[string]string{}
	for name, t := range w.tools {
		all[name] = t.price()
	}
	return all
}

func jsonOf(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("not JSON: %T", v)) // of our own types: cannot happen
	}
	return text
}

// clip bounds a stranger's words, and keeps them on one line.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 200)]
}
