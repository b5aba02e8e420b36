package batch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	batchcheck "x402-wallet/scheme/batch/check"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
	"x402-wallet/x402/channelterms"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Contract signs for the contract of channels on every configured eip155 network, and reads it. It keeps no
// book of what was promised: Channels does. It is safe for concurrent use.
type Contract struct {
	*evm.Exact
	permits *permit2.Payer // for deposits by Permit2
	longest time.Duration  // what withdrawDelay may be
}

// NewContract makes a Contract. It pays through channels whose money can be asked back in so much time.
func NewContract(permits *permit2.Payer, longest time.Duration) *Contract {
	return &Contract{Exact: permits.Exact, permits: permits, longest: longest}
}

// Payable says why r cannot be paid through a channel, or nil. It does no I/O; its errors are those of
// Exact.Payable.
func (c *Contract) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Scheme != x402.BatchSettlement || r.Version != 2 {
		return evm.Invalid("scheme is not batch-settlement of version 2").WithDetail("scheme",
			x402.Brief(r.Scheme))
	}
	if _, err := c.Node(r.Network); err != nil {
		return err
	}
	if r.Amount.IsZero() || !message.FitsChannel(r.Amount) {
		return evm.Invalid("amount is 0, or has more than 128 bits")
	}
	if r.MaxTimeout > 0 && r.MaxTimeout < evm.MinValidity {
		return evm.Invalid("maxTimeoutSeconds is below %d: nobody could settle that in time",
			evm.MinValidity/time.Second)
	}
	payable := evm.PayableAsset
	if r.ByPermit2() {
		payable = evm.PayableToken
	}
	if err := payable(r, asset); err != nil {
		return err
	}
	self, err := c.Self()
	if err != nil {
		return err
	}
	if err := c.PayablePayee(r, asset); err != nil {
		return err
	}
	t, err := channelterms.Of(r)
	if err != nil {
		return evm.Invalid("%v", err)
	}
	authorizer, err := message.ParseAddress(t.ReceiverAuthorizer)
	switch {
	case err != nil || authorizer == common.Address{} || authorizer == self:
		return evm.Invalid("extra.receiverAuthorizer is no address of the seller's")
	case t.WithdrawDelay > c.longest:
		e := evm.Invalid("the seller would keep a deposit for %s after it is asked back, and the owner "+
			"allows %s", t.WithdrawDelay, c.longest).WithDetail("withdrawDelay", t.WithdrawDelay.String())
		return e.WithHint("a seller that asks for policy.channel_delay or less is paid")
	}
	return nil
}

// Config is the channel of this wallet with who asks in r, funded by payer: "" is this wallet, another is an
// owner's account. The salt is never random, so that a lost book is no lost channel: "" is 0.
func (c *Contract) Config(r x402.Requirement, asset x402.AssetInfo, payer, salt string) (
	config x402.ChannelConfig, id string, err error) {
	self, err := c.Self()
	if err != nil {
		return config, "", err
	}
	from := self
	if payer != "" {
		if from, err = message.ParseAddress(payer); err != nil || from == (common.Address{}) {
			return config, "", x402.Errorf(x402.InvalidArgument, "the owner %s is no address",
				x402.Quote(payer))
		}
	}
	t, err := channelterms.Of(r)
	if err != nil {
		return config, "", evm.Invalid("%v", err)
	}
	receiver, errReceiver := message.ParseAddress(r.PayTo)
	authorizer, errAuthorizer := message.ParseAddress(t.ReceiverAuthorizer)
	token, errToken := message.ParseAddress(asset.Address)
	for _, err := range []error{errReceiver, errAuthorizer, errToken} {
		if err != nil {
			return config, "", evm.Invalid("an address of the channel: %v", err)
		}
	}
	config = x402.ChannelConfig{Payer: from.Hex(), PayerAuthorizer: self.Hex(), Receiver: receiver.Hex(),
		ReceiverAuthorizer: authorizer.Hex(), Token: token.Hex(),
		WithdrawDelay: int64(t.WithdrawDelay / time.Second), Salt: cmp.Or(salt, common.Hash{}.Hex())}
	hash, err := message.ChannelID(r.Network, config)
	return config, hash.Hex(), err
}

// DepositFunds are those that the agent deposits from: with what Permit2 may move of them where the seller
// asks for Permit2.
func (c *Contract) DepositFunds(ctx context.Context, r x402.Requirement, asset x402.AssetInfo) (x402.Funds,
	error) {
	if r.ByPermit2() {
		return c.permits.Funds(ctx, r.Network, asset)
	}
	return c.Funds(ctx, r.Network, asset)
}

// OwnVoucher reports whether a voucher of a channel is signed by this wallet.
func (c *Contract) OwnVoucher(network, id string, v x402.ChannelVoucher) bool {
	var hash common.Hash
	return message.DecodeHex(hash[:], id) == nil && message.IsOwnVoucher(network, hash, v, c.Address())
}

// Authorize signs the voucher that o.Channel orders, and its deposit, with the approval that a deposit by
// Permit2 needs. As of Exact: the signer is asked once, and only after the bytes to send were read back and
// compared with the order.
func (c *Contract) Authorize(ctx context.Context, o onchain.Order) (a onchain.Authorization, err error) {
	if o.Channel == nil {
		return a, evm.Internal("an order without a channel", nil)
	}
	if err := c.Payable(o.Requirement, o.Asset); err != nil {
		return a, err
	}
	if err := c.mayDeposit(ctx, o); err != nil {
		return a, err
	}
	m, err := c.draftChannel(o)
	if err != nil {
		return a, err
	}
	unsigned, err := payload.EncodeChannel(m, message.Signatures{})
	if err != nil {
		return a, evm.Internal("encoding the voucher", err)
	}
	if err := c.verifyChannel(unsigned, o); err != nil {
		return a, err
	}
	if err := c.approveDeposit(ctx, o, &m); err != nil {
		return a, err
	}
	signatures, err := c.askForVoucher(ctx, m)
	if err != nil {
		return a, fmt.Errorf("signing the voucher: %w", err)
	}
	made, err := payload.EncodeChannel(m, signatures)
	if err != nil {
		return a, evm.Internal("encoding the payload", err)
	}
	got, shown, err := payload.DecodeChannel(o.Asset, made)
	if err == nil {
		err = payload.CheckChannel(got, shown)
	}
	if err != nil {
		return a, evm.Internal("our own signature does not recover to our address; it is dropped", err)
	}
	a = onchain.Authorization{Payload: made,
		Voucher: &x402.ChannelVoucher{Ceiling: m.Ceiling, Signature: message.Hex(signatures.Voucher[:])}}
	a.Evidence, err = m.Evidence()
	if err == nil && m.Deposit != nil && m.Deposit.ByPermit2 {
		a.Extensions, err = c.approvalOf(m, signatures.Approval)
	}
	return a, err
}

// mayDeposit says why the deposit of an order must not even be drafted, or nil.
func (c *Contract) mayDeposit(ctx context.Context, o onchain.Order) error {
	if o.Channel.Owners != nil {
		return channelterms.ForOwners(o.Requirement)
	}
	if o.Channel.Deposit.IsZero() {
		return nil
	}
	if o.Validity < evm.MinValidity || o.Validity > evm.MaxValidity {
		return evm.Invalid("a validity of %s: it is neither below %s nor above %s", o.Validity,
			evm.MinValidity, evm.MaxValidity)
	}
	n, err := c.Node(o.Requirement.Network)
	if err != nil {
		return err
	}
	return n.ReadyAt(ctx, o.Now)
}

// approveDeposit adds to a deposit by Permit2 the approval that has to be signed with it.
func (c *Contract) approveDeposit(ctx context.Context, o onchain.Order, m *message.Channel) error {
	d := m.Deposit
	if d == nil || !d.ByPermit2 {
		return nil
	}
	n, err := c.Node(o.Requirement.Network)
	if err != nil {
		return err
	}
	permit, err := d.Permit(n.Network, m.Config)
	if err != nil {
		return err
	}
	d.Approval, d.Transaction, err = c.permits.Approved(ctx, n, o, permit)
	return err
}

// approvalOf is the signed approval of a deposit by Permit2, as it goes beside the payload.
func (c *Contract) approvalOf(m message.Channel, signature [65]byte) (map[string]json.RawMessage, error) {
	d, err := m.PermitDraft()
	if err != nil {
		return nil, err
	}
	return c.permits.Extensions(d, signature)
}

// askForVoucher has a voucher signed, and the deposit that goes with it.
func (c *Contract) askForVoucher(ctx context.Context, m message.Channel) (s message.Signatures, err error) {
	object, err := batchcheck.Encode(m)
	if err != nil {
		return s, evm.Internal("encoding the voucher", err)
	}
	digests, err := payload.ChannelDigests(m)
	if err != nil {
		return s, err
	}
	signatures, err := c.AskSigner(ctx, m.Payment, object, digests...)
	if err != nil {
		return s, err
	}
	for i, into := range []*[65]byte{&s.Voucher, &s.Deposit, &s.Approval}[:len(signatures)] {
		*into = signatures[i]
	}
	return s, nil
}

// verifyChannel decodes the bytes to send as a stranger would, and compares them with the order.
func (c *Contract) verifyChannel(sent []byte, o onchain.Order) error {
	got, unsigned, err := payload.DecodeChannel(o.Asset, sent)
	if err != nil {
		return evm.Internal("our own payload cannot be read", err)
	}
	again, err := payload.EncodeChannel(got, unsigned)
	if err != nil || !bytes.Equal(again, sent) {
		return evm.Internal("our own payload says more than was read of it", err)
	}
	payer := o.Channel.Config.Payer
	config, _, err := c.Config(o.Requirement, o.Asset, payer, o.Channel.Salt)
	if err != nil {
		return err
	}
	deposit, before, latest := money.Amount{}, int64(0), o.Now.Add(o.Validity)
	ordered := o.Channel.Deposit
	if got.Deposit != nil {
		deposit, before = got.Deposit.Value, got.Deposit.ValidBefore
	}
	mayDeposit := got.Deposit == nil || message.SameAddress(payer, c.Address())
	if owners := o.Channel.Owners; owners != nil {
		ordered, latest, mayDeposit = owners.Value, o.Now.Add(OwnersTime), true
		if !o.Channel.Deposit.IsZero() || got.Deposit == nil ||
			payload.CheckDeposit(o.Asset, config, *got.Deposit, unsigned.Deposit) != nil {
			mayDeposit = false
		}
	}
	isTimely := before > o.Now.Unix() && before <= latest.Unix()
	isAsked := got.Deposit == nil || got.Deposit.ByPermit2 == o.Requirement.ByPermit2()
	for _, must := range []struct {
		field string
		holds bool
	}{
		{"channelConfig", got.Config == config && got.Config == o.Channel.Config},
		{"maxClaimableAmount", got.Ceiling == o.Channel.Ceiling && !got.Ceiling.IsZero() &&
			got.Ceiling.Cmp(o.Requirement.Amount) >= 0},
		{"payer", mayDeposit},
		{"deposit", deposit == ordered && message.FitsChannel(deposit)},
		{"validBefore", got.Deposit == nil || isTimely},
		{"authorization", isAsked},
	} {
		if !must.holds {
			return evm.Internal(fmt.Sprintf(
				"our own payload differs from the order in %s; nothing was signed", must.field), nil)
		}
	}
	return nil
}
