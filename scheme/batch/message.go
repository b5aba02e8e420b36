package batch

import (
	"encoding/json"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// The scheme "batch-settlement" (x402-foundation, scheme_batch_settlement_evm.md): a deposit into a contract
// that everybody uses, by ReceiveWithAuthorization of the token (EIP-3009), or by Permit2 where the seller
// asks for that, and vouchers out of it. The agent signs the vouchers, and is the payer too; or the payer is
// an owner who funds the channel (ownersdeposit.go).
// What lies in a channel can go to its receiver as far as vouchers promise it, and back to the payer, and
// nowhere else.

// Refund asks a seller to give back what is not charged: the newest voucher that it charged, under
// another name. It promises nothing new.
func (c *Contract) Refund(network string, of x402.ChannelConfig,
	v x402.ChannelVoucher) (json.RawMessage, error) {
	id, err := message.ChannelID(network, of)
	if err != nil {
		return nil, err
	}
	if !message.IsOwnVoucher(network, id, v, c.Address()) {
		return nil, evm.Internal("the voucher to refund by is none of this channel", nil)
	}
	return payload.EncodeRefund(id, of, v)
}

// VoucherAlone is a payload without its deposit, for one that the chain has. It promises nothing new.
func (c *Contract) VoucherAlone(network string, sent json.RawMessage) (json.RawMessage, error) {
	m, signed, err := payload.DecodeChannel(x402.AssetInfo{Network: network}, sent)
	if err != nil {
		return nil, evm.Internal("our own payload cannot be read", err)
	}
	m.Deposit = nil
	return payload.EncodeChannel(m, signed)
}

func (c *Contract) draftChannel(o onchain.Order) (m message.Channel, err error) {
	of := o.Channel
	m = message.Channel{Payment: o.Payment, Asset: o.Asset, Config: of.Config, Number: of.Number,
		Ceiling: of.Ceiling, Amount: o.Requirement.Amount, Shown: of.Shown}
	if of.Owners != nil {
		m.Brought, err = readOwners(*of.Owners)
		if err != nil {
			return m, err
		}
	}
	if !of.Deposit.IsZero() {
		m.Amount = of.Deposit
		m.Deposit = &message.Deposit{Value: of.Deposit, ByPermit2: o.Requirement.ByPermit2(),
			ValidBefore: o.Now.Unix() + int64(o.Validity/time.Second)}
		m.Deposit.Salt, err = c.Random32()
	}
	return m, err
}
