package permit2

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/rpc"
	permit2check "x402-wallet/scheme/permit2/check"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// Payer pays by Permit2: scheme "exact" where the seller asks for that (extra.assetTransferMethod), and
// scheme "upto". The payer is the agent's own account. It shares nodes and key with the Exact it comes from.
//
// What Permit2 may move the payer has to have approved once, on the chain. Where the approval does not cover
// a payment, and the seller offers to bring one (extension eip2612GasSponsoring, or
// erc20ApprovalGasSponsoring where the owner lets it), one is signed with the payment, for exactly its
// amount.
type Payer struct {
	*evm.Exact
	approvalGas map[string]money.Amount // by network, in wei
	// EncodePermit2Authorization; a field for tests of tampering
	encode func(message.Permit2Authorization) ([]byte, error)
}

// NewPayer makes a Payer. approvalGas has, by network, the most that an approval that a seller sends may
// cost, in wei; without an entry none is signed.
func NewPayer(e *evm.Exact, approvalGas map[string]money.Amount) *Payer {
	return &Payer{Exact: e, approvalGas: approvalGas, encode: payload.EncodePermit2Authorization}
}

// Payable says why r cannot be paid by Permit2, or nil: see Exact.Payable.
func (p *Payer) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	way := r.Way()
	if (way != x402.Permit2 || r.Scheme != x402.Exact) && way != x402.Upto {
		return evm.Invalid("the option is not one that is paid by Permit2").
			WithDetail("scheme", x402.Brief(r.Scheme))
	}
	if r.Version != 2 || r.Dialect.WalletSettles() {
		return evm.Invalid("only version 2 of x402 is paid by Permit2, at sellers that settle")
	}
	if _, err := p.Node(r.Network); err != nil {
		return err
	}
	if r.Amount.IsZero() {
		return evm.Invalid("amount is 0")
	}
	if r.MaxTimeout > 0 && r.MaxTimeout < evm.MinValidity {
		return evm.Invalid("maxTimeoutSeconds is below %d: nobody could settle that in time",
			evm.MinValidity/time.Second)
	}
	if err := evm.PayableToken(r, asset); err != nil {
		return err
	}
	if err := p.PayablePayee(r, asset); err != nil {
		return err
	}
	for _, contract := range []string{message.Permit2Address, message.ExactProxy, message.UptoProxy} {
		if message.SameAddress(r.PayTo, contract) {
			return evm.Invalid("payTo is a contract of Permit2's")
		}
	}
	if way == x402.Upto {
		return payableUpto(r)
	}
	return nil
}

// payableUpto is what is asked of upto beside: that it says who settles, by Permit2, after serving.
func payableUpto(r x402.Requirement) error {
	if r.Extra["assetTransferMethod"] != nil && !r.ByPermit2() {
		return evm.Invalid("extra.assetTransferMethod: upto is signed by Permit2 only")
	}
	if flow := r.ExtraString("paymentFlow"); flow != "" && flow != "authorization" {
		return evm.Invalid("the payment flow %s is not one of upto", x402.Quote(flow))
	}
	facilitator, err := message.ParseAddress(r.ExtraString("facilitatorAddress"))
	if err != nil || facilitator == (common.Address{}) {
		return evm.Invalid("extra.facilitatorAddress, who alone may settle an upto payment, is no address")
	}
	return nil
}

// nonces(address), EIP-2612; TestSelectors derives it
var selectNonces = []byte{0x7e, 0xce, 0xbe, 0x00}

// Funds reads the third budget layer: what lies at the agent's own address, and what of it Permit2 may move.
func (p *Payer) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	type reading struct {
		allowance money.Amount
		err       error
	}
	read := make(chan reading, 1)
	go func() {
		allowance, err := p.allowance(ctx, network, asset)
		read <- reading{allowance, err}
	}()
	funds, err := p.Exact.Funds(ctx, network, asset)
	got := <-read
	if err == nil {
		err = got.err
	}
	funds.Permitted = &got.allowance
	return funds, err
}

func (p *Payer) allowance(ctx context.Context, network string, asset x402.AssetInfo) (money.Amount,
	error) {
	n, err := p.Node(network)
	if err != nil {
		return money.Amount{}, err
	}
	self, err := p.Self()
	if err != nil {
		return money.Amount{}, err
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil {
		return money.Amount{}, evm.Internal("an asset without an address", err)
	}
	word, err := n.Read(ctx, token, evm.Latest, evm.SelectAllowance, message.Word(self),
		message.Word(common.HexToAddress(message.Permit2Address)))
	return message.AmountOf(word), err
}

// Authorize signs the payment that o orders, and the approval that it needs and the seller offers to bring.
// Errors are those of Exact.Authorize, and NO_DELEGATION where Permit2 may not move the amount and nobody
// brings an approval.
func (p *Payer) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	if err := p.checkPermit(o); err != nil {
		return onchain.Authorization{}, err
	}
	n, err := p.Node(o.Requirement.Network)
	if err != nil {
		return onchain.Authorization{}, err
	}
	if err := n.ReadyAt(ctx, o.Now); err != nil {
		return onchain.Authorization{}, err
	}
	draft, object, err := p.draftPermit(o)
	if err != nil {
		return onchain.Authorization{}, err
	}
	draft.Approval, draft.Transaction, err = p.Approved(ctx, n, o, draft.Authorization)
	if err != nil {
		return onchain.Authorization{}, err
	}
	return p.signPermit(ctx, object, draft)
}

// Approved is the approval that has to be signed with a payment, of which it is checked that the chain can
// say what became of it.
func (p *Payer) Approved(ctx context.Context, n *evm.Node, o onchain.Order, a message.Permit2Authorization) (
	permit *message.Permit, transaction *message.ApprovalGas, err error) {
	err = evm.Together(
		func() (err error) { permit, transaction, err = p.approval(ctx, n, o, a); return err },
		func() error { return chain{n}.checkPermit2(ctx, a) })
	return permit, transaction, err
}

// checkPermit2 refuses to sign where there is no Permit2, by which alone the chain could say later what
// became of the payment, and what has a nonce that was used.
func (n chain) checkPermit2(ctx context.Context, a message.Permit2Authorization) error {
	payer, err := message.ParseAddress(a.From)
	if err != nil {
		return evm.Internal("the payer's own address", err)
	}
	var code hexutil.Bytes
	if err := n.Call(ctx, &code, "eth_getCode", message.Permit2Address, evm.Latest); err != nil {
		return err
	}
	if len(code) == 0 {
		return evm.Invalid("there is no Permit2 on %s", x402.Title(n.Network))
	}
	isUsed, err := n.nonceBit(ctx, permit{evm.Authorization{Payer: payer, Nonce: a.Nonce}}, evm.Latest)
	if err == nil && isUsed {
		err = evm.Internal("a nonce that was drawn at random is used", nil)
	}
	return err
}

// checkPermit refuses what must not even be drafted.
func (p *Payer) checkPermit(o onchain.Order) error {
	if err := p.Payable(o.Requirement, o.Asset); err != nil {
		return err
	}
	if o.Validity < evm.MinValidity || o.Validity > evm.MaxValidity {
		return evm.Invalid("a validity of %s: it is neither below %s nor above %s", o.Validity,
			evm.MinValidity, evm.MaxValidity)
	}
	if o.Source != "" && !message.SameAddress(o.Source, p.Address()) {
		return evm.Internal("the order's source is not the account that is spent from", nil)
	}
	if o.Now.Unix() <= 0 {
		return evm.Internal("the order has no time", nil)
	}
	return nil
}

// draftPermit makes the message of o, with a fresh random nonce, and its bytes; decodes them as a stranger
// would, and compares them with the order: what is signed is what was checked is what is sent.
func (p *Payer) draftPermit(o onchain.Order) (d message.PermitDraft, object []byte, err error) {
	r, upto := o.Requirement, o.Requirement.Way() == x402.Upto
	payee, err := message.ParseAddress(r.PayTo)
	if err != nil {
		return d, nil, evm.Invalid("payTo is %v", err)
	}
	now := o.Now.Unix()
	a := message.Permit2Authorization{From: p.Address(), To: payee.Hex(),
		Token:  common.HexToAddress(r.Asset).Hex(),
		Amount: r.Amount, Spender: message.ExactProxy, Deadline: now + int64(o.Validity/time.Second)}
	if upto {
		a.Spender = message.UptoProxy
		a.Facilitator = common.HexToAddress(r.ExtraString("facilitatorAddress")).Hex()
	}
	a.Nonce, err = p.Random32()
	if err != nil {
		return d, nil, err
	}
	if object, err = p.encode(a); err != nil {
		return d, nil, evm.Internal("encoding the permit", err)
	}
	got, err := message.DecodePermit2(object)
	if err != nil {
		return d, nil, evm.Internal("our own payload cannot be read", err)
	}
	for _, must := range []struct {
		field string
		holds bool
	}{
		{"from", message.SameAddress(got.From, p.Address())},
		{"to", message.SameAddress(got.To, r.PayTo)},
		{"token", message.SameAddress(got.Token, o.Asset.Address)},
		{"amount", got.Amount == r.Amount && !got.Amount.IsZero()},
		{"spender", got.IsUpto() == upto && (upto || message.SameAddress(got.Spender, message.ExactProxy))},
		{"facilitator", !upto || message.SameAddress(got.Facilitator, r.ExtraString("facilitatorAddress"))},
		{"validAfter", got.ValidAfter == 0},
		{"deadline", got.Deadline <= now+int64(o.Validity/time.Second) &&
			got.Deadline >= now+int64(evm.MinValidity/time.Second)},
		{"nonce", got.Nonce != [32]byte{}},
	} {
		if !must.holds {
			return d, nil, evm.Internal(fmt.Sprintf(
				"our own payload differs from the order in %s; nothing was signed", must.field), nil)
		}
	}
	digest, err := payload.Permit2Digest(o.Asset.Network, got)
	if err != nil {
		return d, nil, evm.Internal("hashing our own payload", err)
	}
	return message.PermitDraft{Payment: o.Payment, Asset: o.Asset, Authorization: got, Digest: digest},
		object, nil
}

// approval is what has to be signed with a payment so that Permit2 may move it, one of the two; nil where it
// may already.
func (p *Payer) approval(ctx context.Context, n *evm.Node, o onchain.Order,
	a message.Permit2Authorization) (*message.Permit,
	*message.ApprovalGas, error) {
	allowed, err := p.allowance(ctx, n.Network, o.Asset)
	if err != nil || allowed.Cmp(a.Amount) >= 0 {
		return nil, nil, err
	}
	_, bySignature := o.Extensions[x402.EIP2612Sponsoring]
	_, byTransaction := o.Extensions[x402.ERC20Sponsoring]
	byTransaction = byTransaction && !p.approvalGas[n.Network].IsZero()
	if bySignature {
		permit, err := p.permitFor(ctx, n, o.Asset, a)
		if !byTransaction || !x402.HasCode(err, x402.InvalidRequirement) {
			return permit, nil, err
		}
	}
	if byTransaction {
		gas, err := p.gasOfApproval(ctx, n, o.Asset, a.Amount)
		return nil, gas, err
	}
	return nil, nil, x402.Errorf(x402.NoDelegation, "Permit2 may not move what the seller asks for on %s",
		x402.Title(n.Network)).WithHint("nothing was signed").
		WithCommand(x402.Command("delegation", "permit2", "--network", n.Network,
			"--asset", o.Asset.Symbol, "--amount", a.Amount.Units(o.Asset.Decimals)), "")
}

// permitFor is the approval of a payment by EIP-2612, INVALID_REQUIREMENT where there can be none.
func (p *Payer) permitFor(ctx context.Context, n *evm.Node, asset x402.AssetInfo,
	a message.Permit2Authorization) (
	*message.Permit, error) {
	if _, err := message.DomainSeparator(asset); err != nil {
		return nil, evm.Invalid("Permit2 may not move what the seller asks for, and for the approval that "+
			"the seller would bring the registry's entry of the asset is not usable: %v", err)
	}
	token, err := message.ParseAddress(asset.Address)
	if err != nil {
		return nil, evm.Internal("an asset without an address", err)
	}
	self, err := p.Self()
	if err != nil {
		return nil, err
	}
	nonce, err := n.Read(ctx, token, evm.Latest, selectNonces, message.Word(self))
	if err != nil && rpc.Refused(err) {
		return nil, evm.Invalid("Permit2 may not move what the seller asks for, and the token takes no " +
			"signed approval (EIP-2612)")
	}
	if err != nil {
		return nil, err
	}
	return message.ApprovalOf(a, message.AmountOf(nonce)), nil
}

// signPermit asks the signer, reads the finished payload as a facilitator would, and fills the evidence from
// that reading.
func (p *Payer) signPermit(ctx context.Context, object []byte,
	d message.PermitDraft) (made onchain.Authorization,
	err error) {
	signature, approved, err := p.askForPermit(ctx, d)
	if err != nil {
		return made, fmt.Errorf("signing the permit: %w", err)
	}
	made.Payload, err = payload.EncodePermit2(object, signature)
	if err != nil {
		return made, evm.Internal("encoding the payload", err)
	}
	agent, signed, err := payload.RecoverPermit2(d.Asset.Network, made.Payload)
	if err != nil || !message.SameAddress(agent, p.Address()) || signed != d.Authorization {
		return onchain.Authorization{},
			evm.Internal("our own signature does not recover to our address; it is dropped", err)
	}
	made.Evidence = d.Evidence()
	made.Extensions, err = p.Extensions(d, approved)
	if err != nil {
		return onchain.Authorization{}, err
	}
	return made, nil
}

// Extensions bring the approval that goes with a payment.
func (p *Payer) Extensions(d message.PermitDraft, approved [65]byte) (map[string]json.RawMessage, error) {
	switch {
	case d.Approval != nil:
		return p.permitExtension(d, approved)
	case d.Transaction != nil:
		extension, err := payload.EncodeApproval(d, approved)
		return map[string]json.RawMessage{x402.ERC20Sponsoring: extension}, err
	}
	return nil, nil
}

// askForPermit has a permit signed, and the approval that goes with it.
func (p *Payer) askForPermit(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	asked := permit2check.Permit{Approval: permit2check.ApprovalOf(d.Approval, d.Transaction)}
	asked.Authorization, err = payload.EncodePermit2Authorization(d.Authorization)
	if err != nil {
		return permit, approval, err
	}
	object, err := json.Marshal(asked)
	if err != nil {
		return permit, approval, err
	}
	digests, err := payload.PermitDigests(d)
	if err != nil {
		return permit, approval, err
	}
	signatures, err := p.AskSigner(ctx, d.Payment, object, digests...)
	if err != nil {
		return permit, approval, err
	}
	if len(signatures) > 1 {
		approval = signatures[1]
	}
	return signatures[0], approval, nil
}

// permitExtension is the approval by EIP-2612, which is read as a facilitator would.
func (p *Payer) permitExtension(d message.PermitDraft, approved [65]byte) (map[string]json.RawMessage,
	error) {
	extension, err := payload.EncodePermit(d.Asset, *d.Approval, approved)
	if err != nil {
		return nil, evm.Internal("encoding the approval", err)
	}
	read, err := payload.RecoverPermit(d.Asset, extension)
	if err != nil || read != *d.Approval || !message.SameAddress(read.Owner, p.Address()) {
		return nil, evm.Internal("our own approval does not recover to our address; it is dropped", err)
	}
	return map[string]json.RawMessage{x402.EIP2612Sponsoring: extension}, nil
}
