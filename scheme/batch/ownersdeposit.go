package batch

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A channel that an owner funds: its payer is their account, and the agent signs the vouchers alone. What an
// owner signs is one message of EIP-712, the token's ReceiveWithAuthorization to the contract's collector.
// The agent's next call brings it with its voucher, as the reference client does, and the seller's
// facilitator puts both on the chain: nobody but it pays gas, and the seller knows of the deposit at once,
// which of one that is made by a transaction of the owner's it may not for minutes.

// OwnersTime is how long an owner's deposit may be brought after it is signed.
const OwnersTime = 24 * time.Hour

// DraftOwners is a deposit of an amount, without a signature.
func (c *Contract) DraftOwners(amount money.Amount, now time.Time) (d x402.OwnersDeposit, err error) {
	if amount.IsZero() || !message.FitsChannel(amount) {
		return d, x402.Errorf(x402.InvalidArgument, "a deposit is above 0, and has 128 bits at most")
	}
	salt, err := c.Random32()
	if err != nil {
		return d, err
	}
	return x402.OwnersDeposit{Value: amount, ValidBefore: now.Add(OwnersTime).Unix(),
		Salt: message.Hex(salt[:])}, nil
}

// TypedData is what an owner signs for a deposit, as wallets take it (eth_signTypedData_v4).
func (c *Contract) TypedData(asset x402.AssetInfo, of x402.ChannelConfig, d x402.OwnersDeposit) (
	json.RawMessage, error) {
	draft, err := readDraft(d)
	if err != nil {
		return nil, err
	}
	a, err := draft.Authorization(asset.Network, of)
	if err != nil {
		return nil, evm.Internal("the deposit", err)
	}
	chain, known := x402.ChainID(asset.Network)
	if !known {
		return nil, evm.Internal("a network without a chain's number", nil)
	}
	return json.Marshal(map[string]any{
		"types": map[string]any{"EIP712Domain": typeMembers(message.DomainType),
			"ReceiveWithAuthorization": typeMembers(payload.ReceiveType)},
		"primaryType": "ReceiveWithAuthorization",
		"domain": map[string]any{"name": asset.Name, "version": asset.Version, "chainId": chain,
			"verifyingContract": asset.Address},
		"message": map[string]any{"from": a.From, "to": a.To, "value": a.Value.String(), "validAfter": "0",
			"validBefore": strconv.FormatInt(a.ValidBefore, 10),
			"nonce":       "0x" + hex.EncodeToString(a.Nonce[:])},
	})
}

type typeMember struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// typeMembers are those of a type of EIP-712, as it is written where it is hashed: Name(kind name,…).
func typeMembers(encoded string) (list []typeMember) {
	_, members, _ := strings.Cut(strings.TrimSuffix(encoded, ")"), "(")
	for member := range strings.SplitSeq(members, ",") {
		kind, name, _ := strings.Cut(member, " ")
		list = append(list, typeMember{Name: name, Type: kind})
	}
	return list
}

// Signed is a deposit with its owner's signature, if it is that: r ‖ s ‖ v, v 27 or 28.
func (c *Contract) Signed(asset x402.AssetInfo, of x402.ChannelConfig, d x402.OwnersDeposit,
	signature [65]byte) (x402.OwnersDeposit, error) {
	draft, err := readDraft(d)
	if err != nil {
		return d, err
	}
	if err := payload.CheckDeposit(asset, of, draft, signature); err != nil {
		return d, x402.Errorf(x402.InvalidArgument, "the signature is not that of %s over this deposit",
			of.Payer)
	}
	d.Signature = message.Hex(signature[:])
	return d, nil
}

// readDraft reads what a deposit says beside its signature.
func readDraft(d x402.OwnersDeposit) (draft message.Deposit, err error) {
	draft = message.Deposit{Value: d.Value, ValidBefore: d.ValidBefore}
	if err := message.DecodeHex(draft.Salt[:], d.Salt); err != nil {
		return draft, evm.Internal("the salt of the owner's deposit", err)
	}
	return draft, nil
}

func readOwners(d x402.OwnersDeposit) (*message.SignedDeposit, error) {
	draft, err := readDraft(d)
	if err != nil {
		return nil, err
	}
	out := &message.SignedDeposit{Deposit: draft}
	if err := message.DecodeHex(out.Signature[:], d.Signature); err != nil {
		return nil, evm.Internal("the signature of the owner's deposit", err)
	}
	return out, nil
}

// OwnersUsed reports whether an owner's deposit was made, or taken back, at the latest block.
func (c *Contract) OwnersUsed(ctx context.Context, network string, of x402.ChannelConfig,
	d x402.OwnersDeposit) (bool, error) {
	draft, err := readDraft(d)
	if err != nil {
		return false, err
	}
	return c.isDeposited(ctx, network, of, draft)
}

// IsBrought reports whether a payload has a deposit, an owner's or our own, that was made or taken back, at
// the latest block.
func (c *Contract) IsBrought(ctx context.Context, network string, sent json.RawMessage) (bool, error) {
	m, _, err := payload.DecodeChannel(x402.AssetInfo{Network: network}, sent)
	if err != nil {
		return false, evm.Internal("our own payload cannot be read", err)
	}
	if m.Deposit == nil {
		return false, nil
	}
	return c.isDeposited(ctx, network, m.Config, *m.Deposit)
}

func (c *Contract) isDeposited(ctx context.Context, network string, of x402.ChannelConfig,
	draft message.Deposit) (bool, error) {
	e, err := message.Channel{Asset: x402.AssetInfo{Network: network, Address: of.Token}, Config: of,
		Deposit: &draft}.Evidence()
	if err != nil {
		return false, err
	}
	return c.permits.IsUsed(ctx, e)
}

// neverExpires is what the chain cannot say of a voucher in a channel of an owner's: that nothing is left
// for it. The owner may deposit again, and then it is good again.
func neverExpires(s x402.Status) x402.Status {
	return x402.Status{State: x402.Open, Note: fmt.Sprintf("%s; its owner may deposit again", s.Note)}
}
