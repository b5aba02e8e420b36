package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// Recorder records what this process signs, before it gives a signature away: as a sealed row of the
// ledger's audit chain, if the owner's rules let the payment pass by what is sealed and by what this
// process has signed itself, whatever the ledger's tables say. Whoever holds the key has one: the
// unlock agent, and a wallet that is unlocked in its own process.
type Recorder struct {
	Store *history.Store
	Guard *seal.Guard
	// Rules are those that were checked against their seal before a payment was signed here. The
	// unlock agent reads them anew each time.
	Rules Rules
	// Account returns the keys of an account, by its name; "" is the wallet's own.
	Account func(name string) (*wallet.Account, error)
	// Started is when the unlock agent began; zero in a process that signs for itself.
	Started time.Time
	Now     func() time.Time
	Tally   *Tally // of this process

	mu   sync.Mutex
	kept map[string]kept // by payment
}

// oldest is how long after its reservation a payment may be signed: a person may have to type a
// passphrase in between. early is how far its time may be ahead of this process's clock.
const (
	oldest = 30 * time.Minute
	early  = budget.ClockTolerance
)

// Locked reports whether this process has no key at hand.
func (r *Recorder) Locked() bool { return r.Guard.Key.Locked() }

// kept is a message that this process has signed and that is not recorded yet.
type kept struct {
	message signing.Message
	signed  history.Signed
	created time.Time // of its payment
}

// keep notes a message until Submit. Older ones that were not submitted are forgotten.
func (r *Recorder) keep(p history.Payment, m signing.Message, signed history.Signed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = map[string]kept{}
	}
	for id, k := range r.kept {
		if r.Now().Sub(k.created) > oldest {
			delete(r.kept, id)
		}
	}
	r.kept[p.ID] = kept{m, signed, p.Created}
}

func (r *Recorder) take(id string) (k kept, isKept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, isKept = r.kept[id]
	delete(r.kept, id)
	return k, isKept
}

// keyholder is what this process brings to a row that it seals. m is the message whose signature is recorded.
// It is nil for a row that is no signature, or one of a payment channel that package scheme/nuwa has checked.
// here says that a person at this process's client approved the payment.
func (r *Recorder) keyholder(ctx context.Context, rules Rules, m signing.Message, here bool) (
	history.Keyholder, error) {
	k, err := r.Guard.Keyholder(ctx)
	terms := func(p history.Payment) signing.Terms {
		if m != nil {
			return m.Terms()
		}
		asset, _ := rules.Assets.Asset(p.Network, p.Asset)
		return termsOf(p, asset)
	}
	k.Query = func(p history.Payment) budget.Query { return rules.Budget.Query(askOf(p, terms(p))) }
	k.Permit = func(p history.Payment, facts budget.Facts, sealed history.Sealed) (*history.Fact, error) {
		fact, err := r.bound(ctx, m, sealed)
		if err == nil {
			err = r.permit(ctx, rules, p, terms(p), facts, here)
		}
		return fact, err
	}
	return k, err
}

// seals has a payment's signature sealed by a step of the ledger's. Where nothing was signed in the payment's
// session, its cap is only in a table: so the chain is asked what is delegated, while the ledger is free, and
// the step made again.
func (r *Recorder) seals(ctx context.Context, rules Rules, p history.Payment, m signing.Message, here bool,
	step func(k history.Keyholder) error) error {
	k, err := r.keyholder(ctx, rules, m, here)
	if err != nil {
		return err
	}
	k.NeedsCap = rules.Delegated != nil && rules.Budget.Session == nil
	err = step(k)
	if !errors.Is(err, history.ErrNewSession) {
		return err
	}
	k.SessionCap, err = rules.Delegated(ctx, p)
	if err != nil {
		return err
	}
	k.NeedsCap = false
	return step(k)
}

// termsOf are the terms of a payment that counts what its amount is worth.
func termsOf(p history.Payment, asset x402.AssetInfo) signing.Terms {
	worth := asset.Dollars(p.Amount)
	return signing.Terms{Counts: worth, Price: worth}
}

// bound holds a message to what is sealed.
func (r *Recorder) bound(ctx context.Context, m signing.Message, sealed history.Sealed) (*history.Fact,
	error) {
	if bounded, is := m.(signing.Bounded); is {
		return bounded.Bound(ctx, signing.Sealed{Sealed: sealed, Unsettled: r.Tally.unsettled})
	}
	if m != nil && sealed.Channel != nil {
		return nil, refuse("it takes no channel on")
	}
	return nil, nil
}

// askOf is what the rules are asked about a payment.
func askOf(p history.Payment, t signing.Terms) budget.Ask {
	if t.IsSignIn {
		return budget.Ask{Agent: p.Agent, Host: p.Host, SignIn: true}
	}
	return budget.Ask{Agent: p.Agent, Price: t.Price, Prepaid: t.Counts == 0 && t.Price > 0, Host: p.Host,
		Key: p.IdempotencyKey, Always: t.Always, Request: p.Fingerprint, Payee: budget.Payee{
			Network: p.Network, Asset: p.Asset, PayTo: p.PayTo, Resource: p.Resource()}}
}

// permit asks the owner's rules about a payment by what is sealed, and once more by what this
// process has signed, and counts it as signed. It is asked last, inside the transaction that records
// the signature.
func (r *Recorder) permit(ctx context.Context, rules Rules, p history.Payment, terms signing.Terms,
	sealed budget.Facts, here bool) error {
	_, known := rules.Assets.Asset(p.Network, p.Asset)
	age := r.Now().Sub(p.Created)
	switch {
	case !known && !terms.IsSignIn:
		return refuse("the owner does not know its asset")
	case terms.Counts != p.Price:
		return refuse("its price in the ledger is not what its amount is worth")
	case p.Created.Before(r.Started): // by the row of this transaction: read looked at an earlier one
		return refuse("the payment was reserved before the wallet was unlocked")
	case age > oldest:
		return refuse("it was reserved at %s, too long ago", p.Created.Format(time.RFC3339))
	case age < -early:
		return x402.Errorf(x402.ClockSuspect, "the payment is dated %s, which is ahead of this "+
			"computer's clock", p.Created.Format(time.RFC3339)).
			WithHint("the person sets the clock or, if it is right now, looks and accepts it in a " +
				"terminal: x402-wallet policy seal")
	}
	r.Tally.mu.Lock()
	defer r.Tally.mu.Unlock()
	if r.Tally.has(p.ID) {
		return refuse("it has signed this payment already")
	}
	ask := askOf(p, terms)
	query := rules.Budget.Query(ask)
	for _, facts := range []budget.Facts{sealed, r.Tally.facts(sealed, query, r.Now())} {
		if err := r.decide(ctx, rules, p, terms, &ask, facts, here); err != nil {
			return err
		}
	}
	r.Tally.add(p, r.Now())
	return nil
}

// decide asks the owner's rules about a payment by some facts. An approval that was found is noted in ask.
func (r *Recorder) decide(ctx context.Context, rules Rules, p history.Payment, terms signing.Terms,
	ask *budget.Ask, facts budget.Facts, here bool) error {
	if terms.IsTransfer {
		_, err := rules.Budget.Transfer(facts)
		return err
	}
	_, err := rules.Budget.Decide(*ask, facts)
	if x402.HasCode(err, x402.ApprovalRequired) && !ask.Approved {
		if err = r.approved(ctx, p, here, err); err == nil {
			ask.Approved = true
			_, err = rules.Budget.Decide(*ask, facts)
		}
	}
	return err
}

// approved reports why a payment that needs a person has none's approval: the owner's, which is sealed,
// or one that was given at this process's own client; required is the error where there is none at all.
func (r *Recorder) approved(ctx context.Context, p history.Payment, here bool, required error) error {
	a, approved, err := r.Store.ApprovalUsedBy(ctx, p)
	switch {
	case err != nil:
		return err
	case !approved || p.Created.After(a.Expires):
		return required
	case here && len(a.Seal) == 0:
		return nil
	}
	return r.Guard.Approved(ctx, p, a)
}

// Submit records a signature of this process with its payload: see history.Store.Submit. Only when
// it returns nil may a byte of it leave. What the unlock agent signed it has recorded already. A transaction
// of a Nuwa channel has no check here: package scheme/nuwa has checked it.
func (r *Recorder) Submit(ctx context.Context, p history.Payment, signed history.Signed, here bool) error {
	_, hasCheck := r.Rules.Checks[p.Scheme]
	own, isOwn := r.take(p.ID)
	switch {
	case !hasCheck:
		own.signed = signed
	case !isOwn:
		return r.Store.Submit(ctx, p, signed, history.Keyholder{})
	case signed.Evidence != own.signed.Evidence:
		return refuse("it is not the message that was signed for this payment")
	}
	signed.UniqueKey, signed.Channel = own.signed.UniqueKey, own.signed.Channel
	err := r.seals(ctx, r.Rules, p, own.message, here, func(k history.Keyholder) error {
		return r.Store.Submit(ctx, p, signed, k)
	})
	if err != nil {
		return err
	}
	return r.recorded(ctx, p, signed)
}

// recorded notes how long a signature may be good, and renews the checkpoint.
func (r *Recorder) recorded(ctx context.Context, p history.Payment, signed history.Signed) error {
	r.Tally.noteEnd(p.ID, signed.Evidence.ExpiresAt.Sub(r.Now()))
	return r.Guard.Checkpoint(ctx)
}

// RecordVoucher does the same for a payment channel: see history.Store.RecordVoucher.
func (r *Recorder) RecordVoucher(ctx context.Context, p history.Payment, signed history.Signed,
	c history.Channel, o history.Outcome, here bool) (history.Payment, error) {
	var recorded history.Payment
	err := r.seals(ctx, r.Rules, p, nil, here, func(k history.Keyholder) (err error) {
		recorded, err = r.Store.RecordVoucher(ctx, p, signed, c, o, k)
		return err
	})
	if err != nil {
		return recorded, err
	}
	return recorded, r.Guard.Checkpoint(ctx)
}

// record records a signature before it is handed out: see history.Store.Sign.
func (r *Recorder) record(ctx context.Context, rules Rules, p history.Payment, m signing.Message,
	signed history.Signed) error {
	if rules.MayPay != nil {
		if err := rules.MayPay(ctx, p); err != nil {
			return err
		}
	}
	err := r.seals(ctx, rules, p, m, false, func(k history.Keyholder) error {
		return r.Store.Sign(ctx, p, signed, m.Over(), k)
	})
	if err != nil {
		return err
	}
	return r.recorded(ctx, p, signed)
}

// lateness is how long after its end a payment is believed to be over: the chain's clock may be behind
// ours by that much, when a payment is signed.
const lateness = budget.ClockTolerance

// Expire records that what was signed can never settle: see history.Store.Expire. The chain's word,
// which is a node's, is not enough: the payment has to be past its end by this machine's clock, and
// where this process signed it by the time that has passed since. p is the payment as it was read before the
// chain was asked.
func (r *Recorder) Expire(ctx context.Context, p history.Payment, o history.Outcome) (history.Payment,
	error) {
	end := p.Evidence.ExpiresAt
	if r.Now().Before(end.Add(lateness)) || r.Tally.lives(p.ID) {
		return history.Payment{}, x402.Errorf(x402.PolicyDenied,
			"by this machine's clock payment %s has not expired: it is good until %s", p.ID,
			end.UTC().Format(time.RFC3339)).WithHint("ask again later")
	}
	k, err := r.keyholder(ctx, r.Rules, nil, false)
	if err != nil {
		return history.Payment{}, err
	}
	p, err = r.Store.Expire(ctx, p, o, k)
	if err != nil {
		return p, err
	}
	r.Tally.takeBack(p.ID)
	return p, r.Guard.Checkpoint(ctx)
}

// Charge records that the chain showed a payment to have settled for less than was signed for: see
// history.Store.Charge. As with an expiry a node's word is not enough while the payment could still settle:
// for as long, all of it counts.
func (r *Recorder) Charge(ctx context.Context, rules Rules, p history.Payment,
	status x402.Status) (history.Payment, error) {
	end := p.Evidence.ExpiresAt
	if r.Now().Before(end.Add(lateness)) || r.Tally.lives(p.ID) {
		return history.Payment{}, x402.Errorf(x402.PolicyDenied,
			"by this machine's clock payment %s is good until %s: until then all that was signed for counts",
			p.ID, end.UTC().Format(time.RFC3339)).WithHint("ask again later")
	}
	asset, known := rules.Assets.Asset(p.Network, p.Asset)
	if !known || status.State != x402.Settled || status.Amount == nil {
		return history.Payment{}, refuse("its asset is not known, or what it came to is not proven")
	}
	k, err := r.keyholder(ctx, rules, nil, false)
	if err != nil {
		return history.Payment{}, err
	}
	c := history.Charge{Amount: *status.Amount, Worth: min(asset.Dollars(*status.Amount), p.Price)}
	p, err = r.Store.Charge(ctx, p, c, history.Settlement(status), k)
	if err != nil {
		return p, err
	}
	r.Tally.lower(p.ID, c.Worth)
	return p, r.Guard.Checkpoint(ctx)
}
