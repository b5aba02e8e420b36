package pay

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
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
	t.Helper()
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
	code(t, x402.PolicyDenied, err)
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
		agent, status string
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
	code(t, x402.PolicyDenied, err)
	require.NoError(t, b.MayAsk(WithAgent(t.Context(), "ann"), seller.Request{Method: "GET", URL: testURL}))
	_, err = b.NewCharge(WithAgent(t.Context(), "bob"), get(testURL))
	code(t, x402.PolicyDenied, err)
}

// No caller takes the key of a subscription's slot: whoever could would have a slot's purchase, or be one.
func TestSubscriptionKeysAreTheWallets(t *testing.T) {
	const key = "x402-subscription:news:20270327T023000Z:20270327T023000Z"
	q := Request{Request: seller.Request{URL: "https://api.example/"}, IdempotencyKey: key}
	_, err := q.parse("")
	code(t, x402.InvalidArgument, err)
	q.OfSubscription = true
	in := must.Get(q.parse(""))(t)
	plain := Request{Request: seller.Request{Method: "get", URL: "https://api.example:443"}}
	ordered := must.Get(plain.Row(""))(t)
	require.Equal(t, ordered.Fingerprint, in.fingerprint, "the rules know the request by the same")
	require.Equal(t, []string{"api.example", "GET api.example/"}, []string{ordered.Host, ordered.Resource()})
	require.NotEqual(t, must.Get(plain.Row("a"))(t).Fingerprint, in.fingerprint)
	q.IdempotencyKey = "mine"
	_, err = q.parse("")
	code(t, x402.InvalidArgument, err)
}

func subscribed(t *testing.T, b *bench, every time.Duration) (s budget.Subscription, q Request) {
	t.Helper()
	q = get(testURL)
	facts := must.Get(b.Store.Facts(t.Context(), history.Question{}))(t)
	row := must.Get(q.Row(""))(t)
	s = budget.Subscription{Name: "news", Since: facts.Now.Add(-10 * every).Truncate(time.Second),
		Every: every, Until: facts.Now.Add(1000 * every), Max: 10_000, Total: 25_000,
		Request: row.Fingerprint, Host: row.Host, Resource: row.Resource(), PayTo: []string{testPayee}}
	b.Rules.Subscriptions = map[string]budget.Subscription{s.Name: s}
	slot, in := s.Slot(facts.Now)
	require.True(t, in)
	q.IdempotencyKey, q.OfSubscription = s.Key(slot), true
	return s, q
}

// A slot is one purchase, above approve_above without asking, and none that the agent made by itself; its
// owner is told when the next one could not be paid.
func TestASlotIsOnePurchase(t *testing.T) {
	b := newBench(t, "10000", honest)
	b.Rules.ApproveAbove = 1
	left := money.NewAmount(19_999)
	b.Schemes[exactEVM] = limited{chain: b.chain, delegated: &left}
	s, q := subscribed(t, b, 24*time.Hour)
	_, err := b.Pay(t.Context(), get(testURL))
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "the agent's own call: %v", err)
	first := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, StatusPaid, first.Status)
	again := must.Get(b.Pay(t.Context(), q))(t)
	require.Equal(t, []string{StatusReplayed, first.PaymentID}, []string{again.Status, again.PaymentID})
	funds := b.alerts(t, alerts.Funds)
	require.Len(t, funds, 1, "although low_funds is not set")
	require.Equal(t, b.Rules.Month, funds[0].Detail.Renew)

	other := q
	other.URL += "?other"
	_, err = b.Pay(t.Context(), other)
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "the key is another request's: %v", err)
	delete(b.Rules.Subscriptions, "news")
	q.IdempotencyKey = s.Key(s.Since) // of another slot
	_, err = b.Pay(t.Context(), q)
	code(t, x402.PolicyDenied, err)
}
