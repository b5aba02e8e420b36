package alerts

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

// alertsOf are the alerts of a kind, oldest first.
func alertsOf(t *testing.T, s *history.Store, kind Kind) (list []Alert) {
	t.Helper()
	all := must.Get(List(t.Context(), s, 1_000_000))(t)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Kind == kind {
			list = append(list, all[i])
		}
	}
	return list
}

// A question is one alert, when it is opened; who asks it again, or is not to ask, makes none.
func TestAQuestionIsAnAlert(t *testing.T) {
	wakes := 0
	o := history.Options{Alerts: Writer{Wake: func() { wakes++ }}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		wakes = 0
		first := askedAbout(t, s, 1)
		list := alertsOf(t, s, Approval)
		require.Len(t, list, 1)
		require.Equal(t, first.ID, list[0].Subject)
		require.Equal(t, Waiting, list[0].State)
		require.Equal(t, Detail{Price: first.Price, Host: first.Host, Expires: first.Expires},
			list[0].Detail)
		require.Regexp(t, `^alr_[0-9a-f]{32}$`, list[0].ID)
		askedAbout(t, s, 1)
		second := askedAbout(t, s, 2)
		must.Get(s.Deny(t.Context(), second.ID, "owner"))(t)
		must.Get(asking.Asker{Store: s}.AskApproval(t.Context(),
			history.Approval{Quote: quoteOf(2), Host: second.Host}))(t)
		require.Len(t, alertsOf(t, s, Approval), 2, "it was decided")
		for n := byte(3); ; n++ { // until the host's questions are too many
			p := historytest.Hold(250_000).Payment
			_, err := asking.Asker{Store: s}.AskApproval(t.Context(), history.Approval{
				Quote: quoteOf(n), Host: p.Host,
				Price: p.Price, Method: p.Method, URL: p.URL + string('a'+rune(n))})
			if err != nil {
				require.IsType(t, &history.TooManyPending{}, err)
				break
			}
		}
		require.Len(t, alertsOf(t, s, Approval), 1+perHost, "what was not asked is not told")
		require.Equal(t, 1+perHost, wakes)
	})
}

// A freeze is one alert as long as it stands, and the owner's own is none.
func TestAFreezeIsAnAlert(t *testing.T) {
	wakes := 0
	o := history.Options{Alerts: Writer{Wake: func() { wakes++ }}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		wakes = 0
		breaker := history.Freeze{By: "breaker", Why: "why"}
		for range 2 {
			require.NoError(t, s.Freeze(t.Context(), breaker))
		}
		require.NoError(t, s.Freeze(t.Context(),
			history.Freeze{Network: "n", Account: "a", By: "agent", Why: "why"}))
		require.NoError(t, s.Freeze(t.Context(),
			history.Freeze{Network: "n", Account: "b", By: "owner", Why: "why"}))
		list := alertsOf(t, s, Freeze)
		require.Len(t, list, 2)
		require.Equal(t, Detail{By: "breaker", Why: "why"}, list[0].Detail)
		require.Equal(t, Detail{Network: "n", Account: "a", By: "agent", Why: "why"}, list[1].Detail)
		require.Equal(t, 2, wakes)
		must.Get(s.Unfreeze(t.Context(), nil))(t)
		require.NoError(t, s.Freeze(t.Context(), breaker))
		require.Len(t, alertsOf(t, s, Freeze), 3, "it is another one")
	})
}

// What is not written tells nobody: an alert is of its cause's transaction.
func TestAnAlertGoesWithItsCause(t *testing.T) {
	wakes := 0
	w := Writer{Wake: func() { wakes++ }}
	historytest.EachEngine(t, history.Options{}, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		failed := errors.New("failed")
		require.ErrorIs(t, s.Write(t.Context(), func(t *sqldb.Tx) error {
			if err := w.Write(t, Proposal, "x", "", Detail{}); err != nil {
				return err
			}
			return failed
		}), failed)
		require.Empty(t, alertsOf(t, s, Proposal))
		require.Zero(t, wakes)
	})
}

// dollars is so many, for rules.
func dollars(t *testing.T, text string) money.Dollars {
	t.Helper()
	return must.Get(money.ParseDollars(text))(t)
}

// The payment that takes four fifths of a budget is an alert, once a window, whether the ledger is as it was
// when the payment was decided on or moved.
func TestMostOfABudgetIsAnAlert(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		session := dollars(t, "1000")
		agentDay := dollars(t, "0.10")
		rules := budget.Rules{PerCall: dollars(t, "100"), Session: &session, Day: dollars(t, "1.00"),
			Month: dollars(t, "100"), ApproveAbove: dollars(t, "100"), Rate: 1000,
			HostDay: map[string]money.Dollars{"api.example": dollars(t, "0.50")},
			Agents:  map[string]budget.Agent{"research": {Day: &agentDay}}}
		pays := func(micros uint64, host, agent string) (subjects []string) {
			t.Helper()
			before := len(alertsOf(t, s, Budget))
			h := historytest.Hold(micros)
			h.Payment.Host, h.Payment.Agent = host, agent
			h.Payment.URL = "https://" + host + "/" + history.NewID(c.Now())
			must.Get(reserveBy(s, rules, h))(t)
			for _, a := range alertsOf(t, s, Budget)[before:] {
				subjects = append(subjects, a.Subject)
				require.GreaterOrEqual(t, a.Detail.Used*5, a.Detail.Limit*4)
			}
			return subjects
		}
		require.Empty(t, pays(399_999, "api.example", ""))
		require.Equal(t, []string{"day's api.example budget"}, pays(1, "api.example", ""))
		require.Equal(t, []string{"day budget for the agent research"}, pays(80_000, "b.example", "research"))
		require.Empty(t, pays(319_999, "b.example", ""))
		require.Equal(t, []string{"day budget"}, pays(1, "b.example", ""))
		require.Empty(t, pays(200_000, "b.example", ""), "it is told already")
		list := alertsOf(t, s, Budget)
		require.Equal(t, Detail{Used: dollars(t, "0.8"), Limit: dollars(t, "1")}, list[2].Detail)
		require.Equal(t, "2026-11-21", list[2].Window)

		c.Set(c.Now().Add(24 * time.Hour))
		require.Equal(t, []string{"day budget"}, pays(900_000, "b.example", ""), "another day")

		// decided on before others paid: what they paid counts
		c.Set(c.Now().Add(24 * time.Hour))
		require.Empty(t, pays(1, "b.example", "")) // a session began
		h := historytest.Hold(400_000)
		h.Payment.Host = "b.example"
		require.NoError(t, decide(s, rules, &h))
		require.Empty(t, pays(499_999, "b.example", ""))
		must.Get(s.Reserve(t.Context(), h))(t)
		list = alertsOf(t, s, Budget)
		require.Len(t, list, 5)
		require.Equal(t, dollars(t, "0.9"), list[4].Detail.Used)
	})
}

// A session's window is the session, also the one that the payment begins.
func TestASessionsAlertIsItsOwn(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		session := dollars(t, "1")
		rules := budget.Rules{PerCall: dollars(t, "100"), Session: &session, Day: dollars(t, "100"),
			Month: dollars(t, "100"), ApproveAbove: dollars(t, "100"), Rate: 1000}
		var sessions []string
		for range 2 {
			p := must.Get(reserveBy(s, rules, historytest.Hold(900_000)))(t)
			sessions = append(sessions, p.Session)
			must.Get(s.NewSession(t.Context(), nil, nil))(t)
		}
		list := alertsOf(t, s, Budget)
		require.Len(t, list, 2)
		require.Equal(t, sessions, []string{list[0].Window, list[1].Window})
	})
}

// Little money is an alert once a day, a payment without a known end once, a damaged ledger once a day.
func TestOtherCauses(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		h := historytest.Hold(1)
		h.Low = &history.LowFunds{Source: "delegation", Left: dollars(t, "0.4"), Symbol: "USDC"}
		var p history.Payment
		for range 3 {
			p = historytest.Pay(t, s, h, history.Reserved)
			require.NoError(t, s.AlertDamage(t.Context(), "it is older than its checkpoint"))
		}
		list := alertsOf(t, s, Funds)
		require.Len(t, list, 1)
		require.Equal(t, Detail{Source: "delegation", Left: dollars(t, "0.4"), Symbol: "USDC",
			Network: p.Network, Account: p.Source}, list[0].Detail)
		require.Len(t, alertsOf(t, s, Ledger), 1)
		require.Equal(t, "it is older than its checkpoint", alertsOf(t, s, Ledger)[0].Detail.Why)
		for range 2 {
			require.NoError(t, s.AlertOverdue(t.Context(), p))
		}
		require.Len(t, alertsOf(t, s, Payment), 1)
		c.Set(c.Now().Add(24 * time.Hour))
		historytest.Pay(t, s, h, history.Reserved)
		require.NoError(t, s.AlertDamage(t.Context(), "still"))
		require.Len(t, alertsOf(t, s, Funds), 2)
		require.Len(t, alertsOf(t, s, Ledger), 2)
	})
}

// Alerts are no evidence: with or without them the ledger is what the chain says.
func TestAlertsAreNoEvidence(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, _ *historytest.Clock) {
		askedAbout(t, s, 1)
		require.NoError(t, s.Freeze(t.Context(), history.Freeze{By: "agent", Why: "why"}))
		must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
		require.NoError(t, s.Write(t.Context(), func(t *sqldb.Tx) error {
			return must.Err(t.Exec(`DELETE FROM alerts WHERE kind = 'freeze'`))
		}))
		must.Get(verify.Ledger(t.Context(), s, history.Head{}))(t)
	})
}

// There is a bound to how old alerts get, and to how many there are.
func TestOldAlertsGo(t *testing.T) {
	o := history.Options{Alerts: Writer{}}
	historytest.EachEngine(t, o, func(t *testing.T, s *history.Store, c *historytest.Clock) {
		fill := func(n int, subject string) {
			require.NoError(t, s.Write(t.Context(), func(t *sqldb.Tx) error {
				for i := range n {
					_, err := t.Exec(`INSERT INTO alerts
					VALUES (?, 'proposal', ?, '', ?, '{}', 'told', ?, '', 0, 0)`,
						fmt.Sprint(subject, i), fmt.Sprint(subject, i), sqldb.Micros(t.Now),
						sqldb.Micros(t.Now))
					if err != nil {
						return err
					}
				}
				return nil
			}))
		}
		fill(1, "old")
		c.Set(c.Now().Add(keepAlerts + time.Second))
		fill(maxAlerts, "new")
		require.Len(t, alertsOf(t, s, Proposal), 1+maxAlerts)
		c.Set(c.Now().Add(time.Second))
		require.NoError(t, s.AlertDamage(t.Context(), "why"))
		require.Len(t, alertsOf(t, s, Proposal), maxAlerts-1)
		require.Len(t, alertsOf(t, s, Ledger), 1, "the newest stay")
	})
}
