package pay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// agentBench is an engine whose wallet two agents share, ann with a day of two purchases.
func agentBench(t *testing.T) *bench {
	b := newBench(t, "10000", honest)
	b.withAgents()
	return b
}

func (b *bench) withAgents() {
	b.Rules.Agents = map[string]budget.Agent{"ann": {Day: new(money.Dollars(20_000))}, "bob": {}}
}

func (b *bench) buysAs(t *testing.T, agent string, q Request) (Result, error) {
	ctx := WithAgent(t.Context(), agent)
	r, err := b.Pay(ctx, q)
	if err == nil {
		b.Delivered(ctx, r.Status, r.PaymentID)
	}
	return r, err
}

func TestAgentFrom(t *testing.T) {
	require.Equal(t, "ann", AgentFrom(WithAgent(t.Context(), "ann")))
	require.Empty(t, AgentFrom(t.Context()))
	ctx := WithCall(WithAgent(t.Context(), "ann"), new(Call))
	require.Equal(t, "ann", AgentFrom(context.WithoutCancel(ctx)), "also when its client has left")
}

// A payment knows whose it is, and counts in that agent's windows and no other's.
func TestAnAgentsWindowIsItsOwn(t *testing.T) {
	b := agentBench(t)
	for range 2 {
		r := must.Get(b.buysAs(t, "ann", get(testURL)))(t)
		require.Equal(t, "ann", must.Get(b.store.Payment(t.Context(), r.PaymentID))(t).Agent)
		require.Equal(t, money.Dollars(20_000), r.Budget.AgentDay.Limit, "the tightest window")
	}
	_, err := b.buysAs(t, "ann", get(testURL))
	e := x402.AsError(err)
	require.Equal(t, x402.BudgetExceeded, e.Code, "%v", err)
	require.Equal(t, []any{"agent", "day", "ann"},
		[]any{e.Details["layer"], e.Details["window"], e.Details["agent"]})
	for _, other := range []string{"bob", ""} {
		must.Get(b.buysAs(t, other, get(testURL)))(t)
	}
}

// Two agents of a team fill its window together, the answer says what is left of it, and who is in no team
// pays on.
func TestATeamsWindowIsOfAllItsAgents(t *testing.T) {
	b := agentBench(t)
	b.Rules.Agents["ann"] = budget.Agent{}
	b.Rules.Agents["amy"] = budget.Agent{}
	b.Rules.Teams = budget.Teams{"research": {Agents: []string{"a*"}, Day: new(money.Dollars(20_000))}}
	for i, agent := range []string{"ann", "amy"} {
		r := must.Get(b.buysAs(t, agent, get(testURL)))(t)
		require.Equal(t, &Budgets{TeamDay: &Window{Team: "research", Limit: 20_000,
			Spent: money.Dollars(10_000 * (i + 1)), Remaining: money.Dollars(10_000 * (1 - i))}}, r.Budget)
	}
	_, err := b.buysAs(t, "ann", get(testURL))
	e := x402.AsError(err)
	require.Equal(t, x402.BudgetExceeded, e.Code, "%v", err)
	require.Equal(t, []any{"team", "day", "research"},
		[]any{e.Details["layer"], e.Details["window"], e.Details["team"]})
	require.Equal(t, "x402-wallet budget set day 0.03 --team research", e.NextStep().Command)
	for _, other := range []string{"bob", ""} {
		must.Get(b.buysAs(t, other, get(testURL)))(t)
	}
}

func TestARevokedAgentPaysNothing(t *testing.T) {
	b := agentBench(t)
	_, err := b.buysAs(t, "gone", get(testURL))
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.Zero(t, b.seller.asked)
	require.Empty(t, must.Get(b.store.Recent(t.Context(), 1))(t))
}

// What one agent paid for and did not get goes to its own next call for the same, and to nobody else's.
func TestWhatAnAgentBoughtIsItsOwn(t *testing.T) {
	for _, key := range []string{"", "k"} {
		t.Run("key "+key, func(t *testing.T) {
			b := agentBench(t)
			q := get(testURL)
			q.IdempotencyKey = key
			first := must.Get(b.Pay(WithAgent(t.Context(), "ann"), q))(t)
			b.Lost(t.Context(), first.PaymentID) // the answer never reached ann
			for _, other := range []string{"bob", ""} {
				r := must.Get(b.buysAs(t, other, q))(t)
				require.Equal(t, StatusPaid, r.Status, "%q buys its own", other)
				require.NotEqual(t, first.PaymentID, r.PaymentID)
			}
			r := must.Get(b.buysAs(t, "ann", q))(t)
			require.Equal(t, StatusReplayed, r.Status)
			require.Equal(t, first.PaymentID, r.PaymentID)
		})
	}
}

// Signing in gets what the same agent bought before; who has no name signs in for whatever was bought.
func TestNoAgentSignsInForWhatAnotherBought(t *testing.T) {
	b := newSignInBench(t, budget.RuleAllow)
	b.withAgents()
	for _, buyer := range []struct {
		agent  string
		status string
	}{{"ann", StatusPaid}, {"bob", StatusPaid}, {"bob", StatusFree}, {"ann", StatusFree}, {"", StatusFree}} {
		r := must.Get(b.buysAs(t, buyer.agent, get(testURL)))(t)
		require.Equal(t, buyer.status, r.Status, "%q", buyer.agent)
	}
	var signedIn []string
	for _, p := range b.rows(t) {
		if p.IsSignIn() {
			signedIn = append(signedIn, p.Agent)
		}
	}
	require.Equal(t, []string{"bob", "ann", ""}, signedIn, "a sign-in is an agent's, too")
}

// A deposit counts in the windows of the agent that makes it, so nobody else's vouchers spend it: each has a
// channel of its own with the same seller.
func TestAgentsHaveTheirOwnChannels(t *testing.T) {
	b, _ := ownersBench(t)
	ids := map[string]bool{}
	for _, agent := range []string{"", "ann", "bob"} {
		o := batchAsked("0xSeller")
		row, _, _, err := b.openBatch(t.Context(), intent{host: testHost, agent: agent}, &o, true)
		require.NoError(t, err)
		again, _, _, err := b.openBatch(t.Context(), intent{host: testHost, agent: agent}, &o, true)
		require.NoError(t, err)
		require.Equal(t, row.ID, again.ID)
		ids[row.ID] = true
	}
	require.Len(t, ids, 3)
	require.Regexp(t, "^0x[0-9a-f]{64}$", channelSalt("ann"))
}

// The quote that a person approves is one agent's: another one's same call is asked about anew.
func TestAnApprovalIsOneAgents(t *testing.T) {
	b := agentBench(t)
	b.Rules.ApproveAbove = 1
	_, err := b.buysAs(t, "ann", get(testURL))
	asked := x402.AsError(err)
	require.Equal(t, x402.ApprovalRequired, asked.Code)
	require.NoError(t, b.Accept(t.Context(), asked.Details["approvalId"].(string), "a person"))
	_, err = b.buysAs(t, "bob", get(testURL))
	other := x402.AsError(err)
	require.Equal(t, x402.ApprovalRequired, other.Code, "%v", err)
	require.NotEqual(t, asked.Details["approvalId"], other.Details["approvalId"])
	must.Get(b.buysAs(t, "ann", get(testURL)))(t)
}

func TestAnAgentsHostsAreAsked(t *testing.T) {
	b := agentBench(t)
	b.Rules.Agents["bob"] = budget.Agent{AllowHosts: []string{"other.example"}}
	err := b.MayAsk(WithAgent(t.Context(), "bob"), seller.Request{Method: "GET", URL: testURL})
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
	require.NoError(t, b.MayAsk(WithAgent(t.Context(), "ann"), seller.Request{Method: "GET", URL: testURL}))
	_, err = b.NewCharge(WithAgent(t.Context(), "bob"), get(testURL))
	require.True(t, x402.HasCode(err, x402.PolicyDenied), "%v", err)
}
