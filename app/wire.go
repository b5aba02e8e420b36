package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// parts makes the parts of a wallet that exists and joins them. It unlocks nothing and asks no
// node.
type parts struct {
	home string
	env  config.Env
	log  *slog.Logger

	anchor *seal.CheckpointCache
}

// open joins the wallet's parts, under the owner's rules as they are. first and last are where a
// passphrase may come from before and after the sources that need no person; nil: nowhere. Errors
// have codes: WALLET_NOT_FOUND, POLICY_UNSEALED, LEDGER_CORRUPT, …
func (p parts) open(ctx context.Context, first, last wallet.Passphrase) (*tools.Wallet, error) {
	keys, err := wallet.Open(p.home)
	if err != nil {
		return nil, err
	}
	rules, err := p.rules()
	if err != nil {
		return nil, err
	}
	store, err := history.Open(ctx, p.home, history.Options{})
	if err != nil {
		return nil, err
	}
	keys.Idle = rules.Keystore.Idle
	keys.SetSources(slices.DeleteFunc(slices.Concat([]wallet.Passphrase{first}, p.sources(rules, keys),
		[]wallet.Passphrase{last}),
		func(source wallet.Passphrase) bool { return source == nil })...)

	nodes := seller.NodeClient(rules.Policy.Loopback)
	onRooch := roochNodes(rules, nodes)
	assets := x402.NewRegistry(slices.Concat(onRooch.Assets(), rules.Assets))
	rpc := nodeURLs(rules)
	remote := p.remote(rules, keys, first)
	guard := agent.Guard{Local: &seal.Guard{Home: p.home, Rules: rules, Store: store, Key: keys,
		Checkpoints: p.anchor}, Remote: remote}
	onEVM := evm.New(evm.Options{Signer: agent.EVM{EVMSigner: keys.EVM(), Remote: remote}, RPC: rpc,
		HTTP: nodes, Rand: rand.Reader, Now: time.Now})
	onSolana := svm.New(svm.Options{Signer: agent.Solana{SolanaSigner: keys.Solana(), Remote: remote},
		RPC: rpc, TokenAccounts: tokenAccounts(rules), HTTP: nodes, Rand: rand.Reader, Now: time.Now})
	settlers := p.facilitators(rules, nodes)
	sellers := seller.Mux{HTTP: seller.New(seller.Options{Loopback: rules.Policy.Loopback})}
	sellers.MCP = seller.NewMCP(seller.MCPOptions{Servers: servers(rules), HTTP: sellers.HTTP,
		Version: version, Log: p.log})
	engine := &pay.Engine{
		Rules: budgetRules(rules), Policy: policy(rules), Assets: assets,
		Schemes: map[string]pay.Scheme{"eip155": onEVM, "solana": onSolana,
			"rooch": roochStatus{onRooch}},
		Transport: sellers,
		Settler:   settlers, Store: store, Now: time.Now, Log: p.log,
		Guard: guard,
	}
	w := &tools.Wallet{
		Servers: sellers.MCP, Mounts: mounts(rules), Channels: p.channels(rules, onRooch, keys, sellers,
			engine, store),
		Engine: engine,
		Unlock: func(ctx context.Context, passphrase []byte) error {
			return keys.Unlock(ctx, func(context.Context) ([]byte, error) {
				return bytes.Clone(passphrase), nil
			})
		},
		Verify: func(ctx context.Context, own bool) error {
			if own {
				return guard.Local.Verify(ctx)
			}
			return guard.Verify(ctx)
		},
		Store: store, Keys: keyring{keys, remote}, TokenAccounts: tokenAccounts(rules),
		Networks: inOrder(rules), Warnings: append(append(keys.Warnings(), rules.Warnings...),
			config.IgnoredEnv(p.env, rules)...),
		Close: func() error { return errors.Join(sellers.MCP.Close(), store.Close(), keys.Close()) },
		Stale: func() bool { return !rules.Same(p.home) },
	}
	outside(w, onEVM, onSolana, settlers)
	return w, nil
}

// outside gives a wallet what tools may ask of the chains and the facilitators.
func outside(w *tools.Wallet, onEVM *evm.Exact, onSolana *svm.Exact, settlers *facilitator.Client) {
	w.Chains = map[string]tools.Chain{"eip155": onEVM, "solana": onSolana}
	w.Owners = owners{onSolana}
	w.Delegation = func(ctx context.Context, network, account string) (tools.Delegation, error) {
		d, err := onSolana.Delegation(ctx, network, account)
		return tools.Delegation{Account: d.Account, Owner: d.Owner, Mint: d.Mint, Delegate: d.Delegate,
			IsOurs: d.IsOurs,
			Frozen: d.Frozen, Remaining: d.Remaining, Balance: d.Balance}, err
	}
	w.Clock = func(ctx context.Context, network string) (time.Time, error) {
		if x402.IsSolana(network) {
			return onSolana.Clock(ctx, network)
		}
		return onEVM.Clock(ctx, network)
	}
	w.Facilitators = func(ctx context.Context) []tools.Facilitator { return answers(settlers.Answers(ctx)) }
	w.Catalogues = func(ctx context.Context, query, network string) []tools.Catalogue {
		return catalogues(settlers.Discover(ctx, query, network))
	}
}

// owners is svm as tools may know it.
type owners struct{ *svm.Exact }

func (o owners) AccountOf(owner string, asset x402.AssetInfo) (string, error) {
	return svm.ATA(owner, asset.Address, asset.Token2022)
}

func (o owners) Approve(ctx context.Context, network, account string, asset x402.AssetInfo,
	amount money.Amount) (tools.Change, error) {
	c, err := o.Exact.Approve(ctx, network, account, asset, amount)
	return tools.Change(c), err
}

func (o owners) Revoke(ctx context.Context, network, account string) (tools.Change, error) {
	c, err := o.Exact.Revoke(ctx, network, account)
	return tools.Change(c), err
}

func (o owners) Simulate(ctx context.Context, c tools.Change) error {
	return o.Exact.Simulate(ctx, svm.Change(c))
}

func (o owners) Send(ctx context.Context, c tools.Change, signature [64]byte) (string, error) {
	return o.Exact.Send(ctx, svm.Change(c), signature)
}

func (o owners) Transaction(c tools.Change, signature [64]byte) string {
	return svm.Change(c).Transaction(signature)
}

// answers are the facilitators' as tools may know them.
func answers(list []facilitator.Answer) (out []tools.Facilitator) {
	for _, a := range list {
		f := tools.Facilitator{Name: a.Name, Err: a.Err}
		for _, k := range a.Kinds {
			if k.Scheme == "exact" && !slices.Contains(f.Networks, k.Network) {
				f.Networks = append(f.Networks, k.Network)
			}
		}
		out = append(out, f)
	}
	return out
}

// catalogues are the facilitators' as tools may know them.
func catalogues(list []facilitator.Catalogue) (out []tools.Catalogue) {
	for _, c := range list {
		known := tools.Catalogue{Name: c.Name, At: c.At, Err: c.Err}
		for _, l := range c.Listings {
			known.Listings = append(known.Listings, tools.Listing(l))
		}
		out = append(out, known)
	}
	return out
}

// rules are the owner's. A home without config.toml is no wallet: its limits would be anybody's
// guess.
func (p parts) rules() (*config.Config, error) {
	rules, err := config.Load(p.home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, config.Missing(p.home)
	}
	if err != nil {
		return nil, err
	}
	return rules.WithEnv(p.env)
}

// sources are where a passphrase may come from without a person, in the order of SPEC §3.
func (p parts) sources(rules *config.Config, keys *wallet.Wallet) (list []wallet.Passphrase) {
	if file := cmp.Or(p.env.PassphraseFile, rules.Keystore.PassphraseFile); file != "" {
		list = append(list, wallet.FromFile(file))
	}
	if command := rules.Keystore.PassphraseCommand; len(command) > 0 {
		list = append(list, wallet.FromCommand(command))
	}
	if rules.Keystore.Keyring {
		list = append(list, keys.FromKeyring())
	}
	if p.env.Passphrase != "" {
		p.log.Warn("X402_WALLET_PASSPHRASE is read; a file that only you can read is safer: " +
			"X402_WALLET_PASSPHRASE_FILE")
		list = append(list, wallet.FromValue(p.env.Passphrase.Reveal()))
	}
	return list
}

// remote is the unlock agent, whose turn comes after the descriptor, the file and the command (SPEC
// §3): each of those, where it is set up, either unlocks the wallet itself or fails.
func (p parts) remote(rules *config.Config, keys *wallet.Wallet, first wallet.Passphrase) *agent.Remote {
	earlier := first != nil || p.env.PassphraseFile != "" || rules.Keystore.PassphraseFile != "" ||
		len(rules.Keystore.PassphraseCommand) > 0
	return &agent.Remote{Client: agent.Client{Home: p.home}, Before: func() bool {
		return !earlier && keys.Locked()
	}}
}

// servers are the MCP servers that may be called by name.
func servers(c *config.Config) map[string]seller.Server {
	list := map[string]seller.Server{}
	for name, s := range c.Servers {
		list[name] = seller.Server{Command: s.Command, URL: s.URL}
	}
	return list
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

// hosts are those that may be paid. A server that is a command goes by its name, and is allowed by
// being in the sealed file, where the owner allows only some; one at a URL is a host like others.
func hosts(c *config.Config) []string {
	if len(c.Policy.AllowHosts) == 0 {
		return nil
	}
	list := slices.Clone(c.Policy.AllowHosts)
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		if len(c.Servers[name].Command) > 0 {
			list = append(list, strings.ToLower(name))
		}
	}
	return list
}

func budgetRules(c *config.Config) budget.Rules {
	b := c.Budget
	return budget.Rules{
		PerCall: b.PerCall, Session: b.Session, Day: b.Day, Month: b.Month, ApproveAbove: b.ApproveAbove,
		Rate:    b.Rate,
		HostDay: b.HostDay, AllowHosts: hosts(c), DenyHosts: c.Policy.DenyHosts,
		NewPayee: budget.Rule(c.Policy.NewPayee), PayeeChange: budget.Rule(c.Policy.PayeeChange),
		PriceJump: c.Policy.PriceJump, MaxLost: c.Policy.MaxFailures,
	}
}

// nodeURLs are the owner's nodes, by network.
func nodeURLs(c *config.Config) map[string]string {
	urls := map[string]string{}
	for id, n := range c.Networks {
		urls[id] = n.RPC
	}
	return urls
}

// tokenAccounts are the owner's that config.toml names, by network.
func tokenAccounts(c *config.Config) map[string]string {
	named := map[string]string{}
	for id, n := range c.Networks {
		if n.TokenAccount != "" {
			named[id] = n.TokenAccount
		}
	}
	return named
}

func policy(c *config.Config) pay.Policy {
	return pay.Policy{
		Prefer: c.Policy.Prefer, Schemes: c.Policy.Schemes, MaxTimeout: c.Policy.MaxTimeout,
		Deadline: c.Policy.Deadline,
		Networks: inOrder(c), TokenAccounts: tokenAccounts(c), WalletSettles: c.WalletSettles,
	}
}

// facilitators puts the configured services in their order, with their credentials. Secrets are
// read when they are needed.
func (p parts) facilitators(c *config.Config, client *http.Client) *facilitator.Client {
	var list []facilitator.Facilitator
	for _, f := range c.FacilitatorList(p.env) {
		entry := facilitator.Facilitator{Name: f.Name, URL: f.URL, Networks: f.Networks}
		switch f.Auth {
		case "cdp":
			entry.Auth = facilitator.Auth{Kind: facilitator.AuthCDP, KeyID: p.env.CDPKeyID,
				Secret: secret(p.env.CDPKeySecret)}
		case "payai":
			entry.Auth = facilitator.Auth{Kind: facilitator.AuthPayAI, KeyID: p.env.PayAIKeyID,
				Secret: secret(p.env.PayAIKeySecret)}
		case "header":
			entry.Auth = facilitator.Auth{Kind: facilitator.AuthHeader, Secret: func() (string, error) {
				line, err := config.ReadSecretFile(f.HeaderFile)
				return line.Reveal(), err
			}}
		}
		list = append(list, entry)
	}
	return facilitator.New(facilitator.Options{HTTP: client, List: list})
}

func secret(s config.Secret) func() (string, error) {
	return func() (string, error) { return s.Reveal(), nil }
}

// inOrder lists the configured networks, the preferred ones first.
func inOrder(c *config.Config) (list []string) {
	for _, id := range c.Policy.Prefer {
		if _, ok := c.Networks[id]; ok && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Networks)) {
		if !slices.Contains(list, id) && !isRooch(id) {
			list = append(list, id)
		}
	}
	return list
}

// keyring is the wallet as tools may know it.
type keyring struct {
	*wallet.Wallet
	remote *agent.Remote
}

// Locked implements tools.Keys: a wallet whose unlock agent is there signs without asking anybody.
func (k keyring) Locked() bool {
	return k.Wallet.Locked() && (!k.remote.Before() || k.remote.Status(context.Background()) != nil)
}

func (k keyring) Addresses() (solana, evm string) { return k.Solana().Address(), k.EVM().Address() }
