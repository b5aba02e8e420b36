package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/turns"
	"x402-wallet/history/verify"
	"x402-wallet/internal/config"
	"x402-wallet/internal/install"
	"x402-wallet/internal/must"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
)

const (
	aHexKey  = "0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
	aBase58  = "4vJ5Kd3NBUAdUnhyzenEwVLy9pBKxSwXvE9FMPyR4UKZvpe5Kd3NBUAdUnhyzenEwVLy9pBKxSwXvE9FMPyR4UK"
	aPhrase  = "abandon ability able about above absent absorb abstract absurd abuse access accident"
	aKeypair = "[1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8," +
		"1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,255]"
)

func TestKindOf(t *testing.T) {
	for _, line := range []struct{ name, value, want string }{
		{"PRIVATE_KEY", aHexKey, "a private key"},
		{"X402_PRIVATE_KEY", aHexKey[2:], "a private key"},
		{"evmKey", aHexKey, "a private key"},
		{"AGENT_PK", aHexKey, "a private key"},
		{"SOLANA_SECRET", aBase58, "a Solana key"},
		{"anything", aKeypair, "a Solana key"},
		{"MNEMONIC", aPhrase, "a seed phrase"},
		{"X402_WALLET_PASSPHRASE", "whatever", "a passphrase"},
		{"txHash", aHexKey, ""},
		{"signature", aBase58, ""},
		{"PRIVATE_KEY", "$PRIVATE_KEY", ""},
		{"PRIVATE_KEY", "<your key>", ""},
		{"PRIVATE_KEY", "", ""},
		{"PRIVATE_KEY", aHexKey[:40], ""},
		{"API_KEY", "sk-12345678", ""},
		{"monkey", aHexKey, ""},
		{"description", aPhrase, ""},
		{"seed", "one two three", ""},
	} {
		t.Run(line.name, func(t *testing.T) {
			require.Equal(t, line.want, kindOf(line.name, line.value), "%s", line.name)
		})
	}
}

func TestLook(t *testing.T) {
	for _, line := range []struct {
		file, text string
		want       []string // name: kind
	}{
		{"a.json", `{"mcpServers": {"pay": {"env": {"PRIVATE_KEY": "` + aHexKey +
			`"}, "args": ["-y", "--private-key", "` + aHexKey + `", "--mnemonic=` + aPhrase + `"]}}}`,
			[]string{"mcpServers.pay.args.2: a private key", "mcpServers.pay.args.3: a seed phrase",
				"mcpServers.pay.env.PRIVATE_KEY: a private key"}},
		{"b.json", "// c\n{\"wallet\": {\"keypair\": " + aKeypair + ",}, \"hash\": \"" + aHexKey + "\"}",
			[]string{"wallet.keypair: a Solana key"}},
		{"c.toml", "[mcp_servers.pay.env]\nEVM_PRIVATE_KEY = \"" + aHexKey + "\"\n",
			[]string{"mcp_servers.pay.env.EVM_PRIVATE_KEY: a private key"}},
		{".env", "# PRIVATE_KEY=" + aHexKey + "\nexport PRIVATE_KEY='" + aHexKey + "' # mine\nMNEMONIC=\"" +
			aPhrase + "\"\nTX=" + aHexKey + "\n",
			[]string{"PRIVATE_KEY: a private key", "MNEMONIC: a seed phrase"}},
		{"id.json", aKeypair + "\n", []string{": a Solana key"}},
		{"key.txt", aHexKey + "\n", []string{": a private key"}},
		{"d.json", `{"` + aHexKey[2:] + `": {"privateKey": "` + aHexKey + `"}}`,
			[]string{"(64 characters).privateKey: a private key"}},
	} {
		t.Run(line.file, func(t *testing.T) {
			var got []string
			for _, l := range look(line.file, []byte(line.text)) {
				got = append(got, l.name+": "+l.kind)
			}
			require.Equal(t, line.want, got, line.file)
		})
	}
}

// person is somebody with a home of their own and no wallet.
func person(t *testing.T) Options {
	t.Helper()
	home := t.TempDir()
	return Options{
		Home: filepath.Join(home, "x402-wallet"), System: install.System{OS: runtime.GOOS, Home: home,
			Config: filepath.Join(home, ".config")}, Dir: filepath.Join(home, "project", "src"),
		Entry:  install.Entry{Command: os.Args[0], Args: []string{"mcp"}},
		Opener: noWallet{home: filepath.Join(home, "x402-wallet")},
	}
}

type noWallet struct {
	Opener
	home string
}

func (n noWallet) Rules() (*config.Config, error) { return config.Load(n.home) }

func (noWallet) OpenWallet(context.Context, wallet.Passphrase, wallet.Passphrase) (*tools.Wallet, error) {
	return nil, x402.Errorf(x402.WalletNotFound, "no wallet")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// Wherever a key lies, it is found, offered to be imported, and not printed.
func TestKeysInPlainText(t *testing.T) {
	o := person(t)
	cursor := install.Clients(o.System)[2].File
	for path, text := range map[string]string{
		cursor: `{"mcpServers": {"pay": {"env": {"PRIVATE_KEY": "` + aHexKey + `"}}}}`,
		cursor + ".before-x402-wallet-20260102T030405.000Z": `{"mcpServers": {"x402-wallet": {"env": {"X402_WALLET_PASSPHRASE": "correct horse battery"}}}}`,
		filepath.Join(o.System.Home, "project", ".env"):     "MNEMONIC=" + aPhrase + "\n",
		filepath.Join(o.System.Home, ".agentcash", "wallet.json"): `{"privateKey": "` + aHexKey +
			`", "address": "0x0"}`,
		filepath.Join(o.System.Home, "project", "agent.json"): aKeypair,
		o.solanaCLI(): aKeypair,
	} {
		write(t, path, text)
	}
	o.Keypair = filepath.Join(o.System.Home, "project", "agent.json")
	list := o.keysAbout(t.Context())
	require.Len(t, list, 6)
	var all strings.Builder
	for _, f := range list {
		expected := fail
		if strings.Contains(f.Message, o.solanaCLI()) {
			expected = warn
			require.Contains(t, f.Remedy, "delegation approve --unsigned")
		}
		require.Equal(t, expected, f.Status, f.Message)
		require.NotEmpty(t, f.Remedy)
		all.WriteString(f.Message + " " + f.Remedy + "\n")
	}
	for _, secret := range []string{aHexKey[2:], aPhrase, "correct horse", "7,255"} {
		t.Run(secret, func(t *testing.T) { require.NotContains(t, all.String(), secret) })
	}
	require.Contains(t, all.String(), "init --import-solana '"+o.Keypair+"'")
	require.Contains(t, all.String(), "init --import-key-file FILE")

	write(t, filepath.Join(o.Home, "keystore.json"), "{}")
	for _, f := range o.keysAbout(t.Context()) {
		require.NotRegexp(t, "^x402-wallet init", f.Remedy, "init would refuse: there is a wallet")
	}
}

func TestNoKeys(t *testing.T) {
	o := person(t)
	write(t, filepath.Join(o.System.Home, "project", ".env"), "TX="+aHexKey+"\n")
	list := o.keysAbout(t.Context())
	require.Len(t, list, 1)
	require.Equal(t, ok, list[0].Status)
}

func TestHome(t *testing.T) {
	o := person(t)
	list := o.home(t.Context())
	require.Equal(t, fail, list[0].Status)
	require.Contains(t, list[0].Remedy, "x402-wallet init")

	for _, name := range []string{"config.toml", "keystore.json", "ledger.db"} {
		write(t, filepath.Join(o.Home, name), "x")
	}
	require.Equal(t, ok, o.home(t.Context())[0].Status)
	require.NoError(t, os.Remove(filepath.Join(o.Home, "ledger.db")))
	list = o.home(t.Context())
	require.Len(t, list, 1)
	require.Contains(t, list[0].Message, "ledger.db is missing")
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(filepath.Join(o.Home, "keystore.json"), 0o644))
		list = o.home(t.Context())
		require.Len(t, list, 2)
		require.Equal(t, "chmod 600 '"+filepath.Join(o.Home, "keystore.json")+"'", list[0].Remedy)

		sales := filepath.Join(o.Home, "sales.db")
		write(t, sales, "x")
		require.NoError(t, os.Chmod(sales, 0o640))
		list = o.home(t.Context())
		require.Equal(t, "chmod 600 '"+sales+"'", list[len(list)-1].Remedy)
	}
}

func TestClients(t *testing.T) {
	o := person(t)
	list := o.clients(t.Context())
	require.Len(t, list, 1)
	require.Equal(t, warn, list[0].Status)

	cursor := install.Clients(o.System)[2]
	for _, line := range []struct {
		entry, want, say string
	}{
		{`{"command": "` + filepath.ToSlash(os.Args[0]) + `", "args": ["mcp"]}`, ok, "starts this wallet"},
		{`{"command": "` + filepath.ToSlash(os.Args[0]) + `", "args": ["mcp", "--json"]}`, ok,
			"a custom entry"},
		{`{"command": "/nowhere/x402-wallet", "args": ["mcp"]}`, fail, "not there"},
		{`{"command": "` + filepath.ToSlash(os.Args[0]) +
			`", "args": ["mcp"], "env": {"X402_WALLET_PASSPHRASE": "hunter2"}}`, fail,
			"X402_WALLET_PASSPHRASE in plain text"},
		{`1`, warn, "cursor"},
	} {
		t.Run(line.entry, func(t *testing.T) {
			write(t, cursor.File, `{"mcpServers": {"x402-wallet": `+line.entry+`}}`)
			list := o.clients(t.Context())
			require.Equal(t, line.want, list[0].Status, line.entry)
			require.Contains(t, strings.ToLower(list[0].Message), strings.ToLower(line.say))
			require.NotContains(t, list[0].Message, "hunter2")
		})
	}
}

// Whoever does not come back, or falls over, is reported and does not take the others along.
func TestBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		defer close(stop)
		began := time.Now()
		report := run(t.Context(), []check{
			{name: "deaf", look: func(context.Context) findings { <-stop; return nil }},
			{name: "broken", look: func(context.Context) findings { panic("oh") }},
			{name: "slow", look: func(ctx context.Context) findings {
				<-ctx.Done()
				return failed(errors.New("gave up"), "again")
			}},
			{name: "fine", look: func(context.Context) findings { return good("fine") }},
		})
		require.LessOrEqual(t, time.Since(began), checkTimeout+time.Second)
		require.False(t, report.OK)
		var lines []string
		for _, f := range report.Checks {
			lines = append(lines, f.Check+" "+f.Status+" "+f.Message)
		}
		require.Equal(t, []string{
			"deaf fail no result within 15s", "broken fail the check failed with an internal error (string)",
			"slow fail gave up", "fine ok fine",
		}, lines)
	})
}

// Without a wallet one line says so, and what is around one is looked at. Of a part of one
// everything that can be looked at is, and the rest is said not to have been.
func TestWithoutAWallet(t *testing.T) {
	report := Examine(t.Context(), person(t))
	require.False(t, report.OK)
	seen := map[string]string{}
	for _, f := range report.Checks {
		seen[f.Check] = f.Status
	}
	require.Equal(t, map[string]string{"home": fail, "clients": warn, "plain-text keys": ok}, seen)

	o := person(t) // a keystore alone is a wallet that lost its ledger
	write(t, filepath.Join(o.Home, "keystore.json"), "x")
	seen = map[string]string{}
	for _, f := range Examine(t.Context(), o).Checks {
		seen[f.Check] = f.Status
	}
	require.Equal(t, map[string]string{
		"home": fail, "keystore": fail, "rules": fail, "seal": warn, "ledger": fail, "network": warn,
		"clients": warn, "plain-text keys": ok,
	}, seen)
}

// Memory that cannot be locked is a warning with its remedy, and no failure.
func TestLockedMemory(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{{nil, ok}, {errors.New("mlock: cannot allocate memory"), warn}} {
		list := Options{LockedMemory: func() error { return tc.err }}.memory(t.Context())
		require.Len(t, list, 1)
		require.Equal(t, tc.want, list[0].Status)
		if tc.err != nil {
			require.Contains(t, list[0].Message, tc.err.Error())
			require.Contains(t, list[0].Remedy, "ulimit -l")
		}
	}
}

// An account that only one of the keystore and the rules has pays nothing, and is said.
func TestAccountsOfKeystoreAndRules(t *testing.T) {
	home, passphrase := filepath.Join(t.TempDir(), "home"), wallet.FromValue("correct horse battery")
	made := must.Get(owner.Create(t.Context(), home, passphrase, owner.Options{N: 1 << 14}))(t)
	must.Get(owner.AddAccount(t.Context(), made, passphrase, owner.NewAccount{Name: "research"}))(t)
	require.NoError(t, made.Close())
	keys := must.Get(wallet.Open(home))(t)
	defer func() { _ = keys.Close() }()
	look := func(name string) findings {
		rules := must.Get(config.Parse([]byte("[budget.teams." + name + "]\naccount = true\n")))(t)
		return accounts(keys, rules)
	}
	require.Empty(t, look("research"))
	require.Equal(t, findings{
		{Status: fail, Message: "config.toml has the account travel, and keystore.json has no keys of it: " +
			"nothing is paid from it",
			Remedy: "x402-wallet account add travel, or restore the keystore.json that has it"},
		{Status: warn, Message: "keystore.json has the keys of the account research, and config.toml does " +
			"not name it: nothing is paid from it", Remedy: "x402-wallet account add research"},
	}, look("travel"))
}

// Who could not be told of something hears it from the doctor, for a week.
func TestWhatCouldNotBeTold(t *testing.T) {
	home, now := t.TempDir(), time.Now()
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store := must.Get(ledgers.Open(t.Context(), home, history.Options{Contents: content.Keeper{},
		Alerts: alerts.Writer{}}))(t)
	defer store.Close()
	o := Options{Now: func() time.Time { return now }}
	require.NoError(t, store.Freeze(t.Context(), history.Freeze{By: "agent", Why: "why"}))
	list := must.Get(alerts.List(t.Context(), store, 2))(t)
	require.Len(t, list, 1)
	turn := must.Get(turns.Take(t.Context(), store, "alerts", "test"))(t)
	for range alerts.MaxTries {
		require.Empty(t, o.alerts(t.Context(), store))
		require.NoError(t, alerts.MarkFailed(t.Context(), store, turn, now, list[0].ID))
	}
	found := o.alerts(t.Context(), store)
	require.Len(t, found, 1)
	require.Equal(t, warn, found[0].Status)
	require.Contains(t, found[0].Message, "of 1 things within a week you could not be told")
	now = now.Add(8 * 24 * time.Hour)
	require.Empty(t, o.alerts(t.Context(), store))
}

// A sample says that it was one, and what checks everything.
func TestASampleSaysThatItIsOne(t *testing.T) {
	whole := checked(verify.Sampled{Rows: 7, AllRows: 7, Payments: 2, AllPayments: 2})
	require.Equal(t, good("the audit chain is intact (7 rows)"), whole)
	part := checked(verify.Sampled{Rows: 7, AllRows: 900, Payments: 2, AllPayments: 300})
	require.Contains(t, part[0].Message, "7 of the audit chain's 900 rows")
	require.Contains(t, part[0].Message, "2 of 300 payments")
	require.Contains(t, part[0].Message, "doctor --full")
	require.Equal(t, ok, part[0].Status)
}

type asked struct {
	name string
	err  error
}

func (a asked) Account() (name, address string)                    { return a.name, "0xabc" }
func (a asked) Sign(context.Context, wallet.Order) ([]byte, error) { panic("nothing is signed") }
func (a asked) Check(context.Context) error                        { return a.err }

// Each signer is asked whether it is there; one that is not keeps the wallet from paying.
func TestSigners(t *testing.T) {
	list := askSigners(t.Context(), map[string]wallet.Signer{
		wallet.ChainEVM: asked{name: "hsm"},
		wallet.ChainSolana: asked{name: "cloud", err: x402.Errorf(x402.NetworkError,
			"the signer cloud could not be reached").WithHint("look at the network")},
	})
	require.Equal(t, findings{
		{Status: ok, Message: "the signer hsm is there, with the key of 0xabc"},
		{Status: fail, Message: "the signer cloud could not be reached", Remedy: "look at the network"},
	}, list)
}

func TestAProxyOfTheEnvironmentIsTold(t *testing.T) {
	o := person(t)
	o.OtherProxy, o.wallet = "ALL_PROXY", &tools.Wallet{}
	write(t, filepath.Join(o.Home, "config.toml"), "")
	found := o.environment(t.Context())
	require.Len(t, found, 1)
	require.Equal(t, "ALL_PROXY names a proxy, which is ignored", found[0].Message)
	write(t, filepath.Join(o.Home, "config.toml"), "[network]\nproxy = \"http://127.0.0.1:3128\"\n")
	require.Equal(t, ok, o.environment(t.Context())[0].Status)
}

func TestAnEntryThatIsShutOutIsTold(t *testing.T) {
	o := person(t)
	for _, c := range install.Clients(o.System) {
		if c.Name != "gemini" {
			continue
		}
		for settings, says := range map[string]string{
			`"mcp":{"allowed":["x"]}`:                     "mcp.allowed",
			`"mcp":{"excluded":["x402-wallet"]}`:          "mcp.excluded",
			`"security":{"folderTrust":{"enabled":true}}`: "security.folderTrust",
		} {
			write(t, c.File, `{"mcpServers":{"x402-wallet":{"command":"`+os.Args[0]+`","args":["mcp"]}},`+settings+`}`)
			list := o.clients(t.Context())
			require.Equal(t, warn, list[0].Status)
			require.Contains(t, list[0].Message, says)
		}
	}
}
