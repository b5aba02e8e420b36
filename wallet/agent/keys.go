package agent

import (
	"context"
	"encoding/hex"
	"strings"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// EVMSigner signs on EVM chains with the keys of an account. Every signature is r ‖ s ‖ v with v 27 or 28.
type EVMSigner interface {
	Address() string // EIP-55
	SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error)
	SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte, err error)
	SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error)
	SignChannel(ctx context.Context, m message.Channel) (message.Signatures, error)
}

// SolanaSigner signs on Solana with the key of an account.
type SolanaSigner interface {
	Address() string // base58
	SignTransfer(ctx context.Context, d decode.Draft) ([64]byte, error)
}

// Keys are those of an account, as what they sign asks for them.
type Keys struct {
	EVM    EVMSigner
	Solana SolanaSigner
	SignIn func(ctx context.Context, text string) ([]byte, error) // as wallet.Account has it
}

// KeysOf are those of an account of a wallet in this process.
func KeysOf(a *wallet.Account) Keys {
	return Keys{EVM: evmKeys{a}, Solana: solanaKeys{a}, SignIn: a.SignIn}
}

// The wallet knows nothing of ours, and signs only what it has read itself: here its keys get the forms that
// the chains' packages ask for.
type (
	evmKeys    struct{ account *wallet.Account }
	solanaKeys struct{ account *wallet.Account }
)

func (k evmKeys) Address() string {
	_, address := k.account.Addresses()
	return address
}

func (k evmKeys) SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error) {
	chain, ok := x402.ChainID(t.Asset.Network)
	if !ok {
		return [65]byte{}, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := t.Authorization
	return k.account.SignEVM(ctx, wallet.TransferWithAuthorization{
		ChainID: chain, Token: t.Asset.Address, Name: t.Asset.Name, Version: t.Asset.Version,
		From: a.From, To: a.To, Value: a.Value.Bytes32(), ValidAfter: uint64(a.ValidAfter),
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce, OfVault: t.OfVault,
	})
}

func (k evmKeys) SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error) {
	return k.account.SignPull(ctx, wallet.PullTransaction{
		ChainID: p.ChainID, Nonce: p.Nonce, Gas: p.Gas, Tip: p.Tip.Bytes32(), MaxFee: p.MaxFee.Bytes32(),
		Token: p.Token, Owner: p.Owner, Amount: p.Amount.Bytes32(),
	})
}

func (k evmKeys) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	chain, ok := x402.ChainID(d.Asset.Network)
	if !ok {
		return permit, approval, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := d.Authorization
	t := wallet.PermitTransfer{ChainID: chain, Token: a.Token, From: a.From, To: a.To,
		Value: a.Amount.Bytes32(), NotBefore: uint64(a.ValidAfter), Deadline: uint64(a.Deadline),
		Nonce: a.Nonce, Facilitator: a.Facilitator}
	if d.Approval != nil {
		t.Approval = &wallet.TokenApproval{Name: d.Asset.Name, Version: d.Asset.Version,
			Nonce: d.Approval.Nonce.Bytes32()}
	}
	if g := d.Transaction; g != nil {
		t.ApprovalGas = &wallet.ApprovalGas{Nonce: g.Nonce, Gas: g.Gas, Tip: g.Tip.Bytes32(),
			MaxFee: g.MaxFee.Bytes32()}
	}
	return k.account.SignPermit2(ctx, t)
}

func (k evmKeys) SignChannel(ctx context.Context, m message.Channel) (s message.Signatures, err error) {
	chain, ok := x402.ChainID(m.Asset.Network)
	_, self := k.account.Addresses()
	c := m.Config
	if !ok || c.PayerAuthorizer != self {
		return s, x402.Errorf(x402.Internal, "the channel is none of this wallet's")
	}
	of, err := PaymentChannel(chain, c)
	if err != nil {
		return s, err
	}
	s.Voucher, err = k.account.SignVoucher(ctx, of, m.Ceiling.Bytes32())
	if err != nil || m.Deposit == nil {
		return s, err
	}
	s.Deposit, err = k.account.SignDeposit(ctx, wallet.ChannelDeposit{Channel: of, Name: m.Asset.Name,
		Version: m.Asset.Version, Value: m.Deposit.Value.Bytes32(),
		ValidBefore: uint64(m.Deposit.ValidBefore), Salt: m.Deposit.Salt})
	return s, err
}

// PaymentChannel is a channel as package wallet hashes it.
func PaymentChannel(chain uint64, c x402.ChannelConfig) (of wallet.PaymentChannel, err error) {
	of = wallet.PaymentChannel{ChainID: chain, Receiver: c.Receiver, ReceiverAuthorizer: c.ReceiverAuthorizer,
		Token: c.Token, Delay: uint64(c.WithdrawDelay)}
	if c.Payer != c.PayerAuthorizer {
		of.Payer = c.Payer
	}
	salt, err := hex.DecodeString(strings.TrimPrefix(c.Salt, "0x"))
	if err != nil || len(salt) != len(of.Salt) || c.WithdrawDelay < 0 {
		return of, x402.Errorf(x402.Internal, "the channel's salt or delay is none")
	}
	of.Salt = [32]byte(salt)
	return of, nil
}

func (k solanaKeys) Address() string {
	address, _ := k.account.Addresses()
	return address
}

func (k solanaKeys) SignTransfer(ctx context.Context, d decode.Draft) ([64]byte, error) {
	return k.account.SignSolana(ctx, d.Message)
}
