package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/x402/money"
)

// question is an alert of a question.
func question(id int) history.Alert {
	price, _ := money.ParseDollars("0.5")
	return history.Alert{ID: fmt.Sprint("alr_", id), Kind: history.AlertApproval,
		Subject: fmt.Sprint("apr_", id), At: time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		Detail: history.AlertDetail{Host: "api.example", Price: price, Agent: "research",
			Why: "the agent research asks for it: the price $0.50 is above what is paid without asking, " +
				"$0.10",
			Expires: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)}}
}

// A notice has what a person needs to decide whether to look, and what its receiver knows it by.
func TestWhatIsTold(t *testing.T) {
	n := notice(question(1), "https://wallet.example/approve/apr_1")
	line, err := n.line()
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"approval","id":"apr_1","alert":"alr_1","at":"2026-11-26T08:00:00Z",
		"price":"$0.50","host":"api.example","agent":"research","expiresAt":"2026-11-27T08:00:00Z",
		"why":"the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10",
		"command":"x402-wallet approve apr_1","page":"https://wallet.example/approve/apr_1",
		"text":"Pay $0.50 to \"api.example\"? Asked because the agent research asks for it: the price $0.50 is above what is paid without asking, $0.10. Open until 2026-11-27T08:00:00Z. By: x402-wallet approve apr_1 or https://wallet.example/approve/apr_1"}`,
		string(line))
	require.Equal(t, byte('\n'), line[len(line)-1])

	d := func(text string) money.Dollars {
		v, err := money.ParseDollars(text)
		require.NoError(t, err)
		return v
	}
	ended := time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		kind    history.AlertKind
		subject string
		detail  history.AlertDetail
		text    string
	}{
		{history.AlertApproval, "apr_2", history.AlertDetail{Host: "api.example", Why: "why", SignIn: true},
			`Sign in, for nothing, at "api.example"? Asked because why. Open until . ` +
				"By: x402-wallet approve apr_2"},
		{history.AlertFreeze, "wallet",
			history.AlertDetail{By: "breaker", Why: "20 payments came to nothing"},
			"Payments of the whole wallet are stopped, by the breaker: 20 payments came to nothing. " +
				"By: x402-wallet unfreeze"},
		{history.AlertBudget, "day budget", history.AlertDetail{Used: d("8"), Limit: d("10")},
			"Of your day budget $8.00 of $10.00 are used. By: x402-wallet budget"},
		{history.AlertPayment, "pay_1",
			history.AlertDetail{Price: d("0.5"), Host: "api.example", Expires: ended},
			`Whether $0.50 were paid to "api.example" is still not known, although what was signed ended ` +
				"at 2026-11-27T08:00:00Z: the chain did not say. It counts as spent. " +
				"By: x402-wallet reconcile"},
		{history.AlertLedger, "ledger.db", history.AlertDetail{Why: "it is older than its checkpoint"},
			"Nothing is paid, because it is older than its checkpoint. By: x402-wallet doctor"},
		{history.AlertFunds, "x", history.AlertDetail{Source: "allowance", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc"}, "Little is left to pay from: $0.40 of USDC, by the " +
			"allowance of 0xabc on Base. By: x402-wallet balance"},
		{history.AlertFunds, "x", history.AlertDetail{Source: "delegation", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the delegation of 0xabc on Base. " +
				"By: x402-wallet delegation approve --network eip155:8453 --amount 100.00 --unsigned"},
		{history.AlertFunds, "x", history.AlertDetail{Source: "vault", Left: d("0.4"), Symbol: "USDC",
			Network: "eip155:8453", Account: "0xabc", Renew: d("100")},
			"Little is left to pay from: $0.40 of USDC, by the vault of 0xabc on Base. " +
				"By: x402-wallet vault deposit --network eip155:8453 --amount 100.00"},
		{history.AlertSubscription, "news:20270327T023000Z", history.AlertDetail{Why: "the wallet is locked",
			Expires: ended},
			"The subscription news was not bought: the wallet is locked. It is tried again " +
				"from 2026-11-27T08:00:00Z on. By: x402-wallet subscriptions show news"},
		{history.AlertProposal, "prp_1", history.AlertDetail{Price: d("0.05"), Host: "a.example",
			Why: "I like it"}, `An agent would like something of "a.example" to be bought again and again, ` +
			`for up to $0.05 each time. It says why: "I like it". Nothing is bought until you accept it. ` +
			"By: x402-wallet subscriptions accept prp_1"},
		{history.AlertEpoch, "2", history.AlertDetail{Why: "another server has the ledger"},
			"epoch: another server has the ledger. By: x402-wallet alerts"},
	} {
		a := history.Alert{ID: "alr_1", Kind: c.kind, Subject: c.subject, Detail: c.detail}
		require.Equal(t, c.text, Text(a))
	}
	sum := more([]history.Alert{question(1), question(3), question(2)})
	require.Equal(t, "And 3 more wait. By: x402-wallet alerts", sum.Text)
	require.Equal(t, "more_3_3", sum.Alert, "the same for the same ones")
}

// What strangers wrote stays one line of plain letters, and has a bound.
func TestHostileWords(t *testing.T) {
	hostile := "evil\u202e\n\x1b[2J<a href='x'>\u200b$(reboot)`id`" + strings.Repeat("\U000e0041", 5000)
	for _, kind := range []history.AlertKind{history.AlertApproval, history.AlertFreeze, history.AlertBudget,
		history.AlertPayment, history.AlertLedger, history.AlertFunds, history.AlertEpoch,
		history.AlertSubscription, history.AlertProposal, "other"} {
		a := history.Alert{ID: "alr_1", Kind: kind, Subject: hostile,
			Detail: history.AlertDetail{Host: hostile, Agent: hostile, Why: "the seller writes: " + hostile,
				By: hostile, Network: hostile,
				Account: hostile, Source: hostile, Symbol: hostile}}
		line, err := notice(a, "").line()
		require.NoError(t, err)
		require.Less(t, len(line), 4000)
		require.Equal(t, 1, strings.Count(string(line), "\n"))
		var read map[string]any
		require.NoError(t, json.Unmarshal(line, &read))
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
