package batch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// What the chain says of channels, and the way out of one without its seller.

// configTuple is ChannelConfig in the signature of a function.
const configTuple = "(address,address,address,address,address,uint40,bytes32)"

var (
	// channels(bytes32)
	selectChannels = []byte{0x7a, 0x7e, 0xbd, 0x7b}
	// pendingWithdrawals(bytes32)
	selectWithdrawals = []byte{0xb7, 0xf0, 0x6e, 0xbe}
	// initiateWithdraw(ChannelConfig,uint128)
	selectInitiate = crypto.Keccak256([]byte("initiateWithdraw(" + configTuple + ",uint128)"))[:4]
	// finalizeWithdraw(ChannelConfig)
	selectFinalize = crypto.Keccak256([]byte("finalizeWithdraw(" + configTuple + ")"))[:4]
)

// ReadChannel is a channel at the latest block. Errors: RPC_ERROR, CHECK_FAILED.
func (c *Contract) ReadChannel(ctx context.Context, network, id string) (b onchain.ChannelBalance,
	err error) {
	n, err := c.Node(network)
	if err != nil {
		return b, err
	}
	tip, err := n.Block(ctx, evm.Latest)
	if err != nil {
		return b, err
	}
	at := tip.Number.String()
	var words []byte
	err = evm.Together(
		func() (err error) { b, err = node{n}.channel(ctx, id, at); return err },
		func() (err error) { words, err = node{n}.ofChannel(ctx, selectWithdrawals, id, at); return err })
	if err != nil {
		return b, err
	}
	b.Block, b.At, b.Withdrawing = uint64(*tip.Number), tip.Time(), message.AmountOf(words[:32])
	if began := binary.BigEndian.Uint64(words[56:]); began > 0 && began < 1<<40 {
		b.WithdrawBegan = time.Unix(int64(began), 0).UTC()
	}
	return b, nil
}

// node is a network's node.
type node struct{ *evm.Node }

func (n node) channel(ctx context.Context, id, tag string) (b onchain.ChannelBalance, err error) {
	words, err := n.ofChannel(ctx, selectChannels, id, tag)
	if err == nil {
		b.Balance, b.Claimed = message.AmountOf(words[:32]), message.AmountOf(words[32:])
	}
	return b, err
}

// ofChannel asks the contract for the two words that it has of a channel: an address without code answers
// nothing, and nothing is not zero.
func (n node) ofChannel(ctx context.Context, selector []byte, id, tag string) ([]byte, error) {
	var hash common.Hash
	if err := message.DecodeHex(hash[:], id); err != nil {
		return nil, evm.Internal("a channel's id", err)
	}
	var words hexutil.Bytes
	err := n.Call(ctx, &words, "eth_call", map[string]any{"to": message.BatchContract,
		"data": hexutil.Bytes(slices.Concat(selector, hash[:]))}, tag)
	if err == nil && len(words) != 64 {
		err = n.Failed("eth_call", errors.New("the contract of channels did not answer with two words"))
	}
	return words, err
}

// Status asks the chain what became of a deposit, as of any other authorization (Exact.Status), or of a
// voucher:
//
//	of the channel                               | Status
//	---------------------------------------------+---------
//	claimed ≥ the voucher's ceiling (latest)     | Settled
//	claimed = balance at the finalized block and | Expired: nothing is left that it could take
//	the latest one, and below the ceiling        |
//	otherwise                                    | Open
//
// A voucher moves nothing by itself: what can be lost by it was counted with its deposit. In a channel that
// an owner funds it is never Expired.
func (c *Contract) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	if !e.IsVoucher() {
		return c.permits.Status(ctx, e)
	}
	n, err := c.Node(e.Network)
	if err != nil {
		return x402.Status{}, &x402.Error{Code: x402.RPCError, FixedBy: x402.ByPerson,
			Message: "the payment's network has no node in config.toml", Hint: x402.AsError(err).Hint,
			Err: err}
	}
	now, err := node{n}.channel(ctx, e.Channel, evm.Latest)
	if err != nil {
		return x402.Status{}, err
	}
	if now.Claimed.Cmp(e.Ceiling) >= 0 {
		return x402.Status{State: x402.Settled, Note: fmt.Sprintf("%s of the channel was claimed",
			now.Claimed)}, nil
	}
	if now.Claimed.Cmp(now.Balance) < 0 {
		return x402.Status{Note: fmt.Sprintf("%s of the channel was claimed, and %s is in it", now.Claimed,
			now.Balance)}, nil
	}
	end, err := n.Block(ctx, evm.Finalized)
	if err != nil {
		return x402.Status{}, err
	}
	final, err := node{n}.channel(ctx, e.Channel, end.Number.String())
	if err != nil {
		return x402.Status{}, err
	}
	if final.Claimed.Cmp(final.Balance) < 0 || final.Balance != now.Balance {
		return x402.Status{Note: "the channel is empty, which is not final yet"}, nil
	}
	expired := x402.Status{State: x402.Expired, Block: uint64(*end.Number), At: end.Time(),
		Note: "nothing is left in the channel"}
	if !message.SameAddress(e.Payer, c.Address()) {
		return neverExpires(expired), nil
	}
	return expired, nil
}

// WithdrawCall is the data of a transaction of Withdrawal: it asks back an amount, or, where that was done
// withdrawDelay ago, takes it.
func WithdrawCall(c x402.ChannelConfig, b onchain.ChannelBalance) (data []byte, err error) {
	var encoded bytes.Buffer
	for _, text := range []string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		address, err := message.ParseAddress(text)
		if err != nil {
			return nil, err
		}
		encoded.Write(message.Word(address))
	}
	var salt [32]byte
	if err := message.DecodeHex(salt[:], c.Salt); err != nil {
		return nil, err
	}
	encoded.Write(message.WordOfUint(uint64(c.WithdrawDelay)))
	encoded.Write(salt[:])
	if !b.WithdrawBegan.IsZero() {
		return slices.Concat(selectFinalize, encoded.Bytes()), nil
	}
	left := b.Balance.SubFloor(b.Claimed).Bytes32()
	return slices.Concat(selectInitiate, encoded.Bytes(), left[:]), nil
}

// Withdrawal is the transaction of WithdrawCall, not signed, with what the node says of gas. It is from the
// payer or from who signs the vouchers; the money goes to the payer either way.
func (c *Contract) Withdrawal(ctx context.Context, network, from string, of x402.ChannelConfig,
	b onchain.ChannelBalance) (onchain.OwnerTransaction, error) {
	data, err := WithdrawCall(of, b)
	if err != nil {
		return onchain.OwnerTransaction{}, evm.Internal("encoding the withdrawal", err)
	}
	does := "ask back what is left in the channel"
	if !b.WithdrawBegan.IsZero() {
		does = "take what was asked back"
	}
	return c.Estimated(ctx, onchain.OwnerTransaction{Network: network, From: from, To: message.BatchContract,
		Does: does, Data: data})
}
