package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/internal/socket"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// errNone says that no unlock agent holds the keys.
var errNone = errors.New("there is no unlock agent")

// Client asks the unlock agent of a home.
type Client struct {
	Home string
	// Before reports whether it is the agent's turn among the sources: the wallet is locked,
	// and no source before the agent is set up. Signers and Guard ask it.
	Before func() bool
	// SigningTime is how much longer a signature may take by whoever keeps the key itself; see Server.
	SigningTime time.Duration
}

// Status is nil while an agent holds the keys, else errNone or why it cannot be asked.
func (c *Client) Status(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "status"})
	return err
}

// Lock ends the agent: the keys are wiped when it returns. It reports whether there was one. An agent that
// ends by itself at that moment cuts off who asks, so it is asked once more.
func (c *Client) Lock(ctx context.Context) (was bool, err error) {
	_, err = c.call(ctx, request{Op: "lock"})
	if errors.Is(err, errNone) {
		return false, nil
	}
	if err != nil {
		_, err = c.call(ctx, request{Op: "lock"})
	}
	if errors.Is(err, errNone) {
		err = nil
	}
	return err == nil, err
}

// Checkpoint asks for seal.Guard's Checkpoint.
func (c *Client) Checkpoint(ctx context.Context) error {
	_, err := c.call(ctx, request{Op: "mark"})
	return err
}

// Verify asks for Server.Verify, or calls local.
func (c *Client) Verify(ctx context.Context, local func(ctx context.Context) error) error {
	return c.callOrLocal(ctx, request{Op: "verify"}, local)
}

func (c *Client) first() bool { return c != nil && c.Before() }

// callOrLocal asks the agent where it is its turn; where it is not, or where there is no agent,
// it runs locally.
func (c *Client) callOrLocal(ctx context.Context, q request, local func(ctx context.Context) error) error {
	if c.first() {
		if _, err := c.call(ctx, q); !errors.Is(err, errNone) {
			return err
		}
	}
	return local(ctx)
}

func (c *Client) signEVM(ctx context.Context, t message.Transfer) (signature [65]byte, err error) {
	authorization, err := message.EncodeAuthorization(t.Authorization)
	if err != nil {
		return signature, err
	}
	q := request{Op: "evm", Payment: t.Payment, Authorization: authorization}
	err = c.sign(ctx, q, signature[:])
	return signature, err
}

func (c *Client) signPull(ctx context.Context, payment string, p x402.Pull) (signature [65]byte, err error) {
	err = c.sign(ctx, request{Op: "pull", Payment: payment, Pull: &p}, signature[:])
	return signature, err
}

func (c *Client) signPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	authorization, err := message.EncodePermit2(d.Authorization)
	if err != nil {
		return permit, approval, err
	}
	q := request{Op: "permit2", Payment: d.Payment, Authorization: authorization}
	if d.Approval != nil {
		q.Approval = d.Approval.Nonce.String()
	}
	q.ApprovalGas = d.Transaction
	signatures := make([]byte, len(permit))
	if d.Approval != nil || d.Transaction != nil {
		signatures = make([]byte, len(permit)+len(approval))
	}
	err = c.sign(ctx, q, signatures)
	copy(approval[:], signatures[copy(permit[:], signatures):])
	return permit, approval, err
}

func (c *Client) signSolana(ctx context.Context, d decode.Draft) (signature [64]byte, err error) {
	q := request{Op: "solana", Payment: d.Payment, Message: d.Message, Evidence: d.Evidence}
	err = c.sign(ctx, q, signature[:])
	return signature, err
}

// sign asks for a signature of this length.
func (c *Client) sign(ctx context.Context, q request, signature []byte) error {
	answer, err := c.call(ctx, q)
	if err == nil && len(answer) != len(signature) {
		return garbled()
	}
	copy(signature, answer)
	return err
}

// call asks one thing. A socket that nobody listens on is errNone; who listens there must be this user.
func (c *Client) call(ctx context.Context, q request) ([]byte, error) {
	path := filepath.Join(c.Home, socketName)
	ctx, cancel := context.WithTimeout(ctx, callTime+c.SigningTime)
	defer cancel()
	conn, err := socket.Dial(ctx, path)
	switch {
	case errors.Is(err, socket.ErrNone):
		return nil, errNone
	case err != nil:
		return nil, unreachable(err)
	}
	defer func() { _ = conn.Close() }()
	if err := samePeer(conn); err != nil {
		return nil, unreachable(err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return nil, unreachable(err)
	}
	var out reply
	d := json.NewDecoder(io.LimitReader(conn, maxReply))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		if _, network := errors.AsType[net.Error](err); network || errors.Is(err, io.EOF) {
			return nil, unreachable(err)
		}
		return nil, garbled()
	}
	if out.Error != nil {
		if _, _, known := x402.Explain(out.Error.Code); !known {
			return nil, garbled()
		}
		return nil, x402.Errorf(out.Error.Code, "%s", out.Error.Message).WithHint("%s", out.Error.Hint)
	}
	return out.Signature, nil
}

func unreachable(err error) error {
	return x402.Errorf(x402.WalletLocked, "the unlock agent does not answer: %w", err).
		WithHint("the owner runs x402-wallet lock, then x402-wallet unlock")
}

// garbled is an answer that no unlock agent of this version gives. What it was is not repeated:
// whatever listens there may have been told anything.
func garbled() error {
	return x402.Errorf(x402.WalletLocked, "what listens at %s in the wallet's home answers, but not as the "+
		"unlock agent of this version does; nothing was signed", socketName).
		WithHint("the owner ends the program that listens there, removes %s from the wallet's home, and "+
			"runs x402-wallet unlock with this version", socketName)
}

// The wallet knows nothing of ours, and signs only what it has read itself: here its keys get the
// forms that the chains' packages ask for. While a Client is given and it is its turn, the unlock
// agent is asked first; without an agent, the wallet in this process signs.

// Signers are the keys of a wallet's account as the chains' signers. Their errors are those of its
// SignEVM and SignSolana, or the agent's refusal. A nil remote is none.
func Signers(keys *wallet.Account, remote *Client) (EVMSigner, SolanaSigner) {
	return evmSigner{keys: keys, remote: remote}, solanaSigner{keys: keys, remote: remote}
}

type (
	signer struct {
		keys   *wallet.Account
		remote *Client
	}
	evmSigner    signer
	solanaSigner signer
)

func (s evmSigner) Address() string {
	_, address := s.keys.Addresses()
	return address
}

func (s evmSigner) SignTransfer(ctx context.Context, t message.Transfer) ([65]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.signEVM(ctx, t); !errors.Is(err, errNone) {
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
		ValidBefore: uint64(a.ValidBefore), Nonce: a.Nonce, OfVault: t.OfVault,
	})
}

func (s evmSigner) SignPull(ctx context.Context, payment string, p x402.Pull) ([65]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.signPull(ctx, payment, p); !errors.Is(err, errNone) {
			return signature, err
		}
	}
	return s.keys.SignPull(ctx, wallet.PullTransaction{
		ChainID: p.ChainID, Nonce: p.Nonce, Gas: p.Gas, Tip: p.Tip.Bytes32(), MaxFee: p.MaxFee.Bytes32(),
		Token: p.Token, Owner: p.Owner, Amount: p.Amount.Bytes32(),
	})
}

func (s evmSigner) SignPermit2(ctx context.Context, d message.PermitDraft) (permit, approval [65]byte,
	err error) {
	if s.remote.first() {
		permit, approval, err := s.remote.signPermit2(ctx, d)
		if !errors.Is(err, errNone) {
			return permit, approval, err
		}
	}
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
	return s.keys.SignPermit2(ctx, t)
}

func (s evmSigner) SignChannel(ctx context.Context, m message.Channel) (message.Signatures, error) {
	if s.remote.first() {
		if signatures, err := s.remote.signChannel(ctx, m); !errors.Is(err, errNone) {
			return signatures, err
		}
	}
	return signChannel(ctx, s.keys, m)
}

func (s solanaSigner) Address() string {
	address, _ := s.keys.Addresses()
	return address
}

func (s solanaSigner) SignTransfer(ctx context.Context, d decode.Draft) ([64]byte, error) {
	if s.remote.first() {
		if signature, err := s.remote.signSolana(ctx, d); !errors.Is(err, errNone) {
			return signature, err
		}
	}
	return s.keys.SignSolana(ctx, d.Message)
}

// Guard stands between a payment and its signature: seal.Guard and Recorder, whose key may be the
// agent's. It is a pay.Guard.
type Guard struct {
	Local    sealer
	Recorder *Recorder
	Remote   *Client // nil: none
}

// sealer is seal.Guard.
type sealer interface {
	CheckConfig(ctx context.Context) error // needs no key
	VerifySeals(ctx context.Context) error
	Checkpoint(ctx context.Context) error           // before a signed payment leaves
	CheckpointIfUnlocked(ctx context.Context) error // of what was frozen
}

// CheckConfig implements pay.Guard. It needs no key.
func (g Guard) CheckConfig(ctx context.Context) error { return g.Local.CheckConfig(ctx) }

// VerifySeals implements pay.Guard.
func (g Guard) VerifySeals(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, request{Op: "check"}, g.Local.VerifySeals)
}

// Submit implements pay.Guard. What the agent signed it has recorded already, with the owner's
// approval or not at all: this process's client it does not know.
func (g Guard) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	if g.Recorder.Locked() {
		return g.Recorder.Store.Submit(ctx, p, signed, history.Keyholder{})
	}
	return g.Recorder.Submit(ctx, p, signed, here)
}

// RecordVoucher implements pay.Guard.
func (g Guard) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	return g.Recorder.RecordVoucher(ctx, p, signed, c, o, here)
}

// Expire implements pay.Guard. The agent does not believe this process what the chain said.
func (g Guard) Expire(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	if g.Recorder.Locked() && g.Remote != nil {
		_, err := g.Remote.call(ctx, request{Op: "expire", Payment: p.ID})
		if err == nil {
			return g.Recorder.Store.Payment(ctx, p.ID)
		}
		if !errors.Is(err, errNone) {
			return p, err
		}
	}
	if err := g.Local.VerifySeals(ctx); err != nil { // whoever chooses the node chooses the evidence
		return p, err
	}
	return g.Recorder.Expire(ctx, p.ID, p.Evidence, history.Expiry(p, status))
}

// Charge implements pay.Guard. As Expire.
func (g Guard) Charge(ctx context.Context, p history.Payment, status x402.Status) (history.Payment, error) {
	if g.Recorder.Locked() && g.Remote != nil {
		_, err := g.Remote.call(ctx, request{Op: "charge", Payment: p.ID})
		if err == nil {
			return g.Recorder.Store.Payment(ctx, p.ID)
		}
		if !errors.Is(err, errNone) {
			return p, err
		}
	}
	if err := g.Local.VerifySeals(ctx); err != nil { // whoever chooses the node chooses the evidence
		return p, err
	}
	return g.Recorder.Charge(ctx, g.Recorder.Rules, p, status)
}

// LocalApprovals reports whether an approval that a person gave at this process's client counts: the
// unlock agent, where it signs, believes the owner's seal and nothing else.
func (g Guard) LocalApprovals(ctx context.Context) bool {
	return !g.Remote.first() || errors.Is(g.Remote.Status(ctx), errNone)
}

// Checkpoint implements pay.Guard.
func (g Guard) Checkpoint(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, request{Op: "mark"}, g.Local.Checkpoint)
}

// CheckpointIfUnlocked implements pay.Guard.
func (g Guard) CheckpointIfUnlocked(ctx context.Context) error {
	return g.Remote.callOrLocal(ctx, request{Op: "mark"}, g.Local.CheckpointIfUnlocked)
}
