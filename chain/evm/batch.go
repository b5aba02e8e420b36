package evm

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The scheme "batch-settlement" (x402-foundation, scheme_batch_settlement_evm.md): a deposit into a contract
// that everybody uses, by ReceiveWithAuthorization of the token (EIP-3009), and vouchers out of it. The agent
// signs the vouchers, and is the payer too; or the payer is an owner who funds the channel (batchowner.go).
// What lies in a channel can go to its receiver as far as vouchers promise it, and back to the payer, and
// nowhere else.

// The contracts, which are at the same addresses on every network.
const (
	batchContract = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003" // x402BatchSettlement
	// batchCollector takes deposits by EIP-3009 and hands them on to the channel that their nonce names.
	batchCollector = "0x4020806089470a89826cB9fB1f4059150b550004"
)

// The EIP-712 domain and types, spelled as they are hashed.
const (
	batchName, batchVersion = "x402 Batch Settlement", "1"
	channelType             = "ChannelConfig(address payer,address payerAuthorizer,address receiver," +
		"address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
	voucherType = "Voucher(bytes32 channelId,uint128 maxClaimableAmount)"
	receiveType = "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 " +
		"validAfter,uint256 validBefore,bytes32 nonce)"
)

// maxCeiling is how many bytes an amount in a channel has: it is a uint128.
const maxCeiling = 16

// ChannelSigner holds the agent's key, or asks the process that does. It is called concurrently.
type ChannelSigner interface {
	// SignChannel answers r ‖ s ‖ v of the voucher, and of the deposit where there is one.
	SignChannel(ctx context.Context, m ChannelMessage) (ChannelSignatures, error)
}

// ChannelMessage is what is signed for one call that is paid through a channel, with all that a signer
// needs to judge it by itself.
type ChannelMessage struct {
	Payment string         // its id in the ledger
	Asset   x402.AssetInfo // the token, and the deposit's EIP-712 domain
	Config  x402.ChannelConfig
	Number  uint64       // of the vouchers signed in the channel
	Ceiling money.Amount // what the voucher promises in all
	Amount  money.Amount // what the payment's row holds: the deposit, or what the voucher adds
	Deposit *ChannelDeposit
	Shown   *x402.ChannelVoucher // an older voucher of ours, which allows for a ceiling that we do not know
	Brought *SignedDeposit       // the owner's, which goes beside the voucher; nil: none
}

// ChannelDeposit brings money into the channel of its message.
type ChannelDeposit struct {
	Value       money.Amount
	ValidBefore int64 // Unix seconds
	Salt        [32]byte
}

// SignedDeposit is a deposit with its payer's signature.
type SignedDeposit struct {
	ChannelDeposit
	Signature [65]byte
}

// ChannelSignatures are r ‖ s ‖ v with v 27 or 28; Deposit is zero where there is none.
type ChannelSignatures struct{ Voucher, Deposit [65]byte }

// ID is the channel's: the EIP-712 hash of its config.
func ChannelID(network string, c x402.ChannelConfig) (id common.Hash, err error) {
	domain, err := batchDomain(network)
	if err != nil {
		return id, err
	}
	words := [][]byte{crypto.Keccak256([]byte(channelType))}
	for _, text := range []string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		address, err := parseAddress(text)
		if err != nil {
			return id, err
		}
		words = append(words, wordOf(address))
	}
	var salt [32]byte
	if err := fixedHex(salt[:], c.Salt); err != nil || c.WithdrawDelay < 0 || c.WithdrawDelay >= 1<<40 {
		return id, errors.New("not a channel's salt or delay")
	}
	words = append(words, wordOfUint(uint64(c.WithdrawDelay)), salt[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], crypto.Keccak256(words...)), nil
}

func batchDomain(network string) (common.Hash, error) {
	return domainSeparator(x402.AssetInfo{Network: network, Address: batchContract, Name: batchName,
		Version: batchVersion})
}

// voucherDigest is what is signed for a voucher.
func voucherDigest(network string, id common.Hash, ceiling money.Amount) (digest [32]byte, err error) {
	domain, err := batchDomain(network)
	value := ceiling.Bytes32()
	if err == nil && !fitsChannel(ceiling) {
		err = errors.New("a ceiling of more than 128 bits")
	}
	message := crypto.Keccak256(crypto.Keccak256([]byte(voucherType)), id[:], value[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), err
}

func fitsChannel(a money.Amount) bool {
	value := a.Bytes32()
	return [32 - maxCeiling]byte(value[:32-maxCeiling]) == [32 - maxCeiling]byte{}
}

// IsOwnVoucher reports whether a voucher of a channel has the signature of a key.
func IsOwnVoucher(network string, id common.Hash, v x402.ChannelVoucher, signer string) bool {
	var signature [65]byte
	digest, err := voucherDigest(network, id, v.Ceiling)
	if err != nil || fixedHex(signature[:], strings.ToLower(v.Signature)) != nil {
		return false
	}
	by, err := signerOf(digest, signature)
	return err == nil && sameAddress(by.Hex(), signer)
}

// authorization is the deposit's message: its nonce names the channel, so that the money can go into no
// other.
func (d ChannelDeposit) authorization(network string, c x402.ChannelConfig) (a Authorization3009, err error) {
	id, err := ChannelID(network, c)
	if err != nil {
		return a, err
	}
	return Authorization3009{From: c.Payer, To: batchCollector, Value: d.Value, ValidBefore: d.ValidBefore,
		Nonce: crypto.Keccak256Hash(id[:], d.Salt[:])}, nil
}

// digest is what its payer signs for a deposit into a channel.
func (d ChannelDeposit) digest(asset x402.AssetInfo, c x402.ChannelConfig) (digest [32]byte, err error) {
	a, err := d.authorization(asset.Network, c)
	if err != nil {
		return digest, err
	}
	return digestOf(receiveType, asset, a)
}

// isSigned refuses a deposit into a channel that is not signed by its payer.
func (d ChannelDeposit) isSigned(asset x402.AssetInfo, c x402.ChannelConfig, signature [65]byte) error {
	digest, err := d.digest(asset, c)
	if err != nil {
		return err
	}
	by, err := signerOf(digest, signature)
	if err != nil || !sameAddress(by.Hex(), c.Payer) {
		return fmt.Errorf("the deposit: %w: %w", ErrSignature, err)
	}
	return nil
}

// Evidence is what the chain is asked by, what became of the deposit or of the voucher.
func (m ChannelMessage) Evidence() (e x402.Evidence, err error) {
	id, err := ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return e, err
	}
	e = x402.Evidence{Network: m.Asset.Network, Asset: m.Asset.Address, Payer: m.Config.Payer,
		PayTo: m.Config.Receiver, Amount: m.Amount, Channel: id.Hex(), Ceiling: m.Ceiling, Number: m.Number}
	if m.Deposit != nil {
		a, err := m.Deposit.authorization(m.Asset.Network, m.Config)
		if err != nil {
			return e, err
		}
		e.PayTo, e.Nonce = a.To, "0x"+hex.EncodeToString(a.Nonce[:])
		e.ValidBefore, e.ExpiresAt = a.ValidBefore, time.Unix(a.ValidBefore, 0).UTC()
	}
	return e, nil
}

// recover refuses a voucher that is not signed by who signs for the channel, and a deposit that is not
// signed by its payer.
func (m ChannelMessage) recover(s ChannelSignatures) error {
	id, err := ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return err
	}
	digest, err := voucherDigest(m.Asset.Network, id, m.Ceiling)
	if err != nil {
		return err
	}
	by, err := signerOf(digest, s.Voucher)
	if err != nil || !sameAddress(by.Hex(), m.Config.PayerAuthorizer) {
		return fmt.Errorf("the voucher: %w: %w", ErrSignature, err)
	}
	if m.Deposit == nil {
		return nil
	}
	return m.Deposit.isSigned(m.Asset, m.Config, s.Deposit)
}

// channelPayload is the wire's, its keys in the reference client's order.
type channelPayload struct {
	Type    string             `json:"type"`
	Config  x402.ChannelConfig `json:"channelConfig"`
	Voucher wireVoucher        `json:"voucher"`
	Deposit *wireDeposit       `json:"deposit,omitempty"`
}

type wireVoucher struct {
	ID        string `json:"channelId"`
	Ceiling   string `json:"maxClaimableAmount"`
	Signature string `json:"signature"`
}

type wireDeposit struct {
	Amount        string `json:"amount"`
	Authorization struct {
		By3009 wire3009 `json:"erc3009Authorization"`
	} `json:"authorization"`
}

type wire3009 struct {
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Salt        string `json:"salt"`
	Signature   string `json:"signature"`
}

// The payload's types.
const (
	typeDeposit = "deposit"
	typeVoucher = "voucher"
	typeRefund  = "refund"
)

// encodeChannel is the payload of a message; without signatures it is what is read back before it is signed.
func encodeChannel(m ChannelMessage, s ChannelSignatures) (json.RawMessage, error) {
	id, err := ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return nil, err
	}
	p := channelPayload{Type: typeVoucher, Config: m.Config, Voucher: wireVoucher{
		ID: hexText(id[:]), Ceiling: m.Ceiling.String(), Signature: hexText(s.Voucher[:])}}
	d := m.Deposit
	if m.Brought != nil {
		d, s.Deposit = &m.Brought.ChannelDeposit, m.Brought.Signature
	}
	if d != nil {
		p.Type, p.Deposit = typeDeposit, &wireDeposit{Amount: d.Value.String()}
		p.Deposit.Authorization.By3009 = wire3009{ValidAfter: "0", ValidBefore: fmt.Sprint(d.ValidBefore),
			Salt: hexText(d.Salt[:]), Signature: hexText(s.Deposit[:])}
	}
	return json.Marshal(p)
}

// Refund asks a seller to give back what is not charged: the newest voucher that it charged, under
// another name. It promises nothing new.
func (c *Channels) Refund(network string, of x402.ChannelConfig,
	v x402.ChannelVoucher) (json.RawMessage, error) {
	id, err := ChannelID(network, of)
	if err != nil {
		return nil, err
	}
	if !IsOwnVoucher(network, id, v, c.Address()) {
		return nil, internal("the voucher to refund by is none of this channel", nil)
	}
	return encodeRefund(id, of, v)
}

// encodeRefund is the payload of a refund.
func encodeRefund(id common.Hash, of x402.ChannelConfig, v x402.ChannelVoucher) (json.RawMessage, error) {
	return json.Marshal(channelPayload{Type: typeRefund, Config: of, Voucher: wireVoucher{ID: hexText(id[:]),
		Ceiling: v.Ceiling.String(), Signature: v.Signature}})
}

// VoucherAlone is a payload without its deposit, for one that the chain has. It promises nothing new.
func (c *Channels) VoucherAlone(network string, payload json.RawMessage) (json.RawMessage, error) {
	m, signed, err := decodeChannel(x402.AssetInfo{Network: network}, payload)
	if err != nil {
		return nil, internal("our own payload cannot be read", err)
	}
	m.Deposit = nil
	return encodeChannel(m, signed)
}

// decodeChannel reads a payload strictly, of a deposit or a voucher: what it would have a facilitator do.
func decodeChannel(asset x402.AssetInfo, payload []byte) (m ChannelMessage, s ChannelSignatures, err error) {
	var p channelPayload
	if err := x402.DecodeStrict(payload, maxPayload, &p); err != nil {
		return m, s, fmt.Errorf("%w: %w", errPayload, err)
	}
	m.Asset, m.Config = asset, p.Config
	id, err := ChannelID(asset.Network, p.Config)
	if err == nil && p.Voucher.ID != hexText(id[:]) {
		err = errors.New("another channel's id")
	}
	if err == nil {
		m.Ceiling, err = money.ParseAmount(p.Voucher.Ceiling)
	}
	if err == nil {
		err = fixedHex(s.Voucher[:], p.Voucher.Signature)
	}
	isDeposit := p.Type == typeDeposit && p.Deposit != nil
	isVoucher := p.Type == typeVoucher && p.Deposit == nil
	if err == nil && !isVoucher && !isDeposit {
		err = errors.New("neither a voucher nor a deposit")
	}
	if err == nil && isDeposit {
		m.Deposit, s.Deposit, err = p.Deposit.read()
	}
	if err != nil {
		return m, s, fmt.Errorf("%w: %w", errPayload, err)
	}
	return m, s, nil
}

func (w wireDeposit) read() (d *ChannelDeposit, signature [65]byte, err error) {
	a := w.Authorization.By3009
	value, errValue := money.ParseAmount(w.Amount)
	before, errBefore := parseSeconds(a.ValidBefore)
	d = &ChannelDeposit{Value: value, ValidBefore: before}
	if a.ValidAfter != "0" {
		err = errors.New("a deposit that begins later")
	}
	err = errors.Join(err, errValue, errBefore, fixedHex(d.Salt[:], a.Salt),
		fixedHex(signature[:], a.Signature))
	return d, signature, err
}

// draftChannel makes the message of an order.
func (c *Channels) draftChannel(o x402.Order) (m ChannelMessage, err error) {
	of := o.Channel
	m = ChannelMessage{Payment: o.Payment, Asset: o.Asset, Config: of.Config, Number: of.Number,
		Ceiling: of.Ceiling, Amount: o.Requirement.Amount, Shown: of.Shown}
	if of.Owners != nil {
		m.Brought, err = readOwners(*of.Owners)
		if err != nil {
			return m, err
		}
	}
	if !of.Deposit.IsZero() {
		m.Amount = of.Deposit
		m.Deposit = &ChannelDeposit{Value: of.Deposit,
			ValidBefore: o.Now.Unix() + int64(o.Validity/time.Second)}
		if _, err := io.ReadFull(c.rand, m.Deposit.Salt[:]); err != nil {
			return m, internal("reading 32 random bytes for the salt", err)
		}
	}
	return m, nil
}
