package callers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
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

func rules(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	require.NoError(t, err, text)
	return c
}

func TestWhoseAnAgentIs(t *testing.T) {
	c := rules(t, twoAgents)
	type answer struct {
		name string
		ok   bool
	}
	of := func(name string, ok bool) answer { return answer{name, ok} }
	research, ops, nobody := answer{"research", true}, answer{"ops-2", true}, answer{}

	require.Equal(t, research, of(ByToken(c, "secret")))
	for _, token := range []string{"", "Secret", "secret ", "sha256:" + aDigest} {
		require.Equal(t, nobody, of(ByToken(c, token)), "%q", token)
	}
	require.Equal(t, research, of(ByUser(c, "7", "research")))
	require.Equal(t, ops, of(ByUser(c, "1000", "somebody")))
	require.Equal(t, ops, of(ByUser(c, "1000", "")))
	require.Equal(t, nobody, of(ByUser(c, "1001", "")))
	require.Equal(t, nobody, of(ByUser(c, "1001", "1001")))
	require.Equal(t, nobody, of(ByUser(c, "1000", "research")), "of two agents it is none's")
	require.Equal(t, ops, of(ByCertificate(c, "CN=ops")))
	require.Equal(t, nobody, of(ByCertificate(c, "")))

	login := "[service]\nurl='https://wallet.example'\nissuer='https://login.example'\n" +
		"[agents.ann]\nsubject='0oa1'\n[agents.bob]\nsubject='0oA1'\n"
	require.Equal(t, answer{"ann", true}, of(BySubject(rules(t, login), "0oa1")))
	require.Equal(t, nobody, of(BySubject(rules(t, login), "ann")))
	windows := rules(t, "[agents.a]\nuser = 'S-1-5-21-7-1001'\n[agents.b]\nuser = 'HOST\\Bo'\n")
	require.Equal(t, answer{"a", true}, of(ByUser(windows, "S-1-5-21-7-1001", `HOST\al`)))
	require.Equal(t, answer{"b", true}, of(ByUser(windows, "S-1-5-21-7-1002", `host\bo`)))
	require.Equal(t, nobody, of(ByUser(windows, "S-1-5-21-7-10011", `OTHER\bo`)))
	unix := rules(t, "[agents.x]\nuser = 'bo'")
	require.Equal(t, nobody, of(ByUser(unix, "7", "Bo")), "on Unix they differ")

	none := rules(t, "[agents.x]")
	require.Equal(t, nobody, of(BySubject(none, "")))
	require.Equal(t, nobody, of(ByToken(none, "")))
	require.Equal(t, nobody, of(ByUser(none, "0", "")))
	require.Equal(t, nobody, of(ByCertificate(none, "")))
}
