package evm

import (
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rlp"

	"x402-wallet/x402/money"
)

// transaction is one of type 2 (EIP-1559) that moves none of the network's own money.
type transaction struct {
	chainID, nonce, gas uint64
	tip, maxFee         money.Amount // wei for each gas
	to                  []byte       // 20 bytes; empty: it makes a contract
	data                []byte
}

// encode writes it (EIP-2718), with its signature where it is signed.
func (t transaction) encode(signature ...any) ([]byte, error) {
	big := func(a money.Amount) *big.Int { word := a.Bytes32(); return new(big.Int).SetBytes(word[:]) }
	fields := []any{t.chainID, t.nonce, big(t.tip), big(t.maxFee), t.gas, t.to, uint64(0), t.data, []any{}}
	encoded, err := rlp.EncodeToBytes(append(fields, signature...))
	return append([]byte{2}, encoded...), err
}

// signed is the transaction with a signature of from, r ‖ s ‖ v with v 27 or 28, and its hash.
func (t transaction) signed(signature [65]byte, from string) (encoded []byte, hash string, err error) {
	signer, err := t.signer(signature)
	if err != nil || !sameAddress(signer.Hex(), from) {
		return nil, "", internal("the transaction's signature is not that of its account", err)
	}
	encoded, err = t.encode(uint64(signature[64]-27), new(big.Int).SetBytes(signature[:32]),
		new(big.Int).SetBytes(signature[32:64]))
	if err != nil {
		return nil, "", internal("encoding the transaction", err)
	}
	return encoded, hashOf(encoded), nil
}

// signer is whose signature of the transaction it is, r ‖ s ‖ v with v 27 or 28.
func (t transaction) signer(signature [65]byte) (common.Address, error) {
	unsigned, err := t.encode()
	if err != nil {
		return common.Address{}, err
	}
	return signerOf(crypto.Keccak256Hash(unsigned), signature)
}

// hashOf is the hash of a signed transaction by its bytes.
func hashOf(signed []byte) string { return crypto.Keccak256Hash(signed).Hex() }

// gasMargin is what is added to the node's estimates, in percent: the state may change until the
// transaction is mined.
const gasMargin = 25

// maxGas is above what a block of any chain has.
const maxGas = 1 << 40

// estimateGas has the node simulate a transaction. rpc.Refused says of the error that it would fail.
func (n *node) estimateGas(ctx context.Context, from, to string, data []byte) (uint64, error) {
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

// transactionCount is the nonce that an account's next transaction has at a block.
func (n *node) transactionCount(ctx context.Context, account, tag string) (uint64, error) {
	var count hexutil.Uint64
	err := n.Call(ctx, &count, "eth_getTransactionCount", account, tag)
	return uint64(count), err
}

// fees are what a transaction may pay for each gas, in wei: the tip that the node suggests, and twice
// today's base fee with it, as wallets do.
func (n *node) fees(ctx context.Context) (most, tip money.Amount, err error) {
	var suggested *hexutil.Big
	if err := n.Call(ctx, &suggested, "eth_maxPriorityFeePerGas"); err != nil {
		return most, tip, err
	}
	var head *struct {
		BaseFee *hexutil.Big `json:"baseFeePerGas"`
	}
	if err := n.Call(ctx, &head, "eth_getBlockByNumber", latest, false); err != nil {
		return most, tip, err
	}
	if head == nil || head.BaseFee == nil || suggested == nil {
		return most, tip, n.Failed("eth_getBlockByNumber",
			errors.New("the fees of a block (EIP-1559) are missing"))
	}
	sum := new(big.Int).Add(suggested.ToInt(), new(big.Int).Lsh(head.BaseFee.ToInt(), 1))
	most, fits := amountOfBig(sum)
	tip, tipFits := amountOfBig(suggested.ToInt())
	if !fits || !tipFits {
		return most, tip, n.Failed("eth_maxPriorityFeePerGas", errors.New("fees that no transaction has"))
	}
	return most, tip, nil
}

func amountOfBig(n *big.Int) (money.Amount, bool) {
	if n.Sign() < 0 || n.BitLen() > 256 {
		return money.Amount{}, false
	}
	return amountOf(n.FillBytes(make([]byte, 32))), true
}
