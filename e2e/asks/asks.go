// Package asks is for tests that ask a signer for the messages of each way to pay.
package asks

import (
	"context"
	"encoding/json"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	allowance "x402-wallet/scheme/allowance/check"
	batch "x402-wallet/scheme/batch/check"
	exact "x402-wallet/scheme/exact/check"
	permit2 "x402-wallet/scheme/permit2/check"
	tempo "x402-wallet/scheme/tempo/check"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

type Asks func(ctx context.Context, d onchain.Draft) ([]byte, error)

// draftOf is a message for so many signatures of EVM.
func draftOf(payment string, object []byte, err error, signatures int) (onchain.Draft, error) {
	return onchain.Draft{Payment: payment, Message: object, Length: 65 * signatures}, err
}

func (a Asks) ask(ctx context.Context, d onchain.Draft, err error) ([65]byte, []byte, error) {
	if err != nil {
		return [65]byte{}, nil, err
	}
	all, err := a(ctx, d)
	if err != nil {
		return [65]byte{}, nil, err
	}
	return [65]byte(all), all[65:], nil
}

func (a Asks) SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error) {
	object, err := payload.EncodeAuthorization(t.Authorization)
	d, err := draftOf(t.Payment, object, err, 1)
	signature, _, err := a.ask(ctx, d, err)
	return signature, err
}

// SignPermit2 asks for a transfer by Permit2, with the approval that goes with it, if there is one.
func (a Asks) SignPermit2(ctx context.Context, p message.PermitDraft) (permit, approval [65]byte, err error) {
	object, err := EncodePermit(p)
	number := 1
	if p.Approval != nil || p.Transaction != nil {
		number = 2
	}
	d, err := draftOf(p.Payment, object, err, number)
	permit, rest, err := a.ask(ctx, d, err)
	copy(approval[:], rest)
	return permit, approval, err
}

func EncodePermit(p message.PermitDraft) ([]byte, error) {
	asked := permit2.Permit{Approval: permit2.ApprovalOf(p.Approval, p.Transaction)}
	object, err := payload.EncodePermit2Authorization(p.Authorization)
	if err != nil {
		return nil, err
	}
	asked.Authorization = object
	return json.Marshal(asked)
}

// SignPull asks for a transfer from an owner's account to the agent's own.
func (a Asks) SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error) {
	object, err := allowance.Encode(p)
	d, err := draftOf(payment, object, err, 1)
	signature, _, err := a.ask(ctx, d, err)
	return signature, err
}

// SignTempo asks for a transfer on Tempo.
func (a Asks) SignTempo(ctx context.Context, payment string, t x402.TempoTransfer) ([65]byte, error) {
	object, err := tempo.Encode(t)
	d, err := draftOf(payment, object, err, 1)
	signature, _, err := a.ask(ctx, d, err)
	return signature, err
}

// SignChannel asks for a voucher, and for the deposit that goes with it, if there is one.
func (a Asks) SignChannel(ctx context.Context, m message.Channel) (s message.Signatures, err error) {
	object, err := batch.Encode(m)
	number := 1
	if m.Deposit != nil {
		number = 2
	}
	if m.Deposit != nil && (m.Deposit.Approval != nil || m.Deposit.Transaction != nil) {
		number = 3
	}
	d, err := draftOf(m.Payment, object, err, number)
	voucher, rest, err := a.ask(ctx, d, err)
	s.Voucher = voucher
	copy(s.Approval[:], rest[copy(s.Deposit[:], rest):])
	return s, err
}

// Transaction is a payment on Solana that is ready to be signed.
type Transaction struct {
	Payment string
	exact.Solana
}

func (a Asks) SignSolana(ctx context.Context, t Transaction) (signature [64]byte, err error) {
	object, err := t.Encode()
	if err != nil {
		return signature, err
	}
	made, err := a(ctx, onchain.Draft{Payment: t.Payment, Message: object, Length: len(signature)})
	copy(signature[:], made)
	return signature, err
}

func (a Asks) SignIn(ctx context.Context, payment string, m x402.SignIn) ([]byte, error) {
	text, err := m.Text()
	if err != nil {
		return nil, err
	}
	d := onchain.Draft{Payment: payment, Message: []byte(text), Length: 65}
	if x402.IsSolana(m.ChainID) {
		d.Length = 64
	}
	return a(ctx, d)
}
