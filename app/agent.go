package app

import (
	"context"
	"time"

	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// HoldKeys is the unlock agent: it holds the keys until ctx ends, it is told to stop, or they have
// been idle or open for too long. ready is called once it can be asked.
func (a *app) HoldKeys(ctx context.Context, passphrase wallet.Passphrase,
	ready func(until time.Time, idle time.Duration)) error {
	keys, err := wallet.Open(a.home)
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	rules, err := a.rules()
	if err != nil {
		return err
	}
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := agent.Free(ctx, a.home); err != nil { // nobody is asked for a passphrase in vain
		return err
	}
	keys.Idle = rules.Keystore.Idle
	if err := keys.Unlock(ctx, passphrase); err != nil {
		return err
	}
	guard := a.Guard(store, rules, keys)
	if _, err := a.sealedRules(ctx, guard); err != nil { // it would sign nothing
		return err
	}
	listener, err := agent.Listen(ctx, a.home)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	started := time.Now() // no agent before this one signs any more
	onEVM, onSolana := agent.Signers(keys, nil)
	server := &agent.Server{
		EVM: onEVM, Solana: onSolana,
		Locked: keys.Locked, Lock: keys.Lock,
		Store: store, Started: started, Now: time.Now, Log: a.log, Guard: guard,
		Rules: func(ctx context.Context) (agent.Rules, error) { return a.sealedRules(ctx, guard) },
	}
	ready(started.Add(wallet.DefaultMaxAge), keys.Idle)
	return server.Run(ctx, listener)
}

// sealedRules are the rules that the agent signs under: those of config.toml at this moment, if
// they are sealed.
func (a *app) sealedRules(ctx context.Context, guard *seal.Guard) (agent.Rules, error) {
	rules, err := a.rules()
	if err != nil {
		return agent.Rules{}, err
	}
	if err := guard.CheckRules(ctx, rules); err != nil {
		return agent.Rules{}, err
	}
	return agent.Rules{
		Budget: budgetRules(rules), Assets: x402.NewRegistry(rules.Assets),
		MaxTimeout: rules.Policy.MaxTimeout, TokenAccounts: tokenAccounts(rules),
	}, nil
}
