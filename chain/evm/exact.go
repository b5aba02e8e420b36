// Package evm pays on EVM chains: it signs EIP-3009 transfer authorizations, reads what the chain lets the
// agent spend, and later asks the chain what became of a payment. The ways to pay that sign something else
// are built on it: packages scheme/permit2 and scheme/batch.
//
// What must stay true: the digest is computed from the very JSON that is sent, after that JSON was read back
// and found to be the order. The EIP-712 domain comes from the registry and the network's CAIP-2 id, never
// from a seller. A payment is called expired only because of a finalized block.
//
// What is signed, its digests and its JSON are in package message, what is sent with its signature in package
// payload: who is paid, and who signs, import those and nothing of this package.
//
// The files: exact.go (whether it can be paid, funds), authorize.go (sign), vault.go (paying out of the
// owner's contract), allowance.go and pull.go (taking a float from the owner's account), owner.go (what
// owners sign), transaction.go, status.go (what became of it), node.go (the owner's node, and its logs).
package evm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
	"x402-wallet/x402/foreign"
	"x402-wallet/x402/observe"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/remedy"
)

const (
	// MinValidity is the shortest life of a signature worth giving: facilitators refuse one with
	// less than 6 s left (reference client 2.27, evm/src/exact/facilitator).
	MinValidity = 6 * time.Second
	// MaxValidity is the longest life ever given, whatever the owner's own cap is: the signature is
	// a bearer cheque, and a hold on the budget for as long.
	MaxValidity = 24 * time.Hour
)

type Options struct {
	Signer onchain.Signer    // nil: no wallet yet; then nothing is payable
	RPC    map[string]string // CAIP-2 → http(s) URL of a node the owner trusts
	Vaults map[string]string // CAIP-2 → the owner's vault that the agent spends from (vault.go)
	// CAIP-2 → the owner's account that the agent takes a float from (allowance.go)
	Allowances map[string]x402.AllowanceRule
	// its Transport is used; redirects are refused. nil: a plain one without a proxy
	HTTP *http.Client
	Rand io.Reader        // nonces; nil: crypto/rand
	Now  func() time.Time // nil: time.Now

	Observe observe.NodeObserver // hears of every question to a node; nil: nobody does
}

// Exact is scheme "exact" on every configured eip155 network. It is safe for concurrent use.
type Exact struct {
	signer onchain.Signer
	nodes  map[string]*Node
	vaults map[string]common.Address
	// owners that let the agent take from their accounts
	allowances map[string]x402.AllowanceRule

	ofVaults bool // it pays out of vaults, else out of the agent's own account
	rand     io.Reader
	now      func() time.Time
	// EncodeAuthorization; a field for tests of tampering
	encode func(message.Authorization3009) ([]byte, error)
}

// New makes an Exact. It does no I/O: nodes are asked when they are needed. Entries of Options.RPC
// that are not eip155 networks are passed over.
func New(o Options) *Exact {
	e := &Exact{signer: o.Signer, rand: o.Rand, now: o.Now, encode: payload.EncodeAuthorization,
		nodes: map[string]*Node{}, vaults: map[string]common.Address{}, allowances: o.Allowances}
	if e.rand == nil {
		e.rand = rand.Reader
	}
	if e.now == nil {
		e.now = time.Now
	}
	o.Now = e.now
	for network, url := range o.RPC {
		if id, err := message.ChainID(network); err == nil && url != "" {
			e.nodes[network] = newNode(network, id, url, o)
		}
	}
	for network, address := range o.Vaults {
		if at, err := message.ParseAddress(address); err == nil { // of what the config lets pass
			e.vaults[network] = at
		}
	}
	return e
}

// Random32 is 32 random bytes, for a nonce or a salt.
func (e *Exact) Random32() (b [32]byte, err error) {
	if _, err := io.ReadFull(e.rand, b[:]); err != nil {
		return b, Internal("reading 32 random bytes", err)
	}
	return b, nil
}

// Address is the agent's address, EIP-55; "" when there is no wallet.
func (e *Exact) Address() string {
	if e.signer == nil {
		return ""
	}
	return e.signer.Address()
}

func (e *Exact) Self() (common.Address, error) {
	if e.Address() == "" {
		return common.Address{}, x402.Errorf(x402.WalletNotFound, "there is no EVM key yet").
			WithHint("the person runs: x402-wallet init")
	}
	address, err := message.ParseAddress(e.Address())
	if err != nil {
		return address, Internal("the signer's own address", err)
	}
	return address, nil
}

func (e *Exact) Node(network string) (*Node, error) {
	if n := e.nodes[network]; n != nil {
		return n, nil
	}
	if _, err := message.ChainID(network); err != nil {
		return nil, Invalid("the network is no EVM network").WithDetail("network", x402.Brief(network))
	}
	return nil, remedy.NetworkOff(network)
}

// Payable says why r cannot be paid, or nil. It does no I/O. Every refusal is an *x402.Error:
// INVALID_REQUIREMENT, but UNTRUSTED_ASSET when asset is not the one that r asks for and
// WALLET_NOT_FOUND when there is no key.
//
// extra.chainId, extra.verifyingContract and extra.domain are not looked at: the domain is the registry's.
func (e *Exact) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Scheme != x402.Exact && r.Charge == nil {
		return Invalid("scheme is neither exact nor of MPP").WithDetail("scheme", x402.Brief(r.Scheme))
	}
	if r.Version != 1 && r.Version != 2 {
		return Invalid("x402Version is neither 1 nor 2")
	}
	if _, err := e.Node(r.Network); err != nil {
		return err
	}
	if r.Amount.IsZero() {
		return Invalid("amount is 0")
	}
	if r.MaxTimeout > 0 && r.MaxTimeout < MinValidity {
		return Invalid("maxTimeoutSeconds is below %d: nobody could settle that in time",
			MinValidity/time.Second)
	}
	if err := PayableAsset(r, asset); err != nil {
		return err
	}
	if e.ofVaults && r.Charge != nil {
		return Invalid("servers of MPP take no signature of a contract")
	}
	return e.PayablePayee(r, asset)
}

// PayableToken refuses a token that is not the registry's.
func PayableToken(r x402.Requirement, asset x402.AssetInfo) error {
	if foreign.IsGateway(r) { // another domain, and a signature that is good for a week
		return foreign.Refusal(foreign.Of(r))
	}
	if r.Scheme != x402.Tempo && asset.IsTIP20() {
		return Invalid("tokens of Tempo are paid by MPP's tempo/charge alone")
	}
	if r.Network != asset.Network || !message.SameAddress(r.Asset, asset.Address) {
		return x402.Errorf(x402.UntrustedAsset, "the asset asked for is not the one in the registry").
			WithDetail("asset", x402.Brief(r.Asset))
	}
	return nil
}

// PayableAsset compares the requirement with what the registry knows of the token, for EIP-3009.
func PayableAsset(r x402.Requirement, asset x402.AssetInfo) error {
	if err := PayableToken(r, asset); err != nil {
		return err
	}
	if asset.Permit2Only {
		return Invalid("the asset has no EIP-3009, and the seller does not ask for Permit2")
	}
	if _, err := message.DomainSeparator(asset); err != nil {
		e := Invalid("the registry's entry of the asset is not usable: %v", err)
		e.WithCommand(x402.Command("policy", "seal"), "The token "+asset.Address+" in config.toml lacks its "+
			"EIP-712 name and version: please add them, and seal the rules.")
		return e.WithHint("the person gives the asset its EIP-712 name and version in config.toml")
	}
	for _, must := range []struct{ key, value, reason string }{
		{"assetTransferMethod", "eip3009", "only eip3009 is signed"},
		{"name", asset.Name, "it is not the registry's EIP-712 name of the asset"},
		{"version", asset.Version, "it is not the registry's EIP-712 version of the asset"},
	} {
		if sent, present := r.Extra[must.key]; present && !isJSONString(sent, must.value) {
			return Invalid("extra.%s: %s", must.key, must.reason).
				WithHint("it would have to be %q or absent", must.value).
				WithDetail("sent", x402.Brief(string(sent)))
		}
	}
	return nil
}

// PayablePayee refuses addresses that money must not go to.
func (e *Exact) PayablePayee(r x402.Requirement, asset x402.AssetInfo) error {
	self, err := e.Self()
	if err != nil {
		return err
	}
	payee, err := message.ParseAddress(r.PayTo)
	switch {
	case err != nil:
		return Invalid("payTo is %v", err).WithDetail("payTo", x402.Brief(r.PayTo))
	case payee == common.Address{}:
		return Invalid("payTo is the zero address")
	case payee == self || payee == e.vaults[r.Network]:
		return Invalid("payTo is this wallet's own address")
	case message.SameAddress(payee.Hex(), asset.Address):
		return Invalid("payTo is the token's contract")
	}
	return nil
}

// Funds reads the third budget layer at the latest block: what the owner's vault lets the agent
// spend, or what lies at the agent's own address, with what it may take from an owner's account. It errs with
// RPC_ERROR, or CHECK_FAILED when the node serves another chain, and for a vault with NO_DELEGATION or
// DELEGATE_MISMATCH; a node that is silent is never a zero.
func (e *Exact) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	n, err := e.Node(network)
	if err != nil {
		return x402.Funds{}, err
	}
	self, err := e.Self()
	if err != nil {
		return x402.Funds{}, err
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil || asset.Network != network {
		return x402.Funds{}, Internal("an asset of another network, or without an address", err)
	}
	if e.ofVaults {
		return e.vaultFunds(ctx, n, asset)
	}
	if rule, named := e.allowances[network]; named {
		return e.allowanceFunds(ctx, n, rule, asset)
	}
	readAt := e.now()
	word, err := n.Read(ctx, token, Latest, SelectBalanceOf, message.Word(self))
	if err != nil {
		return x402.Funds{}, err
	}
	balance := message.AmountOf(word)
	return x402.Funds{Source: self.Hex(), Balance: balance, Free: balance, ReadAt: readAt}, nil
}

// Invalid makes an INVALID_REQUIREMENT. Nothing that a seller wrote goes into its message.
func Invalid(format string, args ...any) *x402.Error {
	return &x402.Error{Code: x402.InvalidRequirement, Message: fmt.Sprintf(format, args...)}
}

func Internal(what string, cause error) *x402.Error {
	return &x402.Error{Code: x402.Internal, Message: what, Err: cause}
}

func isJSONString(raw json.RawMessage, want string) bool {
	var sent *string
	return json.Unmarshal(raw, &sent) == nil && sent != nil && *sent == want
}
