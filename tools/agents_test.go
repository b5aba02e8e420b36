package tools

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// An agent with a name is shown what it bought itself, by every way of asking; who has no name everything.
func TestAnAgentIsShownItsOwn(t *testing.T) {
	w := newWorld(t, rules{})
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	day := dollars("0.5")
	w.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {Day: &day}, "bob": {}}
	as := func(agent string) context.Context { return pay.WithAgent(t.Context(), agent) }
	ids := map[string]string{}
	for _, agent := range []string{"ann", "bob", ""} {
		r := must.Get(w.wallet.Engine.Pay(as(agent), pay.Request{Request: seller.Request{Method: "GET",
			URL: w.SellerURL + "/weather"}}))(t)
		ids[agent] = r.PaymentID
	}
	s := w.server()
	sees := func(agent, id string) bool {
		ctx := as(agent)
		_, err := w.wallet.History(ctx, HistoryIn{PaymentID: id, Evidence: true})
		request := func(uri string) *mcp.ReadResourceRequest {
			return &mcp.ReadResourceRequest{Params: &mcp.ReadResourceParams{URI: uri}}
		}
		_, errPayment := s.readPayment(ctx, request(paymentsURI+id))
		content, errContent := s.readContent(ctx, request(paymentsURI+id+contentEnd))
		require.Equal(t, err == nil, errPayment == nil)
		require.Equal(t, err == nil, errContent == nil)
		if err == nil {
			require.Equal(t, sandbox.Content("/weather"), content.Contents[0].Text)
		} else {
			require.Equal(t, "there is no payment with this id", x402.AsError(err).Message)
		}
		return err == nil
	}
	for agent := range ids {
		for buyer, id := range ids {
			require.Equal(t, agent == "" || agent == buyer, sees(agent, id), "%q asks for %q's", agent, buyer)
		}
		out := must.Get(w.wallet.History(as(agent), HistoryIn{}))(t)
		if agent == "" {
			require.Equal(t, 3, out.Count)
			out, err := w.wallet.History(as(""), HistoryIn{Whose: Whose{Agent: "ann"}}) // the owner asks
			require.NoError(t, err)
			require.Equal(t, ids["ann"], out.Transactions[0].PaymentID)
		}
		if agent != "" {
			out = must.Get(w.wallet.History(as(agent), HistoryIn{}))(t)
			require.Equal(t, ids[agent], out.Transactions[0].PaymentID)
		}
		if out.Count != 3 {
			require.Equal(t, 1, out.Count)
			require.Equal(t, "0.001", out.Totals["USDC"])
		}
	}
	out := must.Get(w.wallet.History(as("bob"), HistoryIn{Whose: Whose{Agent: "ann"}}))(t)
	require.Equal(t, ids["bob"], out.Transactions[0].PaymentID, "bob asks for nobody else's")

	w.wallet.Engine.Rules.Teams = budget.Teams{"all": {}, "news": {Agents: []string{"a*"}, Parent: "all"},
		"idle": {Agents: []string{"zoe"}}}
	for _, look := range []struct {
		Whose
		want int
	}{
		{Whose{Agent: "*"}, 2}, {Whose{Agent: "b*"}, 1}, {Whose{Agent: "c*"}, 0},
		{Whose{Team: "news"}, 1}, {Whose{Team: "all"}, 1}, {Whose{Team: "idle"}, 0},
		{Whose{Team: "news", Agent: "bob"}, 0}, {Whose{Team: "news", Agent: "ann"}, 1},
	} {
		out := must.Get(w.wallet.History(as(""), HistoryIn{Whose: look.Whose}))(t)
		require.Equal(t, look.want, out.Count, "%+v", look.Whose)
		require.Len(t, out.Totals, min(look.want, 1)*3, "%+v", look.Whose) // USDC, by seller, by network
	}
	_, err := w.wallet.History(as(""), HistoryIn{Whose: Whose{Team: "sales"}})
	require.True(t, x402.HasCode(err, x402.InvalidArgument), "%v", err)
}

// x402_check_balance shows an agent its own windows, beside the owner's.
func TestAnAgentsBalance(t *testing.T) {
	w := newWorld(t, rules{})
	day := dollars("0.5")
	w.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {Day: &day}}
	out := must.Get(w.wallet.Balance(pay.WithAgent(t.Context(), "ann"), "", ""))(t)
	require.Equal(t, "ann", out.Budget.Agent.Name)
	require.Equal(t, day, *out.Budget.Agent.Day.Remaining)
	require.Equal(t, dollars("10"), *out.Budget.Day.Limit)
	out = must.Get(w.wallet.Balance(t.Context(), "", ""))(t)
	require.Nil(t, out.Budget.Agent)
}

// The status names what an agent left unfinished, and which of its questions wait for a person; of all
// agents to who has no name.
func TestAnAgentsStatus(t *testing.T) {
	w := newWorld(t, rules{})
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	w.wallet.Engine.Rules.Agents = map[string]budget.Agent{"ann": {}, "bob": {}}
	w.Inject("seller asks again", 1)
	q := pay.Request{Request: seller.Request{Method: "GET", URL: w.SellerURL + "/weather"}}
	_, err := w.wallet.Engine.Pay(pay.WithAgent(t.Context(), "ann"), q)
	require.True(t, x402.HasCode(err, x402.PaymentRejected), "%v", err)
	w.wallet.Engine.Rules.ApproveAbove = 0
	_, err = w.wallet.Engine.Pay(pay.WithAgent(t.Context(), "bob"), q)
	require.True(t, x402.HasCode(err, x402.ApprovalRequired), "%v", err)
	for _, c := range []struct {
		agent                 string
		unfinished, approvals int
	}{{"ann", 1, 0}, {"bob", 0, 1}, {"", 1, 1}} {
		var out walletStatus
		require.NoError(t, w.wallet.status(pay.WithAgent(t.Context(), c.agent), &out))
		require.Len(t, out.Unfinished, c.unfinished, "%q", c.agent)
		require.Len(t, out.Approvals, c.approvals, "%q", c.agent)
	}
	waiting := must.Get(w.wallet.Store.Approvals(t.Context()))(t)
	require.Equal(t, "bob", waiting[0].Agent)
	var all walletStatus
	require.NoError(t, w.wallet.status(t.Context(), &all))
	require.Equal(t, []any{waiting[0].ID, "$0.001"}, []any{all.Approvals[0].ID, all.Approvals[0].Price})
	require.NotContains(t, waiting[0].Why, "bob")
}
