package payload

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

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
		By3009    *wire3009   `json:"erc3009Authorization,omitempty"`
		ByPermit2 *wirePermit `json:"permit2Authorization,omitempty"`
	} `json:"authorization"`
}

type wire3009 struct {
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Salt        string `json:"salt"`
	Signature   string `json:"signature"`
}

type wirePermit struct {
	From      string        `json:"from"`
	Permitted permittedJSON `json:"permitted"`
	Spender   string        `json:"spender"`
	Nonce     string        `json:"nonce"`
	Deadline  string        `json:"deadline"`
	Witness   struct {
		Channel string `json:"channelId"`
	} `json:"witness"`
	Signature string `json:"signature"`
}

// The payload's types.
const (
	typeDeposit = "deposit"
	typeVoucher = "voucher"
	typeRefund  = "refund"
)

// EncodeChannel is the payload of a message; without signatures it is what is read back before it is signed.
func EncodeChannel(m message.Channel, s message.Signatures) (json.RawMessage, error) {
	id, err := message.ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return nil, err
	}
	p := channelPayload{Type: typeVoucher, Config: m.Config, Voucher: wireVoucher{
		ID: message.Hex(id[:]), Ceiling: m.Ceiling.String(), Signature: message.Hex(s.Voucher[:])}}
	d := m.Deposit
	if m.Brought != nil {
		d, s.Deposit = &m.Brought.Deposit, m.Brought.Signature
	}
	if d != nil {
		p.Type, p.Deposit = typeDeposit, encodeDeposit(id, m.Config, *d, message.Hex(s.Deposit[:]))
	}
	return json.Marshal(p)
}

func encodeDeposit(id common.Hash, of x402.ChannelConfig, d message.Deposit, signature string) *wireDeposit {
	w := &wireDeposit{Amount: d.Value.String()}
	if !d.ByPermit2 {
		w.Authorization.By3009 = &wire3009{ValidAfter: "0", ValidBefore: fmt.Sprint(d.ValidBefore),
			Salt: message.Hex(d.Salt[:]), Signature: signature}
		return w
	}
	p := &wirePermit{From: of.Payer, Permitted: permittedJSON{Token: of.Token, Amount: w.Amount},
		Spender: message.PermitCollector, Nonce: message.AmountOf(d.Salt[:]).String(),
		Deadline: fmt.Sprint(d.ValidBefore), Signature: signature}
	p.Witness.Channel = message.Hex(id[:])
	w.Authorization.ByPermit2 = p
	return w
}

func EncodeRefund(id common.Hash, of x402.ChannelConfig, v x402.ChannelVoucher) (json.RawMessage, error) {
	return json.Marshal(channelPayload{Type: typeRefund, Config: of,
		Voucher: wireVoucher{ID: message.Hex(id[:]),
			Ceiling: v.Ceiling.String(), Signature: v.Signature}})
}

// DecodeChannel reads a payload strictly, of a deposit or a voucher: what it would have a facilitator do.
func DecodeChannel(asset x402.AssetInfo, payload []byte) (m message.Channel, s message.Signatures,
	err error) {
	var p channelPayload
	if err := x402.DecodeStrict(payload, message.MaxPayload, &p); err != nil {
		return m, s, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	m.Asset, m.Config = asset, p.Config
	id, err := message.ChannelID(asset.Network, p.Config)
	if err == nil && p.Voucher.ID != message.Hex(id[:]) {
		err = errors.New("another channel's id")
	}
	if err == nil {
		m.Ceiling, err = money.ParseAmount(p.Voucher.Ceiling)
	}
	if err == nil {
		err = message.DecodeHex(s.Voucher[:], p.Voucher.Signature)
	}
	isDeposit := p.Type == typeDeposit && p.Deposit != nil
	isVoucher := p.Type == typeVoucher && p.Deposit == nil
	if err == nil && !isVoucher && !isDeposit {
		err = errors.New("neither a voucher nor a deposit")
	}
	if err == nil && isDeposit {
		m.Deposit, s.Deposit, err = p.Deposit.read(p.Voucher.ID, p.Config)
	}
	if err != nil {
		return m, s, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	return m, s, nil
}

// read reads a deposit, which is signed in one way alone.
func (w wireDeposit) read(id string, of x402.ChannelConfig) (*message.Deposit, [65]byte, error) {
	a, permit := w.Authorization.By3009, w.Authorization.ByPermit2
	switch {
	case a != nil && permit == nil:
		return a.read(w.Amount)
	case a == nil && permit != nil:
		return permit.read(w.Amount, id, of)
	}
	return nil, [65]byte{}, errors.New("a deposit without an authorization, or with two")
}

func (a wire3009) read(amount string) (d *message.Deposit, signature [65]byte, err error) {
	value, errValue := money.ParseAmount(amount)
	before, errBefore := message.ParseSeconds(a.ValidBefore)
	d = &message.Deposit{Value: value, ValidBefore: before}
	if a.ValidAfter != "0" {
		err = errors.New("a deposit that begins later")
	}
	err = errors.Join(err, errValue, errBefore, message.DecodeHex(d.Salt[:], a.Salt),
		message.DecodeHex(signature[:], a.Signature))
	return d, signature, err
}

// read reads a deposit by Permit2, which has to be the channel's own: what is said twice is the same.
func (p wirePermit) read(amount, id string, of x402.ChannelConfig) (d *message.Deposit, signature [65]byte,
	err error) {
	value, errValue := money.ParseAmount(amount)
	nonce, errNonce := money.ParseAmount(p.Nonce)
	deadline, errDeadline := message.ParseSeconds(p.Deadline)
	from, errFrom := message.Address(p.From)
	token, errToken := message.Address(p.Permitted.Token)
	spender, errSpender := message.Address(p.Spender)
	isOwn := message.SameAddress(from, of.Payer) && message.SameAddress(token, of.Token) &&
		spender == message.PermitCollector && p.Permitted.Amount == amount && p.Witness.Channel == id
	if !isOwn {
		err = errors.New("a permit of another payer, token, amount or channel, or for another contract")
	}
	err = errors.Join(err, errValue, errNonce, errDeadline, errFrom, errToken, errSpender,
		message.DecodeHex(signature[:], p.Signature))
	return &message.Deposit{Value: value, ValidBefore: deadline, Salt: nonce.Bytes32(), ByPermit2: true},
		signature, err
}
