package agent_test

import (
	"context"
	"time"

	"x402-wallet/e2e/asks"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402/onchain"
)

// remote asks an unlock agent.
type remote struct {
	*client.Client
	asks.Asks
}

func asksOf(c *client.Client) remote {
	return remote{c, func(ctx context.Context, d onchain.Draft) ([]byte, error) {
		turn := *c
		turn.Before = func() bool { return true }
		return client.Signer{Remote: &turn, Local: &Recorder{}}.Sign(ctx, d)
	}}
}

// signer is a process with a wallet, which asks the unlock agent first where it is its turn.
func (w *world) signer(keys *wallet.Wallet, c *client.Client) asks.Asks {
	guard := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: keys}
	return client.Signer{Remote: c, Local: w.recorder(keys, guard, &Tally{})}.Sign
}

// recorder is who signs and records in a process of its own.
func (w *world) recorder(keys *wallet.Wallet, guard *seal.Guard, tally *Tally) *Recorder {
	return &Recorder{Store: w.store, Guard: guard, Rules: *w.rules.Load(), Account: keys.AccountNamed,
		Now: time.Now, Tally: tally}
}
