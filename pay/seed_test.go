package pay

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The defects of x402-solana-mcp's payer that no other test names.

// A seller that takes the payment and asks again has served nothing. It stays held
// until the chain is asked, and asking again never signs again.
func TestA402AfterPayingIsNoSuccess(t *testing.T) {
	b := newBench(t, "10000", func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		s.chain.settle(nonce, amount)
		return s.asks(), nil
	})
	_, err := b.Pay(t.Context(), get(testURL))
	require.Equal(t, "10000", code(t, x402.PaymentRejected, err).Spent)
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
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusPaid, r.Status)
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
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusPaid, r.Status)
	require.Equal(t, "10000", r.AmountPaid.String())
	require.Equal(t, testNetwork, r.Network)
	require.Equal(t, uint64(990_000), b.chain.balance)
}

// paused is a chain that shows only at the signature that one of the options cannot be paid.
type paused struct {
	*chain
	why *x402.Error
}

func (p paused) Authorize(ctx context.Context, o x402.Order) (x402.Authorization, error) {
	if o.Requirement.Amount.String() == "10000" {
		return x402.Authorization{}, p.why
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
			list, listing := b.store.Recent(t.Context(), 10)
			require.NoError(t, listing)
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

func (s signedElsewhere) Authorize(ctx context.Context, o x402.Order) (x402.Authorization, error) {
	a, _ := s.chain.Authorize(ctx, o)
	p, err := s.b.store.Payment(ctx, o.Payment)
	if err == nil {
		signed := history.Signed{Payload: a.Payload, Requirement: p.Requirement, Evidence: a.Evidence,
			UniqueKey: a.Evidence.Unique()}
		err = s.b.Guard.Submit(ctx, p, signed, false)
	}
	return x402.Authorization{}, errors.Join(x402.Errorf(x402.RPCError, "no answer"), err)
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
