// Package schemetest is a way to pay that exists in tests alone: a cheque, which a bank of the test's cashes.
// It shows what a new way to pay takes: this folder, and one line in package app.
//
// What must stay true: nothing of the program names it.
package schemetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// Name is the scheme's.
const Name = "cheque"

// Way is a scheme.Way.
type Way struct{ scheme.Plain }

func (Way) Name() string { return Name }

// WhyNot implements scheme.Way: banks take cheques of whole cents alone.
func (Way) WhyNot(_ scheme.Call, o scheme.Option) error {
	if o.Token.Dollars(o.Amount)%10_000 != 0 {
		return x402.Errorf(x402.InvalidRequirement, "a cheque is of whole cents")
	}
	return nil
}

// Account writes cheques: a pay.Scheme.
type Account struct {
	Signer onchain.Signer
	Bank   *Bank
	// Write changes a cheque before it is signed, as a faulty builder would. It may be nil.
	Write func(a *message.Authorization3009)
}

// Cheque is what a seller is shown.
type Cheque struct {
	Cheque    json.RawMessage `json:"cheque"` // from, to, value, validAfter, validBefore, nonce
	Signature string          `json:"signature"`
}

func (*Account) Payable(r x402.Requirement, asset x402.AssetInfo) error {
	if r.Version != 2 || r.Amount.IsZero() || !message.SameAddress(r.Asset, asset.Address) {
		return x402.Errorf(x402.InvalidRequirement, "nobody writes such a cheque")
	}
	return nil
}

func (a *Account) Funds(context.Context, string, x402.AssetInfo) (x402.Funds, error) {
	balance := a.Bank.Balance()
	return x402.Funds{Source: a.Signer.Address(), Balance: balance, Free: balance, ReadAt: time.Now()}, nil
}

func (a *Account) Authorize(ctx context.Context, o onchain.Order) (out onchain.Authorization, err error) {
	written := message.Authorization3009{From: a.Signer.Address(), To: o.Requirement.PayTo,
		Value: o.Requirement.Amount, ValidBefore: o.Now.Add(o.Validity).Unix()}
	_, _ = rand.Read(written.Nonce[:]) // it never fails
	if a.Write != nil {
		a.Write(&written)
	}
	object, err := json.Marshal(map[string]string{"from": written.From, "to": written.To,
		"value": written.Value.String(), "validAfter": "0", "nonce": message.Hex(written.Nonce[:]),
		"validBefore": strconv.FormatInt(written.ValidBefore, 10)})
	if err != nil {
		return out, err
	}
	digest, err := payload.Digest(o.Asset, written)
	if err != nil {
		return out, err
	}
	signature, err := a.Signer.Sign(ctx, onchain.Draft{Payment: o.Payment, Message: object,
		Signs: [][]byte{digest[:]}, Length: 65})
	if err != nil {
		return out, err
	}
	out.Evidence = message.Transfer{Asset: o.Asset, Authorization: written}.Evidence()
	out.Payload, err = json.Marshal(Cheque{object, message.Hex(signature)})
	return out, err
}

func (a *Account) Status(_ context.Context, e x402.Evidence) (x402.Status, error) {
	return a.Bank.status(e), nil
}
