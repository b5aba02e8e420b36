package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/channel"
	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
)

// OpenWallet joins the parts of a wallet that exists, under the owner's rules as they are. It
// unlocks nothing and asks no node. first and last are where a passphrase may come from before and
// after the sources that need no person; nil: nowhere. Errors have codes: WALLET_NOT_FOUND,
// POLICY_UNSEALED, LEDGER_CORRUPT, …
func (a *app) OpenWallet(ctx context.Context, first, last wallet.Passphrase) (*tools.Wallet, error) {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return nil, err
	}
	w, err := a.join(ctx, keys, first, last)
	if err != nil {
		_ = keys.Close()
		return nil, err
	}
	return w, nil
}

func (a *app) join(ctx context.Context, keys *wallet.Wallet,
	first, last wallet.Passphrase) (*tools.Wallet, error) {
	rules, err := a.rules()
	if err != nil {
		return nil, err
	}
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return nil, err
	}
	keys.Idle = rules.Keystore.Idle
	sources := slices.Concat([]wallet.Passphrase{first}, a.sources(rules, keys), []wallet.Passphrase{last})
	keys.Sources = slices.DeleteFunc(sources, func(s wallet.Passphrase) bool { return s == nil })

	nodes := seller.NodeClient(rules.Policy.Loopback)
	onRooch := channel.NewNodes(nodeURLs(rules), nodes)
	remote := a.remote(rules, keys, first)
	guard := agent.Guard{Local: a.Guard(store, rules, keys), Remote: remote}
	evmSigner, solanaSigner := agent.Signers(keys, remote)
	onEVM := evm.New(evm.Options{
		Signer: evmSigner,
		RPC:    nodeURLs(rules), HTTP: nodes, Rand: rand.Reader, Now: time.Now,
	})
	onSolana := svm.New(svm.Options{
		Signer: solanaSigner,
		RPC:    nodeURLs(rules), TokenAccounts: tokenAccounts(rules),
		HTTP: nodes, Rand: rand.Reader, Now: time.Now,
	})
	settlers := a.facilitators(rules, nodes)
	sellers := seller.New(seller.Options{
		Loopback: rules.Policy.Loopback, Servers: servers(rules), Version: a.version, Log: a.log,
	})
	engine := &pay.Engine{
		Rules: budgetRules(rules), Policy: policy(rules),
		Assets: x402.NewRegistry(slices.Concat(onRooch.Assets(), rules.Assets)),
		Schemes: map[pay.SchemeKey]pay.Scheme{
			{Scheme: x402.Exact, Family: "eip155"}: onEVM,
			{Scheme: x402.Exact, Family: "solana"}: onSolana,
		},
		Statuses:  onRooch.Statuses(),
		Transport: sellers, Settler: settlers, Store: store, Guard: guard,
		Now: time.Now, Log: a.log,
	}
	channels := a.channels(rules, onRooch, keys, sellers, engine, store)
	if channels != nil {
		engine.Deferred = channels
	}
	return &tools.Wallet{
		Engine: engine, Store: store, Keys: toolKeys{Wallet: keys, remote: remote},
		EVM: onEVM, Solana: onSolana, Facilitators: settlers, Servers: sellers, Channels: channels,
		VerifySeals: func(ctx context.Context, own bool) error {
			if own {
				return guard.Local.Verify(ctx)
			}
			return guard.Verify(ctx)
		},
		Stale:    func() bool { return !rules.Same(a.home) },
		Close:    func() error { return errors.Join(sellers.Close(), store.Close(), keys.Close()) },
		Networks: networksInOrder(rules), TokenAccounts: tokenAccounts(rules), Mounts: mounts(rules),
		Warnings: slices.Concat(keys.Warnings, rules.Warnings, config.IgnoredEnv(a.env, rules)),
	}, nil
}

// remote is the unlock agent, whose turn comes after the descriptor, the file and the command (SPEC
// §3): each of those, where it is set up, either unlocks the wallet itself or fails.
func (a *app) remote(rules *config.Config, keys *wallet.Wallet, first wallet.Passphrase) *agent.Client {
	earlier := first != nil || a.env.PassphraseFile != "" || rules.Keystore.PassphraseFile != "" ||
		len(rules.Keystore.PassphraseCommand) > 0
	return &agent.Client{Home: a.home, Before: func() bool {
		return !earlier && keys.Locked()
	}}
}

// toolKeys implements the keys of tools.Wallet.
type toolKeys struct {
	*wallet.Wallet
	remote *agent.Client
}

// Locked implements the keys of tools.Wallet: a wallet whose unlock agent is running signs without
// asking anybody.
func (k toolKeys) Locked() bool {
	return k.Wallet.Locked() && (!k.remote.Before() || k.remote.Status(context.Background()) != nil)
}

// Unlock implements the keys of tools.Wallet.
func (k toolKeys) Unlock(ctx context.Context, passphrase []byte) error {
	return k.Wallet.Unlock(ctx, typed(passphrase))
}

// typed is a passphrase that a person typed; who typed it wipes it.
func typed(passphrase []byte) wallet.Passphrase {
	return func(context.Context) ([]byte, error) { return bytes.Clone(passphrase), nil }
}
