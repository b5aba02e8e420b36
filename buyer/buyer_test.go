package buyer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/buyer"
	"x402-wallet/internal/sandbox"
	"x402-wallet/money"
	"x402-wallet/x402"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mill = money.Dollars(1000) // $0.001, the shop's price

func (tr *trade) wrap(t *testing.T, change func(*buyer.Options)) *buyer.Session {
	t.Helper()
	o := buyer.Options{Signers: []buyer.Signer{tr.onEVM, tr.onSolana}, MaxCall: 10 * mill}
	if change != nil {
		change(&o)
	}
	s, err := buyer.Wrap(tr.session, o)
	require.NoError(t, err)
	return s
}

var report = &mcp.CallToolParams{Name: "report", Arguments: map[string]any{"about": "ships"}}

func text(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	require.NotNil(t, r)
	require.Len(t, r.Content, 1)
	return r.Content[0].(*mcp.TextContent).Text
}

func code(err error) x402.Code {
	if err == nil {
		return ""
	}
	return x402.AsError(err).Code
}

func TestWrapWantsSignersAndALimit(t *testing.T) {
	_, err := buyer.Wrap(nil, buyer.Options{MaxCall: mill})
	require.ErrorContains(t, err, "no signer")
	_, err = buyer.Wrap(nil, buyer.Options{Signers: []buyer.Signer{nil}})
	require.ErrorContains(t, err, "MaxCall")
}

func TestAFreeToolIsCalledOnceAndAsItIs(t *testing.T) {
	tr := newTrade(t)
	s := tr.wrap(t, func(o *buyer.Options) { o.Event = func(buyer.Event) { t.Error("an event without a payment") } })
	params := &mcp.CallToolParams{Name: "weather", Meta: mcp.Meta{"mine": "kept"}}
	r, err := s.CallTool(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "sunny", text(t, r))
	require.Equal(t, "kept", r.Meta["seen"])
	require.Equal(t, mcp.Meta{"mine": "kept"}, params.Meta)
	_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "nothing"})
	var refused *jsonrpc.Error
	require.ErrorAs(t, err, &refused, "the server's own errors pass")
}

func TestEveryWayToAskIsPaid(t *testing.T) {
	tr := newTrade(t)
	for i, style := range []string{"structured", "text", "error", "v1", "cloudflare"} {
		tr.set(func(s *shop) { s.style = style })
		params := *report
		params.Meta = mcp.Meta{"progressToken": "p1"}
		r, err := tr.wrap(t, nil).CallTool(t.Context(), &params)
		require.NoError(t, err, style)
		require.Equal(t, "the report", text(t, r), style)
		receipt, err := buyer.Receipt(r.Meta)
		require.NoError(t, err)
		require.True(t, receipt.Success, style)
		require.Len(t, tr.world.Settlements(), i+1, style)
		require.Equal(t, tr.world.Settlements()[i].Transaction, receipt.Transaction, style)
		require.Equal(t, mcp.Meta{"progressToken": "p1"}, params.Meta, "the caller's _meta is the caller's")
	}
}

func TestResourcesAndPromptsArePaid(t *testing.T) {
	tr := newTrade(t)
	tr.set(func(s *shop) { s.style = "error" })
	s := tr.wrap(t, nil)
	resource, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "shop://report"})
	require.NoError(t, err)
	require.Equal(t, "the report", resource.Contents[0].Text)
	prompt, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "report"})
	require.NoError(t, err)
	require.Equal(t, "the report", prompt.Description)
	require.Len(t, tr.world.Settlements(), 2)
}

// faulty is a signer that fails where it is told to.
type faulty struct {
	buyer.Signer
	payable, funds, authorize error
	asked                     *[]string
}

func (f faulty) Payable(r x402.Requirement, a x402.AssetInfo) error {
	if f.payable != nil {
		return f.payable
	}
	return f.Signer.Payable(r, a)
}

func (f faulty) Funds(ctx context.Context, network string, a x402.AssetInfo) (x402.Funds, error) {
	if f.funds != nil {
		return x402.Funds{}, f.funds
	}
	return f.Signer.Funds(ctx, network, a)
}

func (f faulty) Authorize(ctx context.Context, o x402.Order) (x402.Authorization, error) {
	if f.asked != nil {
		*f.asked = append(*f.asked, o.Requirement.Network)
	}
	if f.authorize != nil {
		return x402.Authorization{}, f.authorize
	}
	return f.Signer.Authorize(ctx, o)
}

func TestWhichOptionIsPaid(t *testing.T) {
	tr := newTrade(t)
	broken := errors.New("out of order")
	unknown := onEVM(tr.world, 1)
	unknown["asset"] = "0x00000000000000000000000000000000000000aa"
	both := []map[string]any{onEVM(tr.world, 2000), onSolana(tr.world, 1000)}
	for name, test := range map[string]struct {
		accepts []map[string]any
		change  func(*buyer.Options)
		network string
		code    x402.Code
	}{
		"the first signer's, though dearer":      {both, nil, sandbox.EVM, ""},
		"the other signer first":                 {both, func(o *buyer.Options) { o.Signers = []buyer.Signer{tr.onSolana, tr.onEVM} }, sandbox.Solana, ""},
		"the cheapest of one signer":             {[]map[string]any{onEVM(tr.world, 3000), onEVM(tr.world, 1000)}, nil, sandbox.EVM, ""},
		"not an asset that nobody knows":         {append([]map[string]any{unknown}, both...), nil, sandbox.EVM, ""},
		"what is within the limit":               {both, func(o *buyer.Options) { o.MaxCall = mill }, sandbox.Solana, ""},
		"the next signer where one cannot pay":   {both, func(o *buyer.Options) { o.Signers[0] = faulty{Signer: tr.onEVM, payable: broken} }, sandbox.Solana, ""},
		"the next signer where one has no money": {both, func(o *buyer.Options) { o.Signers[0] = faulty{Signer: tr.onEVM, funds: broken} }, sandbox.Solana, ""},
		"the next signer where one does not sign": {both, func(o *buyer.Options) {
			o.Signers[0] = faulty{Signer: tr.onEVM, authorize: broken}
			o.MaxTotal = 2 * mill // what was held for the first is free again
		}, sandbox.Solana, ""},
		"what the program chooses":                {both, func(o *buyer.Options) { o.Choose = func(l []buyer.Option) []buyer.Option { return l[1:] } }, sandbox.Solana, ""},
		"nothing, if the program chooses nothing": {both, func(o *buyer.Options) { o.Choose = func([]buyer.Option) []buyer.Option { return nil } }, "", x402.PolicyDenied},
		"nothing above the limit":                 {both, func(o *buyer.Options) { o.MaxCall = mill - 1 }, "", x402.AmountExceedsMax},
		"nothing above the total":                 {both, func(o *buyer.Options) { o.MaxTotal = mill - 1 }, "", x402.BudgetExceeded},
		"nothing of what nobody knows":            {[]map[string]any{unknown}, nil, "", x402.UntrustedAsset},
		"nothing, where all signers lack funds":   {[]map[string]any{onEVM(tr.world, 9e6), onSolana(tr.world, 9e6)}, func(o *buyer.Options) { o.MaxCall = 100 * 1000 * mill }, "", x402.InsufficientFunds},
		"nothing that the program does not approve": {both, func(o *buyer.Options) {
			o.Approve = func(context.Context, string, buyer.Option) error { return errors.New("too early") }
		}, "", x402.ApprovalDeclined},
		"nothing on chains of no signer": {both[:1], func(o *buyer.Options) { o.Signers = o.Signers[1:] }, "", x402.InvalidRequirement},
		"nothing, where none signs": {both[:1], func(o *buyer.Options) {
			o.Signers[0] = faulty{Signer: tr.onEVM, authorize: x402.Errorf(x402.RPCError, "no node")}
		},
			"", x402.RPCError},
	} {
		t.Run(name, func(t *testing.T) {
			tr.set(func(s *shop) { s.accepts = test.accepts })
			before, sent := len(tr.world.Settlements()), len(tr.payments())
			_, err := tr.wrap(t, test.change).CallTool(t.Context(), report)
			require.Equal(t, test.code, code(err), "%v", err)
			if test.network == "" {
				require.Len(t, tr.payments(), sent, "nothing may be sent")
				return
			}
			settled := tr.world.Settlements()
			require.Len(t, settled, before+1)
			require.Equal(t, test.network, settled[before].Network)
		})
	}
}

func TestApprovalSeesWhatIsSigned(t *testing.T) {
	tr := newTrade(t)
	var approved []buyer.Option
	var signed []string
	s := tr.wrap(t, func(o *buyer.Options) {
		o.Signers[0] = faulty{Signer: tr.onEVM, asked: &signed}
		o.Approve = func(_ context.Context, name string, option buyer.Option) error {
			require.Equal(t, "report", name)
			require.Empty(t, signed, "nothing is signed before it is approved")
			approved = append(approved, option)
			return nil
		}
	})
	_, err := s.CallTool(t.Context(), report)
	require.NoError(t, err)
	require.Len(t, approved, 1)
	require.Equal(t, mill, approved[0].Price)
	require.Equal(t, tr.world.PayToEVM, approved[0].Requirement.PayTo)
}

func TestEvents(t *testing.T) {
	tr := newTrade(t)
	var events []buyer.Event
	s := tr.wrap(t, func(o *buyer.Options) { o.Event = func(e buyer.Event) { events = append(events, e) } })
	_, err := s.CallTool(t.Context(), report)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, []buyer.EventType{buyer.Attempt, buyer.Success}, []buyer.EventType{events[0].Type, events[1].Type})
	e := events[1]
	require.Equal(t, []string{"tools/call", "report"}, []string{e.Method, e.Name})
	require.Equal(t, tr.world.Settlements()[0].Transaction, e.Transaction)
	require.Equal(t, "1000", e.Option.Requirement.Amount.String())
	require.NotEmpty(t, e.Payer)
	require.False(t, e.Again)
	require.NoError(t, e.Err)

	events = nil
	tr.set(func(s *shop) { s.after = func(json.RawMessage) (*mcp.CallToolResult, error) { return s.ask() } })
	_, err = s.CallTool(t.Context(), report)
	require.Equal(t, x402.PaymentRejected, code(err))
	require.Len(t, events, 2)
	require.Equal(t, buyer.Failure, events[1].Type)
	require.ErrorIs(t, events[1].Err, err)
}

// After a payment was sent nothing makes the same call sign another one, until it has surely expired.
func TestNeverASecondSignature(t *testing.T) {
	for name, test := range map[string]struct {
		after func(s *shop) (*mcp.CallToolResult, error)
		code  x402.Code
		again bool // the same call brings the same bytes
	}{
		"asks again": {func(s *shop) (*mcp.CallToolResult, error) { return s.ask() }, x402.PaymentRejected, true},
		"asks for more": {func(s *shop) (*mcp.CallToolResult, error) {
			s.set(func(s *shop) { s.accepts = []map[string]any{onEVM(s.world, 5000)} })
			defer s.set(func(s *shop) { s.accepts = nil })
			return s.ask()
		}, x402.PriceChanged, true},
		"another error": {func(*shop) (*mcp.CallToolResult, error) { return nil, &jsonrpc.Error{Code: -32000, Message: "no"} }, x402.PaymentRejected, true},
		"a failed receipt": {func(*shop) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"x402/payment-response": map[string]any{"success": false, "errorReason": "nope"}}}, nil
		}, x402.SettlementFailed, true},
		"its tool fails": {func(*shop) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{IsError: true}, nil }, "", true},
		"no receipt":     {func(*shop) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{}, nil }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrade(t)
			now := time.Now()
			s := tr.wrap(t, func(o *buyer.Options) {
				o.MaxTotal = 2 * mill
				o.Now = func() time.Time { return now }
			})
			tr.set(func(s *shop) { s.after = func(json.RawMessage) (*mcp.CallToolResult, error) { return test.after(s) } })
			_, err := s.CallTool(t.Context(), report)
			require.Equal(t, test.code, code(err), "%v", err)
			if err != nil {
				require.Equal(t, "1000", x402.AsError(err).Spent)
			}
			tr.set(func(s *shop) { s.after = nil })
			params := *report
			params.Meta = mcp.Meta{"progressToken": 7} // another _meta is no other call
			_, err = s.CallTool(t.Context(), &params)
			require.NoError(t, err)
			paid := tr.payments()
			require.Len(t, paid, 2)
			require.Equal(t, test.again, compact(t, paid[0]) == compact(t, paid[1]))
			require.Len(t, tr.world.Settlements(), 1)
		})
	}
}

func TestAnExpiredPaymentStaysCounted(t *testing.T) {
	tr := newTrade(t)
	now := time.Now()
	s := tr.wrap(t, func(o *buyer.Options) {
		o.MaxTotal = mill
		o.Now = func() time.Time { return now }
	})
	tr.set(func(s *shop) { s.after = func(json.RawMessage) (*mcp.CallToolResult, error) { return s.ask() } })
	_, err := s.CallTool(t.Context(), report)
	require.Equal(t, x402.PaymentRejected, code(err))
	now = now.Add(4 * time.Minute)
	_, err = s.CallTool(t.Context(), report)
	require.Equal(t, x402.BudgetExceeded, code(err), "what may have been paid is not free again")
	require.Len(t, tr.payments(), 1)
}

func TestCancelledAfterSending(t *testing.T) {
	tr := newTrade(t)
	s := tr.wrap(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	tr.set(func(s *shop) {
		s.after = func(payload json.RawMessage) (*mcp.CallToolResult, error) {
			cancel()
			receipt, err := s.settle(t.Context(), payload)
			return &mcp.CallToolResult{Meta: mcp.Meta{"x402/payment-response": receipt}}, err
		}
	})
	_, err := s.CallTool(ctx, report)
	require.Equal(t, x402.OutcomeUnknown, code(err))
	require.ErrorIs(t, err, context.Canceled)
	tr.set(func(s *shop) {
		s.after = func(json.RawMessage) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{}, nil }
	})
	_, err = s.CallTool(t.Context(), report)
	require.NoError(t, err)
	paid := tr.payments()
	require.Len(t, paid, 2)
	require.Equal(t, compact(t, paid[0]), compact(t, paid[1]))
}

// A hundred calls at once: each has a payment of its own, and all together keep the total.
func TestAHundredCallsAtOnce(t *testing.T) {
	tr := newTrade(t)
	s := tr.wrap(t, func(o *buyer.Options) {
		o.Signers = o.Signers[:1]
		o.MaxTotal = 90 * mill
	})
	var all sync.WaitGroup
	codes := make(chan x402.Code, 100)
	for i := range 100 {
		all.Go(func() {
			_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "report", Arguments: map[string]any{"n": i}})
			codes <- code(err)
		})
	}
	all.Wait()
	close(codes)
	count := map[x402.Code]int{}
	for c := range codes {
		count[c]++
	}
	require.Equal(t, map[x402.Code]int{"": 90, x402.BudgetExceeded: 10}, count)
	require.Len(t, tr.world.Settlements(), 90)
	seen := map[string]bool{}
	for _, p := range tr.payments() {
		require.False(t, seen[p], "one payment for two calls")
		seen[p] = true
	}
}

func TestValidityIsTheProgramsOwn(t *testing.T) {
	tr := newTrade(t)
	long := onEVM(tr.world, 1000)
	long["maxTimeoutSeconds"] = 1e6
	tr.set(func(s *shop) { s.accepts = []map[string]any{long} })
	before := time.Now()
	_, err := tr.wrap(t, func(o *buyer.Options) { o.Validity = time.Minute }).CallTool(t.Context(), report)
	require.NoError(t, err)
	var p struct {
		Payload struct {
			Authorization struct{ ValidBefore json.Number }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(tr.payments()[0]), &p), tr.payments()[0])
	until, err := p.Payload.Authorization.ValidBefore.Int64()
	require.NoError(t, err)
	require.LessOrEqual(t, until, before.Add(70*time.Second).Unix(), fmt.Sprint(p))
}
