package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/history"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
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
		{name: "chain", same: x402.Namespace(p.Network) == "eip155"},
		{name: "payer", same: strings.EqualFold(got.From, s.EVM.Address()) &&
			strings.EqualFold(p.Source, s.EVM.Address())},
		{name: "payee", same: strings.EqualFold(got.To, p.PayTo)},
		{name: "amount", same: got.Value == p.Amount},
		{name: "validity", same: got.ValidAfter <= now && got.ValidBefore > now &&
			got.ValidBefore <= now+int64(rules.MaxTimeout/time.Second)},
	})
	if err != nil {
		return nil, err
	}
	digest, err := evm.Digest(asset, got)
	if err != nil {
		return nil, refuse("%v", err)
	}
	if err := s.countSigned(ctx, rules, p, asset); err != nil {
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
		{name: "chain", same: x402.IsSolana(p.Network)},
		{name: "authority", same: got.Authority == s.Solana.Address() && got.FeePayer != s.Solana.Address()},
		{name: "source", same: got.Source == p.Source && (named == "" || named == p.Source)},
		{name: "payee", same: got.Destination == destination},
		{name: "asset", same: got.Mint == asset.Address && got.Token2022 == asset.Token2022 &&
			got.Decimals == asset.Decimals},
		{name: "amount", same: got.Amount == p.Amount},
	})
	if err != nil {
		return nil, err
	}
	if err := s.countSigned(ctx, rules, p, asset); err != nil {
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
	if errors.Is(err, history.ErrNotFound) {
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

// countSigned asks the owner's rules about a payment once more, by the ledger and by what this
// agent has signed, and counts the payment as signed. It does so before signing: a payment is
// signed once or not at all.
func (s *Server) countSigned(ctx context.Context, rules Rules, p history.Payment,
	asset x402.AssetInfo) error {
	s.signed.mu.Lock()
	defer s.signed.mu.Unlock()
	if s.signed.has(p.ID) {
		return refuse("it has signed this payment already")
	}
	ask := budget.Ask{
		Price: asset.Dollars(p.Amount), Host: p.Host,
		Payee: budget.Payee{Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()},
	}
	query := rules.Budget.Query(ask)
	query.At = p.Created
	facts, err := s.Store.Facts(ctx, history.Question{
		Rules: query, Payment: history.Payment{Network: p.Network, Source: p.Source},
	})
	if err != nil {
		return err
	}
	if err := facts.Refusal(); err != nil {
		return err
	}
	if facts.Session.ID != p.Session {
		return refuse("its session is over")
	}
	begun, err := s.begun(ctx, facts.Session)
	if err != nil {
		return err
	}
	now := s.Now()
	signed := s.signed.facts(facts.Facts, query, now, begun)
	for _, known := range []budget.Facts{withoutPayment(facts.Facts, p), signed} {
		_, err := rules.Budget.Decide(ask, known)
		if x402.HasCode(err, x402.ApprovalRequired) && !ask.Approved {
			ask.Approved, err = s.approved(ctx, p)
			if err == nil {
				_, err = rules.Budget.Decide(ask, known)
			}
		}
		if err != nil {
			return err
		}
	}
	s.signed.add(item{id: p.ID, at: now, host: p.Host, price: ask.Price})
	return nil
}

// approved reports whether a person approved a payment: the owner, whose approval is sealed, or
// somebody at the caller's client.
func (s *Server) approved(ctx context.Context, p history.Payment) (bool, error) {
	a, approved, err := s.Store.ApprovalUsedBy(ctx, p)
	switch {
	case err != nil || !approved:
		return false, err
	case len(a.Seal) == 0:
		return s.signed.hasApproval(p.ID), nil
	}
	err = s.Guard.Approved(ctx, p, a)
	return err == nil, err
}

// begun is when the owner began a session, or zero: what was signed before then is no part of it.
func (s *Server) begun(ctx context.Context, session budget.Session) (time.Time, error) {
	seal, err := s.Store.SessionSeal(ctx, session.ID)
	if err != nil {
		return time.Time{}, err
	}
	if own, err := s.Guard.OwnSession(ctx, session, seal); !own || err != nil {
		return time.Time{}, err
	}
	return session.Started, nil
}

// withoutPayment is what the ledger knew without a payment that is in it, when that was made: the
// question is the one it was reserved by. The rate was asked then, and others have been reserved
// since; what is signed the tally counts.
func withoutPayment(facts budget.Facts, p history.Payment) budget.Facts {
	facts.Now, facts.LastMinute, facts.LastHour = p.Created, 0, 0
	used := &facts.Used
	for _, use := range []*budget.Use{&used.Session, &used.Day, &used.Month} {
		use.Held = use.Held.SubFloor(p.Price)
	}
	hosts := map[string]budget.Use{}
	for entry, use := range used.HostDay {
		if onHost(entry, p.Host) {
			use.Held = use.Held.SubFloor(p.Price)
		}
		hosts[entry] = use
	}
	used.HostDay = hosts
	return facts
}

// onHost reports whether an owner's host entry covers a host, on any port.
func onHost(entry, host string) bool { return entry == host || strings.HasPrefix(host, entry+":") }

// tally is what this agent has signed, whatever became of it. It bounds what can be got out of the
// agent by who writes to the ledger's file: never more than the owner's windows allow, from one
// unlocking to the next.
type tally struct {
	mu    sync.Mutex
	items []item
	// payments that a person approved at a caller's client; the newest last
	approvals []string
}

// maxApprovals bounds the approvals that are remembered: a payment is signed in the moment after.
const maxApprovals = 256

type item struct {
	id    string
	at    time.Time
	host  string
	price money.Dollars
}

func (t *tally) has(id string) bool {
	return slices.ContainsFunc(t.items, func(i item) bool { return i.id == id })
}

func (t *tally) add(i item) { t.items = append(t.items, i) }

func (t *tally) addApproval(payment string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.approvals = append(t.approvals[max(0, len(t.approvals)-maxApprovals+1):], payment)
}

// hasApproval is called with mu held.
func (t *tally) hasApproval(payment string) bool { return slices.Contains(t.approvals, payment) }

// facts is what the tally alone knows, with the ledger's history of payees and failures. An agent
// runs for 8 hours at most, so all of it counts for the session, except what was signed before the
// owner began that session (begun; zero: a payment began it). It is asked with mu held.
func (t *tally) facts(ledger budget.Facts, q budget.Query, now, begun time.Time) budget.Facts {
	day := budget.DayOf(now)
	hour := budget.RateLimit{Per: budget.BusyWindow, NotBefore: ledger.LastUnfreeze}
	facts := ledger
	facts.Now, facts.Behind = now, 0
	facts.LastMinute, facts.LastHour = t.count(now.Add(-budget.RateWindow)), t.count(hour.Since(now))
	facts.Used = budget.Usage{
		Session: t.used(begun, ""), Day: t.used(day, ""), Month: t.used(budget.MonthOf(now), ""),
		HostDay: map[string]budget.Use{},
	}
	for _, entry := range q.HostEntries {
		facts.Used.HostDay[entry] = t.used(day, entry)
	}
	facts.RateSince = time.Time{}
	if nth := max(q.Rate, 1); facts.LastMinute >= nth {
		facts.RateSince = t.items[len(t.items)-nth].at // they are in the order of their times
	}
	return facts
}

// used is what was signed since a time, for a host of the owner's entry; "": for any.
func (t *tally) used(since time.Time, entry string) (use budget.Use) {
	for _, i := range t.items {
		if !i.at.Before(since) && (entry == "" || onHost(entry, i.host)) {
			use.Held = use.Held.Add(i.price)
		}
	}
	return use
}

// count is how much was signed after a time.
func (t *tally) count(since time.Time) (n int) {
	for _, i := range t.items {
		if i.at.After(since) {
			n++
		}
	}
	return n
}
