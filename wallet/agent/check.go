package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Rules are what who signs has to know of the owner's config.
type Rules struct {
	Budget budget.Rules
	// Schemes are those that the owner lets the wallet pay by, and Checks the schemes' checks, by the name
	// that the ledger has. A check of what is no payment to a seller needs no entry in Schemes.
	Schemes    []string
	Checks     map[string]signing.Check
	Assets     *x402.Registry
	MaxTimeout time.Duration // the longest validity that is ever signed
	// Status asks the nodes of these very rules what became of a payment. Only the unlock agent needs it.
	Status func(ctx context.Context, p history.Payment) (x402.Status, error)
	// Delegated asks the chain for how much is delegated to the wallet's own account, or nil if nothing is.
	// It is the cap of a session where the owner set none. p is the first payment in it.
	Delegated func(ctx context.Context, p history.Payment) (*money.Dollars, error)
	// MayPay asks the owner's program about a payment before its signature is recorded; it may be nil. Only
	// the unlock agent asks it, because it does not know whether the process that pays did.
	MayPay func(ctx context.Context, p history.Payment) error
}

// For returns the rules for an agent's payments: by the account that it pays from.
func (r Rules) For(agent string) Rules {
	r.Budget.Account = r.Budget.Teams.Account(agent)
	return r
}

// has reports whether the owner lets a payment be made by its scheme.
func (r Rules) has(p history.Payment) bool {
	return p.IsPull() || p.IsSignIn() || slices.Contains(r.Schemes, p.Scheme)
}

// read finds the payment that a message is for, reserved in the ledger, and has the check of its scheme read
// the message. What was reserved before since may have been signed by an earlier unlock agent.
func (r *Recorder) read(ctx context.Context, rules Rules, p history.Payment, message []byte) (
	m signing.Message, by *wallet.Account, err error) {
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	check, hasCheck := rules.Checks[p.Scheme]
	switch {
	case p.State != history.Reserved:
		err = refuse("the payment is %s, not reserved", p.State)
	case p.Created.Before(r.Started):
		err = refuse("the payment was reserved before the wallet was unlocked")
	case !known && p.Asset != "":
		err = refuse("the owner does not know its asset")
	case !hasCheck || !rules.has(p):
		err = refuse("the owner does not have it paid by its scheme")
	}
	if err == nil {
		by, err = r.Account(rules.Budget.Account)
	}
	if err != nil {
		return nil, nil, err
	}
	q := signing.Question{Message: message, Payment: p, Asset: asset, Ledger: r.Store, Now: r.Now(),
		MaxTimeout: rules.MaxTimeout, PerCall: rules.Budget.PerCall,
		Account: signing.Account{Name: rules.Budget.Account}}
	q.Account.Solana, q.Account.EVM = by.Addresses()
	m, err = check.Read(ctx, q)
	if err == nil && m.Terms().Counts != p.Price {
		err = refuse("its price in the ledger is not what its amount is worth")
	}
	return m, by, err
}

// sign signs what read let pass.
func sign(ctx context.Context, m signing.Message, by *wallet.Account) (signatures []byte,
	signed history.Signed, err error) {
	signatures, err = m.Sign(ctx, by)
	if err != nil {
		return nil, signed, err
	}
	signed, err = m.Signed(signatures)
	signed.UniqueKey = signed.Evidence.Unique()
	return signatures, signed, err
}

// Sign signs a message for the payment of an id with a key of this process. The signature is recorded by
// Submit, and must not leave before.
func (r *Recorder) Sign(ctx context.Context, payment string, message []byte) ([]byte, error) {
	p, err := r.Store.Payment(ctx, payment)
	if errors.Is(err, history.ErrNotFound) {
		return nil, refuse("the ledger has no such payment")
	}
	if err != nil {
		return nil, err
	}
	m, by, err := r.read(ctx, r.Rules.For(p.Agent), p, message)
	if err != nil {
		return nil, err
	}
	signatures, signed, err := sign(ctx, m, by)
	if err != nil {
		return nil, err
	}
	r.keep(p, m, signed)
	return signatures, nil
}

// sign signs a message for a payment, and records it before the signature is handed out.
func (s *Server) sign(ctx context.Context, q Request) ([]byte, error) {
	rules, p, err := s.payment(ctx, q.Payment)
	if err != nil {
		return nil, err
	}
	m, by, err := s.Recorder.read(ctx, rules, p, q.Message)
	if err != nil {
		return nil, err
	}
	signatures, signed, err := sign(ctx, m, by)
	if err != nil {
		return nil, err
	}
	err = s.Recorder.record(ctx, rules, p, m, signed)
	if errors.Is(err, history.ErrSignedBefore) {
		return nil, x402.Errorf(x402.CheckFailed,
			"another message with this nonce or signature was signed before")
	}
	if err != nil {
		return nil, err
	}
	return signatures, nil
}

func refuse(format string, args ...any) *x402.Error { return signing.Refuse(format, args...) }

// onHost reports whether an owner's host entry covers a host, on any port.
func onHost(entry, host string) bool { return entry == host || strings.HasPrefix(host, entry+":") }

// payment is what the ledger has of a payment, and the rules it is to be seen by.
func (s *Server) payment(ctx context.Context, id string) (rules Rules, p history.Payment, err error) {
	if rules, err = s.Rules(ctx); err != nil {
		return rules, p, err
	}
	p, err = s.Store.Payment(ctx, id)
	if errors.Is(err, history.ErrNotFound) {
		return rules, p, refuse("the ledger has no such payment")
	}
	return rules.For(p.Agent), p, err
}

// expire looks by itself what became of a payment, and records that it can never settle any more.
// The caller's word is not asked for.
func (s *Server) expire(ctx context.Context, id string) error {
	rules, p, err := s.payment(ctx, id) // whoever chooses the node chooses the evidence
	if err != nil {
		return err
	}
	if p.Prepaid() { // it frees nothing: what it could spend was counted with its deposit
		_, err = s.Recorder.Expire(ctx, p, history.Expiry(p, x402.Status{State: x402.Expired}))
		return err
	}
	status, err := rules.Status(ctx, p)
	if err != nil {
		return err
	}
	if status.State != x402.Expired {
		return refuse("it can still settle, or has settled: %s", x402.Brief(status.Note))
	}
	_, err = s.Recorder.Expire(ctx, p, history.Expiry(p, status))
	return err
}

// charge looks by itself what a payment came to, and records that it was less than was signed for. The
// caller's word is not asked for.
func (s *Server) charge(ctx context.Context, id string) error {
	rules, p, err := s.payment(ctx, id) // whoever chooses the node chooses the evidence
	if err != nil {
		return err
	}
	status, err := rules.Status(ctx, p)
	if err != nil {
		return err
	}
	if status.State != x402.Settled || status.Amount == nil {
		return refuse("what it came to is not proven: %s", x402.Brief(status.Note))
	}
	_, err = s.Recorder.Charge(ctx, rules, p, status)
	return err
}
