package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

const aSubscription = "[subscriptions.news]\nurl='https://api.example/news'\nsince='2026-12-01T08:00:00Z'\n" +
	"every='1d'\nuntil='2027-01-01'\nmax='0.05'\ntotal='10.00'\n"

func TestSubscriptions(t *testing.T) {
	text := aSubscription + "method='POST'\nheaders={ Accept='text/plain', x-key='v' }\nbody='b'\n" +
		"network='base'\nasset='USDC'\nagent='research'\npaused=true\npay_to=['0xAb', 'So1']\n"
	require.Equal(t, Subscription{URL: "https://api.example/news", Method: "POST",
		Headers: map[string]string{"Accept": "text/plain", "X-Key": "v"}, Body: "b", Network: "base",
		Asset: "USDC",
		Agent: "research", Since: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC), Every: 24 * time.Hour,
		Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Max: 50_000, Total: 10 * money.Dollars(1_000_000),
		Paused: true, PayTo: []string{"0xAb", "So1"}}, rules(t, text).Subscriptions["news"])
	lines := rules(t, text).Lines()
	shown := ""
	for _, line := range lines {
		if line.Key == "subscriptions" {
			shown = line.Value
		}
	}
	for _, part := range []string{"https://api.example/news", "since 2026-12-01T08:00:00Z", "max $0.05",
		"total $10.00", "until 2027-01-01T00:00:00Z", "every 24h", "pay_to [0xAb, So1]"} {
		require.Contains(t, shown, part, "the owner reads all of what they seal")
	}
}

func TestSubscriptionFaults(t *testing.T) {
	with := func(key, value string) string {
		var lines []string
		for line := range strings.Lines(aSubscription) {
			if !strings.HasPrefix(line, key+"=") {
				lines = append(lines, line)
			}
		}
		if value != "" {
			lines = append(lines, key+"="+value+"\n")
		}
		return strings.Join(lines, "")
	}
	for _, row := range []struct{ toml, key, says string }{
		{"[subscriptions.2x]\n" + strings.TrimPrefix(aSubscription, "[subscriptions.news]\n"),
			"subscriptions.2x",
			"begins with a letter"},
		{with("url", ""), "subscriptions.news.url", "not a URL"},
		{with("url", "'http://api.example/'"), "subscriptions.news.url", "https://"},
		{with("url", "'file:///etc/passwd'"), "subscriptions.news.url", "not a URL"},
		{with("every", "'1s'"), "subscriptions.news.every", "from 1m to 366d"},
		{with("every", "''"), "subscriptions.news.every", "from 1m to 366d"},
		{with("since", "''"), "subscriptions.news.since", "no date"},
		{with("until", "'soon'"), "subscriptions.news.until", "no date"},
		{with("until", "'2026-12-01'"), "subscriptions.news.until", "not after since"},
		{with("max", ""), "subscriptions.news.max", "is missing"},
		{with("total", ""), "subscriptions.news.total", "is missing"},
		{with("max", "'0'"), "subscriptions.news.max", "is nothing"},
		{with("total", "'-1'"), "subscriptions.news.total", "not dollars"},
		{with("times", "3"), "subscriptions.news.times", "no such key"},
		{with("method", "'a\\nb'") + "[agents.x]\n", "subscriptions.news.agent", "no agent"},
		{with("pay_to", "['0xAb', '']"), "subscriptions.news.pay_to", "empty"},
		{with("pay_to", "["+strings.Repeat("'a',", 21)+"]"), "subscriptions.news.pay_to", "at most 20"},
		{with("pay_to", "[\"a\\u202e\"]"), "subscriptions.news.pay_to", "do not show"},
		{with("headers", "{ a='1', A='2' }"), "subscriptions.news.headers", "twice"},
		{with("body", "'"+strings.Repeat("b", maxSubscriptionBody+1)+"'"), "subscriptions.news.body",
			"at most"},
	} {
		t.Run(row.key+" "+row.says, func(t *testing.T) {
			toml := row.toml
			if strings.HasSuffix(row.key, ".agent") {
				toml = with("agent", "'nobody'") + "[agents.x]\n"
			}
			_, err := Parse([]byte(toml))
			var fault *Error
			require.ErrorAs(t, err, &fault)
			require.Equal(t, row.key, fault.Key)
			require.ErrorContains(t, err, row.says)
		})
	}
}

// Of each pair the second is tighter, and the first looser.
func TestSubscriptionsCompared(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(aSubscription, from, to, 1) }
	for _, c := range []struct{ name, loose, tight string }{
		{"cancelled", aSubscription, ""},
		{"paused", aSubscription, aSubscription + "paused=true\n"},
		{"a lower max", aSubscription, change("0.05", "0.04")},
		{"a lower total", aSubscription, change("10.00", "9.99")},
		{"fewer payees", aSubscription + "pay_to=['a','b']\n", aSubscription + "pay_to=['b']\n"},
		{"a payee less", aSubscription + "pay_to=['a']\n", aSubscription},
		{"an earlier end", aSubscription, change("2027-01-01", "2026-12-31")},
	} {
		t.Run(c.name, func(t *testing.T) {
			loose, tight := rules(t, c.loose), rules(t, c.tight)
			require.False(t, Loosens(Compare(loose, tight)))
			require.True(t, Loosens(Compare(tight, loose)))
		})
	}
	for _, other := range []string{change("/news", "/other"), change("1d", "2d"), change("T08", "T09"),
		aSubscription + "method='POST'\n", aSubscription + "headers={ a='b' }\n",
		aSubscription + "body='b'\n",
		aSubscription + "network='base'\n", aSubscription + "asset='USDC'\n", aSubscription + "agent='a'\n",
		change("subscriptions.news", "subscriptions.old")} {
		require.True(t, Loosens(Compare(rules(t, aSubscription), rules(t, other))), other)
		require.True(t, Loosens(Compare(rules(t, other), rules(t, aSubscription))), other)
	}
}
