// Package tools is what an agent can do: one file a tool, each with its arguments, its answer and
// its method; server.go puts them on MCP. The command line prints the same answers (SPEC §7.1b), so
// the methods are plain Go.
//
// What must stay true: nothing an agent passes here can raise a limit or reach a secret; it can
// only ask, and every answer is either what SPEC §7 promises or an error with one of its codes.
//
// Beside the tools: handle.go (from a method to an answer or an error), schema.go, visible.go;
// stdio.go (the streams) and lazy.go (the open wallet, under rules that change); approval.go and
// unlock.go (asking a person), progress.go (telling one); mount.go and mirror.go (other servers'
// tools); resources.go and prompts.go.
package tools

import (
	"context"
	"log/slog"
	"time"

	"x402-wallet/channel"
	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Wallet is an opened wallet, as tools and commands see it: the engine and the ledger, and behind
// small interfaces what else they ask. Package app makes it. Close it after the last use.
type Wallet struct {
	Engine *pay.Engine
	Store  *history.Store
	Seals  Seals
	Keys   Keys
	Home   Home // nil: nothing to close, and rules that never change

	Chains       map[string]Chain // by CAIP-2 namespace
	Delegations  Delegations
	Owner        OwnerTransactions
	Facilitators Facilitators     // nil: none
	Servers      Servers          // nil: no MCP servers
	Channels     *channel.Manager // payment channels; nil: the owner set none up

	Networks      []string          // that have a node, the preferred ones first
	TokenAccounts map[string]string // the owner's token accounts from the config, by network
	Mounts        []string          // names of the servers whose tools are shown as the wallet's own
	Warnings      []string          // for the person: an old keystore, ignored environment
}

// Close closes the ledger, the keys and every connection.
func (w *Wallet) Close() error {
	if w.Home == nil {
		return nil
	}
	return w.Home.Close()
}

func (w *Wallet) stale() bool { return w.Home != nil && w.Home.Stale() }

// Home is what a wallet was opened from.
type Home interface {
	// Stale reports whether the owner changed the rules since it was opened.
	Stale() bool
	Close() error
}

// Keys are the wallet's keys. Tools sign nothing themselves.
type Keys interface {
	Addresses() (solana, evm string)
	Locked() bool
	// Unlock takes what a person typed; passphrase stays the caller's, to be wiped.
	Unlock(ctx context.Context, passphrase []byte) error
}

// Seals checks the whole ledger with its seals: own takes this process's key, unlocking it, else
// whoever holds one.
type Seals interface {
	Verify(ctx context.Context, own bool) error
}

// Chain reads one family of chains.
type Chain interface {
	Address() string
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	// Clock asks a network's node for its time; zero: it does not say. A node of another chain is
	// CHECK_FAILED.
	Clock(ctx context.Context, network string) (time.Time, error)
}

// Delegations reads SPL token accounts.
type Delegations interface {
	Delegation(ctx context.Context, network, account string) (x402.Delegation, error)
	// AssociatedAccount is an owner's associated token account.
	AssociatedAccount(owner string, asset x402.AssetInfo) (string, error)
}

// OwnerTransactions builds transactions that a token account's owner signs, and sends them.
type OwnerTransactions interface {
	Approve(ctx context.Context, network, account string, asset x402.AssetInfo,
		amount money.Amount) (x402.DelegationChange, error)
	Revoke(ctx context.Context, network, account string) (x402.DelegationChange, error)
	Simulate(ctx context.Context, c x402.DelegationChange) error
	// Send waits until the transaction is confirmed, and names it.
	Send(ctx context.Context, c x402.DelegationChange, signature [64]byte) (string, error)
}

// Facilitators asks all facilitators at once.
type Facilitators interface {
	// Answers is what each of them supports, on the networks that the owner gave it.
	Answers(ctx context.Context) []facilitator.Answer
	// Discover is what each of them lists for sale, on a network or, with "", on any.
	Discover(ctx context.Context, query, network string) []facilitator.Catalogue
}

// Open opens the wallet under the owner's rules as they are; it is called until it succeeds, and
// again when those changed. Its errors carry codes (WALLET_NOT_FOUND, …).
type Open func(ctx context.Context) (*Wallet, error)

// nodeTimeout bounds what a tool waits for a node: an agent would rather know that it is not
// answering.
const nodeTimeout = 15 * time.Second

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// logger is what tools log to when they are given none.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
