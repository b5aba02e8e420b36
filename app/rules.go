package app

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/unlock"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// rules reads the owner's config.toml. A home without one is no wallet: its limits would be
// anybody's guess.
func (a *app) rules() (*config.Config, error) {
	rules, err := config.Load(a.home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, config.Missing(a.home)
	}
	if err == nil {
		err = checkAddresses(rules)
	}
	if err != nil {
		return nil, err
	}
	a.format.write(a.env, rules.Log.Format)
	return environ.Over(rules, a.env)
}

// Rules implements cli.App: they are as the file has them.
func (a *app) Rules() (*config.Config, error) { return config.Load(a.home) }

// checkAddresses refuses an address with a wrong checksum (EIP-55): were it passed over, the agent would pay
// from its own account where its owner meant theirs.
func checkAddresses(rules *config.Config) error {
	for id, n := range rules.Networks {
		for key, address := range map[string]string{"vault": n.Vault, "allowance_from": n.AllowanceFrom} {
			if address == "" {
				continue
			}
			if _, err := message.Address(address); err != nil {
				return &config.Error{Key: fmt.Sprintf("networks.%q.%s", id, key), Msg: err.Error()}
			}
		}
	}
	for name, s := range rules.Signers {
		if s.Chain != wallet.ChainEVM {
			continue
		}
		address, err := message.Address(s.Address)
		if err == nil && address != s.Address { // signatures are compared with it to the letter
			err = fmt.Errorf("is written %s", address)
		}
		if err != nil {
			return &config.Error{Key: "signers." + name + ".address", Msg: err.Error()}
		}
	}
	return nil
}

// sources are where a passphrase may come from without a person, in the order in which they are asked.
func (a *app) sources(rules *config.Config, keys *wallet.Wallet) (list []wallet.Passphrase) {
	if file := cmp.Or(a.env.PassphraseFile, rules.Keystore.PassphraseFile); file != "" {
		source := unlock.File
		if filepath.Dir(file) == a.env.Credentials {
			source = unlock.Credential
		}
		list = append(list, source(file))
	}
	if command := rules.Keystore.PassphraseCommand; len(command) > 0 {
		program := child.Program{Argv: command, Sandbox: a.sandbox(rules.Keystore.Sandbox, rules)}
		list = append(list, unlock.Command(command, environ.Child(), program.Confine))
	}
	if rules.Keystore.Keyring {
		list = append(list, unlock.Keyring(keys))
	}
	if a.env.Passphrase != "" {
		a.log.Warn("X402_WALLET_PASSPHRASE is set; a file that only you can read is safer: " +
			"X402_WALLET_PASSPHRASE_FILE")
		list = append(list, wallet.FromValue(a.env.Passphrase.Reveal()))
	}
	return list
}

// servers are the MCP servers that may be called by name.
func (a *app) servers(c *config.Config) map[string]seller.Server {
	list := map[string]seller.Server{}
	for name, s := range c.Servers {
		made := seller.Server{Command: s.Command, URL: s.URL}
		if len(s.Command) > 0 {
			made.Env, made.Sandbox = environ.Child(s.Env...), a.sandbox(s.Sandbox, c)
		}
		list[name] = made
	}
	return list
}

// sandbox is what a program is kept from, as the file says it (nil: it does not).
func (a *app) sandbox(written *bool, rules *config.Config) child.Sandbox {
	if written != nil && !*written {
		return child.Sandbox{}
	}
	if why := child.Unsupported(); why != "" && written == nil {
		a.unconfined.Do(func() { a.log.Warn("programs that the wallet starts run unconfined: " + why) })
	}
	return child.Sandbox{Required: written != nil, Closed: a.closed(rules)}
}

// closed are the files that hold the wallet's secrets: its home, and what else is read for it; and the socket
// of its service, where agents show tokens.
func (a *app) closed(rules *config.Config) []string {
	list := []string{a.home}
	if filepath.IsAbs(a.env.Service) {
		list = append(list, a.env.Service)
	}
	list = append(list, a.tlsKey, a.env.Credentials, a.env.PassphraseFile)
	if rules != nil {
		list = append(list, rules.Keystore.PassphraseFile, rules.Notify.WebhookSecretFile,
			rules.Traces.HeadersFile, rules.Ledger.PasswordFile)
		for _, s := range rules.Signers {
			list = append(list, s.SecretFile)
		}
		for _, f := range rules.Facilitators {
			list = append(list, f.HeaderFile)
		}
	}
	return slices.DeleteFunc(list, func(path string) bool { return path == "" })
}

// mounts are the servers whose tools appear as the wallet's own.
func mounts(c *config.Config) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if c.Servers[name].Mount {
			list = append(list, name)
		}
	}
	return list
}

// allowedHosts are those that may be paid; nil: all. A server that is a command goes by its name:
// where the owner allows only some hosts, being in the sealed file allows it. One at a URL is a
// host like others.
func allowedHosts(c *config.Config) []string {
	if len(c.Policy.AllowHosts) == 0 {
		return nil
	}
	var list []string
	for _, entry := range c.Policy.AllowHosts {
		host, _ := config.HostUntil(entry)
		list = append(list, host)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if len(c.Servers[name].Command) > 0 {
			list = append(list, strings.ToLower(name))
		}
	}
	return list
}

// ends are when the hosts are over that are allowed until then, and not without an end, too.
func ends(c *config.Config) map[string]time.Time {
	at := map[string]time.Time{}
	for _, entry := range c.Policy.AllowHosts {
		host, end := config.HostUntil(entry)
		if !end.IsZero() && !slices.Contains(c.Policy.AllowHosts, host) {
			at[host] = end
		}
	}
	return at
}

// networkEnds are when the networks are over on which the owner lets the wallet pay until then.
func networkEnds(c *config.Config) map[string]time.Time {
	at := map[string]time.Time{}
	for id, n := range c.Networks {
		if !n.Until.IsZero() {
			at[id] = n.Until
		}
	}
	return at
}

func budgetRules(c *config.Config) budget.Rules {
	b := c.Budget
	return budget.Rules{
		PerCall: b.PerCall, Session: b.Session, Day: b.Day, Month: b.Month, ApproveAbove: b.ApproveAbove,
		Rate: b.Rate, HostDay: b.HostDay, AllowHosts: allowedHosts(c), Ends: ends(c),
		NetworkEnds: networkEnds(c), DenyHosts: c.Policy.DenyHosts,
		Payees: c.Policy.Payees, NewPayee: c.Policy.NewPayee, PayeeChange: c.Policy.PayeeChange,
		PriceJump:   c.Policy.PriceJump,
		MaxFailures: c.Policy.MaxFailures, SignIn: c.Policy.SignIn, Agents: agents(c),
		EachAgent: eachAgent(c), Teams: config.Tree(b.Teams), Subscriptions: subscriptionRules(c),
	}
}

// agents are those that share the wallet, and for each account the one of its name. Where one may pay some
// hosts only, a server that is a command has to be among them by its name.
func agents(c *config.Config) map[string]budget.Agent {
	list := map[string]budget.Agent{}
	for name, a := range c.Agents {
		list[name] = budget.Agent{PerCall: a.PerCall, Day: a.Day, Month: a.Month, AllowHosts: a.AllowHosts,
			Until: a.Until}
	}
	for name, t := range c.Budget.Teams {
		if _, named := list[name]; t.Account && !named {
			list[name] = budget.Agent{}
		}
	}
	return list
}

// eachAgent are the limits of the agents whose names match patterns.
func eachAgent(c *config.Config) map[string]budget.EachAgent {
	list := map[string]budget.EachAgent{}
	for pattern, a := range c.Budget.Agents {
		list[pattern] = budget.EachAgent{PerCall: a.PerCall, Day: a.Day, Month: a.Month, Rate: a.Rate}
	}
	return list
}

// agentLabels are what the owner's books call the agents: by its own label or, where one has none, by those
// of the nearest team above it that has some.
func agentLabels(c *config.Config) map[string]string {
	labels, tree := map[string]string{}, config.Tree(c.Budget.Teams)
	for name, a := range c.Agents {
		labels[name] = a.Label
		for _, team := range tree.Path(name) {
			if labels[name] == "" {
				labels[name] = strings.Join(c.Budget.Teams[team].Labels, " ")
			}
		}
	}
	return labels
}

// networkSettings are the owner's, by network.
type networkSettings struct {
	tokenAccounts, vaults map[string]string
	allowances            map[string]x402.AllowanceRule
	approvalGas           map[string]money.Amount
}

// settingsOf are those for an account, by its name. Vaults, allowances and token accounts are of the wallet's
// own account alone.
func settingsOf(c *config.Config, account string) networkSettings {
	s := networkSettings{tokenAccounts: map[string]string{}, vaults: map[string]string{},
		allowances: map[string]x402.AllowanceRule{}, approvalGas: map[string]money.Amount{}}
	for id, n := range c.Networks {
		if !n.ApprovalGas.IsZero() {
			s.approvalGas[id] = n.ApprovalGas
		}
		if account != "" {
			continue
		}
		if n.TokenAccount != "" {
			s.tokenAccounts[id] = n.TokenAccount
		}
		if n.Vault != "" {
			s.vaults[id] = n.Vault
		}
		if owner, err := message.Address(n.AllowanceFrom); err == nil { // checkAddresses let it pass
			s.allowances[id] = x402.AllowanceRule{Owner: owner, Float: n.Float, MaxGas: n.MaxGas}
		}
	}
	return s
}

func policy(c *config.Config) pay.Policy {
	return pay.Policy{
		Prefer: c.Policy.Prefer, MaxTimeout: c.Policy.MaxTimeout,
		Deadline: c.Policy.Deadline, MaxWait: c.Policy.MaxWait, Networks: networksInOrder(c),
		WalletSettles: c.WalletSettles, TakesCredit: c.TakesCredit, LowFunds: c.Notify.LowFunds,
	}
}

// networksInOrder lists the networks that have a node: the preferred ones first, then those that the owner
// named, then the others.
func networksInOrder(c *config.Config) (list []string) {
	nodes := c.Nodes()
	for _, id := range slices.Concat(c.Policy.Prefer, slices.Sorted(maps.Keys(c.Networks)),
		slices.Sorted(maps.Keys(nodes))) {
		isOurs := nodes[id] != "" && x402.Namespace(id) != "rooch"
		if isOurs && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list
}

// unnamed are the networks that nobody chose: they work through public nodes, and are shown when there is
// something to show.
func unnamed(c *config.Config) []string {
	return slices.DeleteFunc(networksInOrder(c), func(id string) bool {
		_, named := c.Networks[id]
		return named || slices.Contains(c.Policy.Prefer, id)
	})
}

// subscriptions are the owner's standing orders, with the requests that they make.
func subscriptions(c *config.Config) map[string]tools.Subscription {
	list := map[string]tools.Subscription{}
	for name, s := range c.Subscriptions {
		list[name] = tools.Subscription{
			Subscription: budget.Subscription{Name: name, Agent: s.Agent, Since: s.Since, Every: s.Every,
				Until: s.Until, Max: s.Max, Total: s.Total, Paused: s.Paused, PayTo: s.PayTo},
			Call: tools.PayIn{URL: s.URL, Method: s.Method, Headers: s.Headers, Body: s.Body,
				Network: s.Network, Asset: s.Asset},
		}.Ordered()
	}
	return list
}

// subscriptionRules are those as rules that payments are decided by. One whose request cannot be made pays
// nothing.
func subscriptionRules(c *config.Config) map[string]budget.Subscription {
	list := map[string]budget.Subscription{}
	for name, s := range subscriptions(c) {
		if s.Problem == nil {
			list[name] = s.Subscription
		}
	}
	return list
}
