package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// Checker turns the written file into a Config and collects every fault on the way.
type Checker struct {
	file     string // "" is config.toml
	lines    map[string]int
	errs     []error
	warnings []string
}

// Fail notes a fault at a dotted key, at the line of that key or of the table around it.
func (c *Checker) Fail(key, format string, args ...any) {
	line := 0
	for at := key; at != "" && line == 0; at = at[:max(strings.LastIndexByte(at, '.'), 0)] {
		line = c.lines[at]
	}
	c.errs = append(c.errs, &Error{File: c.file, Line: line, Key: key, Msg: fmt.Sprintf(format, args...)})
}

func (c *Checker) Refuse(isFault bool, key, format string, args ...any) {
	if isFault {
		c.Fail(key, format, args...)
	}
}

// Err is all that was found wrong, joined; each is an *Error.
func (c *Checker) Err() error { return errors.Join(c.errs...) }

func (c *Checker) config(f *file) *Config {
	made := &Config{
		Budget:       c.budget(f),
		Policy:       c.policy(f),
		Network:      reach{Proxy: c.proxy("network.proxy", f.Network.Proxy)},
		Networks:     c.networks(f),
		Assets:       c.assets(f),
		Facilitators: c.Facilitators(f.Facilitators),
		Discovery:    discovery{Directories: c.directories(f.Discovery.Directories)},
		Hosts:        c.hosts(f),
		Servers:      c.servers(f.Servers),
		Agents:       c.agents(f.Agents, f.Service.Issuer),
		Service:      c.service(f.Service),
		Notify:       c.notify(f.Notify, runtime.GOOS),
		Hooks:        c.hooks(f.Hooks),
		Log:          logging{Format: c.OneOf("log.format", f.Log.Format, LogText, LogJSON)},
		Traces:       c.traces(f.Traces),
		Metrics:      c.metrics(f.Metrics),
		Passkeys:     c.passkeys(f.Passkeys),
		Signers:      c.signers(f.Signers),
		Ledger:       c.ledger(f.Ledger),
		Keystore:     c.keystore(f),
		Channel: channel{DID: c.did("channel.did", f.Channel.DID),
			DepositCap: c.dollars("channel.deposit_cap", f.Channel.DepositCap, "1.00")},
		Env: f.Env,
	}
	made.Subscriptions = c.subscriptions(f.Subscriptions, made.Agents, made.Budget.Teams)
	c.unknownMembers(made.Budget.Teams, made.Agents)
	return made
}

func (c *Checker) budget(f *file) limits {
	b := limits{
		PerCall:      c.dollars("budget.per_call", f.Budget.PerCall, "1.00"),
		Session:      c.cap("budget.session", f.Budget.Session),
		Day:          c.dollars("budget.day", f.Budget.Day, "10.00"),
		Month:        c.dollars("budget.month", f.Budget.Month, "100.00"),
		ApproveAbove: c.dollars("budget.approve_above", f.Budget.ApproveAbove, "0.10"),
		Rate:         c.Whole("budget.rate", f.Budget.Rate, 60, 1, maxRate),
		HostDay:      map[string]money.Dollars{},
		Teams:        c.teams(f.Budget.Teams),
		Agents:       c.eachAgent(f.Budget.Agents),
	}
	for _, name := range sorted(f.Budget.Hosts) {
		key, day := Dotted("budget", "hosts", name), f.Budget.Hosts[name].Day
		host, _ := c.host(key, name)
		_, twice := b.HostDay[host]
		c.Refuse(twice, key, "is the same host as another one here")
		if day == nil {
			c.Fail(key, `needs day = "…"`)
			continue
		}
		b.HostDay[host] = c.dollars(key+".day", day, "")
	}
	return b
}

// mostNetworkFee is the most that package wallet signs. A payment costs 0.00003 to 0.02 dollars.
const mostNetworkFee money.Dollars = 1_000_000

func (c *Checker) policy(written *file) policy {
	f := &written.Policy
	p := policy{
		AllowHosts:  c.hostsUntil("policy.allow_hosts", f.AllowHosts),
		DenyHosts:   c.patterns("policy.deny_hosts", f.DenyHosts),
		Payees:      c.payees("policy.payees", f.Payees),
		NewPayee:    budget.Rule(c.OneOf("policy.new_payee", f.NewPayee, "allow", "ask", "refuse")),
		PayeeChange: budget.Rule(c.OneOf("policy.payee_change", f.PayeeChange, "ask", "allow", "refuse")),
		PriceJump:   3,
		SignIn:      budget.Rule(c.OneOf("policy.sign_in", f.SignIn, "ask", "allow", "refuse")),
		MaxFailures: c.Whole("policy.max_failures", f.MaxFailures, 20, 0, 1000),
		Loopback:    c.loopback(f.Loopback),
		MaxTimeout: time.Second * time.Duration(
			c.Whole("policy.max_timeout_seconds", f.MaxTimeout, 300, 10, 3600)),
		Deadline: c.Duration("policy.deadline", f.Deadline,
			90*time.Second, 5*time.Second, 10*time.Minute),
		MaxWait:      c.Duration("policy.max_wait", f.MaxWait, 5*time.Minute, 5*time.Second, time.Hour),
		ContentQuota: c.size("policy.content_quota", f.Quota, 1<<30, leastQuota, mostQuota),
		Prefer:       []string{SolanaMainnet, Base},
		// a file that names its networks means those, unless it says otherwise
		PublicNodes:       len(written.Networks) == 0,
		KnownFacilitators: f.KnownFacilitators == nil || *f.KnownFacilitators,
		ChannelDeposit:    c.dollars("policy.channel_deposit", f.ChannelDeposit, "0.10"),
		ChannelDelay: c.Duration("policy.channel_delay", f.ChannelDelay, 24*time.Hour,
			channelterms.MinWithdrawDelay, channelterms.MaxWithdrawDelay),
		NetworkFee: c.dollars("policy.network_fee", f.NetworkFee, "0"),
	}
	c.Refuse(p.NetworkFee > mostNetworkFee, "policy.network_fee", "is %s; it must be at most %s",
		p.NetworkFee.Price(), mostNetworkFee.Price())
	if f.PublicNodes != nil {
		p.PublicNodes = *f.PublicNodes
	}
	if f.PriceJump != nil {
		p.PriceJump = *f.PriceJump
		c.Refuse(math.IsNaN(p.PriceJump) || p.PriceJump < 1 || p.PriceJump > 1e6, "policy.price_jump",
			"is %v; it must be from 1.0 to 1000000.0", p.PriceJump)
	}
	if f.Prefer != nil {
		p.Prefer = []string{}
		for _, name := range *f.Prefer {
			p.Prefer = append(p.Prefer, c.Chain("policy.prefer", name))
		}
	}
	if f.Schemes != nil {
		p.Schemes = *f.Schemes
		for _, scheme := range p.Schemes {
			c.OneOf("policy.schemes", &scheme, x402.Ways()...)
		}
		c.Refuse(len(p.Schemes) == 0, "policy.schemes",
			`is empty, so nothing could be paid; it must hold "exact"`)
	}
	return p
}

func (c *Checker) proxy(key, text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	isProxy := err == nil && slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) &&
		u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "" && strings.Trim(u.Path, "/") == ""
	switch {
	case !isProxy:
		c.Fail(key, `is not an address like "http://proxy.example:3128" or "socks5://127.0.0.1:1080"`)
	case u.User != nil:
		c.Fail(key,
			"has a name or password in it, and this file is not for secrets; use one that asks for none")
	}
	return text
}

// channelNetworks are Rooch's, on which the Nuwa payment channels live.
var channelNetworks = []string{"rooch:main", "rooch:test", "rooch:dev", "rooch:local"}

func (c *Checker) networks(f *file) map[string]network {
	networks := map[string]network{}
	for _, name := range sorted(f.Networks) {
		key, n := Dotted("networks", name), f.Networks[name]
		id := name
		if !slices.Contains(channelNetworks, name) {
			id = c.Chain(key, name)
		}
		if _, twice := networks[id]; twice {
			c.Fail(key, "is the same network as another one here: %s", id)
			continue
		}
		rpc := publicnode.Of(id)
		switch {
		case n.RPC != nil && *n.RPC == "": // off
			rpc = ""
		case n.RPC != nil:
			rpc = *n.RPC
			c.OwnerURL(key+".rpc", rpc, "https://…")
		case rpc == "":
			c.Fail(key, `needs rpc = "https://…"`)
		}
		switch account := n.TokenAccount; {
		case account == "":
		case !x402.IsSolana(id):
			c.Fail(key+".token_account", "only Solana has token accounts; %s has not", id)
		case !isSolanaAddress(account):
			c.Fail(key+".token_account", "%q is not a Solana address (base58 of 32 bytes)", account)
		}
		c.onEVM(key+".vault", id, n.Vault, "only EVM networks have vaults")
		c.onEVM(key+".allowance_from", id, n.AllowanceFrom, "only EVM networks have allowances")
		made := network{RPC: rpc, TokenAccount: n.TokenAccount, Vault: n.Vault,
			AllowanceFrom: n.AllowanceFrom}
		if n.ApprovalGas != nil {
			made.ApprovalGas = c.coins(key+".approval_gas", *n.ApprovalGas)
			c.Refuse(x402.Namespace(id) != "eip155", key+".approval_gas", "only EVM networks have approvals")
		}
		if n.Until != "" {
			made.Until = c.moment(key+".until", n.Until)
		}
		if n.AllowanceFrom != "" {
			made.Float = c.dollars(key+".float", n.Float, defaultFloat)
			made.MaxGas = c.coins(key+".max_gas", *cmp.Or(n.MaxGas, new(defaultMaxGas)))
		} else {
			c.Refuse(n.Float != nil || n.MaxGas != nil, key,
				"has float or max_gas, which mean nothing without allowance_from")
		}
		networks[id] = made
	}
	return networks
}

// onEVM refuses an address that is none, or is on another chain than those of EVM.
func (c *Checker) onEVM(key, network, address, only string) {
	switch {
	case address == "":
	case x402.Namespace(network) != "eip155":
		c.Fail(key, "%s; %s is none", only, network)
	case !evmAddress().MatchString(address):
		c.Fail(key, "%q is not an EVM address (0x and 40 hex digits)", address)
	}
}

// defaultFloat is what is taken at a time of an allowance, and defaultMaxGas what that may cost: some forty
// times what it costs on most networks, and what it costs on Ethereum itself on a quiet day.
const (
	defaultFloat  = "1.00"
	defaultMaxGas = "0.001"
)

const coinDecimals = 18 // of an EVM network's own coin

// coins reads an amount of a network's own coin into atomic units (wei).
func (c *Checker) coins(key, written string) money.Amount {
	amount, err := money.ParseUnits(written, coinDecimals)
	if err != nil || amount.IsZero() {
		c.Fail(key, "%q is not an amount of the network's coin above 0, like %q", written, defaultMaxGas)
	}
	return amount
}

func (c *Checker) hosts(f *file) map[string]host {
	hosts := map[string]host{}
	for _, name := range sorted(f.Hosts) {
		key := Dotted("hosts", name)
		folded, _ := c.host(key, name)
		_, twice := hosts[folded]
		c.Refuse(twice, key, "is the same host as another one here")
		hosts[folded] = host{Settle: c.OneOf(key+".settle", f.Hosts[name].Settle, "seller", "wallet"),
			Credit: f.Hosts[name].Credit}
	}
	return hosts
}

// serverName leaves room in MCP's 128 characters for "__" and a tool's name, and holds no "__" of its own.
var serverName = pattern.Lazy(`^[A-Za-z0-9]+([_-][A-Za-z0-9]+)*$`)

func (c *Checker) servers(written map[string]server) map[string]server {
	servers := map[string]server{}
	for _, name := range sorted(written) {
		key, s := Dotted("servers", name), written[name]
		c.Refuse(!serverName().MatchString(name) || len(name) > 32, key,
			"a server's name is at most 32 letters and digits, with single - or _ between")
		lower := strings.ToLower(name)
		isOurs := lower == "x402" || strings.HasPrefix(lower, "x402_")
		c.Refuse(s.Mount && isOurs, key+".mount",
			"a server called x402 is not mounted: tools whose names begin with x402_ are the wallet's own")
		c.Refuse((len(s.Command) > 0) == (s.URL != ""), key,
			`needs either command = ["…"] or url = "https://…/mcp"`)
		c.Refuse(len(s.Command) > 0 && s.Command[0] == "", key+".command", "has no program")
		isForCommand := s.Env != nil || s.Sandbox != nil
		c.Refuse(len(s.Command) == 0 && isForCommand, key, "env and sandbox are for a server with a command")
		c.Variables(key+".env", s.Env)
		if s.URL != "" {
			c.OwnerURL(key+".url", s.URL, "https://…/mcp")
		}
		c.Refuse(s.Service != "" && (s.Channel == nil || !*s.Channel), key+".service",
			"is for payment channels: it needs channel = true beside it")
		c.did(key+".service", s.Service)
		servers[name] = s
	}
	return servers
}

var variableName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Variables checks the names of variables that another program gets.
func (c *Checker) Variables(key string, names []string) {
	for _, name := range names {
		c.Refuse(!variableName().MatchString(name), key,
			"%q is not the name of a variable; write names alone, without values", name)
		c.Refuse(isOurs(name), key, "names %s, which is the wallet's own and goes to no other program", name)
	}
}

func (c *Checker) keystore(f *file) keystore {
	k := f.Keystore
	if len(k.PassphraseCommand) > 0 {
		c.fullPath("keystore.passphrase_command", k.PassphraseCommand[0])
	}
	c.Refuse(k.Sandbox != nil && len(k.PassphraseCommand) == 0, "keystore.sandbox",
		"is for passphrase_command, and there is none")
	// At most 8 hours: the wallet locks then in any case.
	idle := c.Duration("keystore.idle", k.Idle, 15*time.Minute, time.Second, 8*time.Hour)
	return keystore{PassphraseFile: k.PassphraseFile, PassphraseCommand: k.PassphraseCommand,
		Sandbox: k.Sandbox, Keyring: k.Keyring, Idle: idle}
}

var didForm = pattern.Lazy(`^did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}$`)

func (c *Checker) did(key, did string) string {
	c.Refuse(did != "" && !didForm().MatchString(did), key, `%q is not a DID like "did:rooch:…"`, did)
	return did
}
