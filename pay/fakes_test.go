package pay

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/asking"
	"x402-wallet/history/content"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/exact"
	"x402-wallet/scheme/mpp"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

var exactEVM = SchemeKey{Scheme: x402.Exact, Family: "eip155"}

const (
	testNetwork = "eip155:84532"
	testUSDC    = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
	testPayee   = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	testURL     = "https://api.example/weather"
)

// chain is a strict play chain behind the Scheme interface: it keeps its own balance and its own
// list of nonces, so that a test never has to believe the wallet.
type chain struct {
	mu      sync.Mutex
	balance uint64
	signed  int
	asked   int             // what became of payments
	settled map[string]bool // by nonce
	dead    map[string]bool
	down    bool
	block   uint64   // that its answers rest on; 0: it does not say
	pending []func() // settlements that are not mined yet
}

func newChain(balance uint64) *chain {
	return &chain{balance: balance, settled: map[string]bool{}, dead: map[string]bool{}}
}

func (c *chain) Payable(x402.Requirement, x402.AssetInfo) error { return nil }

func (c *chain) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return x402.Funds{}, x402.Errorf(x402.RPCError, "the node is down")
	}
	return x402.Funds{Source: "0xagent", Balance: money.NewAmount(c.balance),
		Free: money.NewAmount(c.balance), ReadAt: time.Now()}, nil
}

func (c *chain) Authorize(_ context.Context, o onchain.Order) (onchain.Authorization, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed++
	nonce := fmt.Sprintf("0x%064x", c.signed)
	return onchain.Authorization{
		Payload: json.RawMessage(fmt.Sprintf(`{"nonce":%q,"amount":%q}`, nonce, o.Requirement.Amount)),
		Evidence: x402.Evidence{Network: o.Requirement.Network, Asset: o.Asset.Address, Payer: "0xagent",
			PayTo: o.Requirement.PayTo, Amount: o.Requirement.Amount, Nonce: nonce,
			ExpiresAt: o.Now.Add(o.Validity)},
	}, nil
}

func (c *chain) Status(_ context.Context, e x402.Evidence) (x402.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	switch {
	case c.down:
		return x402.Status{}, errors.New("the node is down")
	case c.settled[e.Nonce]:
		return x402.Status{State: x402.Settled, Transaction: "0xchain" + e.Nonce[60:], Block: c.block}, nil
	case c.dead[e.Nonce]:
		return x402.Status{State: x402.Expired}, nil
	}
	return x402.Status{Unused: true}, nil
}

// settle moves money once per nonce, as EIP-3009 does.
func (c *chain) settle(nonce string, amount uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled[nonce] || c.dead[nonce] || c.balance < amount {
		return false
	}
	c.settled[nonce], c.balance = true, c.balance-amount
	return true
}

func (c *chain) settlements() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.settled) }

type script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error)

// scriptedSeller is a scripted Transport. Each payment it gets is answered by the script.
type scriptedSeller struct {
	t                     testing.TB
	chain                 *chain
	price                 string
	payee, network, asset string // "": testPayee, testNetwork, testUSDC
	flow                  string
	header                string            // of the challenge
	settleFirst           bool              // it is the form in which the wallet settles
	rewrite               *strings.Replacer // of the challenge; nil: none
	script                script

	mu       sync.Mutex
	asked    int
	payments []string // headers as they came
	paid     string   // the URL of the last one
}

func (s *scriptedSeller) Check(seller.Request) error { return nil }

func (s *scriptedSeller) challenge() http.Header {
	text := fmt.Sprintf(
		`{"x402Version":2,"resource":{"url":%q},"accepts":[{"scheme":"exact","network":%q,"amount":%q,"asset":%q,"payTo":%q,"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2","paymentFlow":%q}}]}`,
		testURL, cmp.Or(s.network, testNetwork), s.price, cmp.Or(s.asset, testUSDC),
		cmp.Or(s.payee, testPayee), s.flow)
	if s.settleFirst {
		text = settleForm(text)
	}
	if s.rewrite != nil {
		text = s.rewrite.Replace(text)
	}
	return http.Header{http.CanonicalHeaderKey(s.header): {base64.StdEncoding.EncodeToString([]byte(text))}}
}

// settleForm is a challenge in the X-Payment-Required dialect, in which the wallet settles: without its
// resource, and without extra.
func settleForm(challenge string) string {
	text := regexp.MustCompile(`"resource":\{[^}]*\},|,"extra":\{[^}]*\}`).ReplaceAllString(challenge, "")
	if strings.Contains(text, "resource") || strings.Contains(text, "extra") {
		panic(text)
	}
	return text
}

func (s *scriptedSeller) Ask(context.Context, seller.Request) (*seller.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.price == "" {
		return &seller.Answer{Status: 200, Content: []byte("free"), ContentType: "text/plain"}, nil
	}
	return s.asks(), nil
}

func (s *scriptedSeller) asks() *seller.Answer {
	a := &seller.Answer{Status: 402, Header: s.challenge()}
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a
}

func (s *scriptedSeller) Present(_ context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	return s.present(r, with.Header, with.Value)
}

func (s *scriptedSeller) present(r seller.Request, name, value string) (*seller.Answer, error) {
	s.mu.Lock()
	s.payments, s.paid = append(s.payments, name+": "+value), r.URL
	answer := s.script
	s.mu.Unlock()
	var nonce string
	var amount uint64
	if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
		p := must.JSON[struct {
			Payload struct{ Nonce, Amount string }
		}](raw)(s.t)
		nonce = p.Payload.Nonce
		fmt.Sscan(p.Payload.Amount, &amount)
	} else {
		nonce = value // a proof
	}
	return answer(s, nonce, amount)
}

func (s *scriptedSeller) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.payments...)
}

func honest(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
	if !s.chain.settle(nonce, amount) {
		return s.asks(), nil
	}
	return served(nonce), nil
}

func served(nonce string) *seller.Answer {
	return &seller.Answer{Status: 200, Content: []byte("sunny"), ContentType: "text/plain",
		Settlement: &wire.Settlement{Success: true, Transaction: "0xtx" + nonce[60:],
			Raw: json.RawMessage(`{"success":true}`)}}
}

func cutAfterSettling(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
	s.chain.settle(nonce, amount)
	return nil, &seller.SendError{Sent: true, Err: errors.New("cut")}
}

func silent(*scriptedSeller, string, uint64) (*seller.Answer, error) {
	return nil, &seller.SendError{Sent: true, Err: errors.New("timeout")}
}

func unreachable(*scriptedSeller, string, uint64) (*seller.Answer, error) {
	return nil, &seller.SendError{Sent: false, Err: errors.New("refused")}
}

type settler struct {
	chain   *chain
	outcome facilitator.Outcome
	mu      sync.Mutex
	seen    []string
}

func (f *settler) Settle(_ context.Context, s facilitator.Submission) facilitator.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, string(s.Payload))
	var p struct {
		Payload struct{ Nonce, Amount string }
	}
	_ = json.Unmarshal(s.Payload, &p)
	var amount uint64
	fmt.Sscan(p.Payload.Amount, &amount)
	r := facilitator.Result{Outcome: f.outcome, Facilitator: "lab0"}
	if f.outcome == facilitator.Settled {
		if f.chain.settle(p.Payload.Nonce, amount) {
			r.Settlement = &wire.Settlement{Success: true, Transaction: "0xsettled"}
		} else {
			r.Outcome = facilitator.Unknown
		}
	}
	if r.Outcome != facilitator.Settled { // as the real one
		r.Err = x402.Errorf(map[facilitator.Outcome]x402.Code{facilitator.NotSent: x402.FacilitatorError,
			facilitator.Refused: x402.SettlementFailed, facilitator.Unknown: x402.OutcomeUnknown}[r.Outcome],
			"not settled")
	}
	return r
}

func (f *settler) FeePayer(context.Context, facilitator.Terms, int, []string) (string, string, error) {
	return "", "", nil
}

func diskError() error { return x402.Errorf(x402.LedgerUnavailable, "disk error") }

type bench struct {
	*Engine
	chain   *chain
	seller  *scriptedSeller
	settler *settler
	store   *history.Store
	home    string
}

func newBench(t testing.TB, price string, answers script) *bench {
	t.Helper()
	home := t.TempDir()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	return openBench(t, home, newChain(1_000_000), price, answers)
}

// openBench is another process on the same home and chain.
func openBench(t testing.TB, home string, c *chain, price string, answers script) *bench {
	t.Helper()
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{Contents: content.Keeper{},
		Alerts: alerts.Writer{}}))(t)
	t.Cleanup(func() { store.Close() })
	b := &bench{chain: c, store: store, home: home,
		seller:  &scriptedSeller{t: t, chain: c, price: price, header: "PAYMENT-REQUIRED", script: answers},
		settler: &settler{chain: c, outcome: facilitator.Settled}}
	b.Engine = &Engine{
		Rules: budget.Rules{PerCall: 1_000_000, Day: 10_000_000, Month: 100_000_000,
			ApproveAbove: 1_000_000, Rate: 1 << 20},
		Policy: Policy{Schemes: []string{"exact"}, MaxTimeout: 300 * time.Second,
			Deadline: 5 * time.Second},
		Assets:  x402.NewRegistry(nil),
		Schemes: map[SchemeKey]Scheme{exactEVM: c}, Ways: testWays(nil, everybody),
		Transport: b.seller,
		Settler:   b.settler,
		Store:     store,
		Asker:     asking.Asker{Store: store},
		Guard:     historytest.Guard{Store: store},
		Now:       time.Now,
		Log:       slog.New(slog.DiscardHandler),
	}
	return b
}

func get(url string) Request { return Request{Request: seller.Request{Method: "GET", URL: url}} }

func (b *bench) mustPay(t *testing.T, url string) Result {
	t.Helper()
	return must.Get(b.Pay(t.Context(), get(url)))(t)
}

// mustBuy makes a call that has to be paid.
func (b *bench) mustBuy(t *testing.T, url string) Result {
	r := b.mustPay(t, url)
	require.Equal(t, StatusPaid, r.Status)
	return r
}

func (b *bench) reconcile(t *testing.T) Report { return must.Get(b.Reconcile(t.Context()))(t) }

func (b *bench) estimate(t *testing.T, url string) Estimate {
	t.Helper()
	return must.Get(b.Estimate(t.Context(), get(url)))(t)
}

func (b *bench) facts(t *testing.T) budget.Facts { return must.Get(b.BudgetFacts(t.Context()))(t) }

func (b *bench) mustRefuse(t *testing.T, want x402.Code, url string) *x402.Error {
	t.Helper()
	_, err := b.Pay(t.Context(), get(url))
	return code(t, want, err)
}

func (b *bench) only(t *testing.T) history.Payment {
	t.Helper()
	list := must.Get(b.store.Recent(t.Context(), 100))(t)
	require.Len(t, list, 1)
	return list[0]
}

type unsealed struct{ Guard }

func (unsealed) CheckConfig(context.Context) error {
	return x402.Errorf(x402.PolicyUnsealed, "not sealed")
}

// later puts the wallet's own clocks past the end of everything that was signed.
func (b *bench) later() {
	b.clockForward()
	b.localExpiries = localExpiries{} // as after a restart: what is left is the wall clock
}

func (b *bench) clockForward() {
	b.Now = func() time.Time { return time.Now().Add(b.Policy.MaxTimeout + maxSkew) }
}

// testWays are all ways, as package app has them, the one through channels last.
func testWays(approvalGas map[string]money.Amount,
	knows func(ctx context.Context, network, address string) bool) []scheme.Way {
	permits := permit2.Exact{ApprovalGas: approvalGas}
	return []scheme.Way{exact.Way{}, mpp.Way{}, permits, permit2.Upto{Exact: permits,
		KnowsFacilitator: knows},
		&batch.Channels{}}
}

func everybody(context.Context, string, string) bool { return true }
