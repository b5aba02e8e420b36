package paywall

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

func TestAPaidCall(t *testing.T) {
	var seen *Sale
	l := newLab(t, nil)
	given := l.tool
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		seen = FromContext(ctx)
		return given(ctx, r)
	}
	asked := l.call(t, map[string]any{"q": "x"}, nil)
	require.True(t, asked.isError)
	require.Nil(t, asked.receipt())
	c := asked.challenge()
	require.Equal(t, 2, c.Version)
	require.Equal(t, "mcp://tool/search", c.Resource.URL)
	require.Len(t, c.Accepts, 2)
	require.Empty(t, c.Unreadable)
	require.Equal(t, l.FeePayer, c.Accepts[1].ExtraString("feePayer"), "from /supported")
	require.Zero(t, l.runs.Load())

	payload := l.payer.sign(t, c, 0, nil)
	g := l.call(t, map[string]any{"q": "x"}, meta(c, payload))
	require.False(t, g.isError)
	require.Equal(t, product, g.text)
	require.Len(t, l.Settlements(), 1)
	paid := l.Settlements()[0]
	require.EqualValues(t, 1000, paid.Amount)
	require.Equal(t, paid.Transaction, g.receipt().Transaction)
	require.True(t, g.receipt().Success)
	require.Equal(t, l.payer.Address(), g.receipt().Payer)

	require.NotNil(t, seen, "the tool can read what it runs for")
	require.Equal(t, l.payer.Address(), seen.Payer)
	require.True(t, seen.Verified)
	require.Equal(t, sandbox.EVM, seen.Requirement.Network)
	require.JSONEq(t, string(payload), string(seen.Payment))
	require.Equal(t, []string{"search", "mcp://tool/search", "$0.001", "USDC"},
		[]string{seen.Tool, seen.Resource, seen.Price, seen.Symbol})

	sale := l.sales(t)[0]
	require.Equal(t, book.SaleSettled, sale.State)
	require.Equal(t, seen.ID, sale.ID)
	require.Equal(t, paid.Transaction, sale.Transaction)
	require.Equal(t, "sandbox", sale.Facilitator)

	// Free tools are free, and lists say what costs what.
	free := must.Get(l.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "hello"}))(t)
	require.Equal(t, "hi", free.Content[0].(*mcp.TextContent).Text)
	listed := must.Get(l.client.ListTools(t.Context(), nil))(t)
	for _, tool := range listed.Tools {
		if tool.Name == "search" {
			require.Equal(t, true, tool.Meta["agents-x402/paymentRequired"])
			require.EqualValues(t, 0.001, tool.Meta["agents-x402/priceUSD"])
			require.Equal(t, "$0.001", tool.Meta["x402"].(map[string]any)["price"])
			require.Contains(t, string(jsonOf(tool.OutputSchema)), "x402Version",
				"a client that checks structured content can read a challenge")
		} else {
			require.Nil(t, tool.Meta)
		}
	}
}

// What a tool's owner writes of it is what its challenge says.
func TestChallenge_DescribesTheTool(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) {
		o.Tools[0].Resource, o.Tools[0].MimeType = "mcp://tool/other", "text/plain"
	})
	r := l.call(t, nil, nil).challenge().Resource
	require.Equal(t, []string{"mcp://tool/other", "Weather", "text/plain"},
		[]string{r.URL, r.Description, r.MimeType})
}

// A payment may spell the tool's resource as older clients do, and is settled within its validity.
func TestSale_OlderResource(t *testing.T) {
	l := newLab(t, nil)
	asked := &spy{Client: newFacilitators(l.Sandbox)}
	l.paywall.options.Facilitators = asked
	c := l.call(t, nil, nil).challenge()
	payload := replaced(t, l.payer.sign(t, c, 0, nil), "mcp://tool/search", "mcp://tools/search")
	left := min(300*time.Second, time.Until(expiryOf(t, payload)))
	require.Equal(t, product, l.call(t, nil, meta(c, payload)).text)
	require.LessOrEqual(t, asked.settle.Validity, left)
	require.GreaterOrEqual(t, asked.settle.Validity, time.Until(expiryOf(t, payload)))
}

type spy struct {
	*facilitator.Client
	settle facilitator.Submission
}

func (s *spy) Settle(ctx context.Context, submission facilitator.Submission) facilitator.Result {
	s.settle = submission
	return s.Client.Settle(ctx, submission)
}

// Two calls with one payment at the same time: one run, one settlement; also when each comes to a
// process of its own.
func TestOnePaymentOneRun(t *testing.T) {
	l := newLab(t, nil)
	other := must.Get(New(l.paywall.options))(t)
	first := l.paywall
	l.paywall = other
	elsewhere, _ := connect(t, l.server(), nil)
	clients := []*mcp.ClientSession{l.client, elsewhere}
	l.paywall = first
	c := l.call(t, nil, nil).challenge()
	shown := meta(c, l.payer.sign(t, c, 0, nil))
	var all sync.WaitGroup
	var mu sync.Mutex
	sold, refused := 0, 0
	for i := range 8 {
		all.Go(func() {
			result, err := clients[i%2].CallTool(t.Context(), &mcp.CallToolParams{Name: "search",
				Meta: maps.Clone(shown)})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && !result.IsError:
				sold++
			case err != nil:
				refused++
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, sold)
	require.Equal(t, 7, refused)
	require.EqualValues(t, 1, l.runs.Load())
	require.Len(t, l.Settlements(), 1)

	g := l.call(t, map[string]any{"q": "something else"}, shown)
	require.EqualValues(t, -32602, g.Code)
	g.asksNothing()
	require.EqualValues(t, 1, l.runs.Load())
}

// A lost answer is delivered again, for the same call and by the payment identifier that only the buyer
// knows.
func TestALostAnswer(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, map[string]any{"q": 1}, nil).challenge()
	require.Contains(t, c.Extensions, "payment-identifier")
	payload := l.payer.sign(t, c, 0, named)
	first := l.call(t, map[string]any{"q": 1}, meta(c, payload))
	require.Equal(t, product, first.text)
	again := l.call(t, map[string]any{"q": 1}, meta(c, payload))
	require.Equal(t, product, again.text)
	require.Equal(t, first.receipt().Transaction, again.receipt().Transaction)
	require.EqualValues(t, 1, l.runs.Load())
	require.Len(t, l.Settlements(), 1)

	for name, other := range map[string]got{
		"another call": l.call(t, map[string]any{"q": 2}, meta(c, payload)),
		"another name": l.call(t, map[string]any{"q": 1},
			meta(c, json.RawMessage(replaced(t, payload, "pay_0123456789abcdef", "pay_0123456789abcdee")))),
		"no name": l.call(t, map[string]any{"q": 1}, meta(c, without(t, payload, "extensions"))),
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualValues(t, -32602, other.Code, name)
			require.NotContains(t, string(other.Result), product, name)
		})
	}
}

// The facilitator's faults, each with the exact outcome: nothing given away, nothing taken for nothing.
func TestSettlementFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		asks  bool
		state book.SaleState
		moved int
		runs  int32
	}{
		"verify refused": {"facilitator refuses verify", true, "", 0, 0},
		"down":           {"facilitator down", false, "", 0, 0},
		// unexpected_settle_error leaves it open
		"settlement refused": {"facilitator refuses", false, book.SaleUnknown, 0, 1},
		"settle fails":       {"facilitator fails", false, book.SaleUnknown, 0, 1},
		"cut before":         {"facilitator cuts before", false, book.SaleUnknown, 0, 1},
		"pending":            {"facilitator pending", false, book.SaleUnknown, 1, 1},
		"never lands":        {"facilitator never lands", false, book.SaleUnknown, 0, 1},
		"down after verify":  {"facilitator down", false, book.SaleUnknown, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			ch := l.call(t, nil, nil).challenge()
			inject := func() { l.Inject(c.fault, math.MaxInt) }
			if name == "down after verify" {
				l.during(inject)
			} else {
				inject()
			}
			g := l.call(t, nil, meta(ch, l.payer.sign(t, ch, 0, nil)))
			require.True(t, g.isError)
			require.NotContains(t, string(g.Result), product, "withheld")
			require.Equal(t, c.runs, l.runs.Load())
			require.Len(t, l.Settlements(), c.moved)
			if c.asks {
				require.NotEmpty(t, g.challenge().Error)
			} else {
				g.asksNothing()
			}
			if c.state == "" {
				require.Empty(t, l.sales(t))
				return
			}
			require.Equal(t, c.state, l.sales(t)[0].State)
			require.False(t, g.receipt().Success)
		})
	}
}

// A refusal that is one: the payer has not enough money any more.
func TestSettlementRefused(t *testing.T) {
	l := newLab(t, nil)
	given := l.tool
	c := l.call(t, nil, nil).challenge()
	payload := l.payer.sign(t, c, 0, nil)
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		l.payer.spendAll(t, c) // between verify and settle
		return given(ctx, r)
	}
	g := l.call(t, nil, meta(c, payload))
	require.True(t, g.isError)
	require.NotContains(t, string(g.Result), product)
	require.Contains(t, g.challenge().Error, "Payment settlement failed: ")
	require.False(t, g.receipt().Success)
	require.Equal(t, book.SaleFailed, l.sales(t)[0].State)
	require.Contains(t, g.meta, wire.MetaReceipt)
}

// A settlement that the facilitator left open is looked up on the chain: a buyer that paid gets the answer,
// at once or when it asks again.
func TestDoubtIsSettledByTheChain(t *testing.T) {
	for name, known := range map[string]bool{"at once": true, "when asked again": false} {
		t.Run(name, func(t *testing.T) {
			var l *lab
			knows := known
			l = newLab(t, func(_ *lab, o *Options) {
				o.Received = func(ctx context.Context, e x402.Evidence) (x402.Status, error) {
					if !knows {
						return x402.Status{State: x402.Open}, nil
					}
					return l.payer.Received(ctx, e)
				}
			})
			l.paywall.confirmTimeout = 300 * time.Millisecond
			if known {
				l.paywall.confirmTimeout = time.Minute
			}
			c := l.call(t, nil, nil).challenge()
			shown := meta(c, l.payer.sign(t, c, 0, named))
			l.Inject("facilitator cuts after", math.MaxInt)
			g := l.call(t, nil, shown)
			if !known {
				require.True(t, g.isError)
				g.asksNothing()
				require.Contains(t, string(g.Result), "the same call with the same payment can be made again")
				require.Equal(t, book.SaleUnknown, l.sales(t)[0].State)
				knows = true
				l.paywall.confirmTimeout = time.Minute
				g = l.call(t, nil, shown)
			}
			require.Equal(t, product, g.text, "%s", g.Result)
			require.Equal(t, l.Settlements()[0].Transaction, g.receipt().Transaction)
			require.Len(t, l.Settlements(), 1)
			require.EqualValues(t, 1, l.runs.Load())
			require.Equal(t, book.SaleSettled, l.sales(t)[0].State)
		})
	}
}

// A tool that fails is not paid for, however it fails.
func TestToolFailures(t *testing.T) {
	for name, tool := range map[string]func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult,
		error){
		"isError": failing("no such city"),
		"error": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("no such city")
		},
		"panic": func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			panic("no such city")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			l.tool = tool
			g := l.buy(t, nil)
			g.asksNothing()
			l.nothingMoved(t, g)
			require.Nil(t, g.receipt())
			require.Equal(t, book.SaleFailed, l.sales(t)[0].State)
			if name == "panic" {
				require.NotContains(t, g.text, "no such city")
			} else {
				require.Contains(t, g.text, "no such city", "the tool's own words")
			}
		})
	}
}

// A tool that is slower than its payment is good for: stopped while it could still be settled,
// and not settled.
func TestSlowTool(t *testing.T) {
	l := newLab(t, nil)
	stopped := make(chan struct{})
	l.tool = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		close(stopped)
		return nil, ctx.Err()
	}
	c := l.call(t, nil, nil).challenge()
	payload := l.payer.sign(t, c, 0, nil)
	l.paywall.options.Hooks.BeforeRun = l.leaves(200 * time.Millisecond)
	g := l.call(t, nil, meta(c, payload))
	<-stopped
	require.True(t, g.isError)
	g.asksNothing()
	l.nothingMoved(t, g)
	require.Contains(t, g.text, "longer than the payment is valid")
	require.Equal(t, book.SaleFailed, l.sales(t)[0].State)

	// A payment that leaves no time at all is not even verified.
	payload = l.payer.sign(t, c, 0, nil)
	l.paywall.settleMargin = time.Until(expiryOf(t, payload)) + time.Second
	g = l.call(t, nil, meta(c, payload))
	require.Contains(t, g.challenge().Error, "expire")
	require.EqualValues(t, 1, l.runs.Load())
}

// A buyer that disconnects while the tool runs is not charged; one that disconnects later is, and
// finds what was bought.
func TestBuyerLeaves(t *testing.T) {
	var beforeSettle atomic.Pointer[func()] // set while the sale before it may not be over
	l := newLab(t, func(_ *lab, o *Options) {
		o.Hooks.BeforeSettle = func(context.Context, *Sale) error {
			if f := beforeSettle.Load(); f != nil {
				(*f)()
			}
			return nil
		}
	})
	given, running := l.tool, make(chan struct{})
	l.tool = func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(running)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := l.call(t, nil, nil).challenge()
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-running; leave() }()
	_, err := l.client.CallTool(ctx, &mcp.CallToolParams{Name: "search",
		Meta: meta(c, l.payer.sign(t, c, 0, nil))})
	require.Error(t, err)
	require.Eventually(t, func() bool {
		return l.sales(t)[0].State == book.SaleFailed
	}, time.Minute, 5*time.Millisecond)
	require.Empty(t, l.Settlements())

	ctx, leave = context.WithCancel(t.Context())
	l.tool = given
	beforeSettle.Store((*func())(&leave))
	shown := meta(c, l.payer.sign(t, c, 0, named))
	_, err = l.client.CallTool(ctx, &mcp.CallToolParams{Name: "search", Meta: maps.Clone(shown)})
	require.Error(t, err)
	require.Eventually(t, func() bool {
		return l.sales(t)[0].State == book.SaleSettled
	}, time.Minute, 5*time.Millisecond)
	require.Equal(t, product, l.call(t, nil, shown).text)
	require.Len(t, l.Settlements(), 1)
}

// Settle, then run, where the tool's owner says so: the try is paid for, whatever comes of it, and
// nothing runs unpaid.
func TestUpfront(t *testing.T) {
	upfront := func(_ *lab, o *Options) { o.Tools[0].Upfront = true }
	l := newLab(t, upfront)
	c := l.call(t, nil, nil).challenge()
	require.Equal(t, "upfront", c.Accepts[0].ExtraString("paymentFlow"))
	g := l.buy(t, nil)
	require.Equal(t, product, g.text)
	require.True(t, g.receipt().Success)
	l.tool = failing("no such city")
	g = l.buy(t, nil)
	require.True(t, g.isError)
	require.Equal(t, "no such city", g.text)
	require.True(t, g.receipt().Success, "it was paid for, and says so")
	require.Equal(t, book.SaleSettled, l.sales(t)[0].State)

	l = newLab(t, upfront)
	c = l.call(t, nil, nil).challenge()
	l.Inject("facilitator cuts before", math.MaxInt)
	g = l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil)))
	require.Zero(t, l.runs.Load())
	g.asksNothing()
	l.nothingMoved(t, g)
	require.Contains(t, string(g.Result), "do not pay again")
	require.NotContains(t, string(g.Result), "can be made again",
		"it has no name of the buyer's, so it would be refused")
	require.Equal(t, book.SaleUnknown, l.sales(t)[0].State)
}

func TestVerifyOnly(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) { o.VerifyOnly = true })
	g := l.buy(t, nil)
	require.Equal(t, product, g.text)
	require.Nil(t, g.receipt())
	require.Empty(t, l.Settlements())
	require.Equal(t, book.SaleVerified, l.sales(t)[0].State)
}

// Every hook can stop a sale as long as nothing is settled; what comes after can break nothing.
func TestHooks(t *testing.T) {
	var order []string
	l := newLab(t, nil)
	note := func(name string) func(context.Context, *Sale) error {
		return func(context.Context, *Sale) error { order = append(order, name); return nil }
	}
	all := Hooks{
		BeforeVerify: note("before verify"), AfterVerify: note("after verify"), BeforeRun: note("before run"),
		BeforeSettle: note("before settle"),
		AfterRun: func(_ context.Context, _ *Sale, failed bool) error {
			order = append(order, "after run")
			require.False(t, failed)
			return nil
		},
		AfterSettle: func(_ context.Context, s *Sale) {
			order = append(order, "after settle")
			require.True(t, s.Settlement.Success)
			panic("a hook must not cost a buyer what they paid for")
		},
		Ended: func(_ context.Context, _ *Sale, err error) {
			order = append(order, "ended")
			if err != nil {
				require.ErrorIs(t, err, ErrPaymentRequired)
			}
		},
	}
	l.paywall.options.Hooks = all
	require.Equal(t, product, l.buy(t, nil).text)
	require.Equal(t, []string{"ended", "before verify", "after verify", "before run", "after run",
		"before settle", "after settle", "ended"}, order)

	no := func(context.Context, *Sale) error { return errors.New("not you") }
	for name, hooks := range map[string]Hooks{
		"before verify": {BeforeVerify: no}, "after verify": {AfterVerify: no}, "before run": {BeforeRun: no},
		"before settle": {BeforeSettle: no},
		"after run": {AfterRun: func(context.Context, *Sale, bool) error {
			return errors.New("not you")
		}},
		"a panic":    {BeforeRun: func(context.Context, *Sale) error { panic("oh") }},
		"of a price": {},
	} {
		t.Run(name, func(t *testing.T) {
			var ended error
			hooks.Ended = func(_ context.Context, _ *Sale, err error) { ended = err }
			l := newLab(t, func(l *lab, o *Options) { o.Hooks = hooks })
			c := l.call(t, nil, nil).challenge()
			want := ErrAborted
			if name == "of a price" {
				l.paywall.tools["search"].Quote = func(context.Context, Call) ([]Option, error) {
					panic("no idea")
				}
				want = ErrPrice
			}
			g := l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil)))
			require.True(t, g.isError)
			require.NotContains(t, g.text, "not you", "the owner's words are not the buyer's")
			l.nothingMoved(t, g)
			require.ErrorIs(t, ended, want)
		})
	}
}

// A price that is computed for each call; what was paid for one does not pay for a dearer one.
func TestComputedPrice(t *testing.T) {
	l := newLab(t, func(l *lab, o *Options) {
		o.Tools[0].Accepts = nil
		o.Tools[0].Quote = func(_ context.Context, c Call) ([]Option, error) {
			price := "0.001"
			if string(c.Arguments) == `{"deep":true}` {
				price = "0.05"
			}
			return []Option{{Network: "base-sepolia", PayTo: l.PayToEVM, Price: price}}, nil
		}
	})
	deep := map[string]any{"deep": true}
	c := l.call(t, nil, nil).challenge()
	require.Equal(t, "1000", c.Accepts[0].Amount.String())
	cheap := meta(c, l.payer.sign(t, c, 0, nil))
	dear := l.call(t, deep, cheap)
	require.Equal(t, "50000", dear.challenge().Accepts[0].Amount.String())
	require.Zero(t, l.runs.Load())
	require.Equal(t, product, l.buy(t, deep).text)
	require.EqualValues(t, 50000, l.Settlements()[0].Amount)
}

// A payee that is computed for each call; what was signed for one does not pay another.
func TestComputedPayee(t *testing.T) {
	const other = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	l := newLab(t, func(l *lab, o *Options) {
		o.Tools[0].Accepts = nil
		o.Tools[0].Quote = func(_ context.Context, c Call) ([]Option, error) {
			payee := l.PayToEVM
			if string(c.Arguments) == `{"deep":true}` {
				payee = other
			}
			return []Option{{Network: "base-sepolia", PayTo: payee, Price: "0.001"}}, nil
		}
	})
	deep := map[string]any{"deep": true}
	c := l.call(t, nil, nil).challenge()
	require.Equal(t, l.PayToEVM, c.Accepts[0].PayTo)
	elsewhere := l.call(t, deep, meta(c, l.payer.sign(t, c, 0, nil)))
	require.Equal(t, other, elsewhere.challenge().Accepts[0].PayTo)
	require.Zero(t, l.runs.Load())
	require.Equal(t, product, l.buy(t, deep).text)
	require.Equal(t, other, l.Settlements()[0].PayTo)
}

// A tool that has a question first has not run yet: its payment is good for the second half.
func TestToolThatAsksBack(t *testing.T) {
	l := newLab(t, nil)
	given := l.tool
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.RequestState == "" {
			return &mcp.CallToolResult{RequestState: "half",
				InputRequests: mcp.InputRequestMap{"a": &mcp.ElicitParams{Message: "Celsius?",
					RequestedSchema: map[string]any{"type": "object"}}}}, nil
		}
		return given(ctx, r)
	}
	l.client, _ = connect(t, l.server(), &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		}})
	require.Equal(t, product, l.buy(t, nil).text)
	require.EqualValues(t, 2, l.runs.Load())
	require.Len(t, l.Settlements(), 1)
}

// A buyer that paid before the tool asked for input gets the receipt with the question.
func TestUpfrontToolThatAsksBack(t *testing.T) {
	l := newLab(t, func(_ *lab, o *Options) { o.Tools[0].Upfront = true })
	l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{RequestState: "half",
			InputRequests: mcp.InputRequestMap{"a": &mcp.ElicitParams{Message: "Celsius?"}}}, nil
	}
	l.client, _ = connect(t, l.server(), &mcp.ClientOptions{
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return nil, errors.New("not here")
		}})
	g := l.buy(t, nil)
	require.Contains(t, string(g.Result), "Celsius?")
	require.True(t, g.receipt().Success)
	require.Len(t, l.Settlements(), 1)
}

func TestClose(t *testing.T) {
	l := newLab(t, nil)
	c := l.call(t, nil, nil).challenge()
	running, finish := make(chan struct{}), make(chan struct{})
	given := l.tool
	l.tool = func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(running)
		<-finish
		return given(ctx, r)
	}
	answered := make(chan got, 1)
	go func() { answered <- l.call(t, nil, meta(c, l.payer.sign(t, c, 0, nil))) }()
	<-running
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, l.paywall.Close(short), context.DeadlineExceeded)
	require.Contains(t, l.call(t, nil, nil).text, "stopping")
	close(finish)
	require.NoError(t, l.paywall.Close(t.Context()))
	require.Equal(t, product, (<-answered).text)
}
