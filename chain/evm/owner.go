package evm

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What only the owner of a vault can sign is built here, for the owner's own key or another signer of
// theirs: the contract's making, and calls of it. The owner pays the gas.

//go:embed vault/AgentVault.json
var vaultBuild []byte

// vaultCode is what makes the contract, before the constructor's arguments (vault/AgentVault.sol).
func vaultCode() []byte {
	var build struct {
		Bytecode hexutil.Bytes `json:"bytecode"`
	}
	if err := json.Unmarshal(vaultBuild, &build); err != nil || len(build.Bytecode) == 0 {
		panic("chain/evm/vault/AgentVault.json is not the contract's build") // it is part of this program
	}
	return build.Bytecode
}

// Selectors of what owners call; TestTypeHashesAndSelectors derives them.
var (
	// allow(address,uint256,uint256,uint256,uint256)
	selectAllow = []byte{0x28, 0x14, 0x2c, 0xf7}
	// revoke()
	selectRevoke = []byte{0xb6, 0x54, 0x9f, 0x75}
	// deposit(uint256)
	selectDeposit = []byte{0xb6, 0xb5, 0x5f, 0x25}
	// withdraw(uint256)
	selectWithdraw = []byte{0x2e, 0x1a, 0x7d, 0x4d}
)

// limits are the arguments of allow, which the constructor takes too.
func (e *Exact) limits(l onchain.VaultLimits) ([]byte, error) {
	agent, err := e.Self()
	if err != nil {
		return nil, err
	}
	const least = MinValidity + windowSlack
	if l.PerPeriod.IsZero() || l.PerPayment.IsZero() || l.Period < time.Second || l.MaxWindow < least {
		return nil, x402.Errorf(x402.InvalidArgument,
			"a vault's limits are above 0, and what the agent signs is good for %s at least", least)
	}
	perPeriod, perPayment := l.PerPeriod.Bytes32(), l.PerPayment.Bytes32()
	return slices.Concat(message.Word(agent), perPeriod[:], message.WordOfUint(uint64(l.Period/time.Second)),
		perPayment[:],
		message.WordOfUint(uint64(l.MaxWindow/time.Second))), nil
}

// DeployVault makes a vault of owner's for an asset, which lets this wallet's agent spend within limits. It
// holds nothing yet.
func (e *Exact) DeployVault(ctx context.Context, network, owner string, asset x402.AssetInfo,
	l onchain.VaultLimits) (onchain.OwnerTransaction, error) {
	token, err := message.ParseAddress(asset.Address)
	if err != nil || asset.Network != network {
		return onchain.OwnerTransaction{}, Internal("an asset of another network, or without an address", err)
	}
	at, err := message.ParseAddress(owner)
	if err != nil {
		return onchain.OwnerTransaction{}, x402.Errorf(x402.InvalidArgument, "the owner is %w", err)
	}
	limits, err := e.limits(l)
	if err != nil {
		return onchain.OwnerTransaction{}, err
	}
	return e.Estimated(ctx, onchain.OwnerTransaction{Network: network, From: owner, Does: "make the vault",
		Data: slices.Concat(vaultCode(), message.Word(at), message.Word(token), limits)})
}

// VaultAddress is where the vault of a deployment will be.
func (e *Exact) VaultAddress(t onchain.OwnerTransaction) string {
	return crypto.CreateAddress(common.HexToAddress(t.From), t.Nonce).Hex()
}

// AllowVault lets this wallet's agent spend from a vault within limits, which are counted anew.
func (e *Exact) AllowVault(ctx context.Context, v onchain.Vault,
	l onchain.VaultLimits) (onchain.OwnerTransaction, error) {
	limits, err := e.limits(l)
	if err != nil {
		return onchain.OwnerTransaction{}, err
	}
	return e.call(ctx, v, v.Address, "let the agent spend within these limits", selectAllow, limits)
}

// RevokeVault lets nobody spend from a vault; what is signed already is worth nothing from then on.
func (e *Exact) RevokeVault(ctx context.Context, v onchain.Vault) (onchain.OwnerTransaction, error) {
	return e.call(ctx, v, v.Address, "let nobody spend", selectRevoke)
}

// ApproveVault lets a vault take an amount of the owner's asset, for DepositVault.
func (e *Exact) ApproveVault(ctx context.Context, v onchain.Vault, amount money.Amount) (
	onchain.OwnerTransaction, error) {
	at, err := message.ParseAddress(v.Address)
	if err != nil {
		return onchain.OwnerTransaction{}, Internal("the vault's address", err)
	}
	return e.call(ctx, v, v.Asset, "let the vault take the deposit", payload.ApproveData(at, amount))
}

// DepositVault puts an amount that the vault may take into it. What the agent may spend stays as it is.
func (e *Exact) DepositVault(ctx context.Context, v onchain.Vault, amount money.Amount) (
	onchain.OwnerTransaction, error) {
	word := amount.Bytes32()
	return e.call(ctx, v, v.Address, "deposit", selectDeposit, word[:])
}

// WithdrawVault pays an amount of a vault back to its owner.
func (e *Exact) WithdrawVault(ctx context.Context, v onchain.Vault, amount money.Amount) (
	onchain.OwnerTransaction, error) {
	word := amount.Bytes32()
	return e.call(ctx, v, v.Address, "withdraw", selectWithdraw, word[:])
}

func (e *Exact) call(ctx context.Context, v onchain.Vault, to, does string, parts ...[]byte) (
	onchain.OwnerTransaction, error) {
	return e.Estimated(ctx, onchain.OwnerTransaction{Network: v.Network, From: v.Owner, To: to, Does: does,
		Data: slices.Concat(parts...)})
}

// Estimated completes a transaction by asking the node, which simulates it. Errors: CHECK_FAILED with the
// node's reason where it would fail, RPC_ERROR.
func (e *Exact) Estimated(ctx context.Context, t onchain.OwnerTransaction) (onchain.OwnerTransaction, error) {
	n, err := e.Node(t.Network)
	if err != nil {
		return t, err
	}
	t.ChainID = n.ChainID
	t.Gas, err = n.EstimateGas(ctx, t.From, t.To, t.Data)
	if rpc.Refused(err) {
		return t, x402.Errorf(x402.CheckFailed, "the transaction would fail").
			WithDetail("reason", x402.Brief(err.Error())).
			WithHint("it is the owner, %s, who signs it and pays its gas", t.From)
	}
	if err != nil {
		return t, err
	}
	t.Nonce, err = n.TransactionCount(ctx, t.From, Pending)
	if err != nil {
		return t, err
	}
	t.MaxFee, t.Tip, err = n.Fees(ctx)
	return t, err
}

// Unsigned is a transaction as other signers take it: its bytes without a signature (EIP-2718).
func (e *Exact) Unsigned(t onchain.OwnerTransaction) ([]byte, error) {
	tx, err := ownerTransaction(t)
	if err != nil {
		return nil, err
	}
	return tx.Encode()
}

func ownerTransaction(t onchain.OwnerTransaction) (tx message.Transaction, err error) {
	tx = message.Transaction{ChainID: t.ChainID, Nonce: t.Nonce, Gas: t.Gas, Tip: t.Tip, MaxFee: t.MaxFee,
		Data: t.Data}
	if t.To != "" {
		to, err := message.ParseAddress(t.To)
		if err != nil {
			return tx, err
		}
		tx.To = to[:]
	}
	return tx, nil
}

// confirmTimeout is how long SendOwner waits for a transaction, pollInterval how often it asks.
const (
	confirmTimeout = 2 * time.Minute
	pollInterval   = 500 * time.Millisecond
)

// SendOwner brings a signed transaction to the chain and waits until it is in a block. signature is
// r ‖ s ‖ v, v 27 or 28. An error names the transaction where it may have landed.
func (e *Exact) SendOwner(ctx context.Context, t onchain.OwnerTransaction, signature [65]byte) (hash string,
	err error) {
	n, err := e.Node(t.Network)
	if err != nil {
		return "", err
	}
	tx, err := ownerTransaction(t)
	if err != nil {
		return "", Internal("encoding the transaction", err)
	}
	signed, hash, err := tx.Signed(signature, t.From)
	if err != nil {
		return "", err
	}
	var echoed string // the hash that we know already
	if err := n.Call(ctx, &echoed, "eth_sendRawTransaction", hexutil.Bytes(signed)); err != nil {
		return hash, x402.AsError(err).WithDetail("transaction", hash)
	}
	for end := time.Now().Add(confirmTimeout); ; {
		var r *Receipt
		err := n.Call(ctx, &r, "eth_getTransactionReceipt", hash)
		if err == nil && r != nil && r.Status != nil {
			if *r.Status != 1 {
				return hash, x402.Errorf(x402.CheckFailed, "the transaction failed").
					WithDetail("transaction", hash)
			}
			return hash, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
			if time.Now().Before(end) {
				continue
			}
		}
		return hash, x402.Errorf(x402.OutcomeUnknown, "the transaction was sent and is not in a block yet").
			WithDetail("transaction", hash).WithHint("look at the vault in a minute: x402-wallet vault show")
	}
}
