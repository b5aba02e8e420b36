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
	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Wallet is an opened wallet, as tools and commands see it.
type Wallet struct {
	Engine   *pay.Engine
	Servers  Servers          // nil: no MCP servers
	Mounts   []string         // names of those whose tools are shown as the wallet's own
	Channels *channel.Manager // payment channels; nil: the owner set none up
	Store    *history.Store
	Keys     Keys
	Chains   map[string]Chain // by CAIP-2 namespace
	Networks []string         // that have a node, the preferred ones first
	Warnings []string         // for the person: an old keystore, ignored environment
	Close    func() error
	// the ledger with its seals, by this process's own key or by whoever holds it
	Verify func(ctx context.Context, own bool) error
	Unlock func(ctx context.Context, passphrase []byte) error // with what a person typed; nil: not here
	// the owner changed the rules since it was opened; nil: never
	Stale func() bool

	// Delegation reads an SPL token account; network is a Solana network.
	Delegation func(ctx context.Context, network, account string) (Delegation, error)
	// Clock asks a network's node for its time; zero: it does not say. A node of another chain is
	// CHECK_FAILED.
	Clock func(ctx context.Context, network string) (time.Time, error)
	// Facilitators asks them all what they support.
	Facilitators func(ctx context.Context) []Facilitator
	// Catalogues asks them what is sold, on a network or, with "", on any; nil: there are none.
	Catalogues func(ctx context.Context, query, network string) []Catalogue
	// Owners makes what an owner signs.
	Owners Owners
	// TokenAccounts are the owner's token accounts from the config, by network.
	TokenAccounts map[string]string
}

// Keys says what can be said of the keys without touching them.
type Keys interface {
	Addresses() (solana, evm string)
	Locked() bool
}

// Chain reads one family of chains.
type Chain interface {
	Address() string
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
}

// Delegation is an SPL token account, read from the chain.
type Delegation struct {
	Account, Owner, Mint, Delegate string
	IsOurs, Frozen                 bool
	Remaining, Balance             money.Amount
}

// Facilitator is one of them, as it answered.
type Facilitator struct {
	Name     string
	Networks []string // CAIP-2, of those it would settle exact payments on
	Err      error
}

// Open opens the wallet under the owner's rules as they are; it is called until it succeeds, and
// anew when those changed. Its errors carry codes (WALLET_NOT_FOUND, …).
type Open func(ctx context.Context) (*Wallet, error)

// chainPatience bounds what a tool waits for a node: an agent would rather know that it is not
// answering.
const chainPatience = 15 * time.Second

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// logger is what tools log to when they are given none.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}
