package evm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/x402/onchain"
)

// v1Backdate is how long before now a V1 authorization begins: the V1 reference client does it for
// chains whose clock is behind. V2's begins at 0.
const v1Backdate = 600

// Authorize signs the payment that o orders. The signer is asked once, and only after the bytes to
// send were read back and compared with o. Errors: Payable's own; INVALID_REQUIREMENT for a
// validity outside minValidity…maxValidity; RPC_ERROR and CHECK_FAILED when the node is silent or
// serves another chain; CLOCK_SUSPECT when our clock and the node's differ; the signer's own;
// INTERNAL when our own bytes or signature are not what they must be. After any error nothing that
// was signed exists outside this function.
//
// It asks the node only for what is not known yet: its chain id once, its clock when no answer of
// the last half minute carried it. It is safe for concurrent use: each call draws its own nonce.
func (e *Exact) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	if err := e.checkOrder(o); err != nil {
		return onchain.Authorization{}, err
	}
	n, err := e.Node(o.Requirement.Network)
	if err != nil {
		return onchain.Authorization{}, err
	}
	if err := n.ReadyAt(ctx, o.Now); err != nil {
		return onchain.Authorization{}, err
	}
	auth, err := e.draft(o)
	if err != nil {
		return onchain.Authorization{}, err
	}
	object, err := e.encode(auth)
	if err != nil {
		return onchain.Authorization{}, Internal("encoding the authorization", err)
	}
	t, err := e.verifyDraft(object, o)
	if err != nil {
		return onchain.Authorization{}, err
	}
	return e.sign(ctx, object, t, o)
}

// checkOrder refuses what must not even be drafted.
func (e *Exact) checkOrder(o onchain.Order) error {
	if err := e.Payable(o.Requirement, o.Asset); err != nil {
		return err
	}
	if o.Validity < MinValidity || o.Validity > MaxValidity {
		return Invalid("a validity of %s: it is neither below %s nor above %s", o.Validity, MinValidity,
			MaxValidity)
	}
	c := o.Requirement.Charge
	if c != nil && !c.Expires.IsZero() && c.Expires.Before(o.Now.Add(MinValidity)) {
		return Invalid("the challenge ends in less than %s: nobody could settle in that time", MinValidity)
	}
	payer, err := e.payer(o.Requirement.Network)
	if err != nil {
		return err
	}
	if (o.Source != "" || e.ofVaults) && !message.SameAddress(o.Source, payer.Hex()) {
		return Internal("the order's source is not the account that is spent from", nil)
	}
	if o.Now.Unix() <= v1Backdate {
		return Internal("the order has no time", nil)
	}
	return nil
}

// draft makes the message of o with a fresh random nonce, or with that of the challenge in MPP.
func (e *Exact) draft(o onchain.Order) (a message.Authorization3009, err error) {
	payee, err := message.ParseAddress(o.Requirement.PayTo)
	if err != nil {
		return a, Invalid("payTo is %v", err)
	}
	if c := o.Requirement.Charge; c != nil {
		a.Nonce = payload.ChargeNonce(c)
	} else {
		a.Nonce, err = e.Random32()
	}
	if err != nil {
		return a, err
	}
	payer, err := e.payer(o.Requirement.Network)
	if err != nil {
		return a, err
	}
	a.From = payer.Hex()
	a.To = payee.Hex()
	a.Value = o.Requirement.Amount
	if o.Requirement.Version == 1 {
		a.ValidAfter = o.Now.Unix() - v1Backdate
	}
	a.ValidBefore = o.Now.Unix() + int64(o.Validity/time.Second)
	if c := o.Requirement.Charge; c != nil && !c.Expires.IsZero() {
		a.ValidBefore = min(a.ValidBefore, c.Expires.Unix())
	}
	return a, nil
}

// verifyDraft decodes the bytes to send as a stranger would, compares them with the order, and
// answers the decoded message with its digest: what is signed is what was checked is what is sent.
// The chain id and the contract are not in the bytes but in the digest's domain; Payable has
// compared both with the requirement.
func (e *Exact) verifyDraft(object []byte, o onchain.Order) (t message.Transfer, err error) {
	got, err := message.DecodeAuthorization(object)
	if err != nil {
		return t, Internal("our own payload cannot be read", err)
	}
	payer, err := e.payer(o.Requirement.Network)
	if err != nil {
		return t, err
	}
	now := o.Now.Unix()
	latestEnd := now + int64(o.Validity/time.Second)
	isBackdated := o.Requirement.Version == 1 && got.ValidAfter == now-v1Backdate
	for _, must := range []struct {
		field string
		holds bool
	}{
		{"from", message.SameAddress(got.From, payer.Hex())},
		{"to", message.SameAddress(got.To, o.Requirement.PayTo)},
		{"value", got.Value == o.Requirement.Amount && !got.Value.IsZero()},
		{"validAfter", got.ValidAfter == 0 || isBackdated},
		{"validBefore", got.ValidBefore <= latestEnd &&
			got.ValidBefore >= now+int64(MinValidity/time.Second)},
		{"nonce", got.Nonce != [32]byte{} &&
			(o.Requirement.Charge == nil || got.Nonce == payload.ChargeNonce(o.Requirement.Charge))},
	} {
		if !must.holds {
			return t, Internal(fmt.Sprintf("our own payload differs from the order in %s; nothing was signed",
				must.field), nil)
		}
	}
	digest, err := payload.Digest(o.Asset, got)
	if err != nil {
		return t, Internal("hashing our own payload", err)
	}
	return message.Transfer{Payment: o.Payment, Asset: o.Asset, Authorization: got, Digest: digest,
		OfVault: e.ofVaults}, nil
}

// sign asks the signer, reads the finished payload as a facilitator would, and fills the evidence
// from that reading.
func (e *Exact) sign(ctx context.Context, object []byte, t message.Transfer,
	o onchain.Order) (onchain.Authorization,
	error) {
	signatures, err := e.AskSigner(ctx, o.Payment, object, t.Digest)
	if err != nil {
		return onchain.Authorization{}, fmt.Errorf("signing the authorization: %w", err)
	}
	signature := signatures[0]
	shown, readBack := signature[:], payload.Recover
	if t.OfVault {
		readBack = payload.RecoverAgent
		shown, err = payload.Wrap(t.Authorization, signature)
		if err != nil {
			return onchain.Authorization{}, Internal("wrapping the signature", err)
		}
	}
	payload, err := payload.Encode(object, shown)
	if err != nil {
		return onchain.Authorization{}, Internal("encoding the payload", err)
	}
	agent, signed, err := readBack(o.Requirement.Network, o.Asset, payload)
	if err != nil || !message.SameAddress(agent, e.Address()) {
		return onchain.Authorization{},
			Internal("our own signature does not recover to our address; it is dropped", err)
	}
	t.Authorization = signed
	return onchain.Authorization{Payload: payload, Evidence: t.Evidence()}, nil
}

// AskSigner has a message signed: over each of the digests.
func (e *Exact) AskSigner(ctx context.Context, payment string, object []byte, digests ...[32]byte) (
	signatures [][65]byte, err error) {
	d := onchain.Draft{Payment: payment, Message: object, Length: 65 * len(digests)}
	for _, digest := range digests {
		d.Signs = append(d.Signs, digest[:])
	}
	all, err := e.signer.Sign(ctx, d)
	if err == nil && len(all) != d.Length {
		err = Internal("the signer's answer has another length than its signatures", nil)
	}
	if err != nil {
		return nil, err
	}
	for signature := range slices.Chunk(all, 65) {
		signatures = append(signatures, [65]byte(signature))
	}
	return signatures, nil
}
