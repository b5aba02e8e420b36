package agent

import (
	"context"
	"errors"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// The wallet knows nothing of ours, and signs only what it has read itself: here its keys get the
// forms that the chains' packages ask for. While a Client is given and it is its turn, the unlock
// agent is asked first; without an agent, the wallet in this process signs.

// Signers are the wallet's keys as the chains' signers. Their errors are those of the wallet's
// SignEVM and SignSolana, or the agent's refusal. A nil remote is none.
func Signers(keys *wallet.Wallet, remote *Client) (evm.Signer, svm.Signer) {
	return evmSigner{keys: keys, remote: remote}, solanaSigner{keys: keys, remote: remote}
}

type evmSigner struct {
	keys   *wallet.Wallet
	remote *Client
}

func (s evmSigner) Address() string {
	_, address := s.keys.Addresses()
	return address
}

func (s evmSigner) SignTransfer(ctx context.Context, t evm.Transfer) ([65]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.signEVM(ctx, t); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	chain, ok := x402.ChainID(t.Asset.Network)
	if !ok {
		return [65]byte{}, x402.Errorf(x402.Internal, "the asset is of no eip155 network")
	}
	a := t.Authorization
	return s.keys.SignEVM(ctx, wallet.TransferWithAuthorization{
		ChainID: chain, Token: t.Asset.Address, Name: t.Asset.Name, Version: t.Asset.Version,
		From: a.From, To: a.To, Value: a.Value.Bytes32(), ValidAfter: uint64(a.ValidAfter),
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce,
	})
}

type solanaSigner struct {
	keys   *wallet.Wallet
	remote *Client
}

func (s solanaSigner) Address() string {
	address, _ := s.keys.Addresses()
	return address
}

func (s solanaSigner) SignTransfer(ctx context.Context, payment string, message []byte) ([64]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.signSolana(ctx, payment, message); !errors.Is(err, ErrNone) {
			return signature, err
		}
	}
	return s.keys.SignSolana(ctx, message)
}

// Guard stands between a payment and its signature: seal.Guard, whose key may be the agent's. It is
// a pay.Guard.
type Guard struct {
	Local  sealer
	Remote *Client // nil: none
}

// sealer is seal.Guard.
type sealer interface {
	CheckConfig(ctx context.Context) error // needs no key
	VerifySeals(ctx context.Context) error
	Checkpoint(ctx context.Context) error           // before a signed payment leaves
	CheckpointIfUnlocked(ctx context.Context) error // of what was frozen
	Verify(ctx context.Context) error               // the whole ledger
	Approved(ctx context.Context, p history.Payment, a history.Approval) error
	OwnSession(ctx context.Context, s budget.Session, seal []byte) (bool, error)
}

// CheckConfig implements pay.Guard. It needs no key.
func (g Guard) CheckConfig(ctx context.Context) error { return g.Local.CheckConfig(ctx) }

// VerifySeals implements pay.Guard.
func (g Guard) VerifySeals(ctx context.Context) error {
	return g.Remote.orHere(ctx, request{Op: "check"}, g.Local.VerifySeals)
}

// Approved implements pay.Guard. The agent looks at the owner's approval by itself, and believes
// this process what its client said (here).
func (g Guard) Approved(ctx context.Context, p history.Payment, a history.Approval, here bool) error {
	if here {
		return g.Remote.orHere(ctx, request{Op: "heard", Payment: p.ID},
			func(context.Context) error { return nil })
	}
	return g.Remote.orHere(ctx, request{Op: "status"},
		func(ctx context.Context) error { return g.Local.Approved(ctx, p, a) })
}

// Checkpoint implements pay.Guard.
func (g Guard) Checkpoint(ctx context.Context) error {
	return g.Remote.orHere(ctx, request{Op: "mark"}, g.Local.Checkpoint)
}

// CheckpointIfUnlocked implements pay.Guard.
func (g Guard) CheckpointIfUnlocked(ctx context.Context) error {
	return g.Remote.orHere(ctx, request{Op: "mark"}, g.Local.CheckpointIfUnlocked)
}

// Verify checks the whole ledger with its seals.
func (g Guard) Verify(ctx context.Context) error {
	return g.Remote.orHere(ctx, request{Op: "verify"}, g.Local.Verify)
}
