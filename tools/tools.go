// Package tools is what an agent can do: each tool with its arguments, its answer and its method in
// one file; server.go puts them on MCP. The command line prints the same answers, so
// the methods are plain Go.
//
// What must stay true: nothing an agent passes here can raise a limit or reach a secret; it can
// only ask, and every answer is either of the tool's output schema or an error with a code of docs/codes.md.
//
// Beside the tools and this file's open wallet, under rules that change: arguments.go; handle.go (from a
// method to an answer or an error), schema.go; stdio.go (the streams); approval.go and unlock.go (asking a
// person), progress.go (telling one); subscriptions.go and subscriptionrun.go (the owner's
// standing orders), propose.go (asking for one); mount.go and mounted.go (other servers' tools); resources.go
// (and prompts).
package tools

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/content"
	"x402-wallet/internal/passkey"
	"x402-wallet/pay"
	"x402-wallet/scheme/batch"
	"x402-wallet/scheme/nuwa"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Wallet is an opened wallet, as tools and commands see it: the engine and the ledger, and what else
// they ask. Package app makes it. Close it after the last use.
type Wallet struct {
	Engine  *pay.Engine
	Store   *history.Store
	Content content.Keeper // of what was bought
	Alerts  alerts.Writer  // of what the owner may have to be told
	Keys    keys
	EVM     evmChain
	Permits permits
	Solana  solanaChain

	Facilitators *facilitator.Client // nil: none
	Servers      *seller.Client      // the MCP servers that it buys from; nil: none
	Channels     *nuwa.Manager       // payment channels; nil: the owner set none up
	Deposits     *batch.Channels     // channels with a deposit; it is nil if there are none

	// VerifySeals checks the whole ledger with its seals: own takes this process's key, unlocking it,
	// else whoever holds one.
	VerifySeals func(ctx context.Context, own bool) error
	// Passkeys are the owner's, by name, as the rules in force have them: whoever believes one has checked
	// that these are sealed.
	Passkeys map[string]passkey.Key
	// ByPasskey approves payments by them; nil: nothing does.
	ByPasskey byPasskey
	// UnlocksItself: the owner left it a passphrase (a file, a command, the keyring), so that a payment
	// finds it unlocked.
	UnlocksItself bool
	// Stale reports whether the owner changed the rules since it was opened; nil: they never change.
	Stale func() bool
	// OpenFor is the wallet with the account that an agent pays from, where that is another one; whoever
	// gets it closes it.
	OpenFor func(ctx context.Context, agent string) (*Wallet, error)
	// Close closes the ledger, the keys and every connection; nil: there is nothing to close.
	Close func() error

	Accounts      []Account               // besides the wallet's own
	Networks      []string                // that have a node, the preferred ones first
	Unnamed       []string                // those of them that the owner neither named nor prefers
	TokenAccounts map[string]string       // the owner's token accounts from the config, by network
	Mounts        []string                // names of the servers whose tools are shown as the wallet's own
	AgentLabels   map[string]string       // what the owner's books call the agents, by their names
	Subscriptions map[string]Subscription // the owner's standing orders, by name
	Warnings      []string                // for the person: an old keystore, ignored environment
}

// Account is another account of the wallet, and where its money arrives.
type Account struct{ Name, Solana, EVM string }

// tidy brings stored content within the owner's quota, if the owner sealed it.
func (w *Wallet) tidy(ctx context.Context) {
	err := w.Engine.Guard.CheckConfig(ctx)
	if err == nil {
		err = w.Content.Tidy(ctx, w.Store)
	}
	if err != nil && ctx.Err() == nil {
		logger(w.Engine.Log).Warn("content above the quota was not removed", "err", err)
	}
}

// byPasskey approves a payment exactly as it was shown in a browser: Challenge is what a passkey signs there,
// Approve takes its answer. It checks the seal of the rules that name the passkey.
type byPasskey interface {
	Challenge(ctx context.Context, shown history.Approval, browser string) ([]byte, error)
	Approve(ctx context.Context, shown history.Approval, browser string, answer []byte) error
}

// keys are the wallet's keys. Tools sign nothing themselves.
type keys interface {
	Addresses() (solana, evm string)
	Locked() bool
	// Unlock takes what a person typed; passphrase stays the caller's, to be wiped.
	Unlock(ctx context.Context, passphrase []byte) error
}

type chain interface {
	Address() string
	Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error)
	// Clock asks a network's node for its time; zero: it does not say. A node of another chain
	// is CHECK_FAILED.
	Clock(ctx context.Context, network string) (time.Time, error)
	// Holdings says which tokens there is something of, and how much of the network's own coin.
	Holdings(ctx context.Context, network string, tokens []x402.AssetInfo) (some []x402.AssetInfo,
		coin money.Amount, err error)
}

// evmChain also reads owners' vaults, and builds and sends what their owners sign.
type evmChain interface {
	chain
	// VaultOn is the address of the vault that config.toml names on a network; "": none.
	VaultOn(network string) string
	ReadVault(ctx context.Context, network, address string) (onchain.Vault, error)
	DeployVault(ctx context.Context, network, owner string, asset x402.AssetInfo,
		l onchain.VaultLimits) (onchain.OwnerTransaction, error)
	AllowVault(ctx context.Context, v onchain.Vault, l onchain.VaultLimits) (onchain.OwnerTransaction, error)
	RevokeVault(ctx context.Context, v onchain.Vault) (onchain.OwnerTransaction, error)
	ApproveVault(ctx context.Context, v onchain.Vault, amount money.Amount) (onchain.OwnerTransaction, error)
	DepositVault(ctx context.Context, v onchain.Vault, amount money.Amount) (onchain.OwnerTransaction, error)
	WithdrawVault(ctx context.Context, v onchain.Vault, amount money.Amount) (onchain.OwnerTransaction, error)
	// AllowanceOn is how config.toml lets a float be taken from an owner's account on a network; nil: not.
	AllowanceOn(network string) *x402.AllowanceRule
	ReadAllowance(ctx context.Context, network, owner string, asset x402.AssetInfo) (x402.OwnerAllowance,
		error)
	ApproveAllowance(ctx context.Context, a x402.OwnerAllowance, amount money.Amount) (
		onchain.OwnerTransaction, error)
	// VaultAddress is where the vault of a deployment will be.
	VaultAddress(t onchain.OwnerTransaction) string
	// Unsigned is a transaction's bytes without a signature.
	Unsigned(t onchain.OwnerTransaction) ([]byte, error)
	// SendOwner waits until the transaction is in a block, and names it.
	SendOwner(ctx context.Context, t onchain.OwnerTransaction, signature [65]byte) (string, error)
}

// permits say what Permit2 may move out of the agent's own account.
type permits interface {
	ReadPermitted(ctx context.Context, asset x402.AssetInfo) (onchain.OwnAccount, error)
	// Approve prepares the transaction that changes that, and GasOf is what one cost, in wei.
	Approve(ctx context.Context, asset x402.AssetInfo, amount money.Amount) (onchain.OwnerTransaction, error)
	GasOf(ctx context.Context, network, hash string) (money.Amount, error)
}

// solanaChain also reads SPL token accounts, and builds and sends what their owners sign.
type solanaChain interface {
	chain
	Delegation(ctx context.Context, network, account string) (onchain.Delegation, error)
	// AssociatedAccount is an owner's associated token account.
	AssociatedAccount(owner string, asset x402.AssetInfo) (string, error)
	Approve(ctx context.Context, network, account string, asset x402.AssetInfo,
		amount money.Amount) (onchain.DelegationChange, error)
	Revoke(ctx context.Context, network, account string) (onchain.DelegationChange, error)
	Simulate(ctx context.Context, c onchain.DelegationChange) error
	// Send waits until the transaction is confirmed, and names it.
	Send(ctx context.Context, c onchain.DelegationChange, signature [64]byte) (string, error)
}

// nodeTimeout bounds what a tool waits for a node: an agent would rather know that it is not answering.
const nodeTimeout = 15 * time.Second

// publicWait bounds the wait for the nodes of networks that nobody named: nobody waits long for them.
const publicWait = 4 * time.Second

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// logger is what tools log to when they are given none.
func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// opener opens the wallet under the owner's rules as they are; it is called until it succeeds, and
// again when those changed. Its errors carry codes (WALLET_NOT_FOUND, …).
type opener = func(ctx context.Context) (*Wallet, error)

// lazy opens the wallet at its first use, so that the server answers before it and also without
// one: `init` may run while the host is already talking to us. When the owner changes the rules it
// opens the wallet again, for the calls that come then; calls under way end with the wallet they
// began with. But where config.toml has become tighter, sealed or not, what such a call has not
// signed yet is refused (POLICY_UNSEALED), and the call has to be made again.
type lazy struct {
	mu      sync.Mutex
	current *openedWallet
	opened  chan struct{} // closed when a wallet is open; nil while nobody waits
	closed  bool
}

type openedWallet struct {
	*Wallet
	users   int
	retired chan struct{} // closed when there is another one
	unused  chan struct{} // closed when its last use has ended
	closed  chan struct{} // closed when it is closed after that, with err
	err     error
}

// closeTimeout is how long the end waits for those who still use the wallet.
const closeTimeout = time.Second

// get is the wallet under the rules as they are now. done ends its use.
func (l *lazy) get(ctx context.Context, open opener) (w *Wallet, done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, x402.Errorf(x402.Internal, "the wallet is closed")
	}
	if l.current == nil || (l.current.Stale != nil && l.current.Stale()) {
		w, err := open(context.WithoutCancel(ctx)) // one caller's leaving is no reason for the others to fail
		if err != nil {
			return nil, nil, err
		}
		l.retire() // its calls go on
		l.current = &openedWallet{Wallet: w, users: 1, retired: make(chan struct{}),
			unused: make(chan struct{}), closed: make(chan struct{})}
		if l.opened != nil {
			close(l.opened)
			l.opened = nil
		}
	}
	return l.current.Wallet, l.use(l.current), nil
}

// use counts a user in. The holder itself is one, until it is retired; the last one closes.
func (l *lazy) use(s *openedWallet) (done func()) {
	s.users++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.leave()
	})
}

func (s *openedWallet) leave() {
	s.users--
	if s.users > 0 {
		return
	}
	close(s.unused)
	if s.Close != nil {
		s.err = s.Close()
	}
	close(s.closed)
}

func (l *lazy) retire() (s *openedWallet) {
	s = l.current
	if s == nil {
		return nil
	}
	l.current = nil
	close(s.retired)
	s.leave()
	return s
}

// last is the wallet that was opened last, whatever became of the rules; nil when there is none.
func (l *lazy) last() (s *openedWallet, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil, nil
	}
	return l.current, l.use(l.current)
}

// wait waits for an open wallet; nil when ctx ends before.
func (l *lazy) wait(ctx context.Context) (s *openedWallet, done func()) {
	for {
		l.mu.Lock()
		if l.current != nil {
			defer l.mu.Unlock()
			return l.current, l.use(l.current)
		}
		if l.opened == nil {
			l.opened = make(chan struct{})
		}
		opened := l.opened
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil
		case <-opened:
		}
	}
}

// close closes the wallet when its last use has ended; one that does not end in time closes it then.
func (l *lazy) close() error {
	l.mu.Lock()
	l.closed = true
	s := l.retire()
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	select {
	case <-s.unused:
		<-s.closed
		return s.err
	case <-time.After(closeTimeout):
		return nil
	}
}

// accounts are the wallet's accounts besides its own, as far as they were opened: on the one ledger, each
// with an engine of its own, as wallets in several processes are.
type accounts struct {
	mu     sync.Mutex
	byName map[string]*lazy
	closed bool
}

// of opens an account; "" is the wallet's own.
func (a *accounts) of(name string, own *lazy) *lazy {
	if name == "" {
		return own
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName == nil {
		a.byName = map[string]*lazy{}
	}
	if a.byName[name] == nil {
		a.byName[name] = &lazy{closed: a.closed}
	}
	return a.byName[name]
}

func (a *accounts) close() error {
	a.mu.Lock()
	a.closed = true
	list := slices.Collect(maps.Values(a.byName))
	a.mu.Unlock()
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, l := range list {
		all.Go(func() { errs[i] = l.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Wallet is the wallet that the server's agents use, under the rules as they are: the account that the
// context's agent pays from. done ends its use. It is to be used while Serve serves.
func (s *Server) Wallet(ctx context.Context) (w *Wallet, done func(), err error) {
	return s.openerOf(ctx).get(ctx, s.Open)
}

// Reopening is a wallet for a command that stays: get gives it under the rules as they are, for a use
// that done ends; end closes it when its last use has ended.
func Reopening(open opener) (get func(context.Context) (w *Wallet, done func(), err error),
	end func() error) {
	l := &lazy{}
	return func(ctx context.Context) (*Wallet, func(), error) { return l.get(ctx, open) }, l.close
}
