package evm

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// A vault is a contract of the owner's (vault/AgentVault.sol) that holds the money and takes the agent's
// signatures for it (ERC-1271), but only down to a floor of its balance that falls with time. So the chain
// caps the agent, as SPL delegation does on Solana. A payment from it is an EIP-3009 authorization like any
// other, of which `from` is the vault, and whose signature carries what the contract needs to hash it
// again.

// Selectors of the contract; TestSelectors derives them.
var (
	// state()
	selectState = []byte{0xc1, 0x9d, 0x93, 0xfb}
)

// stateWords is how many words state() answers.
const stateWords = 10

// windowSlack is what is left of the contract's maxWindow: it counts from the time of the newest block,
// which is behind ours by a block and by what clocks differ.
const windowSlack = 60 * time.Second

// FromVaults pays out of the vaults that the owner named (Options.Vaults), and only there. It shares nodes
// and key with e.
func (e *Exact) FromVaults() *Exact {
	v := *e
	v.ofVaults = true
	return &v
}

// VaultOn is the address of the vault that the owner named on a network, EIP-55; "": none.
func (e *Exact) VaultOn(network string) string {
	if at, named := e.vaults[network]; named {
		return at.Hex()
	}
	return ""
}

// payer is whose money is spent on a network: the vault's, or the agent's own.
func (e *Exact) payer(network string) (common.Address, error) {
	if !e.ofVaults {
		return e.Self()
	}
	at, named := e.vaults[network]
	if !named {
		return at, Internal("the owner named no vault on this network", nil)
	}
	return at, nil
}

// ReadVault reads what a vault says of itself. Errors: NO_DELEGATION where there is no such contract,
// RPC_ERROR.
func (e *Exact) ReadVault(ctx context.Context, network, address string) (v onchain.Vault, err error) {
	n, err := e.Node(network)
	if err != nil {
		return v, err
	}
	at, err := message.ParseAddress(address)
	if err != nil {
		return v, x402.Errorf(x402.InvalidArgument, "the vault's address is %w", err)
	}
	return n.vault(ctx, at, e.Address())
}

// vault reads state() of a contract; own is the agent's address.
func (n *Node) vault(ctx context.Context, at common.Address, own string) (v onchain.Vault, err error) {
	var words hexutil.Bytes
	err = n.Call(ctx, &words, "eth_call",
		map[string]any{"to": at.Hex(), "data": hexutil.Bytes(selectState)}, Latest)
	switch {
	case err != nil && !rpc.Refused(err):
		return v, err
	case err != nil || len(words) != stateWords*32: // another contract, or none
		return v, x402.Errorf(x402.NoDelegation, "there is no vault at %s on %s", at.Hex(),
			x402.Title(n.Network)).WithDetail("vault", at.Hex()).
			WithCommand(x402.Command("vault", "show", "--network", n.Network), "There is no vault at "+
				at.Hex()+" on "+x402.Title(n.Network)+": please look whether its address is right.")
	}
	word := func(i int) []byte { return words[i*32 : (i+1)*32] }
	address := func(i int) string {
		if bytes.Equal(word(i), make([]byte, 32)) {
			return ""
		}
		return common.BytesToAddress(word(i)).Hex()
	}
	seconds := func(i int) int64 {
		if !bytes.Equal(word(i)[:24], make([]byte, 24)) {
			return 1<<62 - 1
		}
		return int64(min(binary.BigEndian.Uint64(word(i)[24:]), 1<<62-1))
	}
	duration := func(i int) time.Duration {
		return time.Duration(min(seconds(i), int64(maxPeriod/time.Second))) * time.Second
	}
	v = onchain.Vault{Network: n.Network, Address: at.Hex(),
		Owner: address(0), Asset: address(1), Agent: address(2),
		Balance: message.AmountOf(word(3)), Available: message.AmountOf(word(4)),
		PerPayment: message.AmountOf(word(5)),
		MaxWindow:  duration(6), PerPeriod: message.AmountOf(word(7)), Period: duration(8)}
	if next := seconds(9); next < 1<<40 {
		v.NextPeriod = time.Unix(next, 0).UTC()
	}
	v.IsOurs = v.Agent != "" && message.SameAddress(v.Agent, own)
	return v, nil
}

// maxPeriod is the longest duration that is told of a vault.
const maxPeriod = 100 * 365 * 24 * time.Hour

// vaultFunds is Funds of a vault: what it lets the agent spend now.
func (e *Exact) vaultFunds(ctx context.Context, n *Node, asset x402.AssetInfo) (x402.Funds, error) {
	at, err := e.payer(n.Network)
	if err != nil {
		return x402.Funds{}, err
	}
	readAt := e.now()
	v, err := n.vault(ctx, at, e.Address())
	if err != nil {
		return x402.Funds{}, err
	}
	refused := func(code x402.Code, reason, format string, args ...any) error {
		return x402.Errorf(code, format, args...).WithDetail("vault", v.Address).WithDetail("reason", reason)
	}
	switch {
	case !message.SameAddress(v.Asset, asset.Address):
		return x402.Funds{}, refused(x402.DelegateMismatch, "asset",
			"the vault on %s holds another token than %s", x402.Title(n.Network), asset.Symbol)
	case v.Agent == "":
		return x402.Funds{}, refused(x402.NoDelegation, "revoked", "the vault on %s lets nobody spend",
			x402.Title(n.Network))
	case !v.IsOurs:
		return x402.Funds{}, refused(x402.DelegateMismatch, "delegate",
			"the vault on %s lets another key spend: %s", x402.Title(n.Network), v.Agent)
	case v.MaxWindow < windowSlack+MinValidity:
		return x402.Funds{}, refused(x402.DelegateMismatch, "maxWindow",
			"the vault on %s takes signatures for %s at most, and %s is the least that can be settled",
			x402.Title(n.Network), v.MaxWindow, windowSlack+MinValidity)
	}
	return x402.Funds{Source: v.Address, Balance: v.Balance, Delegated: &v.Available, Free: v.Available,
		ReadAt: readAt, MaxPayment: &v.PerPayment, MaxValidity: v.MaxWindow - windowSlack,
		MoreAt: v.NextPeriod}, nil
}
