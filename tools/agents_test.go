package tools

import (
	"context"
	"encoding/base64"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

// An agent with a name is shown what it bought itself, by every way of asking; who has no name everything.
func TestAnAgentIsShownItsOwn(t *testing.T) {
	w := richWorld(t)
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
		_, errPayment := s.reading(readPayment)(ctx, request(paymentsURI+id))
		content, errContent := s.reading(readContent)(ctx, request(paymentsURI+id+contentEnd))
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
	w := richWorld(t)
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
	waiting := must.Get(report.OpenApprovals(t.Context(), w.wallet.Store))(t)
	require.Equal(t, "bob", waiting[0].Agent)
	var all walletStatus
	require.NoError(t, w.wallet.status(t.Context(), &all))
	require.Equal(t, []any{waiting[0].ID, "$0.001"}, []any{all.Approvals[0].ID, all.Approvals[0].Price})
	require.NotContains(t, waiting[0].Why, "bob")
}

// The agent prepares what the owner signs, and stops paying from the account at once; only the
// owner lifts that.
func TestRevokeDelegation(t *testing.T) {
	w := newWorld(t, rules{})
	account := w.Delegate(w.address(sandbox.Solana), sandbox.USDC)
	c := w.serve(t)
	out := c.ok("x402_revoke_delegation", map[string]any{})
	require.Equal(t, []any{sandbox.Solana, account, w.Owner, false},
		[]any{out["network"], out["tokenAccount"], out["owner"], out["frozen"]})
	require.Equal(t, "x402-wallet delegation revoke --owner-keypair FILE --network "+sandbox.Solana+
		" --token-account "+account, out["command"])
	raw := must.Get(base64.StdEncoding.DecodeString(out["transaction"].(string)))(t)
	require.Equal(t, append([]byte{1}, make([]byte, 64)...), raw[:65], "not signed")
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})["status"],
		"asking alone ends nothing")

	require.Equal(t, true, c.ok("x402_revoke_delegation", map[string]any{"freeze": true})["frozen"])
	f := c.refused("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})
	require.Equal(t, x402.WalletFrozen, f.Error)
	require.NotContains(t, f.Hint, "unfreeze")
	require.Equal(t, "nothing is paid from it until the person has looked at it", f.Hint)
	require.Equal(t, "Payments from the account "+account+" are stopped, because its delegation is to be "+
		"revoked: please look at x402-wallet history, and unfreeze if it is right.", f.Next.Say)
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/either"})["status"],
		"from another account")
	must.Get(w.wallet.Store.Unfreeze(t.Context(), nil))(t)
	require.Equal(t, "paid", c.ok("x402_pay", map[string]any{"url": w.SellerURL + "/solana"})["status"])

	// An account is found on whatever network it is, not only on the preferred one.
	w.wallet.Networks = []string{"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", sandbox.Solana}
	for _, arguments := range []map[string]any{{}, {"tokenAccount": account}} {
		require.Equal(t, sandbox.Solana, c.ok("x402_revoke_delegation", arguments)["network"])
		require.Equal(t, sandbox.Solana, c.ok("x402_check_delegation", arguments)["network"])
	}
	w.wallet.Networks = []string{sandbox.Solana}

	// The node is down: the account is frozen all the same.
	w.Inject("solana node down", 100)
	require.Equal(t, x402.RPCError, c.refused("x402_revoke_delegation",
		map[string]any{"tokenAccount": account, "freeze": true}).Error)
	list := must.Get(w.wallet.Store.Freezes(t.Context()))(t)
	require.Len(t, list, 1)
	require.Equal(t, account, list[0].Account)
	w.Heal()
	for _, nonsense := range []string{"x", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "l" + account[1:],
		account[:32]} {
		t.Run(nonsense, func(t *testing.T) {
			require.Equal(t, x402.InvalidArgument, c.refused("x402_revoke_delegation",
				map[string]any{"tokenAccount": nonsense, "freeze": true}).Error)
			list := must.Get(w.wallet.Store.Freezes(t.Context()))(t)
			require.Len(t, list, 1, "it froze what is no account")
		})
	}
}
