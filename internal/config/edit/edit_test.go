package edit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
)

func rules(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text))
	require.NoError(t, err, text)
	return c
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		name, text, value string
		path              []string
		want              string
	}{
		{"a value", "[budget]\nday = \"10.00\"   # mine\nmonth = \"20\"\n", `"5.00"`,
			[]string{"budget", "day"}, "[budget]\nday = \"5.00\"   # mine\nmonth = \"20\"\n"},
		{"a hash in a string", "[budget]\n\"day\"='1' # '2'\n", `"5.00"`, []string{"budget", "day"},
			"[budget]\n\"day\"=\"5.00\" # '2'\n"},
		{"a longer number", "[budget]\nrate = 60", `5`, []string{"budget", "rate"}, "[budget]\nrate = 5"},
		{"an array over lines", "[policy]\ndeny_hosts = [ # all\n  'a.example', # ]\n] # end\n[budget]\n",
			`[]`, []string{"policy", "deny_hosts"}, "[policy]\ndeny_hosts = [] # end\n[budget]\n"},
		{"a key that is absent", "[budget]\nday = '1'\n\n[policy]\n", `"1"`, []string{"budget", "session"},
			"[budget]\nday = '1'\nsession = \"1\"\n\n[policy]\n"},
		{"in an empty table", "[budget] # x\n\n[policy]\n", `"1"`, []string{"budget", "session"},
			"[budget] # x\nsession = \"1\"\n\n[policy]\n"},
		{"a table that is absent", "[policy]\n", `"1"`, []string{"budget", "hosts", "a.example", "day"},
			"[policy]\n\n[budget.hosts.\"a.example\"]\nday = \"1\"\n"},
		{"another table's key", "[budget.hosts.'a.example']\nday = '3'\n[budget]\nday='2'\n", `"1"`,
			[]string{"budget", "day"}, "[budget.hosts.'a.example']\nday = '3'\n[budget]\nday=\"1\"\n"},
		{"into nothing", "", `"1"`, []string{"budget", "day"}, "[budget]\nday = \"1\"\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, string(must.Get(edit.Set([]byte(c.text), c.value, c.path...))(t)))
		})
	}
	template := must.Get(environ.Template(environ.Env{}))(t)
	edited := must.Get(edit.Set(template, `"7.50"`, "budget", "session"))(t)
	require.Equal(t, []config.Change{{Key: "budget.session", From: "none", To: "$7.50", Loosens: true}},
		config.Compare(rules(t, string(template)), rules(t, string(edited))))
	edited = must.Get(edit.Set([]byte("budget = { day = '1' }\n"), `"2"`, "budget", "day"))(t)
	_, err := config.Parse(edited)
	require.Error(t, err, "a table in a line is not seen through, and whoever reads the result is told")
}
