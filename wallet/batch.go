package wallet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// What is signed for channels of "batch-settlement": a deposit out of this wallet's own account, by the
// collector, into a channel of its own; a voucher out of such a channel, or out of one that an owner funds;
// and the transaction by which the money comes back to who funded it. The channel is hashed here from its
// parts, so that no deposit is into a channel that pays back to somebody else.

// The contracts, which are at the same addresses on every network.
const (
	batchContract  = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003"
	batchCollector = "0x4020806089470a89826cb9fb1f4059150b550004"
)

// The EIP-712 domain of the contract of channels.
const batchName, batchVersion = "x402 Batch Settlement", "1"

// Bounds of the contract: of a channel's delay in seconds, and of amounts, which have 128 bits.
const (
	leastDelay, mostDelay = 900, 30 * 24 * 3600
	channelAmount         = 16
)

// PaymentChannel is a channel as its id is hashed. Who signs its vouchers is the agent: this wallet.
type PaymentChannel struct {
	ChainID                             uint64
	Payer                               string // an owner's account, who funds it; "": this wallet
	Receiver, ReceiverAuthorizer, Token string
	Delay                               uint64 // seconds
	Salt                                [32]byte
}

// SignVoucher signs that a channel's receiver may have ceiling of it in all (atomic units, big endian):
// r ‖ s ‖ v, as SignEVM. It unlocks the wallet. Errors: "the wallet does not sign this"; those of
// [Wallet.Unlock].
func (a *Account) SignVoucher(ctx context.Context, c PaymentChannel, ceiling [32]byte) (sig [65]byte,
	err error) {
	self := a.self().evm
	if err := c.check(self); err != nil {
		return sig, err
	}
	if !isChannelAmount(ceiling) {
		return sig, coded.Unsupported("it promises nothing, or more than a channel can hold")
	}
	o, err := c.voucherOrder(c.id(self), ceiling)
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

const voucherType = "Voucher(bytes32 channelId,uint128 maxClaimableAmount)"

func (c PaymentChannel) voucherOrder(id, ceiling [32]byte) (Order, error) {
	message := curve.HashWords(curve.Keccak256([]byte(voucherType)), id[:], ceiling[:])
	digest := [32]byte(curve.HashWords([]byte{0x19, 0x01}, batchDomain(c.ChainID), message))
	return typedOrder(digest, typedDomain(batchName, batchVersion, c.ChainID, batchContract),
		map[string]any{"channelId": hex0x(id[:]), "maxClaimableAmount": decimal(ceiling)},
		domainType, voucherType)
}

// ChannelDeposit brings money of this wallet into a channel of its own.
type ChannelDeposit struct {
	Channel       PaymentChannel
	Name, Version string   // of the token's EIP-712 domain
	Value         [32]byte // atomic units, big endian
	ValidBefore   uint64   // Unix seconds
	Salt          [32]byte
}

// SignDeposit signs EIP-3009's ReceiveWithAuthorization to the collector, whose nonce names the channel: the
// money can go into no other. Errors as of SignVoucher.
func (a *Account) SignDeposit(ctx context.Context, d ChannelDeposit) (sig [65]byte, err error) {
	if d.Channel.Payer != "" {
		return sig, coded.Unsupported("the channel is an owner's, who signs for it themselves")
	}
	seconds := uint64(max(a.wallet.now().Unix(), 0))
	if d.ValidBefore <= seconds || d.ValidBefore > seconds+uint64(maxLife/time.Second) {
		return sig, coded.Unsupported("it is not valid now, or for longer than %v", maxLife)
	}
	self := a.self().evm
	o, err := d.Order(self, self)
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, o)
}

const receiveType = "ReceiveWithAuthorization(address from,address to,uint256 value," +
	"uint256 validAfter,uint256 validBefore,bytes32 nonce)"

// Order is a deposit out of the account from, where agent signs the vouchers.
func (d ChannelDeposit) Order(agent, from string) (o Order, err error) {
	if err := d.Channel.check(agent); err != nil {
		return o, err
	}
	switch {
	case !isChannelAmount(d.Value):
		return o, coded.Unsupported("it deposits nothing, or more than a channel can hold")
	case d.Name == "" || d.Version == "":
		return o, coded.Unsupported("it names no token")
	}
	id := d.Channel.id(agent)
	domain := curve.HashWords(curve.Keccak256([]byte(domainType)), curve.Keccak256([]byte(d.Name)),
		curve.Keccak256([]byte(d.Version)), curve.UintWord(d.Channel.ChainID),
		curve.AddressWord(d.Channel.Token))
	nonce := curve.HashWords(id[:], d.Salt[:])
	message := curve.HashWords(curve.Keccak256([]byte(receiveType)), curve.AddressWord(from),
		curve.AddressWord(batchCollector),
		d.Value[:], curve.UintWord(0), curve.UintWord(d.ValidBefore), nonce)
	return typedOrder([32]byte(curve.HashWords([]byte{0x19, 0x01}, domain, message)),
		typedDomain(d.Name, d.Version, d.Channel.ChainID, d.Channel.Token),
		map[string]any{"from": from, "to": batchCollector, "value": decimal(d.Value), "validAfter": "0",
			"validBefore": number(d.ValidBefore), "nonce": hex0x(nonce)}, domainType, receiveType)
}

func isChannelAmount(a [32]byte) bool {
	return a != [32]byte{} && bytes.Equal(a[:32-channelAmount], make([]byte, 32-channelAmount))
}

func batchDomain(chainID uint64) []byte {
	return curve.HashWords(curve.Keccak256([]byte(domainType)), curve.Keccak256([]byte(batchName)),
		curve.Keccak256([]byte(batchVersion)), curve.UintWord(chainID), curve.AddressWord(batchContract))
}

// check refuses a channel in which the account self cannot sign vouchers.
func (c PaymentChannel) check(self string) error {
	var zero [32]byte
	receiver, token := curve.AddressWord(c.Receiver), curve.AddressWord(c.Token)
	authorizer := curve.AddressWord(c.ReceiverAuthorizer)
	for _, word := range [][]byte{receiver, authorizer, token} {
		if word == nil || bytes.Equal(word, zero[:]) {
			return coded.Unsupported("an address of the channel is not one")
		}
		if bytes.Equal(word, curve.AddressWord(self)) {
			return coded.Unsupported("the channel is with this wallet itself")
		}
	}
	if payer := curve.AddressWord(c.payer(self)); payer == nil || bytes.Equal(payer, zero[:]) ||
		bytes.Equal(payer, receiver) {
		return coded.Unsupported("the channel's payer is no account, or is who is paid")
	}
	if c.ChainID == 0 || c.Delay < leastDelay || c.Delay > mostDelay {
		return coded.Unsupported("the channel's network or delay is none")
	}
	if bytes.Equal(token, curve.AddressWord(batchContract)) || bytes.Equal(receiver, token) {
		return coded.Unsupported("the channel pays nobody")
	}
	return nil
}

// id is the hash of a channel that check has accepted.
func (c PaymentChannel) id(self string) [32]byte {
	config := curve.HashWords(curve.Keccak256([]byte("ChannelConfig(address payer,address payerAuthorizer,"+
		"address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)")),
		c.words(self))
	return [32]byte(curve.HashWords([]byte{0x19, 0x01}, batchDomain(c.ChainID), config))
}

func (c PaymentChannel) payer(self string) string { return cmp.Or(c.Payer, self) }

func (c PaymentChannel) words(self string) []byte {
	return slices.Concat(curve.AddressWord(c.payer(self)), curve.AddressWord(self),
		curve.AddressWord(c.Receiver),
		curve.AddressWord(c.ReceiverAuthorizer), curve.AddressWord(c.Token), curve.UintWord(c.Delay),
		c.Salt[:])
}

// Withdrawal is a transaction of EIP-1559 that asks back what is in a channel of this wallet, or takes what
// was asked back. No coin of the network moves with it, and the token's go to who funded the channel.
type Withdrawal struct {
	Channel     PaymentChannel
	Nonce, Gas  uint64
	Tip, MaxFee [32]byte // wei for each gas, big endian
	Amount      [32]byte // zero: take what was asked back
}

// SignWithdrawal signs it: r ‖ s ‖ v, v 27 or 28. Besides floats and approvals of Permit2 it is the only kind
// of transaction that the wallet's own key signs. Errors as of SignVoucher.
func (a *Account) SignWithdrawal(ctx context.Context, t Withdrawal) (sig [65]byte, err error) {
	self := a.self().evm
	if err := t.Channel.check(self); err != nil {
		return sig, err
	}
	data := append(FinalizeWithdraw(), t.Channel.words(self)...)
	if t.Amount != [32]byte{} {
		if !isChannelAmount(t.Amount) {
			return sig, coded.Unsupported("it asks for more than a channel can hold")
		}
		data = slices.Concat(InitiateWithdraw(), t.Channel.words(self), t.Amount[:])
	}
	to, err := hex.DecodeString(batchContract[2:])
	if err != nil {
		return sig, err
	}
	return a.signEVM(ctx, transactionOrder(
		EncodeTransaction(t.Channel.ChainID, t.Nonce, t.Gas, t.Tip, t.MaxFee, to, data)))
}

const channelTuple = "(address,address,address,address,address,uint40,bytes32)"

func InitiateWithdraw() []byte {
	return curve.Keccak256([]byte("initiateWithdraw(" + channelTuple + ",uint128)"))[:4]
}

func FinalizeWithdraw() []byte {
	return curve.Keccak256([]byte("finalizeWithdraw(" + channelTuple + ")"))[:4]
}
