package pay

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// A tenth of the sellers that are listed ask in X-PAYMENT-REQUIRED with a whole challenge, and settle
// themselves. They are shown the payment first; the wallet settles only where that is proven to have
// been ignored.

func takesProof(s *scriptedSeller, nonce string, _ uint64) (*seller.Answer, error) {
	if nonce != "0xsettled" && !strings.HasPrefix(nonce, "0xchain") {
		return s.asks(), nil
	}
	return &seller.Answer{Status: 200, Content: []byte("sunny")}, nil
}

func headerOf(sent string) string { name, _, _ := strings.Cut(sent, ":"); return name }

func TestASellerWithXPaymentRequiredSettlesItself(t *testing.T) {
	for name, header := range map[string]string{"X-Payment-Required": "PAYMENT-SIGNATURE",
		"x-payment-required": "PAYMENT-SIGNATURE", "X-PAYMENT-REQUIRED": "PAYMENT-SIGNATURE"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", honest)
			b.seller.header = name
			b.mustBuy(t, testURL)
			require.Len(t, b.seller.sent(), 1)
			require.Equal(t, header, headerOf(b.seller.sent()[0]))
			require.Empty(t, b.settler.seen, "the seller settles")
			require.Equal(t, 1, b.chain.settlements())
		})
	}
}

// The same bytes that the seller ignored go to the facilitator, once, and the seller gets the proof.
func TestAPaymentThatIsIgnoredIsSettledByTheWallet(t *testing.T) {
	b := newBench(t, "10000", takesProof)
	b.seller.header = "X-Payment-Required"
	r := b.mustBuy(t, testURL)
	require.Equal(t, "0xsettled", r.TransactionSignature)
	sent := b.seller.sent()
	require.Equal(t, []string{"PAYMENT-SIGNATURE", "X-PAYMENT-SIGNATURE"}, []string{headerOf(sent[0]),
		headerOf(sent[1])})
	shown := must.Get(base64.StdEncoding.DecodeString(strings.TrimPrefix(sent[0], "PAYMENT-SIGNATURE: ")))(t)
	require.Equal(t, []string{string(shown)}, b.settler.seen, "the same bytes")
	require.Equal(t, 1, b.chain.signed)
	require.Equal(t, 1, b.chain.settlements())
}

func TestWhatWasNotIgnoredIsNotSettledByTheWallet(t *testing.T) {
	// again asks again, with something else in the answer.
	again := func(change func(*seller.Answer)) script {
		return func(s *scriptedSeller, _ string, _ uint64) (*seller.Answer, error) {
			a := s.asks()
			change(a)
			return a, nil
		}
	}
	meanwhile := func(happens func(s *scriptedSeller, nonce string, amount uint64)) script {
		return func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
			happens(s, nonce, amount)
			return s.asks(), nil
		}
	}
	for name, c := range map[string]struct {
		script  script // nil: asksAgain
		prepare func(*bench)
		code    x402.Code // "": x402.PaymentRejected
	}{
		"it says why": {script: again(func(a *seller.Answer) {
			a.Challenge.Error = "invalid_exact_evm_signature"
		})},
		"the chain shows it used": {script: meanwhile(func(s *scriptedSeller, nonce string, n uint64) {
			s.chain.settle(nonce, n)
		})},
		"the chain does not answer": {script: meanwhile(func(s *scriptedSeller, _ string, _ uint64) {
			s.chain.mu.Lock()
			defer s.chain.mu.Unlock()
			s.chain.down = true
		})},
		"it asks for more": {script: meanwhile(func(s *scriptedSeller, _ string, _ uint64) {
			s.price = "20000"
		}), code: x402.PriceChanged},
		"it names a refusal": {script: again(func(a *seller.Answer) {
			a.Settlement = &wire.Settlement{ErrorReason: "insufficient_funds"}
		}), code: x402.SettlementFailed},
		"its receipt cannot be read": {script: again(func(a *seller.Answer) {
			a.SettlementErr = x402.Errorf(x402.ResponseMalformed, "no receipt")
		})},
		"status 403": {script: again(func(a *seller.Answer) {
			*a = seller.Answer{Status: http.StatusForbidden}
		})},
		"status 412": {script: again(func(a *seller.Answer) { a.Status = http.StatusPreconditionFailed })},
		"status 402 without a challenge": {script: again(func(a *seller.Answer) {
			*a = seller.Answer{Status: http.StatusPaymentRequired}
		})},
		"it broke off": {script: func(s *scriptedSeller, _ string, _ uint64) (*seller.Answer, error) {
			return s.asks(), &seller.SendError{Sent: true}
		}},
		"the standard's header":     {prepare: func(b *bench) { b.seller.header = "PAYMENT-REQUIRED" }},
		"rules that are not sealed": {prepare: func(b *bench) { b.Guard = &sealedOnce{Guard: b.Guard} }},
		"the wallet was frozen meanwhile": {prepare: func(b *bench) {
			b.seller.script = meanwhile(func(*scriptedSeller, string, uint64) {
				require.NoError(t, b.store.Freeze(t.Context(), history.Freeze{By: "owner", Why: "test"}))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", asksAgain)
			b.seller.header = "X-Payment-Required"
			if c.script != nil {
				b.seller.script = c.script
			}
			if c.prepare != nil {
				c.prepare(b)
			}
			_, err := b.Pay(t.Context(), get(testURL))
			e := code(t, cmp.Or(c.code, x402.PaymentRejected), err)
			require.Equal(t, "10000", e.Spent, "held until the chain has spoken")
			require.Empty(t, b.settler.seen)
			require.Equal(t, 1, b.chain.signed)
			require.Len(t, b.seller.sent(), 1)
		})
	}
}

// sealedOnce is a guard whose rules are sealed when they are looked at for the first time.
type sealedOnce struct {
	Guard
	looked int
}

func (g *sealedOnce) CheckConfig(ctx context.Context) error {
	g.looked++
	if g.looked > 1 {
		return x402.Errorf(x402.PolicyUnsealed, "not sealed")
	}
	return g.Guard.CheckConfig(ctx)
}

// On Solana the fee payer is signed in, and it is the seller's: no facilitator of ours could settle.
func TestOnSolanaTheWalletNeverSettlesWhatASellerIgnored(t *testing.T) {
	f := facts{answer: &seller.Answer{Status: 402, Challenge: &wire.Challenge{}}}
	f.paid.Network, f.paid.Asset, f.paid.PayTo = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "mint", "payee"
	f.answer.Challenge.Accepts = []x402.Requirement{{Network: f.paid.Network, Asset: "mint", PayTo: "payee"}}
	for _, d := range []x402.Dialect{"x-v2", "x-v1"} {
		f.paid.Dialect = d
		require.False(t, f.isUnheard())
	}
	f.paid.Network, f.answer.Challenge.Accepts[0].Network = testNetwork, testNetwork
	require.True(t, f.isUnheard(), "the test asks the right thing")
}

// However far it came before its process ended, or before a facilitator lost its answer: the same call goes
// on with the same bytes, and one of all of them moves the money.
func TestAnIgnoredPaymentIsTakenUpAgain(t *testing.T) {
	for name, interrupt := range map[string]func(b *bench){
		"no facilitator was there":     func(b *bench) { b.settler.outcome = facilitator.NotSent },
		"the facilitator left it open": func(b *bench) { b.settler.outcome = facilitator.Unknown },
		"it was settled, and nobody heard": func(b *bench) {
			b.settler.outcome = facilitator.Unknown
			script := b.seller.script
			b.seller.script = func(s *scriptedSeller, nonce string, n uint64) (*seller.Answer, error) {
				defer s.chain.settleLater(nonce, n)
				return script(s, nonce, n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "10000", takesProof)
			b.seller.header = "X-Payment-Required"
			interrupt(b)
			require.Error(t, must.Err(b.Pay(t.Context(), get(testURL))))
			require.Equal(t, history.Unknown, b.only(t).State)
			b.chain.landed()
			b.settler.outcome = facilitator.Settled
			b.seller.script = takesProof
			r := b.mustBuy(t, testURL)
			require.Equal(t, "sunny", r.Content)
			require.Equal(t, 1, b.chain.signed)
			require.Equal(t, 1, b.chain.settlements())
			for _, seen := range b.settler.seen {
				require.Equal(t, b.settler.seen[0], seen, fmt.Sprint(b.settler.seen))
			}
		})
	}
}

// settleLater is a settlement that is mined when landed is called.
func (c *chain) settleLater(nonce string, amount uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, func() { c.settle(nonce, amount) })
}

func (c *chain) landed() {
	c.mu.Lock()
	list := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, settle := range list {
		settle()
	}
}

// The defects of x402-solana-mcp's payer that no other test names.

// A seller that takes the payment and asks again has served nothing. It stays held
// until the chain is asked, and asking again never signs again.
func TestA402AfterPayingIsNoSuccess(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		return s.asks(), nil
	})
	require.Equal(t, "10000", code(t, x402.PaymentRejected, must.Err(b.Pay(t.Context(), get(testURL)))).Spent)
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status, "the chain says that it was paid")
	require.Equal(t, 402, r.HTTPStatus)
	require.Equal(t, history.Settled, b.only(t).State)
	require.Equal(t, 1, b.chain.signed)
}

// A receipt without a transaction is a receipt, and what was bought is not thrown away.
func TestAReceiptWithoutATransaction(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		a := served(nonce)
		a.Settlement.Transaction = ""
		return a, nil
	})
	r := b.mustBuy(t, testURL)
	require.Equal(t, "sunny", r.Content)
	b.reconcile(t)
	p := b.only(t)
	require.Equal(t, history.Chain, p.Proof)
	require.NotEmpty(t, p.Transaction, "the chain knows it")
}

// Not the first option is tried but all of them, and only an exact one with a plain amount is paid.
func TestTheOptionThatCanBePaidIsPaid(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Transport = menu{b.seller, testURL, []string{anOption("exact", "eip155:8453", "10000"),
		anOption("upto", testNetwork, "1"), anOption("exact", testNetwork, "0x10"),
		anOption("exact", testNetwork, "10000")}}
	r := b.mustBuy(t, testURL)
	require.Equal(t, "10000", r.AmountPaid.String())
	require.Equal(t, testNetwork, r.Network)
	require.Equal(t, uint64(990_000), b.chain.balance)
}

// paused is a chain that shows only at the signature that one of the options cannot be paid.
type paused struct {
	*chain
	why *x402.Error
}

func (p paused) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	if o.Requirement.Amount.String() == "10000" {
		return onchain.Authorization{}, p.why
	}
	return p.chain.Authorize(ctx, o)
}

type twoPrices struct{ *scriptedSeller }

func (s twoPrices) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	a, err := s.scriptedSeller.Ask(ctx, r)
	dearer := a.Challenge.Accepts[0]
	dearer.Index, dearer.Amount = 1, money.NewAmount(20_000)
	a.Challenge.Accepts = append(a.Challenge.Accepts, dearer)
	return a, err
}

// What the chain refuses at the signature is a reason against one option: nothing of it is held any more,
// and the next is paid. What is not about the option ends the call.
func TestAnOptionThatFailsAtTheSignatureIsPassedOver(t *testing.T) {
	for code, paid := range map[x402.Code]bool{x402.InvalidRequirement: true, x402.RPCError: true,
		x402.InsufficientFunds: true, x402.DelegateMismatch: true, x402.WalletLocked: false,
		x402.LedgerUnavailable: false} {
		t.Run(string(code), func(t *testing.T) {
			b := newBench(t, "10000", honest)
			why := x402.Errorf(code, "the token is paused")
			b.Schemes = map[SchemeKey]Scheme{exactEVM: paused{b.chain, why}}
			b.Transport = twoPrices{b.seller}
			r, err := b.Pay(t.Context(), get(testURL))
			states := map[history.State]int{}
			list := must.Get(b.store.Recent(t.Context(), 10))(t)
			for _, p := range list {
				states[p.State]++
			}
			if !paid {
				require.True(t, x402.HasCode(err, code), "%v", err)
				require.Equal(t, map[history.State]int{history.Failed: 1}, states)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "20000", r.AmountPaid.String())
			require.Equal(t, map[history.State]int{history.Failed: 1, history.Settled: 1}, states)
			require.Equal(t, 1, b.chain.signed)

			b.Transport = b.seller // the only option: its reason is the answer
			_, err = b.Pay(t.Context(), get(testURL+"?other"))
			e := x402.AsError(err)
			require.Equal(t, code, e.Code)
			require.Contains(t, e.Message, "the token is paused")
			require.Empty(t, e.Spent)
		})
	}
}

// signedElsewhere is an unlock agent that signed, and whose answer was lost.
type signedElsewhere struct {
	*chain
	b *bench
}

func (s signedElsewhere) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	a, _ := s.chain.Authorize(ctx, o)
	p, err := s.b.store.Payment(ctx, o.Payment)
	if err == nil {
		signed := history.Signed{Payload: a.Payload, Requirement: p.Requirement, Evidence: a.Evidence,
			UniqueKey: a.Evidence.Unique()}
		err = s.b.Guard.Submit(ctx, p, signed, false)
	}
	return onchain.Authorization{}, errors.Join(x402.Errorf(x402.RPCError, "no answer"), err)
}

// Where a signature may exist, no other option is signed beside it.
func TestNoOtherOptionIsPaidBesideASignature(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Schemes = map[SchemeKey]Scheme{exactEVM: signedElsewhere{b.chain, b}}
	b.Transport = twoPrices{b.seller}
	e := b.mustRefuse(t, x402.RPCError, testURL)
	require.Equal(t, 1, b.chain.signed)
	p := b.only(t)
	require.Equal(t, history.Submitted, p.State)
	require.Equal(t, []string{p.ID, "10000"}, []string{e.PaymentID, e.Spent})
}
