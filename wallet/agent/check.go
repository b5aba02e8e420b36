package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/x402"
)

// Rules are what the agent has to know of the owner's config.
type Rules struct {
	Budget     budget.Rules
	Assets     *x402.Registry
	MaxTimeout time.Duration // the longest validity that is ever signed
	// Solana, by network: the only account to spend from, where the owner names one
	TokenAccounts map[string]string
}

func refuse(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.PolicyDenied, "the unlock agent does not sign this: "+format, args...)
}

// signEVM signs an EIP-3009 authorization. The domain is the registry's, for the asset of the
// ledger's row.
func (s *Server) signEVM(ctx context.Context, q request) ([]byte, error) {
	rules, p, asset, err := s.reserved(ctx, q.Payment)
	if err != nil {
		return nil, err
	}
	got, err := evm.DecodeAuthorization(q.Authorization)
	if err != nil {
		return nil, refuse("it cannot be read")
	}
	now := s.Now().Unix()
	err = compare([]field{
		{"chain", x402.Namespace(p.Network) == "eip155"},
		{"payer", strings.EqualFold(got.From, s.EVM.Address()) &&
			strings.EqualFold(p.Source, s.EVM.Address())},
		{"payee", strings.EqualFold(got.To, p.PayTo)},
		{"amount", got.Value == p.Amount},
		{"validity", got.ValidAfter <= now && got.ValidBefore > now &&
			got.ValidBefore <= now+int64(rules.MaxTimeout/time.Second)},
	})
	if err != nil {
		return nil, err
	}
	digest, err := evm.Digest(asset, got)
	if err != nil {
		return nil, refuse("%v", err)
	}
	if err := s.take(ctx, rules, p, asset); err != nil {
		return nil, err
	}
	signature, err := s.EVM.SignTransfer(ctx, evm.Transfer{Payment: p.ID, Asset: asset, Authorization: got,
		Digest: digest})
	return signature[:], err
}

// signSolana signs a transaction's message. How long it lives its blockhash says, about 90 seconds
// at most.
func (s *Server) signSolana(ctx context.Context, q request) ([]byte, error) {
	rules, p, asset, err := s.reserved(ctx, q.Payment)
	if err != nil {
		return nil, err
	}
	got, err := svm.DecodeMessage(q.Message)
	if err != nil {
		return nil, refuse("it is not a payment's transaction")
	}
	destination, err := svm.ATA(p.PayTo, asset.Address, asset.Token2022)
	if err != nil {
		return nil, refuse("the payee can have no token account")
	}
	named := rules.TokenAccounts[p.Network]
	err = compare([]field{
		{"chain", x402.IsSolana(p.Network)},
		{"authority", got.Authority == s.Solana.Address() && got.FeePayer != s.Solana.Address()},
		{"source", got.Source == p.Source && (named == "" || named == p.Source)},
		{"payee", got.Destination == destination},
		{"asset", got.Mint == asset.Address && got.Program == svm.TokenProgram(asset.Token2022) &&
			got.Decimals == asset.Decimals},
		{"amount", got.Amount == p.Amount},
	})
	if err != nil {
		return nil, err
	}
	if err := s.take(ctx, rules, p, asset); err != nil {
		return nil, err
	}
	signature, err := s.Solana.SignTransfer(ctx, p.ID, q.Message)
	return signature[:], err
}

type field struct {
	name string
	same bool
}

func compare(list []field) error {
	for _, f := range list {
		if !f.same {
			return refuse("its %s is not that of the reserved payment", f.name)
		}
	}
	return nil
}

// reserved finds the payment in the ledger, waiting for its signature, made since the agent began:
// what was reserved before may have been signed by the agent before this one.
func (s *Server) reserved(ctx context.Context, id string) (rules Rules, p history.Payment,
	asset x402.AssetInfo, err error) {
	if rules, err = s.Rules(ctx); err != nil {
		return rules, p, asset, err
	}
	p, err = s.Store.Payment(ctx, id)
	if errors.Is(err, history.ErrNoPayment) {
		return rules, p, asset, refuse("the ledger has no such payment")
	}
	if err != nil {
		return rules, p, asset, err
	}
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	switch {
	case p.State != history.Reserved:
		err = refuse("the payment is %s, not reserved", p.State)
	case p.Created.Before(s.Started):
		err = refuse("the payment was reserved before the wallet was unlocked")
	case !known || p.Scheme != "exact":
		err = refuse("the owner does not know its asset or scheme")
	case asset.Dollars(p.Amount) != p.Price:
		err = refuse("its price in the ledger is not what its amount is worth")
	}
	return rules, p, asset, err
}

// take checks the owner's windows once more, against the ledger and against what this agent has
// signed, and counts the payment as signed. It does so before signing: a payment is signed once or
// not at all.
func (s *Server) take(ctx context.Context, rules Rules, p history.Payment, asset x402.AssetInfo) error {
	s.signed.mu.Lock()
	defer s.signed.mu.Unlock()
	if s.signed.has(p.ID) {
		return refuse("it has signed this payment already")
	}
	ask := budget.Ask{
		Price: asset.Dollars(p.Amount), Host: p.Host, Now: p.Created,
		Payee: budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()},
	}
	err := s.Store.View(ctx, func(t *history.Tx) error {
		ask.Approved = sync.OnceValues(func() (bool, error) { return s.approved(ctx, t, p) })
		if err := t.NotFrozen(p.Network, p.Source); err != nil {
			return err
		}
		session, err := t.Session()
		if err != nil {
			return err
		}
		if session.ID != p.Session {
			return refuse("its session is over")
		}
		ask.Session = session
		begun, err := s.begun(ctx, t, session)
		if err != nil {
			return err
		}
		if err := rules.Budget.Check(ask, others{t, p}); err != nil {
			return err
		}
		ask.Now = s.Now()
		return rules.Budget.Check(ask, &own{&s.signed, t, begun})
	})
	if err != nil {
		return err
	}
	s.signed.add(item{id: p.ID, at: s.Now(), host: p.Host, price: ask.Price})
	return nil
}

// approved reports whether a person said yes to a payment: the owner, whose yes is sealed, or
// somebody at the caller's client.
func (s *Server) approved(ctx context.Context, t *history.Tx, p history.Payment) (bool, error) {
	a, yes, err := t.WasApproved(p)
	switch {
	case err != nil || !yes:
		return false, err
	case len(a.Seal) == 0:
		return s.signed.heard(p.ID), nil
	}
	err = s.Guard.Approved(ctx, p, a)
	return err == nil, err
}

// begun is when the owner began a session, or zero: what was signed before then is no part of it.
func (s *Server) begun(ctx context.Context, t *history.Tx, session budget.Session) (time.Time, error) {
	seal, err := t.SessionSeal(session.ID)
	if err != nil {
		return time.Time{}, err
	}
	if own, err := s.Guard.OwnSession(ctx, session, seal); !own || err != nil {
		return time.Time{}, err
	}
	return session.Started, nil
}

// others is the ledger without the payment that is asked about, so that the question is the one it
// was reserved by.
type others struct {
	*history.Tx
	p history.Payment
}

// Used implements budget.Ledger.
func (o others) Used(w budget.Window) (budget.Use, error) {
	use, err := o.Tx.Used(w)
	inside := (w.Session == "" || w.Session == o.p.Session) && onHost(w.Host, o.p.Host) &&
		!o.p.Created.Before(w.Since)
	if inside {
		use.Held = use.Held.SubFloor(o.p.Price)
	}
	return use, err
}

// Count implements budget.Ledger. The rate was asked when the payment was reserved, and others have
// been since; what is signed the tally counts.
func (o others) Count(time.Time) (int, error) { return 0, nil }

// onHost reports whether a window of an owner's host entry covers a host; "" covers every one.
func onHost(entry, host string) bool {
	return entry == "" || entry == host || strings.HasPrefix(host, entry+":")
}

var _ budget.Ledger = others{}
