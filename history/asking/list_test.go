package asking_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/report"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func eachLedger(t *testing.T, test func(t *testing.T, s *history.Store)) {
	t.Helper()
	historytest.EachEngine(t, historytest.Options(),
		func(t *testing.T, s *history.Store, _ *historytest.Clock) { test(t, s) })
}

// asks are n questions to be asked together.
func asks(n int) (all []history.Approval) {
	p := historytest.Hold(250_000).Payment
	for i := range n {
		all = append(all, history.Approval{Quote: [32]byte{byte(100 + i)},
			Host:   fmt.Sprintf("shop%d.example", i%3),
			Method: p.Method, URL: fmt.Sprint(p.URL, "/", i), Network: p.Network, Asset: p.Asset,
			Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, Why: history.OnTheList})
	}
	return all
}

func askedTogether(t *testing.T, s *history.Store, n int) []history.Approval {
	t.Helper()
	return must.Get(asking.Asker{Store: s}.AskApprovals(t.Context(), asks(n)))(t)
}

// What was asked together is answered together, by the list's id or by any of its approvals'.
func TestAListIsDecidedTogether(t *testing.T) {
	seal := func(history.Approval) ([]byte, error) { return []byte("owner"), nil }
	for name, c := range map[string]struct {
		decide func(s *history.Store, id string) error
		want   history.Decision
	}{
		"approve": {func(s *history.Store, id string) error {
			return must.Err(s.Approve(context.Background(), id, history.ByOwner, seal))
		}, history.Approved},
		"accept": {func(s *history.Store, id string) error {
			return must.Err(s.Accept(context.Background(), id, "client"))
		}, history.Approved},
		"deny": {func(s *history.Store, id string) error {
			return must.Err(s.Deny(context.Background(), id, history.ByOwner))
		}, history.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			eachLedger(t, func(t *testing.T, s *history.Store) {
				all := askedTogether(t, s, 12)
				require.Equal(t, all, askedTogether(t, s, 12), "the same list is the same question")
				id := history.ListOf(all[0].ID)
				shown := must.Get(s.Asked(t.Context(), all[7].ID))(t)
				require.Equal(t, id, shown.ID)
				require.Equal(t, money.Dollars(12*250_000), shown.Price)
				require.Equal(t, "3 hosts", shown.Host)
				require.Len(t, shown.Together, 12)

				require.NoError(t, c.decide(s, id))
				now := must.Get(s.Asked(t.Context(), id))(t)
				for _, a := range now.Together {
					require.Equal(t, c.want, a.State)
				}
				require.NotEqual(t, shown.ShownDigest(), now.ShownDigest())
				must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
			})
		})
	}
}

// A list takes the place of the questions that were open about single ones of its payments, and is one
// question in everything that bounds questions.
func TestAListIsOneQuestion(t *testing.T) {
	eachLedger(t, func(t *testing.T, s *history.Store) {
		single := asks(1)[0]
		single = must.Get(asking.Asker{Store: s}.AskApproval(t.Context(), single))(t)
		small := askedTogether(t, s, 2)
		require.Equal(t, history.Expired, must.Get(s.Approval(t.Context(), single.ID))(t).State)
		all := askedTogether(t, s, 50) // more than the questions that one process or host may have
		waiting := must.Get(report.OpenApprovals(t.Context(), s))(t)
		require.Len(t, waiting, 50)
		for _, a := range waiting {
			require.Equal(t, history.ListOf(all[0].ID), history.ListOf(a.ID))
		}
		require.NotEqual(t, history.ListOf(small[0].ID), history.ListOf(all[0].ID))

		for range 2 { // noes at a client; the third would be the end
			must.Get(s.Decline(t.Context(), all[0].ID, "client"))(t)
		}
		_, err := asking.Asker{Store: s}.AskApprovals(t.Context(), asks(50))
		var no *history.Declined
		require.ErrorAs(t, err, &no)
		require.Equal(t, "this", no.About, "and not as one who said no 100 times")
		require.Equal(t, 2, no.Times)

		free := asks(60)[55:] // others are asked about: two noes are two, whatever the list
		must.Get(asking.Asker{Store: s}.AskApprovals(t.Context(), free))(t)
	})
}
