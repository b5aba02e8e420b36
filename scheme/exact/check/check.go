// Package check decides whether a payment of the scheme exact may be signed: a transfer by EIP-3009 on EVM
// chains, a transfer of SPL tokens on Solana. MPP's charges are the same messages.
//
// What must stay true: payer, payee, asset and amount are the reserved payment's, and the message is good for
// no longer than the owner's rules allow.
package check

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mr-tron/base58"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// Check is a signing.Check.
type Check struct {
	// Vaults are the owner's vaults by network, which may pay instead of the wallet's own account.
	Vaults map[string]string
	// TokenAccounts are, by network, the only Solana account to pay from; missing: any.
	TokenAccounts map[string]string
	// Height asks the owner's node how many blocks a Solana network has. It is nil where this process built
	// the message itself.
	Height func(ctx context.Context, network string) (uint64, error)
}

func (c Check) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	if x402.IsSolana(q.Payment.Network) {
		return c.readSolana(ctx, q)
	}
	return c.readEVM(q)
}

// transfer is a signing.Message.
type transfer struct {
	signing.Basis
	message.Transfer
}

// readEVM reads the `authorization` object of EIP-3009. Its domain is the registry's.
func (c Check) readEVM(q signing.Question) (signing.Message, error) {
	got, err := message.DecodeAuthorization(q.Message)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	p, payer := q.Payment, q.Account.EVM
	isFromVault := q.Account.IsOwn() && signing.SameAddress(got.From, c.Vaults[p.Network])
	if isFromVault {
		payer = c.Vaults[p.Network]
	}
	err = signing.Compare(
		signing.Is("chain", x402.Namespace(p.Network) == "eip155"),
		signing.Is("payer", signing.SameAddress(got.From, payer) && signing.SameAddress(p.Source, payer)),
		signing.Is("payee", signing.SameAddress(got.To, p.PayTo)),
		signing.Is("amount", got.Value == p.Amount),
		signing.Is("validity", got.ValidAfter <= q.Now.Unix() && q.Lives(got.ValidBefore)))
	if err != nil {
		return nil, err
	}
	t := message.Transfer{Payment: p.ID, Asset: q.Asset, Authorization: got, OfVault: isFromVault}
	return transfer{signing.Basis{Asks: q.Costs(), Bytes: q.Message}, t}, nil
}

func (t transfer) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	chain, ok := x402.ChainID(t.Asset.Network)
	if !ok {
		return nil, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := t.Authorization
	signature, err := by.SignEVM(ctx, wallet.TransferWithAuthorization{
		ChainID: chain, Token: t.Asset.Address, Name: t.Asset.Name, Version: t.Asset.Version,
		From: a.From, To: a.To, Value: a.Value.Bytes32(), ValidAfter: uint64(a.ValidAfter),
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce, OfVault: t.OfVault,
	})
	return signature[:], err
}

func (t transfer) Signed([]byte) (history.Signed, error) {
	return history.Signed{Evidence: t.Evidence()}, nil
}

// Solana is a transaction as it is given to who signs.
type Solana struct {
	Transaction []byte        `json:"transaction"` // its message
	Evidence    x402.Evidence `json:"evidence"`    // without the signature
}

// Encode is the form that Check reads.
func (s Solana) Encode() ([]byte, error) { return json.Marshal(s) }

// splTransfer is a signing.Message.
type splTransfer struct {
	signing.Basis
	Solana
}

// readSolana reads a transaction. How long it lives its blockhash says, about 90 seconds at most.
func (c Check) readSolana(ctx context.Context, q signing.Question) (signing.Message, error) {
	var s Solana
	err := x402.DecodeStrict(q.Message, message.MaxPayload, &s)
	if err != nil {
		return nil, signing.Refuse("it cannot be read")
	}
	got, err := decode.Message(s.Transaction)
	if err != nil {
		return nil, signing.Refuse("it is not a payment's transaction")
	}
	p, e := q.Payment, s.Evidence
	destination, err := decode.AssociatedAccount(p.PayTo, q.Asset.Address, q.Asset.Token2022)
	if err != nil {
		return nil, signing.Refuse("the payee can have no token account")
	}
	var named string
	if q.Account.IsOwn() {
		named = c.TokenAccounts[p.Network]
	}
	err = signing.Compare(
		signing.Is("chain", e.Network == p.Network),
		signing.Is("authority", got.Authority == q.Account.Solana && e.Payer == got.Authority),
		signing.Is("fee payer", got.FeePayer != q.Account.Solana && e.FeePayer == got.FeePayer),
		signing.Is("source", got.Source == p.Source && e.Source == p.Source &&
			(named == "" || named == p.Source)),
		signing.Is("payee", got.Destination == destination &&
			e.Destination == destination && e.PayTo == p.PayTo),
		signing.Is("asset", got.Mint == q.Asset.Address && got.Token2022 == q.Asset.Token2022 &&
			got.Decimals == q.Asset.Decimals && e.Asset == q.Asset.Address),
		signing.Is("amount", got.Amount == p.Amount && e.Amount == p.Amount),
		signing.Is("memo", e.Memo == got.Memo && e.Blockhash == got.Blockhash))
	if err == nil {
		err = c.endsSoon(ctx, e, q.Now)
	}
	if err != nil {
		return nil, err
	}
	return splTransfer{signing.Basis{Asks: q.Costs(), Bytes: s.Transaction}, s}, nil
}

// endsSoon refuses evidence by which a payment is good for too long. Until when it can land is not in its
// message, and is what the chain is asked by: a time far from now would have it looked for where it is not.
// One that is over already, before which nobody's word for its end is believed, would be no bound.
func (c Check) endsSoon(ctx context.Context, e x402.Evidence, now time.Time) error {
	if c.Height == nil {
		return nil
	}
	if e.ExpiresAt.Before(now) {
		return signing.Refuse("it says that it is good until %s, which is over",
			e.ExpiresAt.UTC().Format(time.RFC3339))
	}
	height, err := c.Height(ctx, e.Network)
	if err != nil {
		return err
	}
	if e.LastValidBlockHeight > height+decode.MaxLife {
		return signing.Refuse("it says that it is good until block %d, and the chain has %d: %d more at most",
			e.LastValidBlockHeight, height, decode.MaxLife)
	}
	return nil
}

func (t splTransfer) Sign(ctx context.Context, by *wallet.Account) ([]byte, error) {
	signature, err := by.SignSolana(ctx, t.Transaction)
	return signature[:], err
}

func (t splTransfer) Signed(signature []byte) (history.Signed, error) {
	e := t.Evidence
	e.Signature, e.Nonce, e.ValidBefore = base58.Encode(signature), "", 0
	return history.Signed{Evidence: e}, nil
}
