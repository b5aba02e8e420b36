package crash

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/scheme"
	"x402-wallet/scheme/exact"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

var everyByte = flag.String("everybyte", "",
	`"cut": cut a payment to an EVM seller at every byte; "all": break every line at every byte in every way; otherwise at a sample`)

// buyer is the wallet's own engine, joined to a world as package app joins it, in this process: six
// thousand payments are too many to start a process for each. The keys are unlocked once.
type buyer struct {
	*pay.Engine
	store *history.Store
}

// buyer opens the world's ledger with an engine. sellers and facilitatorURL are whom it talks to,
// perhaps through a proxy.
func (w *world) buyer(ctx context.Context, sellerURL, facilitatorURL string, deadline time.Duration) (*buyer,
	error) {
	store, err := w.open(ctx, history.Options{})
	if err != nil {
		return nil, err
	}
	nodes := seller.NodeClient(w.Loopback, "")
	rpc := map[string]string{sandbox.EVM: w.EVMNodeURL, sandbox.Solana: w.SolanaNodeURL}
	tokenAccounts := map[string]string{sandbox.Solana: w.OwnerAccount}
	evmSigner, solanaSigner := testworld.Signers(store, template.keys)
	if err := adopt(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &buyer{store: store, Engine: &pay.Engine{
		Rules:  budget.Rules{PerCall: 1e6, Day: 1e7, Month: 1e8, ApproveAbove: 1e6, Rate: 1 << 20},
		Policy: pay.Policy{Schemes: []string{"exact"}, MaxTimeout: time.Minute, Deadline: deadline},
		Assets: x402.NewRegistry(nil),
		Ways:   []scheme.Way{exact.Way{}},
		Schemes: map[pay.SchemeKey]pay.Scheme{
			{Scheme: x402.Exact,
				Family: "eip155"}: evm.New(evm.Options{Signer: evmSigner, RPC: rpc,
				HTTP: nodes,
				Rand: rand.Reader, Now: time.Now}),
			{Scheme: x402.Exact,
				Family: "solana"}: svm.New(svm.Options{Signer: solanaSigner,
				RPC:           rpc,
				TokenAccounts: tokenAccounts, HTTP: nodes, Rand: rand.Reader, Now: time.Now}),
		},
		Transport: seller.New(seller.Options{Loopback: []string{strings.TrimPrefix(sellerURL, "http://")}}),
		Settler: facilitator.New(facilitator.Options{
			HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			List: []facilitator.Facilitator{{Name: "sandbox", URL: facilitatorURL,
				Networks: []string{sandbox.EVM, sandbox.Solana}}},
			Sleep: func(context.Context, time.Duration) error { return nil },
		}),
		Store: store,
		Asker: asking.Asker{Store: store},
		Guard: historytest.Guard{Store: store},
		Now:   time.Now,
		Log:   slog.New(slog.DiscardHandler),
	}}, nil
}

// line is a connection that a paid call goes over.
type line struct {
	name   string
	path   string
	breaks string // whose connection: the seller's or the facilitator's
	mark   string // what only the request has that is to break
	exact  bool   // what comes of it is known exactly, because nobody tries again within the call
}

var lines = []line{
	{"payment to the seller, EVM", "/weather", "seller", "\r\nPAYMENT-SIGNATURE: ", true},
	{"payment to the seller, Solana", "/solana", "seller", "\r\nPAYMENT-SIGNATURE: ", true},
	{"payment to the facilitator", "/settle-first/weather", "facilitator", "POST /settle ", false},
	{"proof to the seller", "/settle-first/weather", "seller", "\r\nX-PAYMENT-SIGNATURE: ", true},
}

// outcome is what a case ended in.
type outcome struct {
	result pay.Result
	err    *x402.Error
	sent   bool // a signed payment was seen by seller or facilitator
	wrong  []string
}

func (o *outcome) violation(format string, args ...any) {
	o.wrong = append(o.wrong, fmt.Sprintf(format, args...))
}

func (o *outcome) String() string {
	if o.err != nil {
		return fmt.Sprintf("%s (%s), spent %q", o.err.Code, o.err.Message, o.err.Spent)
	}
	return o.result.Status
}

// errTooSoon says that the wallet gave up before the connection came about that should have broken.
var errTooSoon = errors.New("the call ended too soon")

// try breaks a line, with more patience each time that the wallet's ends too soon.
func (l line) try(b breakage) (first *outcome, asked, answered []byte, err error) {
	deadline := 20 * time.Second
	if b.how == stall {
		deadline = time.Second // it is lost before anybody else gives up
	}
	for {
		first, asked, answered, err = l.once(b, deadline)
		if !errors.Is(err, errTooSoon) || deadline > 20*time.Second {
			return first, asked, answered, err
		}
		deadline *= 3
	}
}

// once breaks a line once, then makes the same call again over a whole one until it is answered,
// and judges. It also gives what came through of both sides.
func (l line) once(b breakage, deadline time.Duration) (first *outcome, asked, answered []byte, err error) {
	w, err := newWorld(schemes.Rules{}, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	defer w.Close()
	target := w.SellerURL
	if l.breaks == "facilitator" {
		target = w.FacilitatorURL
	}
	p, err := newProxy(target, l.mark, b)
	if err != nil {
		return nil, nil, nil, err
	}
	defer p.Close()
	sellerURL, facilitatorURL := p.url, w.FacilitatorURL
	if l.breaks == "facilitator" {
		sellerURL, facilitatorURL = w.SellerURL, p.url
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	buyer, err := w.buyer(ctx, sellerURL, facilitatorURL, deadline)
	if err != nil {
		return nil, nil, nil, err
	}
	defer buyer.store.Close()
	buy := func() *outcome {
		o := &outcome{}
		before := w.Presentations()
		result, err := buyer.Pay(ctx,
			pay.Request{Request: seller.Request{Method: "GET", URL: sellerURL + l.path}})
		o.result = result
		if err != nil {
			o.err = x402.AsError(err)
		} else {
			buyer.Delivered(ctx, result.Status, result.PaymentID)
		}
		o.sent = w.Presentations() > before
		l.bounded(w, o)
		l.honest(w, o)
		return o
	}

	first = buy()
	if !p.hasBroken() {
		return nil, nil, nil, fmt.Errorf("%w: %s", errTooSoon, first)
	}
	asked, answered = p.bytes(request), p.bytes(response)
	if l.exact {
		l.expect(first, b, asked, answered)
	}
	if first.err == nil && first.result.Status == pay.StatusPaid {
		return first, asked, answered, nil
	}
	buyer.Policy.Deadline = 20 * time.Second
	for again := 1; ; again++ {
		next := buy()
		first.wrong = append(first.wrong, next.wrong...)
		if next.err == nil {
			if len(w.Settlements()) != 1 {
				first.violation("%d settlements in the end (%s, then %s)", len(w.Settlements()), first, next)
			}
			break
		}
		if again == 4 { // the seller may still be at work on the first when the second comes, not for longer
			first.violation("the same call still fails: %s, then %s", first, next)
			break
		}
		time.Sleep(20 * time.Millisecond << (3 * (again - 1)))
	}
	l.ledger(ctx, w, buyer, first)
	return first, asked, answered, nil
}

// bounded judges by the parties' books.
func (l line) bounded(w *world, o *outcome) {
	if n := len(w.Settlements()); n > 1 {
		o.violation("paid twice: %d settlements", n)
	}
	if n := w.Signatures(); n > 1 {
		o.violation("signed twice: %d different payments were seen", n)
	}
}

// honest holds an answer against what really happened: after a payment left, no error says that
// nothing was spent; and nothing is said to be paid that was not.
func (l line) honest(w *world, o *outcome) {
	if o.err == nil {
		if len(w.Settlements()) == 0 {
			o.violation("%s, but nothing was settled", o)
		}
		if o.result.Status != pay.StatusUnserved &&
			o.result.Content != schemes.Content("/"+l.path[strings.LastIndex(l.path, "/")+1:]) {
			o.violation("%s, with the content %q", o, o.result.Content)
		}
		return
	}
	nothing := o.err.Spent == "" || o.err.Spent == "0"
	if nothing && (o.sent || len(w.Settlements()) > 0) {
		o.violation("the error says that nothing was spent, but a payment left: %s", o)
	}
	if o.err.Unsafe {
		o.violation("an error that forbids to try again: %s", o)
	}
	if !nothing && o.err.PaymentID == "" {
		o.violation("an error about a payment without its id: %s", o)
	}
}

// expect knows what a break means when nothing within the call tries again.
func (l line) expect(o *outcome, b breakage, asked, answered []byte) {
	settledBefore := l.path == "/settle-first/weather" // by the wallet: only whether it was served is open
	want := "OUTCOME_UNKNOWN"
	switch {
	case whole(answered):
		want = pay.StatusPaid
	case settledBefore, headersEnd(answered) >= 0: // the receipt is in the headers
		want = pay.StatusUnserved
	}
	got := o.result.Status
	if o.err != nil {
		got = string(o.err.Code)
	}
	if got != want {
		o.violation("%s, it should be %s; %d bytes were asked, %d answered", o, want, len(asked),
			len(answered))
	}
}

// ledger holds the ledger against the chain.
func (l line) ledger(ctx context.Context, w *world, b *buyer, o *outcome) {
	if _, err := verify.Ledger(ctx, b.store, history.Head{}); err != nil {
		o.violation("verify: %v", err)
	}
	list, err := b.store.Recent(ctx, 100)
	if err != nil {
		o.violation("list: %v", err)
		return
	}
	settled := 0
	for _, p := range list {
		switch p.State {
		case history.Settled:
			settled++
			if s := w.Settlements(); len(s) != 1 || s[0].Transaction != p.Transaction {
				o.violation("the ledger has the transaction %s, the chain %v", p.Transaction, s)
			}
		case history.Failed:
		default:
			o.violation("%s is still %s", p.ID, p.State)
		}
	}
	if settled != 1 {
		o.violation("%d payments are settled in the ledger", settled)
	}
}

// A paid call whose connection is cut, reset or stalled at any byte, on the way there or back, ends
// as what it is; the same call again gets what was bought and never pays twice.
func TestWire(t *testing.T) {
	start := time.Now()
	total := map[string]int{}
	count := 0
	for _, l := range lines {
		t.Run(l.name, func(t *testing.T) {
			// Unbroken first, which also says how long the two sides are.
			const never = 1 << 30
			o, asked, answered, err := l.try(breakage{request, never, fin})
			require.NoError(t, err)
			require.Empty(t, o.wrong)
			require.Equal(t, pay.StatusPaid, o.String())
			require.True(t, whole(answered), "%s", answered)

			cases := l.cases(len(asked), len(answered))
			var mu sync.Mutex
			var wg sync.WaitGroup
			queue := make(chan breakage)
			for range 4 { // those that stall only wait
				wg.Go(func() {
					for b := range queue {
						o, _, _, err := l.try(b)
						mu.Lock()
						count++
						switch {
						case err != nil:
							t.Errorf("%+v: %v", b, err)
						default:
							total[o.kind()]++
							for _, wrong := range o.wrong {
								t.Errorf("VIOLATION: %s at byte %d of the %s: %s", b.how, b.at, b.side, wrong)
							}
						}
						mu.Unlock()
					}
				})
			}
			for _, b := range cases {
				queue <- b
			}
			close(queue)
			wg.Wait()
			t.Logf("%d bytes asked, %d answered, %d cases", len(asked), len(answered), len(cases))
		})
	}
	fmt.Printf("wire: %d broken connections, %v, %.0f s\n", count, total, time.Since(start).Seconds())
}

func (o *outcome) kind() string {
	if o.err != nil {
		return string(o.err.Code)
	}
	return o.result.Status
}

// cases are where and how the line is broken. A sample: the ends, the bytes about them, and some between,
// by FIN and RST, and a few by a stall; with -everybyte all of them, but a stall at every tenth only.
func (l line) cases(asked, answered int) (list []breakage) {
	all, cut := *everyByte == "all", *everyByte == "cut" && l == lines[0]
	for _, end := range []struct {
		side
		n int
	}{{request, asked}, {response, answered}} {
		step := end.n / 2
		if l == lines[0] {
			step = end.n / 5
		}
		for at := range end.n + 1 {
			sample := at < 1 || at >= end.n-1 || at%step == 0
			if all || cut || sample {
				list = append(list, breakage{end.side, at, fin})
			}
			if all || sample {
				list = append(list, breakage{end.side, at, rst})
			}
			if (all && at%10 == 0) || (!all && at == step) {
				list = append(list, breakage{end.side, at, stall})
			}
		}
	}
	return list
}

// A seller that closed the connection and cannot be connected to again was sent nothing, and the wallet
// says so. What is signed stays held until it is dead.
func TestRefusedConnection(t *testing.T) {
	w := must.Get(newWorld(schemes.Rules{}, nil))(t)
	defer w.Close()
	p := must.Get(newProxy(w.SellerURL, "", breakage{}))(t)
	defer p.Close()
	b := must.Get(w.buyer(t.Context(), p.url, w.FacilitatorURL, 10*time.Second))(t)
	defer b.store.Close()
	exact := pay.SchemeKey{Scheme: x402.Exact, Family: "eip155"}
	b.Schemes[exact] = &beforeSigning{b.Schemes[exact], p.refuse}
	loopback := []string{strings.TrimPrefix(p.url, "http://")}
	b.Transport = keptNothing{b.Transport, seller.New(seller.Options{Loopback: loopback})}
	_, err := b.Pay(t.Context(), pay.Request{Request: seller.Request{Method: "GET", URL: p.url + "/weather"}})
	var coded *x402.Error
	require.True(t, errors.As(err, &coded))
	require.Equal(t, x402.PayFailed, coded.Code)
	require.NotEmpty(t, coded.Spent)
	require.Zero(t, w.Presentations())
	require.Len(t, must.Get(b.store.HeldOn(t.Context(), sandbox.EVM, template.evm))(t), 1)
}

// keptNothing is a transport whose connections are all closed when it pays.
type keptNothing struct {
	pay.Transport
	payments pay.Transport
}

func (k keptNothing) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	return k.payments.Present(ctx, r, with)
}

// beforeSigning does something between the unpaid and the paid request.
type beforeSigning struct {
	pay.Scheme
	do func()
}

func (s *beforeSigning) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	s.do()
	return s.Scheme.Authorize(ctx, o)
}

// adopt makes a ledger that a wallet sealed one that historytest.Keyholder sealed.
func adopt(ctx context.Context, s *history.Store) error {
	rules, err := s.Rules(ctx)
	if err != nil {
		return err
	}
	rules.Version++
	return s.SealRules(ctx, rules, "", true, historytest.Keyholder())
}
