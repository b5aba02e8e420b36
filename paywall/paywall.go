// Package paywall charges for things: the tools of an MCP server, or the paths of an HTTP server.
// It asks for payment, has a facilitator verify what is presented, runs the tool, has the payment settled,
// and gives the receipt with what was bought.
//
// What must stay true: nothing is given away and nothing is taken for nothing. What was bought leaves only
// when its payment is settled; a tool that failed is never settled (unless its owner sells the attempt);
// one payment has one run, in whatever process it is presented; and a payment is compared with all of what
// was asked (network, asset, amount, payee), never with its name alone. The order of steps in sale.go and
// the table in outcome.go hold that. Nothing here can spend: no key of money is in this package.
//
// The files, in reading order: ways.go (the ways to be paid, which are in scheme/*/sell), offer.go (what a
// call costs), challenge.go (asking for it), payment.go (what a buyer presents, and for which offer), sale.go
// and settle.go (the life of one sale), outcome.go (its table), claims.go (getting money that is counted
// first), mcp.go and http.go (the two transports), withhold.go (what a tool sends before it is paid),
// wares.go and door.go (resources,
// prompts and sessions), proxy.go and mirror.go (a paywall in front of another MCP server, upstream),
// buyer.go and subscriptions.go (upstream's questions and notifications to buyers), bazaar.go and listing.go
// (being found), limiter.go, sessions.go, calls.go, body.go, middleware.go, listener.go and pacedwriter.go
// (how much memory visitors can take).
package paywall

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/internal/steps"
	"x402-wallet/paywall/book"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What a sale can fail with, for Hooks.Ended and errors.Is. The text is for the owner's log; what
// the buyer reads is chosen where the error arises.
var (
	ErrPaymentRequired     = errors.New("no payment was presented")
	ErrPaymentRejected     = selling.ErrRejected
	ErrInvalidRequest      = selling.ErrInvalid
	ErrPaymentUsed         = errors.New("the payment has been used")
	ErrVerifyUnavailable   = errors.New("no facilitator could verify the payment")
	ErrToolExecutionFailed = errors.New("the tool failed; nothing was settled")
	ErrTooLate             = errors.New("the payment would have expired before it was settled")
	ErrGone                = errors.New("the buyer disconnected before it was settled")
	ErrAborted             = errors.New("a hook stopped the sale")
	ErrSettlementFailed    = selling.ErrNotSettled
	ErrSettlementUnknown   = errors.New("whether the payment was settled is not known")
	ErrPrice               = errors.New("the price is not known")
	errBook                = selling.ErrBook
)

// The dialects, for Options.Dialect. Payments are read in all.
const (
	dialectResult     = "result"
	dialectError      = "error"
	dialectX402MCP    = "x402-mcp"
	dialectCloudflare = "cloudflare"
)

// Facilitators verify and settle payments; *facilitator.Client does. All methods are called concurrently.
type Facilitators = selling.Facilitators

// SaleStore is where sales are written: a *book.Book. All methods are called concurrently, also by several
// processes on one store.
// The order of calls for one payment is OpenSale, then MoveSale any number of times, or DropSale once;
// SaleByKey comes at any time.
type SaleStore interface {
	// OpenSale inserts the sale as running, in one transaction: of several with the same UniqueKey
	// one succeeds and is returned with its ID; the others get *book.AlreadySold with that one.
	// Likewise of several with the same Payer and Identifier, both not "", as long as the first has
	// not failed.
	OpenSale(ctx context.Context, sale book.Sale) (book.Sale, error)
	// MoveSale stores state, receipt and answer. It is durable when it returns: the paywall has
	// nothing settled before the state "settling" is on disk.
	MoveSale(ctx context.Context, sale book.Sale) error
	// DropSale deletes a sale whose tool has not run yet, so that its payment can be used again.
	DropSale(ctx context.Context, id string) error
	// SaleByKey finds a sale by its UniqueKey; book.ErrNotFound when there is none.
	SaleByKey(ctx context.Context, uniqueKey string) (book.Sale, error)
	// SoldTo finds the newest sale of a call to a payer that is settled, cost something, and was opened no
	// earlier than since; book.ErrNotFound when there is none.
	SoldTo(ctx context.Context, resource string, call [32]byte, payer string, since time.Time) (book.Sale,
		error)

	// The rest is for payments that are counted in channels.
	selling.Channels
}

// Hooks are called during a sale, in its goroutine, in the order of the fields (of an upfront tool those of
// the settlement come before those of the run). An error of a hook before the settlement stops the sale:
// nothing is given and nothing is taken, and the buyer reads why where it is a Refusal. The hooks after it
// can change nothing any more; their panics are logged. Nil hooks are skipped. Hooks of several sales run
// concurrently.
type Hooks struct {
	BeforeVerify func(context.Context, *Sale) error
	AfterVerify  func(context.Context, *Sale) error
	BeforeRun    func(context.Context, *Sale) error
	// failed: the tool did; it is not settled then
	AfterRun     func(ctx context.Context, sale *Sale, failed bool) error
	BeforeSettle func(context.Context, *Sale) error
	AfterSettle  func(context.Context, *Sale)
	// after every request; sale has no ID where none was opened
	Ended func(ctx context.Context, sale *Sale, err error)
}

// Refusal is an error of a hook whose text the buyer reads; that of any other is for the log alone.
type Refusal string

func (r Refusal) Error() string { return string(r) }

type Options struct {
	Tools        []Tool // what costs something; everything else is free
	Facilitators Facilitators
	// Store is required: a book, which book.Make makes. One store for all that are paid to one address: each
	// runs a payment once
	Store   SaleStore
	Version int // of challenges: 2, which 0 means, or 1
	// how a challenge is written: "result" (the default), a tool result that is an error, which is
	// the x402 MCP transport, V1 and V2; "error", the JSON-RPC error 402; "x402-mcp", npm's, V1 with
	// keys with a dot; "cloudflare", npm agents', V2 with the challenge in _meta
	Dialect string
	MPP     bool // HTTP handlers sell what is paid by "exact" in MPP as well, and on Tempo in MPP alone
	// Nodes are URLs of JSON-RPC, by network (CAIP-2): those of Tempo, where no facilitator settles. They
	// send what buyers sign, and show whether it came
	Nodes      map[string]string
	VerifyOnly bool // settle nothing: to try, or where something else settles
	Hooks      Hooks
	Assets     *x402.Registry // nil: the built-in ones
	// Received asks the chain what became of a payment that a facilitator left open, as Received of
	// chain/evm and chain/svm do: Settled only for exactly what was asked. nil: the chain is not asked, and
	// such a sale stays in doubt.
	Received func(ctx context.Context, evidence x402.Evidence) (x402.Status, error)
	// others sell for the same PayTo with a store of their own: then the chain's word delivers only
	// what came by the transaction that the facilitator named
	SharedPayTo bool
	// StatementKey signs offers and receipts (extension offer-receipt, version 2). It is a key that can spend
	// nothing. Default: neither is signed
	StatementKey ed25519.PrivateKey
	// signed receipts name the transaction: they prove more, and tell more to whom they are shown
	ReceiptTransaction bool
	// Origin is where buyers find the paywall, "https://shop.example": what they sign in for (Tool.Access),
	// and where what a handler sells is said to be. "": wherever the request says, which its sender chooses
	Origin string
	// ClaimAfter is the age at which what was charged by batch-settlement is claimed (KeepClaiming): at most
	// half of every withdraw delay, 0 is an hour or that. ClaimAbove, in dollars, is how much is claimed at
	// once; "": however much
	ClaimAfter time.Duration
	ClaimAbove string
	// Observe is told of each request for something that costs, when it has ended: of its sale and its steps.
	// It may not block. nil: nobody listens, and nothing is noted. Traces says whether they are traced, too
	Observe func(steps.Report)
	Traces  steps.Traces
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: silent
}

// Paywall charges for tools and HTTP handlers. It is safe for concurrent use.
type Paywall struct {
	options Options
	ways    []selling.Way
	tools   map[string]*tool
	now     func() time.Time
	log     *slog.Logger

	// what settling needs before a payment expires: facilitators refuse what expires within six
	// seconds (x402 2.27), and need a moment themselves
	settleMargin time.Duration
	// how long a buyer waits for the chain where the facilitator did not say whether it settled:
	// some Base blocks, a Solana confirmation
	confirmTimeout time.Duration
	// the age from which a sale that is still settling is taken for one whose process has died; then
	// the chain decides
	abandonedAfter time.Duration

	host string // of Options.Origin
	list listing

	claimAbove  money.Dollars // 0: however much
	claims      sync.Mutex    // one claims at a time
	claimWanted chan struct{} // wakes KeepClaiming

	withheld withheld
	door     door
	seen     *seenPayments

	mu      sync.Mutex                    // of closed and kinds
	kinds   map[string][]facilitator.Kind // who settled what when last asked, by network
	closed  bool
	sales   sync.WaitGroup
	running atomic.Int64 // of them
}

const (
	// defaultTimeout is maxTimeoutSeconds where the owner sets none: the reference server's.
	defaultTimeout = 300 * time.Second
	minTimeout     = 15 * time.Second // less leaves the tool no time
	// a payment that is valid for longer could be used long after it was meant
	maxTimeout = time.Hour
)

// New checks everything that can be checked without a buyer, and reports all mistakes at once. It
// asks no network.
func New(o Options) (*Paywall, error) {
	w := &Paywall{
		options:        o,
		ways:           newWays(o),
		tools:          map[string]*tool{},
		kinds:          map[string][]facilitator.Kind{},
		now:            o.Now,
		log:            o.Log,
		settleMargin:   8 * time.Second,
		confirmTimeout: 15 * time.Second,
		abandonedAfter: time.Minute,
		claimWanted:    make(chan struct{}, 1),
		seen:           newSeenPayments(),
		list:           listing{readers: make(chan struct{}, maxReaders)},
	}
	if w.now == nil {
		w.now = time.Now
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.options.Assets == nil {
		w.options.Assets = x402.NewRegistry(nil)
	}
	if w.options.Version == 0 && o.Dialect == dialectX402MCP {
		w.options.Version = 1
	}
	w.options.Version = cmp.Or(w.options.Version, 2)
	w.options.Dialect = cmp.Or(w.options.Dialect, dialectResult)
	faults := w.validate()
	if o.Origin != "" {
		host, err := readOrigin(o.Origin)
		if err != nil {
			faults = append(faults, err)
		}
		w.host = host
	}
	for _, said := range o.Tools {
		t, err := w.checkTool(said)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if w.tools[t.label()] != nil {
			faults = append(faults, fmt.Errorf("the %s %q has two prices: each has one entry, with several "+
				"options", cmp.Or(t.Kind, kindTool), t.Name))
		}
		w.tools[t.label()] = t
	}
	if o.Facilitators == nil && w.needsFacilitator() {
		faults = append(faults, errors.New("there is no facilitator: one has to verify what buyers show, "+
			"and to settle it"))
	}
	if err := w.checkClaims(); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Paywall) validate() (faults []error) {
	o := w.options
	known := []string{dialectResult, dialectError, dialectX402MCP, dialectCloudflare}
	switch {
	case !slices.Contains(known, o.Dialect):
		faults = append(faults, fmt.Errorf("%q is no dialect; there are %q", o.Dialect, known))
	case o.Version != 1 && o.Version != 2:
		faults = append(faults, fmt.Errorf("version %d: there are 1 and 2", o.Version))
	case o.Dialect == dialectX402MCP && o.Version != 1:
		faults = append(faults, errors.New("the dialect x402-mcp is version 1"))
	case o.Dialect == dialectCloudflare && o.Version != 2:
		faults = append(faults, errors.New("the dialect cloudflare is version 2"))
	}
	if o.Store == nil {
		faults = append(faults, errors.New("there is no Store: sales are kept in a book, which book.Make "+
			"makes in a folder, book.Place{Home: folder}"))
	}
	return faults
}

// needsFacilitator reports whether something is sold that the paywall does not settle itself.
func (w *Paywall) needsFacilitator() bool {
	for _, t := range w.tools {
		isElsewhere := func(o option) bool { _, isOwn := o.Way.(selling.Settler); return !isOwn }
		if t.Quote != nil || slices.ContainsFunc(t.options, isElsewhere) {
			return true
		}
	}
	return false
}

// Check asks the facilitators whether they settle what is asked for. What it finds are warnings: a
// facilitator may be down now and up when the first buyer comes.
func (w *Paywall) Check(ctx context.Context) (warnings []string) {
	asked := map[string]bool{}
	for _, t := range w.options.Tools {
		for _, o := range w.tools[t.label()].options {
			question := fmt.Sprint(o.scheme(), o.Network, o.Asset.Address, o.Price)
			_, isOwn := o.Way.(selling.Settler)
			if asked[question] || isOwn {
				continue
			}
			asked[question] = true
			kinds, err := w.options.Facilitators.Supported(ctx, o.Network)
			settles := slices.ContainsFunc(kinds, func(k facilitator.Kind) bool {
				return k.Version == w.options.Version && k.Scheme == o.scheme() && k.Takes(o.routing())
			})
			switch {
			case settles:
			case err != nil:
				warnings = append(warnings, fmt.Sprintf("no facilitator says that it settles on %s: %v",
					x402.Title(o.Network), err))
			default:
				by := ""
				if o.scheme() != w.ways[0].Traits().Scheme {
					by = " by " + o.scheme()
				}
				warnings = append(warnings, fmt.Sprintf("no facilitator settles version %d payments%s on %s",
					w.options.Version, by, x402.Title(o.Network)))
			}
		}
	}
	return warnings
}

// Close refuses new sales from now on, and waits for those under way until ctx ends; then it claims what was
// charged by batch-settlement. It may be called again.
func (w *Paywall) Close(ctx context.Context) error {
	return errors.Join(w.drain(ctx), w.claimLast(ctx))
}

// drain refuses new sales, and waits for those under way.
func (w *Paywall) drain(ctx context.Context) error {
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

// begin counts a sale; false when the paywall is closed.
func (w *Paywall) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.sales.Add(1)
	w.running.Add(1)
	return true
}

// end is the end of a sale that begin counted.
func (w *Paywall) end() {
	w.running.Add(-1)
	w.sales.Done()
}

// Prices lists what is charged for: each tool's name ("resource <URI>", "prompt <name>", "entry"), and its
// price for people ("$0.01"; "" where it is computed).
func (w *Paywall) Prices() map[string]string {
	all := map[string]string{}
	for name, t := range w.tools {
		all[name] = t.price()
	}
	return all
}

// Payee is an address that is paid, on a network (CAIP-2), as buyers see it.
type Payee struct{ Network, Address string }

// Payees lists the payees of all fixed prices, without duplicates.
func (w *Paywall) Payees() (all []Payee) {
	for _, t := range w.tools {
		for _, o := range t.options {
			if p := (Payee{Network: o.Network, Address: o.PayTo}); !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

func jsonOf(v any) json.RawMessage { return selling.JSON(v) }

// clip bounds a stranger's text to 200 bytes on one line.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 200)]
}
