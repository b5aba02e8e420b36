package evm

import (
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402/money"
)

// gasMargin is what is added to the node's estimates, in percent: the state may change until the
// transaction is mined.
const gasMargin = 25

// maxGas is above what a block of any chain has.
const maxGas = 1 << 40

// EstimateGas has the node simulate a transaction. rpc.Refused says of the error that it would fail.
func (n *Node) EstimateGas(ctx context.Context, from, to string, data []byte) (uint64, error) {
	message := map[string]any{"from": from, "data": hexutil.Bytes(data)}
	if to != "" {
		message["to"] = to
	}
	var gas hexutil.Uint64
	if err := n.Call(ctx, &gas, "eth_estimateGas", message); err != nil {
		return 0, err
	}
	if uint64(gas) > maxGas {
		return 0, n.Failed("eth_estimateGas", errors.New("gas that no transaction has"))
	}
	return uint64(gas) + uint64(gas)*gasMargin/100, nil
}

// TransactionCount is the nonce that an account's next transaction has at a block.
func (n *Node) TransactionCount(ctx context.Context, account, tag string) (uint64, error) {
	var count hexutil.Uint64
	err := n.Call(ctx, &count, "eth_getTransactionCount", account, tag)
	return uint64(count), err
}

// Fees are what a transaction may pay for each gas, in wei: the tip that the node suggests, and twice
// today's base fee with it, as wallets do.
func (n *Node) Fees(ctx context.Context) (most, tip money.Amount, err error) {
	var suggested *hexutil.Big
	if err := n.Call(ctx, &suggested, "eth_maxPriorityFeePerGas"); err != nil {
		return most, tip, err
	}
	var head *struct {
		BaseFee *hexutil.Big `json:"baseFeePerGas"`
	}
	if err := n.Call(ctx, &head, "eth_getBlockByNumber", Latest, false); err != nil {
		return most, tip, err
	}
	if head == nil || head.BaseFee == nil || suggested == nil {
		return most, tip, n.Failed("eth_getBlockByNumber",
			errors.New("the fees of a block (EIP-1559) are missing"))
	}
	sum := new(big.Int).Add(suggested.ToInt(), new(big.Int).Lsh(head.BaseFee.ToInt(), 1))
	most, fits := message.AmountOfBig(sum)
	tip, tipFits := message.AmountOfBig(suggested.ToInt())
	if !fits || !tipFits {
		return most, tip, n.Failed("eth_maxPriorityFeePerGas", errors.New("fees that no transaction has"))
	}
	return most, tip, nil
}
