package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoAgents = `
[agents.research]
token = "sha256:` + aDigest + `"
user = "research"
per_call = "0.10"
day = "1.00"
allow_hosts = ["API.example", "*.news.example"]
label = "team=research"
[agents.ops-2]
user = "1000"
certificate = "CN=ops"
month = "20"
`

const aDigest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // of "secret"

func TestAgents(t *testing.T) {
	c := rules(t, twoAgents)
	perCall, day, month := dollars(t, "0.10"), dollars(t, "1"), dollars(t, "20")
	require.Equal(t, map[string]Agent{
		"research": {Token: "sha256:" + aDigest, User: "research", PerCall: &perCall, Day: &day,
			AllowHosts: []string{"api.example", "*.news.example"}, Label: "team=research"},
		"ops-2": {User: "1000", Certificate: "CN=ops", Month: &month, AllowHosts: []string{}},
	}, c.Agents)
}

func TestAgentFaults(t *testing.T) {
	const x = "[agents.x]\n"
	for _, row := range []struct{ toml, key, says string }{
		{"[agents.2x]", "agents.2x", "begins with a letter"},
		{"[agents.X]", "agents.X", "spelt agents.x"},
		{"[agents.'a b']", `agents."a b"`, "a-z"},
		{"[agents." + strings.Repeat("a", 41) + "]", "agents." + strings.Repeat("a", 41), "1 to 40"},
		{x + "token='secret'", "agents.x.token", "hash of the token"},
		{x + "token='sha256:" + strings.ToUpper(aDigest) + "'", "agents.x.token", "small letters"},
		{x + "day=1", "agents.x.day", "as text"},
		{x + "session='1'", "agents.x.session", "no such key"},
		{x + "per_call='-1'", "agents.x.per_call", "not dollars"},
		{x + "allow_hosts=['https://a.example']", "agents.x.allow_hosts", "only the host"},
		{x + "user='007'", "agents.x.user", "not a uid"},
		{x + "user='4294967296'", "agents.x.user", "not a uid"},
		{x + "user=' me'", "agents.x.user", "space"},
		{x + "user='s-1-5-18'", "agents.x.user", "not a SID"},
		{x + "user='S-1-5-21-x'", "agents.x.user", "not a SID"},
		{x + `certificate="CN=x\n"`, "agents.x.certificate", "do not show"},
		{x + `label="a\u202eb"`, "agents.x.label", "do not show"},
		{x + "label='" + strings.Repeat("l", 101) + "'", "agents.x.label", "at most 100"},
		{"[agents.w]\nuser='me'\n" + x + "user='me'", "agents.x.user", "that of the agent w"},
		{"[agents.w]\ncertificate='CN=a'\n" + x + "certificate='CN=a'", "agents.x.certificate", "agent w"},
		{"[agents.w]\ntoken='sha256:" + aDigest + "'\n" + x + "token='sha256:" + aDigest + "'",
			"agents.x.token", "agent w"},
	} {
		t.Run(row.toml, func(t *testing.T) {
			_, err := Parse([]byte(row.toml))
			var fault *Error
			require.ErrorAs(t, err, &fault)
			require.Equal(t, row.key, fault.Key)
			require.ErrorContains(t, err, row.says)
		})
	}
}

// Of each pair the second is tighter, and the first looser.
func TestAgentsCompared(t *testing.T) {
	const x, other, login = "[agents.x]\n", "sha256:" + aDigest, "service.url='https://wallet.example'\n" +
		"service.issuer='https://login.example'\n"
	for _, c := range []struct{ name, loose, tight string }{
		{"an agent", x, ""},
		{"an agent with limits", x + "day='1'", ""},
		{"a limit", x, x + "day='1'"},
		{"a lower one", x + "per_call='0.02'", x + "per_call='0.01'"},
		{"a lower month", x + "month='2'", x + "month='1'"},
		{"some hosts", x, x + "allow_hosts=['a.example']"},
		{"fewer hosts", x + "allow_hosts=['a.example','b.example']", x + "allow_hosts=['a.example']"},
		{"a token less", x + "token='" + other + "'", x},
		{"a user less", x + "user='me'", x},
		{"a certificate less", x + "certificate='CN=x'", x},
		{"a subject less", login + x + "subject='x'", login + x},
	} {
		t.Run(c.name, func(t *testing.T) {
			loose, tight := rules(t, c.loose), rules(t, c.tight)
			require.Equal(t, []bool{false}, loosening(loose, tight))
			require.Equal(t, []bool{true}, loosening(tight, loose))
		})
	}
	for _, c := range []struct{ name, from, to string }{
		{"another token", x + "token='sha256:" + strings.Repeat("0", 64) + "'", x + "token='" + other + "'"},
		{"another user", x + "user='me'", x + "user='you'"},
		{"another certificate", x + "certificate='CN=a'", x + "certificate='CN=b'"},
		{"another subject", login + x + "subject='a'", login + x + "subject='b'"},
		{"another name", x, "[agents.y]"},
		{"other hosts", x + "allow_hosts=['a.example']", x + "allow_hosts=['b.example']"},
		{"one is lower, one higher", x + "day='1'\nmonth='1'", x + "day='0.50'\nmonth='2'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, []bool{true}, loosening(rules(t, c.from), rules(t, c.to)))
		})
	}
	require.Equal(t, []bool{false}, loosening(rules(t, x), rules(t, x+"label='a=b'")), "a name for the books")
}

// loosening is whether each of the changes loosens.
func loosening(from, to *Config) (list []bool) {
	for _, change := range Compare(from, to) {
		list = append(list, change.Loosens)
	}
	return list
}
