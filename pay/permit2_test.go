package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/scheme/permit2"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// permits is the play chain with Permit2: what it may move, and what of an upto payment was taken.
type permits struct {
	*chain
	allowance  uint64
	taken      uint64 // of the last one; 0: all
	extensions map[string]json.RawMessage
}

func (p *permits) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	funds, err := p.chain.Funds(ctx, network, asset)
	allowance := money.NewAmount(p.allowance)
	funds.Permitted = &allowance
	return funds, err
}

func (p *permits) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	p.extensions = o.Extensions
	a, err := p.chain.Authorize(ctx, o)
	a.Evidence.Way = o.Requirement.Way()
	a.Extensions = map[string]json.RawMessage{x402.EIP2612Sponsoring: json.RawMessage(
		`{"info":{"nonce":"3"}}`)}
	return a, err
}

func (p *permits) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	s, err := p.chain.Status(ctx, e)
	if p.taken > 0 && s.State == x402.Settled {
		amount := money.NewAmount(p.taken)
		s.Amount = &amount
	}
	return s, err
}

const (
	byPermit  = `"assetTransferMethod":"permit2","paymentFlow"`
	sponsored = `"extensions":{"eip2612GasSponsoring":{"info":{"description":"x"},"schema":{"a":1}}},` +
		`"accepts"`
)

func newPermitBench(t *testing.T, answers script, rewrite ...string) (*bench, *permits) {
	b := newBench(t, "1000", answers)
	p := &permits{chain: b.chain}
	b.seller.rewrite = strings.NewReplacer(rewrite...)
	b.Policy.Schemes = []string{x402.Exact, x402.Permit2, x402.Upto}
	b.Schemes[SchemeKey{x402.Permit2, "eip155"}], b.Schemes[SchemeKey{x402.Upto, "eip155"}] = p, p
	return b, p
}

// What Permit2 may not move is refused, in words by which a person can act, unless the seller brings an
// approval; the payment then has it, with all that the seller declared.
func TestPermit2NeedsAnApproval(t *testing.T) {
	b, p := newPermitBench(t, honest, `"paymentFlow"`, byPermit)
	require.Contains(t, b.mustRefuse(t, x402.NoDelegation, testURL).NextStep().Say,
		"approve Permit2 (0x000000000022D473030F116dDEE9F6B43aC78BA3)")
	p.allowance = 999
	b.mustRefuse(t, x402.DelegationExhausted, testURL)
	estimate := b.estimate(t, testURL)
	require.Equal(t, []any{x402.Permit2, false}, []any{estimate.Options[0].Scheme,
		estimate.Options[0].Payable})
	require.Zero(t, p.signed)
	p.allowance = 1000
	b.mustPay(t, testURL)
	require.Equal(t, x402.Permit2, b.only(t).Scheme)

	b, p = newPermitBench(t, honest, `"paymentFlow"`, byPermit, `"accepts"`, sponsored)
	b.mustPay(t, testURL)
	require.Contains(t, p.extensions, x402.EIP2612Sponsoring)
	sent := must.JSON[struct{ Extensions map[string]json.RawMessage }](b.only(t).Payload)(t)
	require.JSONEq(t, `{"info":{"description":"x","nonce":"3"},"schema":{"a":1}}`,
		string(sent.Extensions[x402.EIP2612Sponsoring]))

	b, p = newPermitBench(t, honest, `"paymentFlow"`, byPermit, `"accepts"`, sponsored)
	b.Policy.Schemes = []string{x402.Exact}
	require.Contains(t, b.mustRefuse(t, x402.InvalidRequirement, testURL).Message, "policy.schemes")
	require.Zero(t, p.signed)
}

// Another account than the wallet's own has no channels, and that is said.
func TestCheckWay_AccountByBatchSettlement(t *testing.T) {
	b := newBench(t, "1000", honest)
	b.Policy.Schemes = []string{x402.BatchSettlement}
	require.NoError(t, b.checkWay(x402.BatchSettlement))
	b.Rules.Account = "research"
	require.ErrorContains(t, b.checkWay(x402.BatchSettlement), `not by the account "research"`)
}

// An approval that the seller sends in a transaction of the account's is none unless the owner lets it be;
// then nothing else of that account's transactions is signed until the payment has ended.
func TestAnApprovalByTransactionIsLetByTheOwner(t *testing.T) {
	sent := strings.Replace(sponsored, "eip2612", "erc20Approval", 1)
	b, p := newPermitBench(t, honest, `"paymentFlow"`, byPermit, `"accepts"`, sent)
	e := b.mustRefuse(t, x402.NoDelegation, testURL)
	require.Contains(t, e.Message, x402.ERC20Sponsoring)
	require.Contains(t, e.Hint, `approval_gas under [networks."`+testNetwork+`"]`)
	require.Zero(t, p.signed)

	b.Ways = testWays(map[string]money.Amount{testNetwork: money.NewAmount(1)}, everybody)
	end := must.Get(b.turns.begin(t.Context(), scheme.AccountTurn(testNetwork)))(t) // a float is under way
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, must.Err(b.Pay(short, get(testURL))))
	require.Zero(t, p.signed, "it waits for its turn")
	end()
	b.mustPay(t, testURL)
	require.Equal(t, 1, p.signed)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, err := b.turns.begin(soon, scheme.AccountTurn(testNetwork))
	require.NoError(t, err, "the turn has ended with the payment")
	end()
}

func TestAPermitRefusedThoughSettledIsSettled(t *testing.T) {
	b, p := newPermitBench(t, silent, `"paymentFlow"`, byPermit)
	p.allowance = 1000
	b.mustRefuse(t, x402.OutcomeUnknown, testURL)
	b.seller.script = func(s *scriptedSeller, nonce string, amount uint64) (*seller.Answer, error) {
		require.True(t, s.chain.settle(nonce, amount))
		return &seller.Answer{Status: http.StatusPreconditionFailed}, nil
	}
	r := b.mustPay(t, testURL)
	require.Equal(t, StatusUnserved, r.Status)
	require.Equal(t, []any{history.Settled, history.Chain}, []any{b.only(t).State, b.only(t).Proof})
	require.Equal(t, 1, p.signed)
}

const asksUpto = `"extra":{"facilitatorAddress":"0x1111111111111111111111111111111111111111",`

func says(amount string) script {
	return func(s *scriptedSeller, nonce string, ceiling uint64) (*seller.Answer, error) {
		transaction := ""
		if amount != "0" {
			s.chain.settle(nonce, ceiling)
			transaction = "0xtx"
		}
		raw := fmt.Sprintf(`{"success":true,"transaction":%q,"network":"eip155:84532","amount":%q}`,
			transaction, amount)
		return &seller.Answer{Status: 200, Content: []byte("sunny"), ContentType: "text/plain",
			Settlement: &wire.Settlement{Success: true, Transaction: transaction, Amount: amount,
				Raw: json.RawMessage(raw)}}, nil
	}
}

// All that was signed for counts until the chain has shown what it came to and nothing else can come of it.
func TestUptoCountsWhatWasSignedForUntilItIsProven(t *testing.T) {
	b, p := newPermitBench(t, says("300"), `"exact"`, `"upto"`, `"extra":{`, asksUpto)
	p.allowance, p.taken = 1000, 300
	r := b.mustPay(t, testURL)
	require.Equal(t, []string{"paid", "300", "$0.0003", "$0.001"}, []string{r.Status, r.AmountPaid.String(),
		r.Price, r.UpTo})
	spent := func() money.Dollars {
		t.Helper()
		f := must.Get(b.BudgetFacts(t.Context()))(t)
		return f.Used.Day.Total()
	}
	require.Equal(t, money.Dollars(1000), spent())
	b.reconcile(t)
	require.Equal(t, []any{history.Settled, history.Claimed}, []any{b.only(t).State, b.only(t).Proof},
		"a node that lies about the amount frees nothing that is alive")
	require.Equal(t, money.Dollars(1000), spent())
	b.later()
	b.reconcile(t)
	row := b.only(t)
	require.Equal(t, []any{history.Settled, history.Chain, "1000", "300"}, []any{row.State, row.Proof,
		row.Amount.String(), row.Paid().String()})
	require.Equal(t, money.Dollars(300), spent())
}

// Nothing charged is no settlement, and more than was signed for is no receipt.
func TestWhatAReceiptOfUptoSays(t *testing.T) {
	for amount, want := range map[string]struct {
		state history.State
		paid  string
	}{"0": {history.Unknown, "0"}, "1": {history.Settled, "1"}, "1000": {history.Settled, "1000"},
		"1001": {history.Unknown, "1000"}, "-1": {history.Unknown, "1000"}, "": {history.Settled, "1000"}} {
		t.Run(amount, func(t *testing.T) {
			b, p := newPermitBench(t, says(amount), `"exact"`, `"upto"`, `"extra":{`, asksUpto)
			p.allowance = 1000
			r := b.mustBuy(t, testURL)
			if amount != "1001" && amount != "-1" { // of which the chain is asked at once
				require.Equal(t, want.state, b.only(t).State)
			}
			require.Equal(t, want.paid, r.AmountPaid.String())
		})
	}
	v := judge(facts{sent: true, way: permit2.Upto{},
		paid: history.Payment{Scheme: x402.Upto, Amount: money.NewAmount(1000)},
		answer: &seller.Answer{Status: 200, Settlement: &wire.Settlement{Success: true, Transaction: "0x1",
			Amount: "1001"}}})
	require.Equal(t, []any{history.Unknown, "", true}, []any{v.state, v.transaction, v.served})
	v = judge(facts{sent: true, way: permit2.Upto{},
		paid:   history.Payment{Scheme: x402.Upto, Amount: money.NewAmount(1000)},
		answer: &seller.Answer{Status: 500, Settlement: &wire.Settlement{Success: true, Amount: "0"}}})
	require.Equal(t, []any{history.Unknown, x402.OutcomeUnknown}, []any{v.state, v.code})
}

// What was charged nothing of is let go of at its end, and blames nobody.
func TestUptoChargedNothingEnds(t *testing.T) {
	b, p := newPermitBench(t, says("0"), `"exact"`, `"upto"`, `"extra":{`, asksUpto)
	p.allowance = 1000
	b.mustPay(t, testURL)
	nonce := b.only(t).Evidence.Nonce
	b.reconcile(t)
	require.Equal(t, history.Unknown, b.only(t).State)
	b.chain.dead[nonce] = true
	b.later()
	b.reconcile(t)
	require.Equal(t, []any{history.Failed, false}, []any{b.only(t).State, b.only(t).FalseReceipt})
}

// A facilitator that the owner does not know settles nothing without a person's yes; of another one than that
// was asked about, the person is asked again.
func TestAStrangeFacilitatorAsks(t *testing.T) {
	b, p := newPermitBench(t, says("300"), `"exact"`, `"upto"`, `"extra":{`, asksUpto)
	p.allowance = 1000
	var asked []string
	b.Ways = testWays(nil, func(_ context.Context, network, address string) bool {
		asked = append(asked, network+" "+address)
		return false
	})
	e := b.mustRefuse(t, x402.ApprovalRequired, testURL)
	require.Contains(t, asked, testNetwork+" 0x1111111111111111111111111111111111111111")
	require.NoError(t, b.Accept(t.Context(), e.Details["approvalId"].(string), "person"))
	b.seller.rewrite = strings.NewReplacer(`"exact"`, `"upto"`, `"extra":{`, strings.ReplaceAll(asksUpto,
		"1111", "2222"))
	b.mustRefuse(t, x402.ApprovalRequired, testURL)
	require.Zero(t, p.signed)
	b.seller.rewrite = strings.NewReplacer(`"exact"`, `"upto"`, `"extra":{`, asksUpto)
	b.mustPay(t, testURL)
	b.Ways = testWays(nil, nil)
	b.mustRefuse(t, x402.ApprovalRequired, testURL)
}

// The wallet brings no upto payment to a facilitator itself: it would be charged all that was signed for.
func TestTheWalletDoesNotSettleUpto(t *testing.T) {
	b, p := newPermitBench(t, asksAgain, `"exact"`, `"upto"`, `"extra":{`, asksUpto)
	p.allowance = 1000
	b.seller.header = "X-PAYMENT-REQUIRED"
	b.Policy.WalletSettles = func(string) bool { return true }
	b.mustRefuse(t, x402.PaymentRejected, testURL)
	require.Empty(t, b.settler.seen)
	require.Zero(t, b.chain.settlements())
}
