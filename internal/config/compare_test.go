package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// rules are config.toml from its lines.
func rules(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	require.NoError(t, err, text)
	return c
}

// traced are rules with traces.
const traced = "[traces]\nendpoint='http://127.0.0.1:4318/v1/traces'\n"

// How the log is written is nothing to the agent, so its owner changes it without a passphrase.
func TestTheLogsFormatLoosensNothing(t *testing.T) {
	text, inJSON := rules(t, ""), rules(t, "[log]\nformat='json'")
	for _, list := range [][]Change{Compare(text, inJSON), Compare(inJSON, text)} {
		require.Len(t, list, 1)
		require.False(t, list[0].Loosens)
	}
}

// Each pair once in each direction: what is tighter one way is looser the other.
func TestCompare(t *testing.T) {
	for _, c := range []struct{ name, loose, tight, key, from, to string }{
		{"per call", "[budget]\nper_call='2'", "[budget]\nper_call='1.50'", "budget.per_call", "$2.00",
			"$1.50"},
		{"session", "[budget]\nsession='2'", "[budget]\nsession='1'", "budget.session", "$2.00", "$1.00"},
		{"day, against the default", "", "[budget]\nday='9.99'", "budget.day", "$10.00", "$9.99"},
		{"month", "[budget]\nmonth='101'", "", "budget.month", "$101.00", "$100.00"},
		{"approvals", "", "[budget]\napprove_above='0'", "budget.approve_above", "$0.10", "$0.00"},
		{"rate", "[budget]\nrate=61", "", "budget.rate", "61", "60"},
		{"a host's day", "[budget.hosts.'a.example']\nday='2'", "[budget.hosts.'a.example']\nday='1'",
			"budget.hosts", "[a.example $2.00]", "[a.example $1.00]"},
		{"a host more", "", "[budget.hosts.'a.example']\nday='1'", "budget.hosts", "none",
			"[a.example $1.00]"},
		{"only some hosts", "", "[policy]\nallow_hosts=['a.example']", "policy.allow_hosts", "any",
			"[a.example]"},
		{"hosts for a time", "[policy]\nallow_hosts=['a.example']",
			"[policy]\nallow_hosts=['a.example until 2027-01-01']", "policy.allow_hosts", "[a.example]",
			`["a.example until 2027-01-01T00:00:00Z"]`},
		{"hosts for less time", "[policy]\nallow_hosts=['a.example until 2027-01-01T00:00:01Z']",
			"[policy]\nallow_hosts=['A.example until 2027-01-01']", "policy.allow_hosts",
			`["a.example until 2027-01-01T00:00:01Z"]`, `["a.example until 2027-01-01T00:00:00Z"]`},
		{"an agent for a time", "[agents.a]", "[agents.a]\nuntil='2027-01-01'", "agents",
			"[a allow_hosts none]", "[a allow_hosts none until 2027-01-01T00:00:00Z]"},
		{"an agent for less time", "[agents.a]\nuntil='2028-01-01'", "[agents.a]\nuntil='2027-01-01'",
			"agents", "[a allow_hosts none until 2028-01-01T00:00:00Z]",
			"[a allow_hosts none until 2027-01-01T00:00:00Z]"},
		{"fewer hosts", "[policy]\nallow_hosts=['a.example','b.example']",
			"[policy]\nallow_hosts=['b.example']", "policy.allow_hosts", "[a.example, b.example]",
			"[b.example]"},
		{"only some payees", "", "[policy]\npayees=['0x00000000000000000000000000000000000000AA']",
			"policy.payees", "any", "[0x00000000000000000000000000000000000000aa]"},
		{"fewer payees", "[policy]\npayees=['" + payeeA + "','base:" + payeeA + "']",
			"[policy]\npayees=['base:" + payeeA + "']", "policy.payees",
			"[" + payeeA + ", eip155:8453:" + payeeA + "]", "[eip155:8453:" + payeeA + "]"},
		{"fewer payees, and no new ones",
			"[policy]\nnew_payee='refuse'\npayees=['" + payeeA + "','" + payeeB + "']",
			"[policy]\nnew_payee='refuse'\npayees=['" + payeeB + "']", "policy.payees",
			"[" + payeeA + ", " + payeeB + "]", "[" + payeeB + "]"},
		{"denied hosts", "", "[policy]\ndeny_hosts=['a.example']", "policy.deny_hosts", "none",
			"[a.example]"},
		{"public nodes", "", "[policy]\npublic_nodes=false", "policy.public_nodes", "true", "false"},
		{"known facilitators", "", "[policy]\nknown_facilitators=false", "policy.known_facilitators", "true",
			"false"},
		{"new payees", "", "[policy]\nnew_payee='ask'", "policy.new_payee", "allow", "ask"},
		{"new payees, never", "[policy]\nnew_payee='ask'", "[policy]\nnew_payee='refuse'", "policy.new_payee",
			"ask", "refuse"},
		{"signing in, never", "", "[policy]\nsign_in='refuse'", "policy.sign_in", "ask", "refuse"},
		{"changed payees", "[policy]\npayee_change='allow'", "", "policy.payee_change", "allow", "ask"},
		{"prices", "", "[policy]\nprice_jump=2.5", "policy.price_jump", "3", "2.5"},
		{"failures", "", "[policy]\nmax_failures=19", "policy.max_failures", "20", "19"},
		{"the breaker", "[policy]\nmax_failures=0", "", "policy.max_failures", "0", "20"},
		{"loopback", "[policy]\nloopback=['127.0.0.1:1']", "", "policy.loopback", "[127.0.0.1:1]", "none"},
		{"validity", "", "[policy]\nmax_timeout_seconds=60", "policy.max_timeout_seconds", "5m", "1m"},
		{"deadline", "", "[policy]\ndeadline='10s'", "policy.deadline", "1m30s", "10s"},
		{"channels' deposits", "", "[policy]\nchannel_deposit='0.05'", "policy.channel_deposit", "$0.10",
			"$0.05"},
		{"channels' delays", "", "[policy]\nchannel_delay='1h'", "policy.channel_delay", "24h", "1h"},
		{"networks' fees", "[policy]\nnetwork_fee='0.05'", "", "policy.network_fee", "$0.05", "$0.00"},
		{"idle", "", "[keystore]\nidle='1m'", "keystore.idle", "15m", "1m"},
		{"deposit", "", "[channel]\ndeposit_cap='0.50'", "channel.deposit_cap", "$1.00", "$0.50"},
		{"traces that are passed on", traced + "pass_on=true", traced, "traces.pass_on", "true", "false"},
		{"traces, fewer", traced, traced + "sample=0.5", "traces.sample", "1", "0.5"},
		{"the environment", "env=true", "", "env", "true", "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			loose, tight := rules(t, c.loose), rules(t, c.tight)
			require.Equal(t, []Change{{Key: c.key, From: c.from, To: c.to}}, Compare(loose, tight))
			require.Equal(t, []Change{{Key: c.key, From: c.to, To: c.from, Loosens: true}},
				Compare(tight, loose))
			require.True(t, Loosens(Compare(tight, loose)))
			require.False(t, Loosens(Compare(loose, tight)))
			require.Empty(t, Compare(tight, rules(t, "# a comment\n"+c.tight)))
		})
	}
}

const (
	payeeA = "0x00000000000000000000000000000000000000aa"
	payeeB = "0x00000000000000000000000000000000000000bb"
)

// Where new payees are refused, or asked about, a list lets those on it be paid: it loosens.
func TestCompare_PayeesBesideNewPayee(t *testing.T) {
	list := "\npayees=['" + payeeA + "']"
	for _, c := range []struct {
		from, to string
		loosens  bool
	}{
		{"new_payee='refuse'", "new_payee='refuse'" + list, true},
		{"new_payee='ask'", "new_payee='ask'" + list, true},
		{"new_payee='refuse'", "new_payee='allow'" + list, true},
		{"new_payee='allow'", "new_payee='refuse'" + list, false},
		{"new_payee='allow'", "new_payee='allow'" + list, false},
		{"new_payee='refuse'" + list, "new_payee='refuse'", true},
		{"new_payee='refuse'" + list, "new_payee='refuse'\npayees=['" + payeeA + "','" + payeeB + "']", true},
		{"new_payee='allow'" + list, "new_payee='allow'\npayees=['" + payeeB + "']", true},
	} {
		changes := Compare(rules(t, "[policy]\n"+c.from), rules(t, "[policy]\n"+c.to))
		require.Equal(t, c.loosens, Loosens(changes), "%s -> %s", c.from, c.to)
	}
}

// fullPath is a program's on every system.
var fullPath, _ = filepath.Abs("program")

// What has no direction loosens, whichever way it changes.
func TestCompareUnproven(t *testing.T) {
	for _, c := range []string{
		"[budget]\nsession='1'", // without it, what was delegated is the cap
		"[policy]\nprefer=['eip155:8453']",
		"[policy]\npublic_nodes=true\n[networks.'eip155:8453']\nrpc='https://node.example'",
		"[[assets]]\nnetwork='eip155:84532'\naddress='0x1111111111111111111111111111111111111111'\n" +
			"symbol='X'\ndecimals=6\nusd='1'\nname='X'\nversion='1'",
		"[[facilitators]]\nname='x'\nurl='https://f.example'",
		"[[facilitators]]\ncommand=['" + fullPath + "']",
		"[discovery]\ndirectories=['https://mpp.example/services']",
		"[hooks]\nbefore=['" + fullPath + "']",
		"[hooks]\nafter=['" + fullPath + "']",
		"[hosts.'a.example']\nsettle='wallet'",
		"[servers.x]\ncommand=['x']",
		"[policy]\ncontent_quota='2GiB'", // more fills the disk, less pushes out what others bought
		"[keystore]\npassphrase_file='/x'",
		"[keystore]\nkeyring=true",
		"[network]\nproxy='socks5://127.0.0.1:1080'", // whoever chooses it sees where everything goes
		traced,
		"[keystore]\npassphrase_command=['/x']",
	} {
		t.Run(c, func(t *testing.T) {
			for _, list := range [][]Change{Compare(rules(t, ""), rules(t, c)),
				Compare(rules(t, c), rules(t, ""))} {
				require.Len(t, list, 1, c)
				require.True(t, list[0].Loosens, c)
			}
		})
	}
}

// Whoever lets a program out of its sandbox, or gives it another variable, needs the passphrase.
func TestASandboxTurnedOffLoosens(t *testing.T) {
	const server = "[servers.x]\ncommand=['x']\n"
	for _, from := range []string{"", "sandbox=true"} {
		for _, to := range []string{"sandbox=false", "env=['SOME_SECRET']"} {
			changed := Compare(rules(t, server+from), rules(t, server+to))
			require.True(t, Loosens(changed), "%s → %s", from, to)
		}
	}
	for _, program := range []string{"[keystore]\npassphrase_command=['" + fullPath + "']\n",
		"[ledger]\nurl='" + ledgerURL + "'\npassword_command=['" + fullPath + "']\n"} {
		require.True(t, Loosens(Compare(rules(t, program), rules(t, program+"sandbox=false"))), program)
	}
}

// The owner reads a table by its keys, as they are in the file; no text in it passes for another key.
func TestTablesInWords(t *testing.T) {
	c := rules(t, "[[facilitators]]\nname='x url https://good.example'\n"+
		"url='https://f.example'\n[servers.b]\ncommand=['npx','a b']\nchannel=false\n"+
		"[servers.a]\nurl='https://s.example/mcp'\nmount=true\n"+
		"[[assets]]\nnetwork='eip155:84532'\naddress='0x1111111111111111111111111111111111111111'\n"+
		"symbol='X'\ndecimals=6\nname='X'\nversion='1'")
	shown := map[string]Line{}
	for _, line := range c.Lines() {
		shown[line.Key] = line
	}
	require.Equal(t, `[name "x url https://good.example" url https://f.example auth none]`,
		shown["facilitators"].Value)
	require.Equal(t, []string{`a url https://s.example/mcp mount true`,
		`b command [npx, "a b"] channel false`}, shown["servers"].List)
	require.Equal(t,
		[]string{"network eip155:84532 address 0x1111111111111111111111111111111111111111 symbol X " +
			"decimals 6 usd $1.00 name X version 1"}, shown["assets"].List)
	allowance := rules(t, "[networks.base]\nallowance_from='0x1111111111111111111111111111111111111111'\n"+
		"float='0.002'\napproval_gas='0.01'\n").Lines()
	at := slices.IndexFunc(allowance, func(l Line) bool { return l.Key == "networks" })
	require.Contains(t, allowance[at].Value, "allowance_from 0x1111111111111111111111111111111111111111 "+
		"float $0.002 max_gas 0.001 approval_gas 0.01")
	require.Equal(t, "those built in",
		defaults(t).Lines()[slices.IndexFunc(defaults(t).Lines(), func(l Line) bool {
			return l.Key == "assets"
		})].Value)
}

// No field of Config escapes the comparison.
func TestCompareSeesEveryField(t *testing.T) {
	touch := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Map:
			m := reflect.MakeMap(v.Type())
			m.SetMapIndex(reflect.ValueOf("x").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
			v.Set(m)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		default:
			v.SetInt(v.Int() + int64(time.Second))
		}
	}
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if name == "Raw" || name == "Warnings" {
			continue
		}
		inner := 1
		if fields.Field(i).Type.Kind() == reflect.Struct {
			inner = fields.Field(i).Type.NumField()
		}
		for j := range inner {
			other := defaults(t)
			field := reflect.ValueOf(other).Elem().Field(i)
			if field.Kind() == reflect.Struct {
				field = field.Field(j)
			}
			touch(field)
			require.Len(t, Compare(defaults(t), other), 1, "%s %d", name, j)
		}
	}
	for key := range tightenings { // and none of the table's keys is misspelt
		section, _, _ := strings.Cut(key, ".")
		require.Contains(t, template(t), section)
	}
}

// template is what init writes, before what the environment says is in it (package environ).
func template(t *testing.T) string {
	t.Helper()
	text := must.Get(os.ReadFile("environ/template.toml"))(t)
	return string(text)
}

// Where the owner names no ways to pay all are allowed: any list is stricter, and to drop the list loosens.
func TestCompare_Schemes(t *testing.T) {
	all, few := must.Get(Parse(nil))(t), must.Get(Parse([]byte("[policy]\nschemes = [\"exact\"]\n")))(t)
	require.False(t, Loosens(Compare(all, few)))
	require.True(t, Loosens(Compare(few, all)))
	require.False(t, few.Policy.Has("upto"))
}
