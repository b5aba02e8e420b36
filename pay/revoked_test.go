package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// onSolana is a play chain whose funds the test sets.
type onSolana struct {
	*chain
	funds x402.Funds
}

func (s *onSolana) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	f := s.funds
	f.ReadAt = time.Now()
	return f, nil
}

func delegatedFunds(units uint64) x402.Funds {
	amount := money.NewAmount(units)
	return x402.Funds{Source: "OwnersAccount", Delegated: &amount, Balance: money.NewAmount(1 << 30),
		Free: amount}
}

func ownFunds(units uint64) x402.Funds {
	return x402.Funds{Source: "OwnAccount", Address: "Agent", Balance: money.NewAmount(units),
		Free: money.NewAmount(units)}
}

func newSolanaBench(t *testing.T, price string) (*bench, *onSolana) {
	const usdc = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
	const payee = "2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4"
	b := newBench(t, price, honest)
	node := &onSolana{b.chain, delegatedFunds(1_000_000)}
	b.seller.network, b.seller.asset, b.seller.payee = x402.SolanaDevnet, usdc, payee
	b.Schemes[SchemeKey{Scheme: x402.Exact, Family: "solana"}] = node
	b.Settler = facilitators(t)
	return b, node
}

// Once the owner's account was paid from and delegates nothing more, the agent does not ask for money to be
// sent to itself: it asks for a delegation.
func TestARevokedDelegationIsNoLackOfFunds(t *testing.T) {
	for name, c := range map[string]struct {
		before, now x402.Funds
		code        x402.Code
	}{
		"revoked":                     {delegatedFunds(50_000), ownFunds(0), x402.NoDelegation},
		"with too little of its own":  {delegatedFunds(50_000), ownFunds(5), x402.InsufficientFunds},
		"never delegated":             {ownFunds(50_000), ownFunds(0), x402.InsufficientFunds},
		"delegated, and not enough":   {delegatedFunds(50_000), delegatedFunds(5), x402.DelegationExhausted},
		"delegated by somebody else":  {ownFunds(50_000), delegatedFunds(5), x402.DelegationExhausted},
		"revoked, and its own enough": {delegatedFunds(50_000), ownFunds(50_000), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, node := newSolanaBench(t, "10000")
			node.funds = c.before
			b.mustBuy(t, testURL)
			node.funds = c.now
			estimate := b.estimate(t, testURL+"/2")
			require.Equal(t, c.code, estimate.Options[0].Code)
			if c.code == "" {
				b.mustBuy(t, testURL+"/2")
				return
			}
			refused := b.mustRefuse(t, c.code, testURL+"/2")
			if c.code == x402.NoDelegation {
				require.Contains(t, refused.NextStep().Command, "delegation approve")
				require.Contains(t, refused.NextStep().Command, "--token-account OwnersAccount")
				require.NotContains(t, refused.Message+refused.NextStep().Say, "send")
			}
		})
	}
}

// It was the account that was paid from last, in this token: what was paid from before that is over.
func TestARevokedDelegation_LastPaidFromItsOwn(t *testing.T) {
	b, node := newSolanaBench(t, "10000")
	b.mustBuy(t, testURL)
	node.funds = ownFunds(10_000)
	b.mustBuy(t, testURL+"/2")
	node.funds = ownFunds(0)
	b.mustRefuse(t, x402.InsufficientFunds, testURL+"/3")

	b, node = newSolanaBench(t, "10000")
	b.mustBuy(t, testURL)
	node.funds = ownFunds(0)
	b.mustRefuse(t, x402.NoDelegation, testURL+"/2")
	b.seller.asset = "4F6PM96JJxngmHnZLBh9n58RH4aTVNWvDs2nuwrT5BP7" // another token
	b.mustRefuse(t, x402.InsufficientFunds, testURL+"/2")
}

// A session whose cap was delegated says so, and how what is delegated since counts.
func TestACapThatWasDelegatedIsNoBudgetThatSomebodySet(t *testing.T) {
	b, node := newSolanaBench(t, "600000")
	b.Rules.Session = nil
	b.Delegated = func(context.Context, string, string) (*money.Dollars, error) {
		return new(money.Dollars(1_000_000)), nil
	}
	b.mustBuy(t, testURL)
	node.funds = delegatedFunds(50_000_000)
	refused := b.mustRefuse(t, x402.BudgetExceeded, testURL+"/2")
	require.Contains(t, refused.Message, "no session budget is set")
	require.Contains(t, refused.Message, "delegated when the session began")
	require.Equal(t, "x402-wallet session new", refused.NextStep().Command)
	require.NotContains(t, refused.NextStep().Say, "raise")
	b.Rules.Session = new(money.Dollars(1_000_000))
	refused = b.mustRefuse(t, x402.BudgetExceeded, testURL+"/2")
	require.Contains(t, refused.NextStep().Command, "budget set session")
	_, over := budget.Rules{PerCall: 1 << 40, Day: 1 << 40, Month: 1 << 40}.Limit(budget.Ask{Price: 5},
		budget.Facts{Session: budget.Session{ID: "s", Cap: new(money.Dollars(1))}})
	require.Equal(t, "x402-wallet session new", over.NextStep().Command)
}
