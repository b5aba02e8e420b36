package message

import (
	"errors"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The contracts, which are at the same addresses on every network.
const (
	BatchContract = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003" // x402BatchSettlement
	// batchCollector takes deposits by EIP-3009 and hands them on to the channel that their nonce names.
	batchCollector = "0x4020806089470a89826cB9fB1f4059150b550004"
	// PermitCollector has deposits moved by Permit2, to the channel that their witness names.
	PermitCollector = "0x4020425FAf3B746C082C2f942b4E5159887B0005"
)

// The EIP-712 domain and types, spelled as they are hashed.
const (
	batchName, batchVersion = "x402 Batch Settlement", "1"
	channelType             = "ChannelConfig(address payer,address payerAuthorizer,address receiver," +
		"address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
	voucherType = "Voucher(bytes32 channelId,uint128 maxClaimableAmount)"
)

// maxCeiling is how many bytes an amount in a channel has: it is a uint128.
const maxCeiling = 16

// Channel is what is signed for one call that is paid through a channel, with all that a signer
// needs to judge it by itself.
type Channel struct {
	Payment string         // its id in the ledger
	Asset   x402.AssetInfo // the token, and the deposit's EIP-712 domain
	Config  x402.ChannelConfig
	Number  uint64       // of the vouchers signed in the channel
	Ceiling money.Amount // what the voucher promises in all
	Amount  money.Amount // what the payment's row holds: the deposit, or what the voucher adds
	Deposit *Deposit
	Shown   *x402.ChannelVoucher // an older voucher of ours, which allows for a ceiling that we do not know
	Brought *SignedDeposit       // the owner's, which goes beside the voucher; nil: none
}

// Deposit brings money into the channel of its message, by EIP-3009 or by Permit2.
type Deposit struct {
	Value       money.Amount
	ValidBefore int64    // Unix seconds; by Permit2 its deadline
	Salt        [32]byte // by Permit2 its nonce
	ByPermit2   bool
	// the approval that goes with one by Permit2, as of a PermitDraft
	Approval    *Permit
	Transaction *ApprovalGas
}

// Authorization is the deposit's message: its nonce names the channel, so that the money can go into no
// other.
func (d Deposit) Authorization(network string, c x402.ChannelConfig) (a Authorization3009, err error) {
	id, err := ChannelID(network, c)
	if err != nil {
		return a, err
	}
	return Authorization3009{From: c.Payer, To: batchCollector, Value: d.Value, ValidBefore: d.ValidBefore,
		Nonce: crypto.Keccak256Hash(id[:], d.Salt[:])}, nil
}

// Permit is the deposit's message by Permit2: its witness names the channel.
func (d Deposit) Permit(network string, c x402.ChannelConfig) (a Permit2Authorization, err error) {
	id, err := ChannelID(network, c)
	return Permit2Authorization{From: c.Payer, Token: c.Token, Amount: d.Value, Spender: PermitCollector,
		Channel: id, Nonce: d.Salt, Deadline: d.ValidBefore}, err
}

// PermitDraft is what is signed for a deposit by Permit2, without its digest.
func (m Channel) PermitDraft() (d PermitDraft, err error) {
	d = PermitDraft{Payment: m.Payment, Asset: m.Asset, Approval: m.Deposit.Approval,
		Transaction: m.Deposit.Transaction}
	d.Authorization, err = m.Deposit.Permit(m.Asset.Network, m.Config)
	return d, err
}

// SignedDeposit is a deposit with its payer's signature.
type SignedDeposit struct {
	Deposit
	Signature [65]byte
}

// Signatures are r ‖ s ‖ v with v 27 or 28; Deposit and Approval are zero where there is none.
type Signatures struct{ Voucher, Deposit, Approval [65]byte }

// ID is the channel's: the EIP-712 hash of its config.
func ChannelID(network string, c x402.ChannelConfig) (id common.Hash, err error) {
	domain, err := batchDomain(network)
	if err != nil {
		return id, err
	}
	words := [][]byte{crypto.Keccak256([]byte(channelType))}
	for _, text := range []string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		address, err := ParseAddress(text)
		if err != nil {
			return id, err
		}
		words = append(words, Word(address))
	}
	var salt [32]byte
	if err := DecodeHex(salt[:], c.Salt); err != nil || c.WithdrawDelay < 0 || c.WithdrawDelay >= 1<<40 {
		return id, errors.New("not a channel's salt or delay")
	}
	words = append(words, WordOfUint(uint64(c.WithdrawDelay)), salt[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], crypto.Keccak256(words...)), nil
}

func batchDomain(network string) (common.Hash, error) {
	return DomainSeparator(x402.AssetInfo{Network: network, Address: BatchContract, Name: batchName,
		Version: batchVersion})
}

func VoucherDigest(network string, id common.Hash, ceiling money.Amount) (digest [32]byte, err error) {
	domain, err := batchDomain(network)
	value := ceiling.Bytes32()
	if err == nil && !FitsChannel(ceiling) {
		err = errors.New("a ceiling of more than 128 bits")
	}
	message := crypto.Keccak256(crypto.Keccak256([]byte(voucherType)), id[:], value[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), err
}

func FitsChannel(a money.Amount) bool {
	value := a.Bytes32()
	return [32 - maxCeiling]byte(value[:32-maxCeiling]) == [32 - maxCeiling]byte{}
}

// IsOwnVoucher reports whether a voucher of a channel has the signature of a key.
func IsOwnVoucher(network string, id common.Hash, v x402.ChannelVoucher, signer string) bool {
	var signature [65]byte
	digest, err := VoucherDigest(network, id, v.Ceiling)
	if err != nil || DecodeHex(signature[:], strings.ToLower(v.Signature)) != nil {
		return false
	}
	by, err := SignerOf(digest, signature)
	return err == nil && SameAddress(by.Hex(), signer)
}

// Evidence is what the chain is asked by, what became of the deposit or of the voucher.
func (m Channel) Evidence() (e x402.Evidence, err error) {
	id, err := ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return e, err
	}
	e = x402.Evidence{Network: m.Asset.Network, Asset: m.Asset.Address, Payer: m.Config.Payer,
		PayTo: m.Config.Receiver, Amount: m.Amount, Channel: id.Hex(), Ceiling: m.Ceiling, Number: m.Number}
	d := m.Deposit
	if d == nil {
		return e, nil
	}
	e.ValidBefore, e.ExpiresAt = d.ValidBefore, time.Unix(d.ValidBefore, 0).UTC()
	if d.ByPermit2 { // which moves the money to the contract itself
		e.Way, e.PayTo, e.Nonce = x402.Permit2, BatchContract, Hex(d.Salt[:])
		return e, nil
	}
	a, err := d.Authorization(m.Asset.Network, m.Config)
	e.PayTo, e.Nonce = a.To, Hex(a.Nonce[:])
	return e, err
}
