package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// defaults are the rules of an empty file.
func defaults(t *testing.T) *Config { return rules(t, "") }

func dollars(t *testing.T, s string) money.Dollars {
	t.Helper()
	return must.Get(money.ParseDollars(s))(t)
}

func TestDirectories(t *testing.T) {
	c := must.Get(Parse([]byte("[discovery]\ndirectories = [\"https://mpp.dev/api/services\", " +
		"\"http://127.0.0.1:9/s\", \"/srv/s.json\", \"file:///srv/t.json\"]")))(t)
	assert.Equal(t, []string{"https://mpp.dev/api/services", "http://127.0.0.1:9/s", "file:///srv/s.json",
		"file:///srv/t.json"}, c.Discovery.Directories)
	none := must.Get(Parse(nil))(t)
	assert.Empty(t, none.Discovery.Directories, "off unless the owner names one")
	assert.True(t, Loosens(Compare(none, c)))
}

// Whether a server speaks payment channels is said, denied, or looked at; who it has to be is said
// only with the first.
func TestChannelServers(t *testing.T) {
	c := must.Get(Parse([]byte("[servers.a]\nurl = \"https://a.example/mcp\"\nchannel = true\nservice = " +
		"\"did:rooch:rooch1x\"\n[servers.b]\nurl = \"https://b.example\"\nchannel = " +
		"false\n[servers.c]\nurl = \"https://c.example\"\n")))(t)
	assert.True(t, *c.Servers["a"].Channel)
	assert.Equal(t, "did:rooch:rooch1x", c.Servers["a"].Service)
	assert.False(t, *c.Servers["b"].Channel)
	assert.Nil(t, c.Servers["c"].Channel)
	for _, bad := range []string{"service = \"did:rooch:rooch1x\"",
		"channel = false\nservice = \"did:rooch:rooch1x\"", "channel = true\nservice = \"nuwa\"",
		"channel = 1"} {
		t.Run(bad, func(t *testing.T) {
			_, err := Parse([]byte("[servers.a]\nurl = \"https://a.example/mcp\"\n" + bad + "\n"))
			require.Error(t, err, bad)
		})
	}
}

func TestDefaults(t *testing.T) {
	c := must.Get(Parse(nil))(t)
	assert.Equal(t, limits{
		PerCall: dollars(t, "1.00"), Day: dollars(t, "10.00"), Month: dollars(t, "100.00"),
		ApproveAbove: dollars(t, "0.10"),
		Rate:         60, HostDay: map[string]money.Dollars{},
		Teams: map[string]Team{}, Agents: map[string]eachAgent{},
	}, c.Budget)
	assert.Nil(t, c.Budget.Session, "no session cap is not a cap of 0")
	assert.True(t, c.Policy.Has("exact") && c.Policy.Has("one to come"), "all ways that there are")
	assert.Equal(t, policy{
		AllowHosts: []string{}, DenyHosts: []string{}, NewPayee: budget.RuleAllow,
		PayeeChange: budget.RuleAsk, PriceJump: 3, SignIn: budget.RuleAsk, MaxFailures: 20,
		Loopback:   []string{},
		MaxTimeout: 300 * time.Second, Deadline: 90 * time.Second, MaxWait: 5 * time.Minute,
		ContentQuota: 1 << 30,
		Prefer:       []string{SolanaMainnet, Base},
		PublicNodes:  true, KnownFacilitators: true,
		ChannelDeposit: dollars(t, "0.10"), ChannelDelay: 24 * time.Hour,
	}, c.Policy)
	assert.Equal(t, keystore{Idle: 15 * time.Minute}, c.Keystore)
	assert.Empty(t, c.Networks)
	assert.Equal(t, "https://mainnet.base.org", c.Nodes()[Base])
	assert.Len(t, c.Nodes(), len(publicnode.Networks()))
	assert.False(t, c.Env)
}

// Every key there is stands in the template, if only in a comment.
func TestTemplateNamesEveryKey(t *testing.T) {
	text := template(t)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			key := typ.Field(i).Tag.Get("toml")
			if key == "-" { // written as another field
				continue
			}
			if !typ.Field(i).Anonymous {
				require.NotEmpty(t, key)
				assert.Regexp(t, `(?m)^(# )?(`+key+` *=|\[+`+key+`|\[+[a-z]+\.`+key+`)`, text, key)
			}
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeOf(file{}))
}

// An example of config.toml.
const specExample = `
[budget]
per_call      = "1.00"
session       = "5.00"
day           = "10.00"
month         = "100.00"
approve_above = "0.10"
rate          = 60
[budget.hosts."API.example.com"]
day = "1.00"
[policy]
allow_hosts = ["*.example.com", "api.other.org:8443"]
deny_hosts  = ["bad.example.com"]
new_payee   = "ask"
payee_change = "refuse"
price_jump  = 2
loopback    = ["127.0.0.1:4021", "[0:0::1]:4021", "localhost:80", "10.0.0.7:80"]
max_timeout_seconds = 120
deadline    = "2m"
prefer      = ["base", "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"]
schemes     = ["exact"]
[networks."eip155:8453"]
rpc = "https://base.example/key"
[networks.solana-devnet]
rpc = "https://devnet.example"
token_account = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
[networks."rooch:main"]
rpc = "https://rooch.example"
[[assets]]
network = "base-sepolia"
address = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
symbol = "USDC"
decimals = 6
usd = "1.00"
name = "USDC"
version = "2"
[[assets]]
network = "solana-devnet"
address = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"
symbol = "TST"
decimals = 0
token2022 = true
[[facilitators]]
name = "cdp"
url = "https://api.cdp.coinbase.com/platform/v2/x402/"
auth = "cdp"
networks = []
[[facilitators]]
url = "http://127.0.0.1:4022"
networks = ["base", "testnets"]
[hosts."seed.example.com"]
settle = "wallet"
[servers.weather]
command = ["npx", "weather-mcp"]
mount = true
[servers.nuwa]
url = "https://nuwa.example/mcp"
channel = true
[ledger]
url = ""
[keystore]
passphrase_command = ["/usr/bin/secret-tool", "lookup"]
keyring = true
idle = "1h"
[channel]
did = "did:rooch:rooch1abc"
deposit_cap = "2.00"
`

func TestSpecExample(t *testing.T) {
	c := must.Get(Parse([]byte(specExample)))(t)
	assert.Equal(t, dollars(t, "5.00"), *c.Budget.Session)
	assert.Equal(t, dollars(t, "1.00"), c.Budget.HostDay["api.example.com"])
	assert.Equal(t, []string{"*.example.com", "api.other.org:8443"}, c.Policy.AllowHosts)
	assert.InDelta(t, 2.0, c.Policy.PriceJump, 0)
	assert.Equal(t, []string{"127.0.0.1:4021", "[::1]:4021", "localhost:80", "10.0.0.7:80"},
		c.Policy.Loopback)
	assert.Equal(t, []string{Base, SolanaMainnet}, c.Policy.Prefer)
	assert.Equal(t, network{RPC: "https://devnet.example",
		TokenAccount: "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU"},
		c.Networks["solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"])
	assert.Equal(t, "https://rooch.example", c.Networks["rooch:main"].RPC)
	assert.Equal(t, x402.AssetInfo{Network: "eip155:84532",
		Address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", Symbol: "USDC",
		Decimals: 6, USD: dollars(t, "1"), Name: "USDC", Version: "2"}, c.Assets[0])
	assert.True(t, c.Assets[1].Token2022)
	assert.Equal(t, []Facilitator{
		{Name: "cdp", URL: "https://api.cdp.coinbase.com/platform/v2/x402", Auth: "cdp"},
		{Name: "127.0.0.1:4022", URL: "http://127.0.0.1:4022", Auth: "none",
			Networks: []string{Base, Testnets}},
	}, c.Facilitators)
	assert.Equal(t, host{Settle: "wallet"}, c.Hosts["seed.example.com"])
	assert.Equal(t, server{Command: []string{"npx", "weather-mcp"}, Mount: true}, c.Servers["weather"])
	assert.Equal(t, time.Hour, c.Keystore.Idle)
	assert.Equal(t, channel{DID: "did:rooch:rooch1abc", DepositCap: dollars(t, "2")}, c.Channel)
	assert.Equal(t, specExample, string(c.Raw))
}

// Each fault is refused with its line and key, and says what would have passed.
func TestFaults(t *testing.T) {
	for _, row := range []struct {
		toml string
		line int
		key  string
		says string
	}{
		{"[budget]\nper_cal = \"1\"", 2, "budget.per_cal", "no such key"},
		{"[network]\nproxy = \"proxy.example:3128\"", 2, "network.proxy", "is not an address like"},
		{"[network]\nproxy = \"ftp://proxy.example\"", 2, "network.proxy", "is not an address like"},
		{"[network]\nproxy = \"http://\"", 2, "network.proxy", "is not an address like"},
		{"[network]\nproxy = \"http://a.example/x\"", 2, "network.proxy", "is not an address like"},
		{"[network]\nproxy = \"http://me:secret@a.example\"", 2, "network.proxy", "not for secrets"},
		{"[network]\nproxi = \"\"", 2, "network.proxi", "no such key"},
		{"[bugdet]\nx = 1", 1, "bugdet", "no such key"},
		{"[budget]\nper_call = 1.00", 2, "budget.per_call", `as text, not as a number: "1.00"`},
		{"[budget]\nday = 10 # ten", 2, "budget.day", `"10"`},
		{"[budget.hosts.\"a.b\"]\nday = 1", 2, `budget.hosts."a.b".day`, `"1"`},
		{"[budget]\nper_call = \"$1\"", 2, "budget.per_call", `"$1": not dollars like "0.05"`},
		{"[budget]\nper_call = \"-1\"", 2, "budget.per_call", "not dollars"},
		{"[budget]\nsession = \"0.0000001\"", 2, "budget.session", "at most 6 decimals"},
		{"[budget]\nday = \"1000000000000\"", 2, "budget.day", "at most 12 digits"},
		{"\ufeff[budget]\n", 1, "", "byte-order mark"},
		{"\xff\xfe[\x00", 1, "", "byte-order mark"},
		{"[budget]\nrate = \"60\"", 2, "budget.rate", "without quotes: 60"},
		{"[budget]\nrate = 0", 2, "budget.rate", "from 1 to 100000"},
		{"[budget]\nPer_Call = \"9\"", 2, "budget.Per_Call", "spelt budget.per_call"},
		{"[Budget]\nrate = 1", 1, "Budget", "spelt budget"},
		{"budget = { rate = 1, Day = \"1\" }", 1, "budget.Day", "spelt"},
		{"assets = [{ usd = \"1.00\", USD = \"0.000001\" }]", 1, "assets.0.USD", "spelt assets.0.usd"},
		{"facilitators = [\n{ url = \"https://f\" },\n{ Url = \"https://g\" }]", 1, "facilitators.1.Url",
			"spelt"},
		{"[budget]\nrate = 1\nrate = 2", 3, "rate", "already defined"},
		{"[budget.hosts.\"https://a.b/\"]\nday = \"1\"", 1, `budget.hosts."https://a.b/"`, "only the host"},
		{"[budget.hosts.\"A.b\"]\nday = \"1\"\n[budget.hosts.\"a.b\"]\nday = \"1\"", 3, `budget.hosts."a.b"`,
			"same host"},
		{"[budget.hosts.\"a.b\"]", 1, `budget.hosts."a.b"`, "needs day"},
		{"[budget.hosts.\"a.b\"]\nmonth = \"1\"", 2, `budget.hosts."a.b".month`, "no such key"},
		{"[policy]\nnew_payee = \"maybe\"", 2, "policy.new_payee", `"allow" or "ask" or "refuse"`},
		{"[policy]\nprice_jump = 0.5", 2, "policy.price_jump", "from 1.0"},
		{"[policy]\nprice_jump = nan", 2, "policy.price_jump", "from 1.0"},
		{"[policy]\nmax_timeout_seconds = 3601", 2, "policy.max_timeout_seconds", "from 10 to 3600"},
		{"[policy]\ndeadline = \"1s\"", 2, "policy.deadline", `"5s" to "10m"`},
		{"[policy]\ndeadline = 90", 2, "policy.deadline", `"90"`},
		{"[policy]\nallow_hosts = \"a.b\"", 2, "policy.allow_hosts", "a list"},
		{"[policy]\nallow_hosts = [\"bücher.example\"]", 2, "policy.allow_hosts", "xn--"},
		{"[policy]\nallow_hosts = [\"*\"]", 2, "policy.allow_hosts", "not a host"},
		{"[policy]\nallow_hosts = [\"a.b until soon\"]", 2, "policy.allow_hosts", "no date"},
		{"[policy]\nallow_hosts = [\"a.b until \"]", 2, "policy.allow_hosts", "no date"},
		{"[policy]\nallow_hosts = [\"a.b until 2027-02-30\"]", 2, "policy.allow_hosts", "no date"},
		{"[policy]\nallow_hosts = [\" until 2027-01-01\"]", 2, "policy.allow_hosts", "host"},
		{"[policy]\nallow_hosts = [\"a.b\", \"a.b until 2027-01-01\"]", 2, "policy.allow_hosts", "twice"},
		{"[policy]\ndeny_hosts = [\"a.b until 2027-01-01\"]", 2, "policy.deny_hosts", "host"},
		{"[agents.a]\nuntil = \"tomorrow\"", 2, "agents.a.until", "no date"},
		{"[policy]\ndeny_hosts = [\"a.b:0\"]", 2, "policy.deny_hosts", "1 to 65535"},
		{"[policy]\npayees = [\"0x12\"]", 2, "policy.payees", "no address"},
		{"[policy]\npayees = [\"api.example.com\"]", 2, "policy.payees", "no address"},
		{"[policy]\npayees = [\"*\"]", 2, "policy.payees", "no address"},
		{"[policy]\npayees = [\"\"]", 2, "policy.payees", "no address"},
		{"[policy]\npayees = [\"bass:0x00000000000000000000000000000000000000AA\"]", 2, "policy.payees",
			"no network we know"},
		{"[policy]\npayees = [\"solana:0x00000000000000000000000000000000000000AA\"]", 2, "policy.payees",
			"another chain"},
		{"[policy]\npayees = [\"base:2wKupLR9q6wXYppw8Gr2NvWxKBUqm4PPJKkQfoxHDBg4\"]", 2, "policy.payees",
			"another chain"},
		{"[policy]\nloopback = [\"127.0.0.1\"]", 2, "policy.loopback", "with its port"},
		{"[policy]\nloopback = [\"127.0.0.1:*\"]", 2, "policy.loopback", "with its port"},
		{"[policy]\nloopback = [\"seller.local:80\"]", 2, "policy.loopback", "must be an address"},
		{"[policy]\nloopback = [\"8.8.8.8:80\"]", 2, "policy.loopback", "only those have an entry"},
		{"[policy]\nloopback = [\"169.254.169.254:80\"]", 2, "policy.loopback", "only those have an entry"},
		{"[policy]\nloopback = [\"[::ffff:127.0.0.1]:80\"]", 2, "policy.loopback", "must be an address"},
		{"[policy]\nprefer = [\"dogecoin\"]", 2, "policy.prefer", "no network we know"},
		{"[policy]\nprefer = [\"rooch:main\"]", 2, "policy.prefer", "no network we know"},
		{"[policy]\nschemes = [\"exact\", \"deferred\"]", 2, "policy.schemes", `must be "exact" or`},
		{"[policy]\nschemes = []", 2, "policy.schemes", "empty"},
		{"[networks.nowhere]\nrpc = \"https://x\"", 1, "networks.nowhere", "no network we know"},
		{"[networks.base]\n[networks.\"eip155:8453\"]", 2, `networks."eip155:8453"`, "same network"},
		{"[networks.megaeth]", 1, "networks.megaeth", "needs rpc"},
		{"[networks.base]\nrpc = \"http://node.example\"", 2, "networks.base.rpc", "must be https://"},
		{"[networks.base]\nrpc = \"wss://node.example\"", 2, "networks.base.rpc", "begin with https://"},
		{"[networks.base]\ntoken_account = \"x\"", 2, "networks.base.token_account", "only Solana"},
		{"[networks.solana]\napproval_gas = \"0.001\"", 2, "networks.solana.approval_gas", "only EVM"},
		{"[networks.base]\napproval_gas = \"0\"", 2, "networks.base.approval_gas", "above 0"},
		{"[networks.base]\nmax_gas = \"0.001\"", 1, "networks.base", "without allowance_from"},
		{"[networks.solana]\ntoken_account = \"0x12\"", 2, "networks.solana.token_account", "base58"},
		{"[[assets]]\nnetwork = \"base\"", 1, "assets.0.decimals", "from 0 to 36"},
		{asset + "decimals = 37", 5, "assets.0.decimals", "from 0 to 36"},
		{strings.Replace(asset, "0x03", "0x", 1) + "decimals = 6", 3, "assets.0.address", "40 hex"},
		{strings.Replace(asset, "USDX", "US DX", 1) + "decimals = 6", 4, "assets.0.symbol",
			"letters and digits"},
		{asset + "decimals = 6", 1, "assets.0", "EIP-712"},
		{asset + "decimals = 6\nusd = \"0\"", 6, "assets.0.usd", "above 0"},
		{"[[facilitators]]\nurl = \"http://f.example\"", 2, "facilitators.0.url", "https://"},
		{"[[facilitators]]\nurl = \"https://f\"\n[[facilitators]]\nurl = \"https://f\"", 3,
			"facilitators.1.name", "two facilitators"},
		{"[[facilitators]]\nurl = \"https://f\"\nauth = \"oauth\"", 3, "facilitators.0.auth", `"cdp"`},
		{"[[facilitators]]\nurl = \"https://f\"\nauth = \"header\"", 1, "facilitators.0", "header_file"},
		{"[discovery]\ndirectories = [\"http://mpp.example/s\"]", 2, "discovery.directories", "https://"},
		{"[discovery]\ndirectories = [\"https://me:pw@mpp.example\"]", 2, "discovery.directories",
			"not for secrets"},
		{"[discovery]\ndirectories = [\"file://s.json\"]", 2, "discovery.directories", "a full path"},
		{"[discovery]\ndirectories = [\"s.json\"]", 2, "discovery.directories", "not a URL"},
		{"[discovery]\ndirectories = [" + strings.Repeat("\"https://a\",", 9) + "]", 2,
			"discovery.directories", "at most 8"},
		{"[hosts.\"a.b\"]\nsettle = \"me\"", 2, `hosts."a.b".settle`, `"seller" or "wallet"`},
		{"[servers.a__b]\nurl = \"https://x\"", 1, "servers.a__b", "name"},
		{"[servers.a]", 1, "servers.a", "needs either"},
		{"[servers.a]\nurl = \"https://x\"\ncommand = [\"x\"]", 1, "servers.a", "needs either"},
		{"[servers.a]\ncommand = \"x\"", 2, "servers.a.command", "a list"},
		{"[ledger]\nurl = \"postgres://me:pw@x/y\"", 2, "ledger.url", "has a password in it"},
		{"[log]\nformat = \"yaml\"", 2, "log.format", `"text" or "json"`},
		{"[traces]\nsample = 0.5", 1, "traces", "needs endpoint"},
		{"[traces]\nendpoint = \"http://collector:4318/v1/traces\"", 2, "traces.endpoint",
			"must be https://"},
		{"[traces]\nendpoint = \"https://me:pw@c.example/v1/traces\"", 2, "traces.endpoint", "headers_file"},
		{"[traces]\nendpoint = \"https://c.example\"\nheaders_file = \"h\"", 3, "traces.headers_file",
			"full path"},
		{"[traces]\nendpoint = \"https://c.example\"\nsample = 1.1", 3, "traces.sample", "0.0 to 1.0"},
		{"[traces]\nendpoint = \"https://c.example\"\nsample = nan", 3, "traces.sample", "0.0 to 1.0"},
		{"[keystore]\nidle = \"9h\"", 2, "keystore.idle", `"8h"`},
		{"[keystore]\nkeyring = \"yes\"", 2, "keystore.keyring", "true or false"},
		{"[channel]\ndid = \"me\"", 2, "channel.did", "DID"},
		{"budget = 3", 1, "budget", "a table"},
		{"a = ", 1, "", ""},
	} {
		t.Run(row.toml, func(t *testing.T) {
			_, err := Parse([]byte(row.toml))
			require.Error(t, err, row.toml)
			var fault *Error
			require.ErrorAs(t, err, &fault, row.toml)
			assert.Equal(t, row.line, fault.Line, "%s\n%v", row.toml, err)
			assert.Equal(t, row.key, fault.Key, "%s\n%v", row.toml, err)
			assert.Contains(t, err.Error(), row.says, row.toml)
			assert.NotContains(t, err.Error(), "pw@", "a password in a message")
			assert.Equal(t, "SETUP_FAILED", string(x402.AsError(err).Code))
		})
	}
}

const asset = "[[assets]]\nnetwork = \"base\"\naddress = " +
	"\"0x036CbD53842c5426634e7929541eC2318f3dCF7e\"\nsymbol = \"USDX\"\n"

// What counts as a dollar unsaid is told, because every limit counts it so.
func TestAssetWithoutPriceWarns(t *testing.T) {
	c := must.Get(Parse([]byte(asset + "decimals = 6\nname = \"a\"\nversion = \"1\"")))(t)
	require.Equal(t,
		[]string{"assets.0.usd is not written, so each USDX counts as $1.00 against every limit: write " +
			"what one is worth"}, c.Warnings)
	c = must.Get(Parse([]byte(asset + "decimals = 6\nusd = \"1.00\"\nname = \"a\"\nversion = \"1\"")))(t)
	require.Empty(t, c.Warnings)
}

// The ends of each range are inside.
func TestRangeLimits(t *testing.T) {
	for _, text := range []string{
		"[budget]\nrate = 1", "[budget]\nrate = 100000", "[budget]\nper_call = \"0\"",
		"[policy]\nmax_timeout_seconds = 10", "[policy]\nmax_timeout_seconds = 3600",
		"[policy]\ndeadline = \"5s\"", "[policy]\ndeadline = \"10m\"", "[policy]\nprice_jump = 1.0",
		"[keystore]\nidle = \"8h\"", "[keystore]\nidle = \"1s\"",
		asset + "decimals = 0\nname = \"a\"\nversion = \"1\"", asset +
			"decimals = 36\nname = \"a\"\nversion = \"1\"",
	} {
		assert.NoError(t, must.Err(Parse([]byte(text))), text)
	}
}

func TestAllFaultsAreReported(t *testing.T) {
	_, err := Parse([]byte("[budget]\nrate = 0\nday = \"x\"\n[policy]\ndeadline = \"1s\""))
	assert.Equal(t, 3, strings.Count(err.Error(), "config.toml line "))
}

func TestSize(t *testing.T) {
	must.Get(Parse(bytes.Repeat([]byte("#\n"), MaxFile/2)))(t)
	_, err := Parse(append(bytes.Repeat([]byte("#\n"), MaxFile/2), '#'))
	assert.ErrorContains(t, err, "at most 262144")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(specExample))
	f.Add([]byte("budget = { hosts = { \"a\" = { day = \"1\" } } }"))
	f.Add([]byte("a.b.c = [[1], {x = 2}]\n[[x]]\n[[x.y]]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err == nil && !bytes.Equal(c.Raw, data) {
			t.Fatal("the bytes are not what was read")
		}
	})
}

func TestHostNames(t *testing.T) {
	for written, want := range map[string]string{
		"API.Example.com": "api.example.com", "api.example.com:8443": "api.example.com:8443",
		"localhost":      "localhost",
		"127.0.0.1:4021": "127.0.0.1:4021", "[2001:DB8::1]:8443": "[2001:db8::1]:8443",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"a_b.example.com":       "a_b.example.com", "My_Server": "my_server",
		"a_.example.com": "a_.example.com",
		"127":            "127", "3.example": "3.example",
	} {
		got, problem := foldHost(written)
		assert.Equal(t, want, got)
		assert.Empty(t, problem, written)
	}
	for _, written := range []string{"", ".", "a..b", "a.b.", "-a.b", "a b", "a@b", "::1", "[::1", "[::01]",
		"[fe80::1%eth0]", "[127.0.0.1]", "[::ffff:1.1.1.1]",
		"a.b:", "a.b:x", "a.b:65536", "a.b:08443", "a.b:443", "a.b:80", "https://a.b", "a.b/c", "*.a.b",
		strings.Repeat("a", 64) + ".b",
		"127.1", "010.0.0.1", "0x7f.0.0.1", "1.2.3.4.5", "192.0.2.256:8443"} {
		_, problem := foldHost(written)
		assert.NotEmpty(t, problem, written)
	}
}

func TestWalletSettles(t *testing.T) {
	c := must.Get(Parse([]byte("[hosts.\"Seed.example\"]\nsettle = \"wallet\"\n" +
		"[hosts.\"seed.example:81\"]\nsettle = \"seller\"")))(t)
	assert.True(t, c.WalletSettles("seed.example"))
	assert.True(t, c.WalletSettles("SEED.example:8443"))
	assert.False(t, c.WalletSettles("seed.example:81"))
	assert.False(t, c.WalletSettles("a.seed.example"))
}

func TestContentQuota(t *testing.T) {
	for text, want := range map[string]Size{"64MiB": 64 << 20, "1024MiB": 1 << 30, "65536KiB": 64 << 20,
		"1TiB": 1 << 40, "3GiB": 3 << 30} {
		c, err := Parse([]byte("[policy]\ncontent_quota = \"" + text + "\""))
		require.NoError(t, err, text)
		require.Equal(t, want, c.Policy.ContentQuota)
	}
	for _, bad := range []string{`"0"`, `"63MiB"`, `"2TiB"`, `"1GB"`, `"1 GiB"`, `"-1GiB"`, `"1.5GiB"`, `""`,
		`"9999999TiB"`, `"1gib"`, `"99999999999999999999KiB"`, `1073741824`} {
		_, err := Parse([]byte("[policy]\ncontent_quota = " + bad))
		require.ErrorContains(t, err, "config.toml line 2: policy.content_quota: ", bad)
	}
	require.Equal(t, "1GiB", Size(1<<30).String())
	require.Equal(t, "100MiB", Size(100<<20).String())
	require.Equal(t, "7B", Size(7).String())
}

// What the owner says of networks is what counts: a node of theirs, none, or no network that they did not
// name.
func TestNodes(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		want map[string]string // of some networks; "" is off
		more bool              // the other public ones
	}{
		"no word of them": {file: "", more: true,
			want: map[string]string{Base: "https://mainnet.base.org", "eip155:31612": ""}},
		"a node of one's own": {more: true,
			file: "[policy]\npublic_nodes = true\n[networks.base]\nrpc = \"https://own.example\"",
			want: map[string]string{Base: "https://own.example"}},
		"one is off": {file: "[policy]\npublic_nodes = true\n[networks.polygon]\nrpc = \"\"", more: true,
			want: map[string]string{"eip155:137": "", Base: "https://mainnet.base.org"}},
		"an earlier file names its networks": {
			file: "[networks.\"eip155:84532\"]\nrpc = \"https://own.example\"",
			want: map[string]string{"eip155:84532": "https://own.example", Base: ""}},
		"the public node of a named one": {file: "[networks.base-sepolia]",
			want: map[string]string{"eip155:84532": "https://sepolia.base.org", Base: ""}},
		"public ones are off": {file: "[policy]\npublic_nodes = false", want: map[string]string{Base: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			c := must.Get(Parse([]byte(test.file)))(t)
			nodes := c.Nodes()
			for network, url := range test.want {
				got, on := nodes[network]
				assert.Equal(t, url, got, network)
				assert.Equal(t, url != "", on, network)
			}
			assert.Equal(t, test.more, nodes["eip155:480"] != "")
		})
	}
	assert.Error(t, must.Err(Parse([]byte("[networks.mezo]"))))
	_, err := Parse([]byte("[networks.\"eip155:31612\"]"))
	assert.ErrorContains(t, err, "needs rpc", "no node of it is known")
}
