package tools

import (
	"context"
	"strings"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// revokeIn is what x402_revoke_delegation takes.
type revokeIn struct {
	TokenAccount string `json:"tokenAccount,omitempty" jsonschema:"as in x402_check_delegation"`
	Freeze       bool   `json:"freeze,omitempty" jsonschema:"true: this wallet stops paying from that account at once, until its person lifts that"`
}

// revokeOut is its answer.
type revokeOut struct {
	Network      string `json:"network"`
	TokenAccount string `json:"tokenAccount"`
	Owner        string `json:"owner"`
	Transaction  string `json:"transaction"` // base64, to be signed by Owner, who pays its fee
	Command      string `json:"command"`     // for the owner
	Frozen       bool   `json:"frozen"`
}

const revokeDescription = `Prepare the end of a delegation: an unsigned transaction and the command for the owner, who alone can sign. With freeze, spending from that account stops here at once.`

// revoke prepares a revocation. Its error is an *x402.Error.
func (w *Wallet) revoke(ctx context.Context, in revokeIn) (revokeOut, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	network, account, err := w.delegationAsked(ctx, DelegationIn{TokenAccount: in.TokenAccount})
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the delegation could not be looked up", err)
	}
	if in.Freeze {
		// first, whatever the node says: for every network, as the account's owner is the same
		// there
		if err := w.freeze(ctx, account); err != nil {
			return revokeOut{}, err
		}
	}
	c, err := w.Owner.Revoke(ctx, network, account)
	if err != nil {
		return revokeOut{}, withCode(x402.CheckFailed, "the transaction could not be made",
			err).WithDetail("frozen", in.Freeze)
	}
	return revokeOut{
		Network: c.Network, TokenAccount: c.Account, Owner: c.Owner, Transaction: c.Transaction([64]byte{}),
		Frozen: in.Freeze,
		Command: "x402-wallet delegation revoke --owner-keypair FILE --network " + c.Network +
			" --token-account " + c.Account,
	}, nil
}

// freeze stops payments from a token account. A text that is no address freezes nothing.
func (w *Wallet) freeze(ctx context.Context, account string) error {
	const base58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	if len(account) < 32 || len(account) > 44 || strings.Trim(account, base58) != "" { // base58 of 32 bytes
		return x402.Errorf(x402.InvalidArgument, "tokenAccount is not a Solana address")
	}
	for _, network := range w.Networks {
		if !x402.IsSolana(network) {
			continue
		}
		if err := w.Store.Freeze(ctx, history.Freeze{Network: network, Account: account, By: "agent",
			Why: "its delegation is to be revoked"}); err != nil {
			return err
		}
	}
	_ = w.Engine.Guard.CheckpointIfUnlocked(ctx) // it is frozen all the same
	return nil
}
