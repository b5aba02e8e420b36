package config

import (
	"fmt"
	"strings"
	"testing"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

const ledgerURL = "postgres://wallet@a.example:5432,b.example/x402?sslmode=verify-full"

func TestLedger(t *testing.T) {
	c := must.Get(Parse([]byte("[ledger]\nurl = '" + ledgerURL + "'\n")))(t)
	require.Equal(t, ledger{URL: ledgerURL}, c.Ledger)
	c, err := Parse([]byte("[ledger]\nurl = '" + ledgerURL + "'\npassword_command = ['/usr/bin/token']\n"))
	require.NoError(t, err)
	require.Equal(t, ledger{URL: ledgerURL, PasswordCommand: []string{"/usr/bin/token"}}, c.Ledger)
}

func TestLedgerFaults(t *testing.T) {
	for _, row := range []struct{ toml, key, says string }{
		{"password_file = '/r'", "ledger", "nothing without url"},
		{"url = 'x'", "ledger.url", "postgres://"},
		{"url = '" + ledgerURL + "'\npassword_file = 'p'", "ledger.password_file", "full path"},
		{"url = '" + ledgerURL + "'\npassword_command = ['token']", "ledger.password_command", "full path"},
		{"url = '" + ledgerURL + "'\npassword_file = '/p'\npassword_command = ['/t']", "ledger",
			"one of them"},
		{"url = '" + ledgerURL + "'\npassword = 'x'", "ledger.password", "no such key"},
	} {
		t.Run(row.toml, func(t *testing.T) {
			_, err := Parse([]byte("[ledger]\n" + row.toml + "\n"))
			var fault *Error
			require.ErrorAs(t, err, &fault)
			require.Equal(t, row.key, fault.Key)
			require.ErrorContains(t, err, row.says)
		})
	}
}

func TestLedgerURL(t *testing.T) {
	const tls = "?sslmode=verify-full"
	for _, want := range []struct {
		raw, user, hosts, database string
		here                       bool
	}{
		{"postgres://a.example/x402" + tls, "", "a.example", "x402", false},
		{"postgresql://me@a.example" + tls, "me", "a.example", "", false},
		{ledgerURL, "wallet", "a.example:5432 b.example", "x402", false},
		{"postgres://me@127.0.0.1:5433/x402", "me", "127.0.0.1:5433", "x402", true},
		{"postgres://me@[::1]:5433,localhost/x402?sslmode=disable", "me", "[::1]:5433 localhost", "x402",
			true},
		{"postgres://me@%2Frun%2Fpostgresql/x402", "me", "/run/postgresql", "x402", true},
		{"postgres://me@/x402?host=/run/postgresql&port=5433", "me", "/run/postgresql", "x402", true},
		{"postgres:///x402" + tls + "&host=a.example,127.0.0.1", "", "a.example 127.0.0.1", "x402", false},
		{"postgres://me%40corp@[2001:db8::1]/my%20x" + tls, "me@corp", "[2001:db8::1]", "my x", false},
		{ledgerURL + "&sslrootcert=/r&sslcert=/c&sslkey=/k&target_session_attrs=read-write" +
			"&connect_timeout=5&application_name=x402", "wallet", "a.example:5432 b.example", "x402", false},
	} {
		t.Run(want.raw, func(t *testing.T) {
			u := must.Get(ParseLedgerURL(want.raw))(t)
			require.Equal(t, want.user, u.User)
			require.Equal(t, want.hosts, strings.Join(u.Hosts, " "))
			require.Equal(t, want.database, u.Database)
			require.Equal(t, want.here, u.IsHere())
		})
	}
}

func TestLedgerURLRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"":                                                               "begin with postgres://",
		"host=a.example password=x":                                      "begin with postgres://",
		"Postgres://a.example/x":                                         "begin with postgres://",
		"postgres://me:pw@a.example/x":                                   "has a password",
		"postgres://me:@a.example/x":                                     "has a password",
		"postgres://me%3Apw@127.0.0.1/x":                                 "has a password",
		"postgres://a.example/x?password=pw":                             "has a password",
		"postgres://a.example/x?sslpassword=pw":                          "has a password",
		"postgres://a.example/x":                                         "sslmode=verify-full",
		"postgres://a.example/x?sslmode=require":                         "sslmode=verify-full",
		"postgres://a.example/x?sslmode=verify-ca":                       "sslmode=verify-full",
		"postgres://a.example/x?sslmode=disable":                         "sslmode=verify-full",
		"postgres://127.0.0.1,a.example/x?sslmode=prefer":                "sslmode=verify-full",
		"postgres://127.0.0.1.a.example/x":                               "sslmode=verify-full",
		"postgres://10.0.0.7/x?sslmode=require":                          "sslmode=verify-full",
		"postgres:///x?host=a.example":                                   "sslmode=verify-full",
		"postgres://127.0.0.1/x?sslmode=never":                           "another sslmode",
		"postgres://127.0.0.1/x?sslmode=disable&sslmode=verify-full":     "twice",
		"postgres://127.0.0.1/x?sslmode=":                                "empty",
		"postgres://127.0.0.1/x?options=-c%20x=y":                        "not taken",
		"postgres://127.0.0.1/x?service=prod":                            "not taken",
		"postgres://127.0.0.1/x?passfile=/p":                             "not taken",
		"postgres://127.0.0.1/x?hostaddr=10.0.0.1":                       "not taken",
		"postgres://127.0.0.1/x?user=root":                               "not taken",
		"postgres://127.0.0.1/x?dbname=y":                                "not taken",
		"postgres://127.0.0.1/x?sslmode=disable;host=evil":               "name=value",
		"postgres://127.0.0.1/x?SSLMODE=disable":                         "not taken",
		"postgres://127.0.0.1/x?target_session_attrs=standby":            "another target_session_attrs",
		"postgres://127.0.0.1/x?connect_timeout=0":                       "from 1 to 60",
		"postgres://127.0.0.1/x?connect_timeout=3600":                    "from 1 to 60",
		"postgres://127.0.0.1/x?sslcert=/c":                              "go together",
		"postgres://127.0.0.1/x?sslcert=c&sslkey=/k":                     "full path",
		"postgres://127.0.0.1/x?port=0":                                  "1 to 65535",
		"postgres://127.0.0.1:0/x":                                       "1 to 65535",
		"postgres://127.0.0.1:05432/x":                                   "1 to 65535",
		"postgres://127.0.0.1:/x":                                        "empty port",
		"postgres://127.0.0.1:1:2/x":                                     "a host that is none",
		"postgres://::1/x":                                               "a host that is none",
		"postgres://[127.0.0.1]/x":                                       "a host that is none",
		"postgres://127.0.0.1,/x":                                        "a host that is none",
		"postgres:///x":                                                  "no host",
		"postgres://":                                                    "no host",
		"postgres://127.0.0.1/x?host=/run/x":                             "in one place",
		"postgres://127.0.0.1/x#y":                                       "a space, #",
		"postgres://127.0.0.1/x y":                                       "a space, #",
		"postgres://127.0.0.1/x%00y":                                     "do not show",
		"postgres://127.0.0.1/x%zz":                                      "two hex digits",
		"postgres://127.0.0.1/x/y":                                       "its first /",
		"postgres://127.0.0.1" + strings.Repeat(",127.0.0.1", 16) + "/x": "more than 16 hosts",
		"postgres://127.0.0.1/" + strings.Repeat("x", 2048):              "longer than",
	} {
		t.Run(raw[:min(len(raw), 80)], func(t *testing.T) {
			require.ErrorContains(t, must.Err(ParseLedgerURL(raw)), says)
		})
	}
}

// Wherever in a URL a password was put, no error repeats it.
func TestAPasswordInTheURLIsNotRepeated(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, raw := range []string{"postgres://me:%s@a.example/x", "postgres://me:%s@127.0.0.1/x",
		"postgres://me:1/%s@127.0.0.1/x", "postgres://me:1?%s@127.0.0.1/x", "postgres://me:1#%s@127.0.0.1/x",
		"postgres://me:%s", "postgres://me:%s@", "postgres://:%s@/x", "postgres://me%%3A%s@b.example/x",
		"postgres://127.0.0.1/x?password=%s", "postgres://127.0.0.1/x?%s=1",
		"postgres://127.0.0.1/x?options=%s",
		"postgres://127.0.0.1/x?sslmode=%s", "postgres://127.0.0.1/x?connect_timeout=%s",
		"postgres://127.0.0.1/x?port=%s", "postgres://me:%s@[::1", "postgres://me:%% %s@h/x",
		"postgres://me:%%zz%s@h/x", "host=h password=%s", "mysql://me:%s@h/x", "postgres:me:%s@h/x"} {
		text := "[ledger]\nurl = \"" + fmt.Sprintf(raw, secret) + "\"\n"
		for _, text := range []string{text, strings.ReplaceAll(text, `"`, "")} { // which is no TOML
			_, err := Parse([]byte(text))
			require.Error(t, err, raw)
			require.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), secret, raw)
			var fault *Error
			require.ErrorAs(t, err, &fault)
			require.NotContains(t, fault.Hint(), secret)
		}
	}
}

// Another ledger, or another way to its password, loosens.
func TestCompareLedgers(t *testing.T) {
	with := func(more string) *Config {
		return must.Get(Parse([]byte("[ledger]\nurl = '" + ledgerURL + "'\n" + more)))(t)
	}
	for _, more := range []string{"password_file = '/p'", "password_command = ['/t']"} {
		require.True(t, Loosens(Compare(with(""), with(more))), more)
		require.True(t, Loosens(Compare(with(more), with(""))), more)
	}
	require.True(t, Loosens(Compare(defaults(t), with(""))))
	require.True(t, Loosens(Compare(with(""), defaults(t))))
}

// Whatever is taken for the URL of a ledger has no password, and TLS as soon as it leaves this machine.
func FuzzLedgerURL(f *testing.F) {
	for _, raw := range []string{ledgerURL, "postgres://me:pw@127.0.0.1/x", "postgres:///x?host=/run/x",
		"postgres://%2Frun/x?sslmode=disable", "postgres://[::1]:1,localhost/x"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := ParseLedgerURL(raw)
		if err != nil {
			return
		}
		require.NotEmpty(t, u.Hosts)
		require.True(t, u.IsHere() || u.Params.Get("sslmode") == "verify-full")
		_, rest, _ := strings.Cut(raw, "://")
		authority, _, _ := strings.Cut(rest, "/")
		user, _, found := strings.Cut(authority, "@")
		require.False(t, found && strings.Contains(user, ":"), "a password")
	})
}
