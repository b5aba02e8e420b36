// Package buyer is for Go programs that call paid MCP tools: it wraps a client session of the MCP SDK so that tools/call,
// resources/read and prompts/get pay when they are asked to.
//
// What must stay true: at most one signed payment leaves for one call, none above the program's limits; and while it is open
// what became of one, the same call brings the same signed bytes again, never new ones.
//
// It remembers in memory only. A program whose payments have to survive it, or that shares a budget with others, talks to
// x402-wallet instead (x402_call_tool), whose engine keeps a ledger.
package buyer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/money"
	"x402-wallet/x402"
)

// Signer pays on one family of chains: *evm.Exact, *svm.Exact.
type Signer interface {
	// Payable says why not, without asking anybody.
	Payable(r x402.Requirement, asset x402.AssetInfo) error
	// Funds reads from the chain what may be spent. It has two seconds.
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	// Authorize signs exactly what the order says. It sends nothing.
	Authorize(ctx context.Context, o x402.Order) (x402.Authorization, error)
}

// Option is one way to pay for a call: an entry of the server's accepts that a signer can pay.
type Option struct {
	Requirement x402.Requirement
	Asset       x402.AssetInfo
	Price       money.Dollars // what the amount is worth, rounded up
	Signer      int           // index in Options.Signers
}

// Options of Wrap.
type Options struct {
	Signers  []Signer       // the first that can pay, pays
	MaxCall  money.Dollars  // the most one call may cost; has to be said
	MaxTotal money.Dollars  // the most all calls of this session may cost, open ones included; 0: no limit beside MaxCall
	Assets   *x402.Registry // what is paid with; nil: the built-in assets
	Validity time.Duration  // the longest a signature may live, whatever the server asks; 0: five minutes

	// Choose orders the options, best first, and may leave some out. nil: by signer, then the cheapest, then the server's order.
	Choose func(options []Option) []Option
	// Approve is asked before anything is signed; an error is the reason why not, and no other option is tried. nil: whatever is
	// within the limits.
	Approve func(ctx context.Context, name string, o Option) error
	// Event hears what happens, from the goroutine of the call. nil: nobody.
	Event func(Event)

	Now func() time.Time // nil: time.Now
}

// Session is a client session that pays. All its other methods are the session's own. It is safe for concurrent use; each
// call has a payment of its own.
type Session struct {
	*mcp.ClientSession
	options Options

	mu    sync.Mutex
	total money.Dollars        // paid, or perhaps paid
	open  map[string][]payment // by request: signed and sent, with no word of what became of it
}

// Wrap makes a session pay. It is an error to give no signer or no limit.
func Wrap(session *mcp.ClientSession, o Options) (*Session, error) {
	if len(o.Signers) == 0 {
		return nil, errors.New("buyer: no signer")
	}
	if o.MaxCall <= 0 {
		return nil, errors.New("buyer: say what one call may cost (MaxCall)")
	}
	if o.Assets == nil {
		o.Assets = x402.NewRegistry(nil)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Validity = cmp.Or(o.Validity, 5*time.Minute)
	return &Session{ClientSession: session, options: o, open: map[string][]payment{}}, nil
}

// CallTool calls a tool, and pays if it is asked to. A result with isError is the tool's own failure. Errors of paying are
// *x402.Error; after OUTCOME_UNKNOWN, PAYMENT_REJECTED, PRICE_CHANGED and SETTLEMENT_FAILED the money may have moved, and the
// same call presents the same payment again for as long as that is good.
func (s *Session) CallTool(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return buy(ctx, s, "tools/call", params.Name, params, func(ctx context.Context, meta mcp.Meta) (*mcp.CallToolResult, error) {
		p := *params
		p.Meta = meta
		return s.ClientSession.CallTool(ctx, &p)
	})
}

// ReadResource is CallTool for a resource.
func (s *Session) ReadResource(ctx context.Context, params *mcp.ReadResourceParams) (*mcp.ReadResourceResult, error) {
	return buy(ctx, s, "resources/read", params.URI, params, func(ctx context.Context, meta mcp.Meta) (*mcp.ReadResourceResult, error) {
		p := *params
		p.Meta = meta
		return s.ClientSession.ReadResource(ctx, &p)
	})
}

// GetPrompt is CallTool for a prompt.
func (s *Session) GetPrompt(ctx context.Context, params *mcp.GetPromptParams) (*mcp.GetPromptResult, error) {
	return buy(ctx, s, "prompts/get", params.Name, params, func(ctx context.Context, meta mcp.Meta) (*mcp.GetPromptResult, error) {
		p := *params
		p.Meta = meta
		return s.ClientSession.GetPrompt(ctx, &p)
	})
}

// Receipt reads what a server said about the settlement from an answer's _meta; nil when it said nothing. It is a claim.
func Receipt(meta mcp.Meta) (*x402.Settlement, error) {
	raw, err := json.Marshal(map[string]any{"_meta": meta})
	if err != nil {
		return nil, err
	}
	return x402.ReadMCPSettlement(x402.MCPMessage{Result: raw})
}

// choices are the ways to pay for a challenge, best first; with none of them, why.
func (s *Session) choices(ctx context.Context, c *x402.Challenge) ([]Option, error) {
	var list []Option
	var why *x402.Error
	for i, signer := range s.options.Signers {
		for _, r := range c.Accepts {
			o := Option{Requirement: r, Signer: i}
			if err := s.payable(ctx, signer, &o); err != nil {
				why = worthier(why, x402.AsError(err))
				continue
			}
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		if why == nil {
			why = x402.Errorf(x402.InvalidRequirement, "none of the server's %d options can be read", len(c.Unreadable))
		}
		return nil, why
	}
	if s.options.Choose != nil {
		if list = s.options.Choose(list); len(list) == 0 {
			return nil, x402.Errorf(x402.PolicyDenied, "the program chose none of the server's options")
		}
		return list, nil
	}
	slices.SortStableFunc(list, func(a, b Option) int {
		return cmp.Or(cmp.Compare(a.Signer, b.Signer), cmp.Compare(a.Price, b.Price))
	})
	return list, nil
}

// payable says why an option cannot be paid by a signer, and values it.
func (s *Session) payable(ctx context.Context, signer Signer, o *Option) error {
	asset, known := s.options.Assets.Asset(o.Requirement.Network, o.Requirement.Asset)
	if !known {
		return x402.Errorf(x402.UntrustedAsset, "an asset on %s is asked for that is not in the registry", o.Requirement.Network)
	}
	o.Asset, o.Price = asset, asset.Dollars(o.Requirement.Amount)
	if err := signer.Payable(o.Requirement, asset); err != nil {
		return err
	}
	if o.Price > s.options.MaxCall {
		return x402.Errorf(x402.AmountExceedsMax, "the server asks %s, one call may cost %s", o.Price.Price(), s.options.MaxCall.Price()).
			WithDetail("requested", o.Price.Price()).WithDetail("limit", s.options.MaxCall.Price())
	}
	funds, err := fundsOf(ctx, signer, o)
	if err != nil {
		return err
	}
	if o.Requirement.Amount.Cmp(funds.Free) > 0 {
		return x402.Errorf(x402.InsufficientFunds, "the server asks %s atomic units of %s, %s may be spent", o.Requirement.Amount, asset.Symbol, funds.Free).
			WithDetail("requested", o.Requirement.Amount).WithDetail("available", funds.Free)
	}
	return nil
}

// fundsTime is how long a chain may take to say what a signer has; then the next signer's turn comes.
const fundsTime = 2 * time.Second

func fundsOf(ctx context.Context, signer Signer, o *Option) (x402.Funds, error) {
	ctx, cancel := context.WithTimeout(ctx, fundsTime)
	defer cancel()
	return signer.Funds(ctx, o.Requirement.Network, o.Asset)
}

// worthier is the reason that tells the program more: a limit or a balance more than a chain the signer does not know.
func worthier(a, b *x402.Error) *x402.Error {
	if a == nil || a.Code == x402.InvalidRequirement || a.Code == x402.UntrustedAsset && b.Code != x402.InvalidRequirement {
		return b
	}
	return a
}

// hold takes an option's price from the total before it is signed for.
func (s *Session) hold(price money.Dollars) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.options.MaxTotal; most > 0 && s.total.Add(price) > most {
		return x402.Errorf(x402.BudgetExceeded, "the price %s is above what is left of the session's %s: %s", price.Price(), most.Price(), (most-s.total).Price()).
			WithDetail("limit", most.Price()).WithDetail("spent", s.total.Price()).WithDetail("requested", price.Price())
	}
	s.total = s.total.Add(price)
	return nil
}

func (s *Session) release(price money.Dollars) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= price
}
