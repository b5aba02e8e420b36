package tools

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// delegationIn is what x402_check_delegation takes.
type delegationIn struct {
	TokenAccount string `json:"tokenAccount,omitempty" jsonschema:"or EVM vault or owner; default: configured or delegating"`
	Network      string `json:"network,omitempty" jsonschema:"default: preferred"`
}

// DelegationOut is the answer of x402_check_delegation. Amounts are atomic units.
type DelegationOut struct {
	IsActive          bool         `json:"isActive"`
	Delegate          *string      `json:"delegate"`
	IsOurAgent        bool         `json:"isOurAgent"`
	RemainingAmount   money.Amount `json:"remainingAmount"`
	OriginalAmount    money.Amount `json:"originalAmount"` // the largest ever seen
	TokenMint         string       `json:"tokenMint"`
	OwnerTokenAccount string       `json:"ownerTokenAccount"`
	Frozen            bool         `json:"frozen"`
	Balance           money.Amount `json:"balance"`
	Network           string       `json:"network"`

	// of an allowance alone: what the agent has of it already, and wei for gas; ownerTokenAccount is the
	// owner
	Float *money.Amount `json:"float,omitempty"`
	Gas   *money.Amount `json:"gasWei,omitempty"`

	// of a vault alone, which is named in ownerTokenAccount
	Owner         string        `json:"owner,omitempty"`
	PerPayment    *money.Amount `json:"perPayment,omitempty"`
	PerPeriod     *money.Amount `json:"perPeriod,omitempty"`
	PeriodSeconds int64         `json:"periodSeconds,omitempty"`
	MoreAt        string        `json:"moreAt,omitempty"` // when perPeriod is added

	Next x402.Next `json:"next"`
}

// shape leaves out what only a vault or an allowance has, for the schemas' bound.
func (DelegationOut) shape(s *jsonschema.Schema) { leaveOut(s, ofOneKind...) }

var ofOneKind = []string{"float", "gasWei", "owner", "perPayment", "perPeriod", "periodSeconds", "moreAt"}

const delegationName = "x402_check_delegation"

const delegationDescription = `What an owner's SPL token account, EVM vault or allowance lets this agent spend.`

// CheckDelegation reads a delegation from the chain; "" are the defaults. Its error is an *x402.Error.
func (w *Wallet) CheckDelegation(ctx context.Context, network, account string) (DelegationOut, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	network, account, err := w.delegationAsked(ctx, network, account)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be looked up", err)
	}
	switch {
	case w.isAllowance(network, account):
		return w.checkAllowance(ctx, network, account)
	case !x402.IsSolana(network):
		return w.checkVault(ctx, network, account)
	}
	d, err := w.Solana.Delegation(ctx, network, account)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be read", err)
	}
	largest, err := w.Store.RecordDelegation(ctx, network, account, d.Remaining)
	if err != nil {
		return DelegationOut{}, withCode(x402.CheckFailed, "the delegation could not be noted", err)
	}
	out := DelegationOut{
		IsActive: d.Delegate != "" && !d.Remaining.IsZero() && !d.Frozen, IsOurAgent: d.IsOurs,
		RemainingAmount: d.Remaining, OriginalAmount: largest,
		TokenMint: d.Mint, OwnerTokenAccount: d.Account, Frozen: d.Frozen, Balance: d.Balance,
		Network: network,
	}
	if d.Delegate != "" {
		out.Delegate = &d.Delegate
	}
	out.Next = out.next()
	return out, nil
}

func (d DelegationOut) next() x402.Next {
	switch {
	case d.Frozen:
		return x402.Next{Do: x402.GiveUp, Why: "the token's issuer froze the account"}
	case d.IsActive && d.IsOurAgent:
		return x402.Next{Do: x402.Done}
	}
	return x402.Next{Do: x402.AskPerson, Why: "the account lets this agent spend nothing",
		Command: "x402-wallet delegation approve --owner-keypair FILE --amount 25 --network " + d.Network +
			" --token-account " + d.OwnerTokenAccount,
		Say: "Your token account lets me spend nothing; this allows me up to the amount that you put there."}
}

// delegationAsked is the account that is meant, a token account, a vault or an owner's account: the one asked
// for, else the configured one, else the one that delegates to this agent.
func (w *Wallet) delegationAsked(ctx context.Context, network, account string) (string, string, error) {
	wanted, _ := x402.Network(network)
	isMeant := func(n string) bool {
		if network != "" {
			return n == wanted
		}
		return account == "" || strings.HasPrefix(account, "0x") == !x402.IsSolana(n)
	}
	networks := slices.DeleteFunc(slices.Clone(w.Networks), func(n string) bool { return !isMeant(n) })
	isEVM := strings.HasPrefix(account, "0x")
	switch {
	case len(networks) == 0 && network != "":
		return "", "", x402.Errorf(x402.InvalidArgument, "the network %s is not configured",
			x402.Quote(network)).WithHint("configured are: %s", titles(w.Networks))
	case account != "" && (len(networks) == 0 || x402.IsSolana(networks[0]) == isEVM):
		return "", "", x402.Errorf(x402.InvalidArgument, "%s is no account of a network that is meant",
			x402.Quote(account)).WithHint("configured are: %s", titles(w.Networks))
	case isEVM:
		return w.networkOfEVM(networks, account), account, nil
	}
	for _, network := range networks {
		named := cmp.Or(w.TokenAccounts[network], w.EVM.VaultOn(network), w.ownerOn(network))
		if named != "" && account == "" {
			return network, named, nil
		}
	}
	networks = slices.DeleteFunc(networks, func(n string) bool { return !x402.IsSolana(n) })
	switch {
	case len(networks) == 0 && network != "":
		return "", "", noVault(wanted)
	case len(networks) == 0:
		return "", "", x402.Errorf(x402.NoDelegation,
			"no Solana network is configured, and no vault on another one").
			WithHint("the owner adds a Solana network to config.toml, or makes a vault").
			WithCommand(x402.Command("vault", "deploy"), "Nothing is set up from which I may spend your "+
				"money: please make a vault, or add a Solana network in config.toml.")
	case account != "":
		return w.networkOf(ctx, networks, account), account, nil
	}
	var err error // of the preferred one
	for _, network := range networks {
		account, failed := w.delegatingAccount(ctx, network)
		if failed == nil {
			return network, account, nil
		}
		if err == nil {
			err = failed
		}
	}
	return "", "", err
}

// networkOf is the network that has a token account, as far as their nodes can tell; else the preferred
// one.
func (w *Wallet) networkOf(ctx context.Context, networks []string, account string) string {
	if len(networks) > 1 {
		for _, network := range networks {
			if _, err := w.Solana.Delegation(ctx, network, account); err == nil {
				return network
			}
		}
	}
	return networks[0]
}

func (w *Wallet) delegatingAccount(ctx context.Context, network string) (string, error) {
	nobody := x402.Errorf(x402.NoDelegation, "no token account on %s delegates to this wallet",
		x402.Title(network)).
		WithHint("pass tokenAccount to look at a certain one").
		WithCommand(x402.Command("delegation", "approve", "--owner-keypair", "FILE",
			"--network", network, "--amount", "25"), "No token account of yours on "+x402.Title(network)+
			" lets me spend: please delegate what I may spend.")
	asset, known := w.Engine.Assets.Named(network, "")
	if !known {
		return "", nobody
	}
	funds, err := w.Solana.Funds(ctx, network, asset)
	if err != nil {
		e := x402.AsError(err)
		if account, named := e.Details["tokenAccount"].(string); named && e.Details["reason"] == "frozen" {
			return account, nil // nothing to spend, but something to tell
		}
		return "", err
	}
	if funds.Delegated == nil {
		return "", nobody
	}
	return funds.Source, nil
}

// revokeIn is what x402_revoke_delegation takes.
type revokeIn struct {
	TokenAccount string `json:"tokenAccount,omitempty" jsonschema:"as in x402_check_delegation"`
	Freeze       bool   `json:"freeze,omitempty" jsonschema:"stop paying from it until the person lifts that"`
}

type revokeOut struct {
	Network      string `json:"network"`
	TokenAccount string `json:"tokenAccount"` // or the vault, or the owner
	Owner        string `json:"owner"`
	// to be signed by Owner, who pays its fee: base64 (Solana), or hex of an EIP-1559 transaction
	Transaction string `json:"transaction"`
	Command     string `json:"command"` // for the owner
	Frozen      bool   `json:"frozen"`

	Next x402.Next `json:"next"`
}

const revokeDescription = `Prepare the end of a delegation: unsigned transaction and command for the owner to sign.`

// revoke prepares a revocation. Its error is an *x402.Error.
func (w *Wallet) revoke(ctx context.Context, in revokeIn) (revokeOut, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	network, account, err := w.delegationAsked(ctx, "", in.TokenAccount)
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the delegation could not be looked up", err)
	}
	if in.Freeze {
		// first, whatever the node says: for every network, as the account's owner is the same there
		if err := w.freeze(ctx, network, account); err != nil {
			return revokeOut{}, err
		}
	}
	switch {
	case w.isAllowance(network, account):
		return w.revokeAllowance(ctx, network, account, in.Freeze)
	case !x402.IsSolana(network):
		return w.revokeVault(ctx, network, account, in.Freeze)
	}
	c, err := w.Solana.Revoke(ctx, network, account)
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made", err).
			WithDetail("frozen", in.Freeze)
	}
	command := "x402-wallet delegation revoke --owner-keypair FILE --network " + c.Network +
		" --token-account " + c.Account
	return revokeOut{
		Network: c.Network, TokenAccount: c.Account, Owner: c.Owner, Transaction: c.Transaction([64]byte{}),
		Frozen: in.Freeze, Command: command,
		Next: x402.Next{Do: x402.AskPerson, Command: command,
			Say: "This takes the delegation back; only you can sign it."},
	}, nil
}

// freeze stops payments from a token account or vault, or taking from an owner's account. A text that is no
// address freezes nothing.
func (w *Wallet) freeze(ctx context.Context, network, account string) error {
	why := "its delegation is to be revoked"
	if !x402.IsSolana(network) {
		named := w.EVM.VaultOn(network) // as payments name it
		if w.isAllowance(network, account) {
			named = w.ownerOn(network)
		}
		if !strings.EqualFold(named, account) {
			return x402.Errorf(x402.InvalidArgument,
				"nothing is paid out of %s: config.toml does not name it", x402.Quote(account))
		}
		return w.freezeOn(ctx, network, named, why)
	}
	if x402.DecodeBase58(account, 32) == nil {
		return x402.Errorf(x402.InvalidArgument, "tokenAccount is not a Solana address")
	}
	for _, network := range w.Networks {
		if !x402.IsSolana(network) {
			continue
		}
		if err := w.freezeOn(ctx, network, account, why); err != nil {
			return err
		}
	}
	return nil
}

func (w *Wallet) freezeOn(ctx context.Context, network, account, why string) error {
	err := w.Store.Freeze(ctx, history.Freeze{Network: network, Account: account, By: "agent", Why: why})
	if err == nil {
		_ = w.Engine.Guard.CheckpointIfUnlocked(ctx) // it is frozen all the same
	}
	return err
}
