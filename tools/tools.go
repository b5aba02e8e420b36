// Package tools is what an agent can do: each tool with its arguments, its answer and its method in
// one file; server.go puts them on MCP. The command line prints the same answers (SPEC §7.1b), so
// the methods are plain Go.
//
// What must stay true: nothing an agent passes here can raise a limit or reach a secret; it can
// only ask, and every answer is either what SPEC §7 promises or an error with one of its codes.
//
// Beside the tools: handle.go (from a method to an answer or an error), schema.go; stdio.go (the streams)
// and lazy.go (the open wallet, under rules that change); approval.go and unlock.go (asking a person),
// progress.go (telling one); mount.go and mounted.go (other servers' tools); resources.go (and prompts).
package tools

import (
	"context"
	"log/slog"
	"time"

	"x402-wallet/channel"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Wallet is an opened wallet, as tools and commands see it: the engine and the ledger, and what else
// they ask. Package app makes it. Close it after the last use.
type Wallet struct {
	Engine *pay.Engine
	Store  *history.Store
	Keys   keys
	EVM    chain
	Solana solanaChain

	Facilitators *facilitator.Client // nil: none
	Servers      *seller.Client      // the MCP servers that it buys from; nil: none
	Channels     *channel.Manager    // payment channels; nil: the owner set none up

	// VerifySeals checks the whole ledger with its seals: own takes this process's key, unlocking it,
	// else whoever holds one.
	VerifySeals func(ctx context.Context, own bool) error
	// Stale reports whether the owner changed the rules since it was opened; nil: they never change.
	Stale func() bool
	// Close closes the ledger, the keys and every connection; nil: there is nothing to close.
	Close func() error

	Networks      []string          // that have a node, the preferred ones first
	TokenAccounts map[string]string // the owner's token accounts from the config, by network
	Mounts        []string          // names of the servers whose tools are shown as the wallet's own
	Warnings      []string          // for the person: an old keystore, ignored environment
}

// keys are the wallet's keys. Tools sign nothing themselves.
type keys interface {
	Addresses() (solana, evm string)
	Locked() bool
	// Unlock takes what a person typed; passphrase stays the caller's, to be wiped.
	Unlock(ctx context.Context, passphrase []byte) error
}

// chain reads one family of chains.
type chain interface {
	Address() string
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	// Clock asks a network's node for its time; zero: it does not say. A node of another chain is
	// CHECK_FAILED.
	Clock(ctx context.Context, network string) (time.Time, error)
}

// solanaChain also reads SPL token accounts, and builds and sends what their owners sign.
type solanaChain interface {
	chain
	Delegation(ctx context.Context, network, account string) (x402.Delegation, error)
	// AssociatedAccount is an owner's associated token account.
	AssociatedAccount(owner string, asset x402.AssetInfo) (string, error)
	Approve(ctx context.Context, network, account string, asset x402.AssetInfo,
		amount money.Amount) (x402.DelegationChange, error)
	Revoke(ctx context.Context, network, account string) (x402.DelegationChange, error)
	Simulate(ctx context.Context, c x402.DelegationChange) error
	// Send waits until the transaction is confirmed, and names it.
	Send(ctx context.Context, c x402.DelegationChange, signature [64]byte) (string, error)
}

// nodeTimeout bounds what a tool waits for a node: an agent would rather know that it is not answering.
const nodeTimeout = 15 * time.Second

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// logger is what tools log to when they are given none.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
