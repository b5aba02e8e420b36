package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/alerts"
	"x402-wallet/internal/must"
	"x402-wallet/x402/money"
)

func question(id int) alerts.Alert {
	price, _ := money.ParseDollars("0.5")
	return alerts.Alert{ID: fmt.Sprint("alr_", id), Kind: alerts.Approval,
		Subject: fmt.Sprint("apr_", id), At: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		Detail: alerts.Detail{Host: "api.example", Price: price, Agent: "research",
			Why: "the agent research asks for it: the price $0.50 is above what is paid without asking, " +
				"$0.10",
			Expires: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)}}
}

// A notice has what a person needs to decide whether to look, and what its receiver knows it by.
func TestWhatIsTold(t *testing.T) {
	n := notice(question(1), "https://wallet.example/approve/apr_1")
	line := must.Get(n.line())(t)
	require.JSONEq(t, `{"kind":"approval","id":"apr_1","alert":"alr_1","at":"2026-11-26T08:00:00Z",
		"price":"$0.50","host":"api.example","agent":"research","expiresAt":"2026-11-27T08:00:00Z",
		"why":"the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10",
		"command":"x402-wallet approve apr_1","page":"https://wallet.example/approve/apr_1",
		"text":"Pay $0.50 to \"api.example\"? Asked because the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10. Open until 2026-11-27T08:00:00Z. By: x402-wallet approve apr_1 or https://wallet.example/approve/apr_1"}`,
		string(line))
	require.Equal(t, byte('\n'), line[len(line)-1])

	d := func(text string) money.Dollars { return must.Get(money.ParseDollars(text))(t) }
	ended := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		kind    alerts.Kind
		subject string
		detail  alerts.Detail
		text    string
	}{
		{alerts.Approval, "apr_2", alerts.Detail{Host: "api.example", Why: "why", SignIn: true},
			`Sign in, for nothing, at "api.example"? Asked because why. Open until . ` +
				"By: x402-wallet approve apr_2"},
		{alerts.Freeze, "wallet",
			alerts.Detail{By: "breaker", Why: "20 payments came to nothing"},
			"Payments of the whole wallet are stopped, by the breaker: 20 payments came to nothing. " +
				"By: x402-wallet unfreeze"},
		{alerts.Budget, "day budget", alerts.Detail{Used: d("8"), Limit: d("10")},
			"Of your day budget $8.00 of $10.00 are used. By: x402-wallet budget"},
		{alerts.Payment, "pay_1",
			alerts.Detail{Price: d("0.5"), Host: "api.example", Expires: ended},
			`Whether $0.50 were paid to "api.example" is still not known, although what was signed ended ` +
				"at 2026-11-27T08:00:00Z: the chain did not say. It counts as spent. " +
				"By: x402-wallet reconcile"},
		{alerts.Ledger, "ledger.db", alerts.Detail{Why: "it is older than its checkpoint"},
			"Nothing is paid, because it is older than its checkpoint. By: x402-wallet doctor"},
		{alerts.Funds, "x", alerts.Detail{Source: "allowance", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc"}, "Little is left to pay from: $0.40 of USDC, by the " +
			"allowance of 0xabc on Base. By: x402-wallet balance"},
		{alerts.Funds, "x", alerts.Detail{Source: "delegation", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the delegation of 0xabc on Base. " +
				"By: x402-wallet delegation approve --network eip155:8453 --amount 100.00 --unsigned"},
		{alerts.Funds, "x", alerts.Detail{Source: "vault", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the vault of 0xabc on Base. " +
				"By: x402-wallet vault deposit --network eip155:8453 --amount 100.00"},
		{alerts.Subscription, "news:20270327T023000Z", alerts.Detail{Why: "the wallet is locked",
			Expires: ended},
			"The subscription news was not bought: the wallet is locked. It is tried again " +
				"from 2026-11-27T08:00:00Z on. By: x402-wallet subscriptions show news"},
		{alerts.Proposal, "prp_1", alerts.Detail{Price: d("0.05"), Host: "a.example",
			Why: "I like it"}, `An agent would like something of "a.example" to be bought again and again, ` +
			`for up to $0.05 each time. It says why: "I like it". Nothing is bought until you accept it. ` +
			"By: x402-wallet subscriptions accept prp_1"},
		{"another", "2", alerts.Detail{Why: "a newer wallet's"},
			"another: a newer wallet's. By: x402-wallet alerts"},
	} {
		a := alerts.Alert{ID: "alr_1", Kind: c.kind, Subject: c.subject, Detail: c.detail}
		require.Equal(t, c.text, Text(a))
	}
	sum := more([]alerts.Alert{question(1), question(3), question(2)})
	require.Equal(t, "And 3 more wait. By: x402-wallet alerts", sum.Text)
	require.Equal(t, "more_3_3", sum.Alert, "the same for the same ones")
}

// What strangers wrote stays one line of plain letters, and has a bound.
func TestHostileWords(t *testing.T) {
	hostile := "evil\u202e\n\x1b[2J<a href='x'>\u200b$(reboot)`id`" + strings.Repeat("\U000e0041", 5000)
	for _, kind := range []alerts.Kind{alerts.Approval, alerts.Freeze, alerts.Budget,
		alerts.Payment, alerts.Ledger, alerts.Funds,
		alerts.Subscription, alerts.Proposal, "other"} {
		a := alerts.Alert{ID: "alr_1", Kind: kind, Subject: hostile,
			Detail: alerts.Detail{Host: hostile, Agent: hostile, Why: "the seller writes: " + hostile,
				By: hostile, Network: hostile,
				Account: hostile, Source: hostile, Symbol: hostile}}
		line := must.Get(notice(a, "").line())(t)
		require.Less(t, len(line), 4000)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
		read := must.JSON[map[string]any](line)(t)
		for key, value := range read {
			for _, r := range fmt.Sprint(value) {
				require.True(t, r >= ' ' && r <= '~', "%s: %s has %q", kind, key, r)
			}
		}
	}
	a := question(1)
	a.Detail.Host = hostile
	require.Contains(t, notice(a, "").Text, `to "evil\u202e\n\x1b`)
}
