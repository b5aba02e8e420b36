package permit2

import (
	"bytes"
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/rpc"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// What Permit2 may move out of the agent's own account is approved on the chain, by a transaction of that
// account, which pays its gas (approve, ERC-20). It is made at the owner's word: by the command "delegation
// permit2", with the passphrase, or for one payment, where a seller sends it and the owner's rules let it be
// signed (gasOfApproval).

// unlimited is the least of what tokens take for an approval without a limit, which payments do not use up:
// 2^96-1, in those that count in 96 bits.
var unlimited = new(big.Int).SetBytes(bytes.Repeat([]byte{0xff}, 12))

// ReadPermitted reads the agent's account: what it has of an asset, what of that Permit2 may move, and its
// coins. Errors: RPC_ERROR.
func (p *Payer) ReadPermitted(ctx context.Context, asset x402.AssetInfo) (a onchain.OwnAccount, err error) {
	n, err := p.Node(asset.Network)
	if err != nil {
		return a, err
	}
	self, err := p.Self()
	if err != nil {
		return a, err
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil {
		return a, evm.Internal("an asset without an address", err)
	}
	a.Network, a.Address, a.Asset = n.Network, self.Hex(), token.Hex()
	return a, evm.Together(
		func() (err error) { a.Permitted, err = p.allowance(ctx, n.Network, asset); return err },
		func() error {
			word, err := n.Read(ctx, token, evm.Latest, evm.SelectBalanceOf, message.Word(self))
			a.Balance = message.AmountOf(word)
			return err
		},
		func() (err error) { a.Gas, err = n.Coins(ctx, self, evm.Latest); return err })
}

// Approve prepares the transaction by which Permit2 may move an amount of an asset out of the agent's
// account, whatever it might before; 0: nothing any more. Errors: those of approveTransaction;
// INSUFFICIENT_FUNDS where the agent cannot pay the gas, POLICY_DENIED where that would be more than max_gas.
func (p *Payer) Approve(ctx context.Context, asset x402.AssetInfo, amount money.Amount) (
	t onchain.OwnerTransaction, err error) {
	n, err := p.Node(asset.Network)
	if err != nil {
		return t, err
	}
	if err := n.Ready(ctx); err != nil {
		return t, err
	}
	t, coins, err := p.approveTransaction(ctx, n, asset, amount)
	if err != nil {
		return t, err
	}
	cost, network := t.MaxCost(), x402.Title(t.Network)
	rule := p.AllowanceOn(t.Network)
	switch {
	case rule != nil && cost.Cmp(rule.MaxGas) > 0:
		return t, x402.Errorf(x402.PolicyDenied, "the approval would cost up to %s of gas on %s, and "+
			"max_gas allows %s", evm.InCoins(cost), network, evm.InCoins(rule.MaxGas)).
			WithHint("nothing was signed; wait until gas costs less, or raise max_gas in config.toml")
	case coins.Cmp(cost) < 0:
		return t, x402.Errorf(x402.InsufficientFunds, "the agent's account on %s has %s, and the approval "+
			"takes up to %s of gas", network, evm.InCoins(coins), evm.InCoins(cost)).
			WithHint("nothing was signed; send some of the network's coin to %s", t.From)
	}
	return t, nil
}

// approveTransaction prepares the transaction by which Permit2 may move an amount of an asset out of the
// agent's account, and says what coins that has. Errors: INVALID_ARGUMENT for an amount that tokens take for
// no limit, CHECK_FAILED where it would fail, where another transaction of the account is under way, or
// where there is no Permit2; RPC_ERROR.
func (p *Payer) approveTransaction(ctx context.Context, n *evm.Node, asset x402.AssetInfo,
	amount money.Amount) (t onchain.OwnerTransaction, coins money.Amount, err error) {
	self, err := p.Self()
	if err != nil {
		return t, coins, err
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil {
		return t, coins, evm.Internal("an asset without an address", err)
	}
	word := amount.Bytes32()
	if new(big.Int).SetBytes(word[:]).Cmp(unlimited) >= 0 {
		return t, coins, x402.Errorf(x402.InvalidArgument, "tokens take so much for an approval without a "+
			"limit").WithHint("nothing was signed; approve what you mean to spend")
	}
	t = onchain.OwnerTransaction{Network: n.Network, ChainID: n.ChainID, From: self.Hex(), To: token.Hex(),
		Does: "say what Permit2 may move",
		Data: payload.ApproveData(common.HexToAddress(message.Permit2Address), amount)}
	var waiting uint64
	var code hexutil.Bytes
	err = evm.Together(
		func() error { return n.Call(ctx, &code, "eth_getCode", message.Permit2Address, evm.Latest) },
		func() (err error) { t.Nonce, err = n.TransactionCount(ctx, t.From, evm.Latest); return err },
		func() (err error) { waiting, err = n.TransactionCount(ctx, t.From, evm.Pending); return err },
		func() (err error) { coins, err = n.Coins(ctx, self, evm.Latest); return err },
		func() (err error) { t.MaxFee, t.Tip, err = n.Fees(ctx); return err },
		func() (err error) { t.Gas, err = n.EstimateGas(ctx, t.From, t.To, t.Data); return err })
	network := x402.Title(t.Network)
	switch {
	case rpc.Refused(err):
		return t, coins, x402.Errorf(x402.CheckFailed, "the token on %s does not take the approval", network).
			WithDetail("reason", x402.Brief(err.Error())).
			WithHint("nothing was signed; some tokens want it to be 0 (x402-wallet delegation permit2 " +
				"--revoke) before it is another amount")
	case err != nil:
		return t, coins, err
	case len(code) == 0:
		return t, coins, x402.Errorf(x402.CheckFailed, "there is no Permit2 on %s", network).
			WithHint("nothing was signed; nobody can be paid by Permit2 there")
	case waiting > t.Nonce:
		return t, coins, x402.Errorf(x402.CheckFailed, "another transaction of the agent's account on %s is "+
			"under way", network).WithHint("nothing was signed; try again in a minute")
	}
	return t, coins, nil
}

// GasOf is what a transaction that is in a block cost, in wei; 0 where the node does not say.
func (p *Payer) GasOf(ctx context.Context, network, hash string) (money.Amount, error) {
	n, err := p.Node(network)
	if err != nil {
		return money.Amount{}, err
	}
	var r *struct {
		TransactionHash common.Hash    `json:"transactionHash"`
		GasUsed         hexutil.Uint64 `json:"gasUsed"`
		GasPrice        *hexutil.Big   `json:"effectiveGasPrice"`
	}
	err = n.Call(ctx, &r, "eth_getTransactionReceipt", hash)
	if err != nil || r == nil || r.GasPrice == nil {
		return money.Amount{}, err
	}
	price, fits := message.AmountOfBig(r.GasPrice.ToInt())
	if !fits || r.TransactionHash != common.HexToHash(hash) {
		return money.Amount{}, n.Failed("eth_getTransactionReceipt",
			errors.New("another transaction's receipt"))
	}
	return price.Times(uint64(r.GasUsed)), nil
}

// The extension erc20ApprovalGasSponsoring: a facilitator brings to the chain, in front of the payment, a
// transaction of the payer's own that approves Permit2, and sends the payer coins for its gas where they
// lack. It is for tokens that know no EIP-2612. Where the owner says what it may cost (approval_gas) one is
// signed, for Permit2 alone and for exactly the payment's amount; the reference client's has no limit. It
// has an account nonce: any later transaction of the account ends it, and it ends one that was signed with
// the same.

// gasOfApproval prepares the transaction that approves a payment. Errors: those of approveTransaction, and
// POLICY_DENIED where its gas may cost more than the owner allows.
func (p *Payer) gasOfApproval(ctx context.Context, n *evm.Node, asset x402.AssetInfo, amount money.Amount) (
	*message.ApprovalGas, error) {
	t, _, err := p.approveTransaction(ctx, n, asset, amount)
	if err != nil {
		return nil, err
	}
	most := p.approvalGas[n.Network]
	if cost := t.MaxCost(); cost.Cmp(most) > 0 {
		return nil, x402.Errorf(x402.PolicyDenied, "the approval that the seller would send may cost %s of "+
			"gas on %s, and approval_gas allows %s", evm.InCoins(cost), x402.Title(n.Network),
			evm.InCoins(most)).
			WithDetail("gasWei", cost).WithDetail("limit", most).
			WithHint("nothing was signed; wait until gas costs less, or the owner raises approval_gas under "+
				"[networks.%q] in config.toml", n.Network)
	}
	return &message.ApprovalGas{Nonce: t.Nonce, Gas: t.Gas, MaxFee: t.MaxFee, Tip: t.Tip}, nil
}
