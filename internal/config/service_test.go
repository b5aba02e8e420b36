package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServiceURL(t *testing.T) {
	require.Empty(t, rules(t, "").Service.URL)
	for _, written := range []string{"https://wallet.example", "https://wallet.example:8402",
		"http://localhost:8402", "http://127.0.0.1:8402"} {
		require.Equal(t, written, rules(t, "[service]\nurl = '"+written+"'").Service.URL)
		require.Equal(t, written, rules(t, "[service]\nurl = '"+written+"/'").Service.URL)
	}
	for written, problem := range map[string]string{
		"http://wallet.example":       "https",
		"https://wallet.example/path": "without a path",
		"https://wallet.example?a=b":  "without a path",
		"https://u@wallet.example":    "without a path",
		"https://Wallet.example":      "small letters",
		"wallet.example":              "not a URL",
	} {
		_, err := Parse([]byte("[service]\nurl = '" + written + "'"))
		require.ErrorContains(t, err, "service.url", written)
		require.ErrorContains(t, err, problem, written)
	}
}

func TestAuthorizationServer(t *testing.T) {
	const url = "[service]\nurl='https://wallet.example'\n"
	const issuer = "issuer='https://login.example/tenant/'\n"
	require.Equal(t, service{URL: "https://wallet.example", Issuer: "https://login.example/tenant/",
		Audience: "https://wallet.example/mcp"}, rules(t, url+issuer).Service)
	require.Equal(t, service{Issuer: "http://127.0.0.1:9", Audience: "https://wallet.example/mcp",
		KeysURL: "https://keys.example/k?v=1"}, rules(t, "[service]\nissuer='http://127.0.0.1:9'\n"+
		"audience='https://wallet.example/mcp'\njwks_uri='https://keys.example/k?v=1'").Service)
	require.Equal(t, "api://wallet", rules(t, url+issuer+"audience='api://wallet'").Service.Audience)
	for _, row := range []struct{ written, key, says string }{
		{url + "issuer='http://login.example'", "service.issuer", "https"},
		{url + "issuer='login.example'", "service.issuer", "not a URL"},
		{url + "issuer='https://login.example?a=b'", "service.issuer", "without user, query"},
		{url + "issuer='https://login.example#a'", "service.issuer", "without user, query"},
		{url + "issuer='https://me@login.example'", "service.issuer", "without user, query"},
		{"[service]\n" + issuer, "service.issuer", "audience"},
		{"[service]\n" + issuer + "audience='wallet'", "service.audience", "not a URL"},
		{url + issuer + "audience='a b'", "service.audience", "space"},
		{url + issuer + "audience=\"a\\u202e\"", "service.audience", "do not show"},
		{url + issuer + "jwks_uri='http://keys.example'", "service.jwks_uri", "https"},
		{url + "audience='https://wallet.example/mcp'", "service.audience", "without issuer"},
		{url + "jwks_uri='https://login.example/keys'", "service.jwks_uri", "without issuer"},
		{"[agents.x]\nsubject='s'", "agents.x.subject", "issuer"},
		{url + issuer + "[agents.x]\nsubject=' s'", "agents.x.subject", "space"},
		{url + issuer + "[agents.x]\nsubject=\"a\\u200bb\"", "agents.x.subject", "do not show"},
		{url + issuer + "[agents.w]\nsubject='s'\n[agents.x]\nsubject='s'", "agents.x.subject", "agent w"},
	} {
		_, err := Parse([]byte(row.written))
		require.ErrorContains(t, err, row.key, row.written)
		require.ErrorContains(t, err, row.says, row.written)
	}
}

// Whoever signs agents' tokens says who may pay: another one loosens, whatever it is.
func TestAnotherAuthorizationServerLoosens(t *testing.T) {
	const url, issuer = "[service]\nurl='https://wallet.example'\n", "issuer='https://login.example'\n"
	for _, c := range [][2]string{
		{url, url + issuer},
		{url + issuer, url + "issuer='https://login.example/'"},
		{url + issuer, url + issuer + "audience='api://wallet'"},
		{url + issuer, url + issuer + "jwks_uri='https://keys.example'"},
	} {
		require.Contains(t, loosening(rules(t, c[0]), rules(t, c[1])), true, c[1])
	}
	change := Compare(rules(t, url+issuer), rules(t, url+issuer+"jwks_uri='https://keys.example'"))
	require.Equal(t, "service.jwks_uri", change[0].Key)
}
