package agent

import (
	"context"
	"errors"

	"x402-wallet/chain/evm"
	"x402-wallet/history"
	"x402-wallet/wallet"
)

// The wallet knows nothing of ours, and signs only what it has read itself: here its signers get
// the forms that the chains' packages ask for. While Remote is set and usable, the unlock agent
// is asked first; without an agent, the wallet in this process signs.

// EVM is the wallet's EVM key as an evm.Signer.
type EVM struct {
	wallet.EVMSigner
	Remote *Remote
}

// SignTransfer implements evm.Signer. Its errors are those of wallet.EVMSigner, or the agent's
// refusal.
func (k EVM) SignTransfer(ctx context.Context, t evm.Transfer) ([65]byte, error) {
	if k.Remote.first() {
		if signature, err := k.Remote.Client.signEVM(ctx, t); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	chain, err := evm.ChainID(t.Asset.Network)
	if err != nil {
		return [65]byte{}, err
	}
	a := t.Authorization
	return k.EVMSigner.SignTransfer(ctx, wallet.TransferWithAuthorization{
		ChainID: chain, Token: t.Asset.Address, Name: t.Asset.Name, Version: t.Asset.Version,
		From: a.From, To: a.To, Value: a.Value.Bytes32(), ValidAfter: uint64(a.ValidAfter),
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce,
	})
}

// Solana is the wallet's Solana key as an svm.Signer.
type Solana struct {
	wallet.SolanaSigner
	Remote *Remote
}

// SignTransfer implements svm.Signer. Its errors are those of wallet.SolanaSigner, or the agent's
// refusal.
func (k Solana) SignTransfer(ctx context.Context, payment string, message []byte) ([64]byte, error) {
	if k.Remote.first() {
		if signature, err := k.Remote.Client.signSolana(ctx, payment, message); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	return k.SolanaSigner.SignTransfer(ctx, message)
}

// Remote is the unlock agent as a source of signatures. A nil Remote is none.
type Remote struct {
	Client
	// its turn in the order of SPEC §3: the wallet is locked, and no source before the agent is set
	// up
	Before func() bool
}

// Guard stands between a payment and its signature: seal.Guard, whose key may be the agent's.
type Guard struct {
	Local interface {
		CheckConfig(ctx context.Context) error
		VerifySeals(ctx context.Context) error
		Approved(ctx context.Context, p history.Payment, a history.Approval) error
		Checkpoint(ctx context.Context) error
		CheckpointIfUnlocked(ctx context.Context) error
		Verify(ctx context.Context) error
	}
	Remote *Remote
}

// CheckConfig implements pay.Guard. It needs no key.
func (g Guard) CheckConfig(ctx context.Context) error { return g.Local.CheckConfig(ctx) }

// VerifySeals implements pay.Guard.
func (g Guard) VerifySeals(ctx context.Context) error {
	if g.Remote.first() {
		if err := g.Remote.Client.VerifySeals(ctx); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return g.Local.VerifySeals(ctx)
}

// Approved implements pay.Guard. The agent looks at the owner's approval by itself, and believes
// this process what its client said.
func (g Guard) Approved(ctx context.Context, p history.Payment, a history.Approval, here bool) error {
	ask := func() error {
		if here {
			return g.Remote.Client.Heard(ctx, p.ID)
		}
		return g.Remote.Client.Status(ctx)
	}
	if g.Remote.first() {
		if err := ask(); !errors.Is(err, ErrNone) {
			return err
		}
	}
	if here {
		return nil
	}
	return g.Local.Approved(ctx, p, a)
}

// CheckpointIfUnlocked implements pay.Guard.
func (g Guard) CheckpointIfUnlocked(ctx context.Context) error {
	if g.Remote.first() {
		if err := g.Remote.Client.Checkpoint(ctx); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return g.Local.CheckpointIfUnlocked(ctx)
}

// Verify checks the whole ledger with its seals.
func (g Guard) Verify(ctx context.Context) error {
	if g.Remote.first() {
		if err := g.Remote.Client.Verify(ctx); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return g.Local.Verify(ctx)
}

// Checkpoint implements pay.Guard.
func (g Guard) Checkpoint(ctx context.Context) error {
	if g.Remote.first() {
		if err := g.Remote.Client.Checkpoint(ctx); !errors.Is(err, ErrNone) {
			return err
		}
	}
	return g.Local.Checkpoint(ctx)
}

func (r *Remote) first() bool { return r != nil && r.Before() }
