package agent_test

import (
	"context"
	"encoding/json"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/evm/payload"
	allowance "x402-wallet/scheme/allowance/check"
	batch "x402-wallet/scheme/batch/check"
	exact "x402-wallet/scheme/exact/check"
	permit2 "x402-wallet/scheme/permit2/check"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// asks asks a signer for the messages of each scheme.
type asks struct {
	sign func(ctx context.Context, d onchain.Draft) ([]byte, error)
}

// remote asks an unlock agent.
type remote struct {
	*client.Client
	asks
}

func asksOf(c *client.Client) remote {
	return remote{c, asks{func(ctx context.Context, d onchain.Draft) ([]byte, error) {
		turn := *c
		turn.Before = func() bool { return true }
		return client.Signer{Remote: &turn, Local: &Recorder{}}.Sign(ctx, d)
	}}}
}

// signer is a process with a wallet, which asks the unlock agent first where it is its turn.
func (w *world) signer(keys *wallet.Wallet, c *client.Client) asks {
	guard := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: keys}
	return asks{client.Signer{Remote: c, Local: w.recorder(keys, guard, &Tally{})}.Sign}
}

// recorder is who signs and records in a process of its own.
func (w *world) recorder(keys *wallet.Wallet, guard *seal.Guard, tally *Tally) *Recorder {
	return &Recorder{Store: w.store, Guard: guard, Rules: *w.rules.Load(), Account: keys.AccountNamed,
		Now: time.Now, Tally: tally}
}

// draftOf is a message for so many signatures of EVM.
func draftOf(payment string, object []byte, err error, signatures int) (onchain.Draft, error) {
	return onchain.Draft{Payment: payment, Message: object, Length: 65 * signatures}, err
}

func (a asks) ask(ctx context.Context, d onchain.Draft, err error) ([65]byte, []byte, error) {
	if err != nil {
		return [65]byte{}, nil, err
	}
	all, err := a.sign(ctx, d)
	if err != nil {
		return [65]byte{}, nil, err
	}
	return [65]byte(all), all[65:], nil
}

func (a asks) SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error) {
	object, err := payload.EncodeAuthorization(t.Authorization)
	d, err := draftOf(t.Payment, object, err, 1)
	signature, _, err := a.ask(ctx, d, err)
	return signature, err
}

func (a asks) SignPermit2(ctx context.Context, p message.PermitDraft) (permit, approval [65]byte, err error) {
	object, err := encodePermit(p)
	number := 1
	if p.Approval != nil || p.Transaction != nil {
		number = 2
	}
	d, err := draftOf(p.Payment, object, err, number)
	permit, rest, err := a.ask(ctx, d, err)
	copy(approval[:], rest)
	return permit, approval, err
}

func encodePermit(p message.PermitDraft) ([]byte, error) {
	asked := permit2.Permit{Approval: permit2.ApprovalOf(p.Approval, p.Transaction)}
	object, err := payload.EncodePermit2Authorization(p.Authorization)
	if err != nil {
		return nil, err
	}
	asked.Authorization = object
	return json.Marshal(asked)
}

func (a asks) SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error) {
	object, err := allowance.Encode(p)
	d, err := draftOf(payment, object, err, 1)
	signature, _, err := a.ask(ctx, d, err)
	return signature, err
}

func (a asks) SignChannel(ctx context.Context, m message.Channel) (s message.Signatures, err error) {
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

// transaction is a payment on Solana that is ready to be signed.
type transaction struct {
	Payment string
	exact.Solana
}

func (a asks) SignSolana(ctx context.Context, t transaction) (signature [64]byte, err error) {
	object, err := t.Encode()
	if err != nil {
		return signature, err
	}
	made, err := a.sign(ctx, onchain.Draft{Payment: t.Payment, Message: object, Length: len(signature)})
	copy(signature[:], made)
	return signature, err
}
