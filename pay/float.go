package pay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"x402-wallet/history"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/remedy"
)

// Floats moves an owner's money to the agent's own account, as far as they let it, so that a payment can be
// made from there: evm.Exact.
type Floats interface {
	// Name is how the ledger names what it moves.
	Name() string
	// AllowanceOn is how the owner lets the agent spend on a network; nil: not at all.
	AllowanceOn(network string) *x402.AllowanceRule
	// DraftPull prepares a transaction that moves an amount, SignPull signs it, and SendPull brings it to the
	// chain, as often as is wanted.
	DraftPull(ctx context.Context, asset x402.AssetInfo, amount money.Amount) (x402.Pull, error)
	SignPull(ctx context.Context, payment string, p x402.Pull) (onchain.Authorization, error)
	SendPull(ctx context.Context, network string, payload []byte) error
	// Lack explains that the owner's account does not cover an option, and Explain what a person does so that
	// a float can be moved.
	Lack(o scheme.Option, f x402.Funds, lack *history.ShortOfFunds) error
	Explain(err error, asset x402.AssetInfo, a x402.OwnerAllowance, amount money.Amount) error
}

const (
	// pullPoll is how often the chain is asked what became of a pull, pullAgain how often it is brought
	// there.
	pullPoll  = 300 * time.Millisecond
	pullAgain = 10 * time.Second
	// maxPulls is how often a payment tries to have the float that it needs moved.
	maxPulls = 4
	// methodPull is what a pull's row says where a payment's says how its seller was asked.
	methodPull = "transferFrom"
)

// fund sees to it that what a held payment takes is at the agent's own account before it is signed for, by a
// pull out of the owner's. A payment waits for what it takes itself and for what was held before it, and for
// nothing behind it. Its error is about the payment, of which nothing was signed.
func (e *Engine) fund(ctx context.Context, p *Purchase) error {
	if p.funds.Allowance == nil {
		return nil
	}
	held, err := e.Store.HeldUpTo(ctx, p.Payment, p.funds.ReadAt)
	if err != nil || held.Cmp(p.funds.Balance) <= 0 {
		return err
	}
	over := awaiting(ctx)
	defer over()
	end, err := e.turns.begin(ctx, scheme.AccountTurn(p.option.Network))
	if err != nil {
		return err
	}
	defer end()
	scheme, _ := e.payer(p.option)
	last := error(x402.Errorf(x402.PayFailed, "the float that the payment needs did not come").
		WithHint("nothing was signed for the payment; make the same call again"))
	for range maxPulls {
		funds, err := scheme.Funds(ctx, p.option.Network, p.option.asset)
		if err != nil {
			return err
		}
		held, err := e.Store.HeldUpTo(ctx, p.Payment, funds.ReadAt)
		if err != nil || held.Cmp(funds.Balance) <= 0 || funds.Allowance == nil {
			return err
		}
		short := held.SubFloor(funds.Balance)
		if funds.Allowance.Pullable().Cmp(short) < 0 { // the owner took something back
			return e.insufficient(ctx, p.option, funds, &history.ShortOfFunds{Free: funds.Free,
				Held: held.SubFloor(p.Payment.Amount), Wanted: p.Payment.Amount})
		}
		err = e.pull(ctx, p.option.asset, funds, short, held.SubFloor(p.Payment.Amount))
		var again *takenAnew
		switch {
		case errors.As(err, &again):
			last = again.cause
			if err := pause(ctx, pullPoll); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	return last
}

// takenAnew says that a float was not signed for a reason that is gone the next time.
type takenAnew struct{ cause error }

func (t *takenAnew) Error() string { return t.cause.Error() }

// pull moves a float to the agent's account, short at least: so much that with it a float is there beside
// what earlier payments take. Where a pull is under way that one is brought to its end instead.
func (e *Engine) pull(ctx context.Context, asset x402.AssetInfo, funds x402.Funds, short,
	earlier money.Amount) error {
	open, err := e.openPull(ctx, *funds.Allowance)
	switch {
	case err != nil:
		return err
	case open != nil:
		return e.bring(ctx, *open)
	}
	spare := funds.Allowance.Float.SubFloor(earlier)
	amount := asset.Units(e.Floats.AllowanceOn(asset.Network).Float).SubFloor(spare)
	if pullable := funds.Allowance.Pullable(); amount.Cmp(pullable) > 0 {
		amount = pullable
	}
	if amount.Cmp(short) < 0 {
		amount = short
	}
	draft, err := e.Floats.DraftPull(ctx, asset, amount)
	if err != nil {
		return e.Floats.Explain(err, asset, *funds.Allowance, amount)
	}
	p, err := e.holdPull(ctx, asset, draft, funds)
	if err != nil {
		return err
	}
	defer p.End(false)
	err = e.signPull(ctx, p, draft)
	switch {
	// Another process was faster with this nonce, or less is held to be paid than a moment ago.
	case errors.Is(err, history.ErrSignedBefore), x402.HasCode(err, x402.CheckFailed),
		x402.HasCode(err, x402.PolicyDenied):
		return &takenAnew{p.NotSent(ctx, err)}
	case err != nil:
		return p.NotSent(ctx, err)
	}
	return e.bring(ctx, p.Payment)
}

// openPull is the pull of an owner's account that may still happen; nil: there is none. What the chain says
// has failed is none, though by our own clocks it is recorded a little later.
func (e *Engine) openPull(ctx context.Context, a x402.OwnerAllowance) (*history.Payment, error) {
	open, err := e.Store.OpenFrom(ctx, a.Network, a.Owner)
	if err != nil {
		return nil, err
	}
	for _, p := range open {
		switch {
		case !p.IsPull():
			continue
		case p.State == history.Reserved && e.leased(p): // another process is about to sign it
			return nil, e.awaitSigned(ctx, p)
		case p.State == history.Reserved:
			if _, err := e.releaseAbandoned(ctx, p); err != nil {
				return nil, err
			}
			continue
		}
		status, err := e.statusOfPull(ctx, p)
		if err != nil {
			return nil, err
		}
		if status.State != x402.Expired {
			return &p, nil
		}
		e.learn(ctx, p, status)
	}
	return nil, nil
}

func (e *Engine) statusOfPull(ctx context.Context, p history.Payment) (x402.Status, error) {
	reader, known := e.statusReader(p.Scheme, p.Network)
	if !known {
		return x402.Status{}, remedy.NetworkOff(p.Network)
	}
	return reader.Status(ctx, p.Evidence)
}

// awaitSigned waits until a pull that another process holds is signed, or not held any more.
func (e *Engine) awaitSigned(ctx context.Context, p history.Payment) error {
	for p.State == history.Reserved && e.leased(p) {
		if err := pause(ctx, poll); err != nil {
			return err
		}
		var err error
		if p, err = e.Store.Payment(ctx, p.ID); err != nil {
			return err
		}
	}
	return nil
}

// holdPull is the pull as a payment of its own, held out of the owner's account. It buys nothing, so its
// price is 0.
func (e *Engine) holdPull(ctx context.Context, asset x402.AssetInfo, draft x402.Pull, funds x402.Funds) (
	*Purchase, error) {
	id, name := history.NewID(e.Now()), e.Floats.Name()
	requirement, err := json.Marshal(draft)
	if err != nil {
		return nil, err
	}
	p := history.Payment{ID: id, Fingerprint: sha256.Sum256([]byte(id)), Method: methodPull,
		URL: name + ":" + draft.Owner, Network: draft.Network, Scheme: name, Dialect: x402.Dialect(name),
		Asset: asset.Key().Address, Symbol: asset.Symbol, Amount: draft.Amount, PayTo: draft.Agent,
		Source: draft.Owner, Requirement: requirement}
	written, err := e.inflight.begin(id, p.Fingerprint, ctx)
	if err != nil {
		return nil, err
	}
	defer written()
	held, err := e.reservePull(ctx, p, x402.Funds{Source: draft.Owner, Free: funds.Allowance.Pullable(),
		ReadAt: funds.ReadAt})
	if err != nil {
		e.inflight.end(id, false)
		return nil, err
	}
	return &Purchase{Payment: held, engine: e}, nil
}

func (e *Engine) reservePull(ctx context.Context, p history.Payment, funds x402.Funds) (history.Payment,
	error) {
	for range maxDecisions {
		facts, err := e.Store.Facts(ctx, history.Question{Rules: e.Rules.TransferQuery(), Payment: p})
		if err != nil {
			return p, err
		}
		if err := facts.Refusal(); err != nil {
			return p, err
		}
		decision, err := e.Rules.Transfer(facts.Facts)
		if err != nil {
			return p, err
		}
		held, err := e.Store.Reserve(ctx, history.Hold{Payment: p, Funds: funds, Decision: decision,
			DecidedAt: facts.Now, DecidedHead: facts.Head})
		if x402.HasCode(err, x402.LedgerUnavailable) {
			e.undoHold(ctx, p.ID)
		}
		if !errors.Is(err, history.ErrMoved) {
			return held, err
		}
	}
	return p, x402.Errorf(x402.LedgerUnavailable, "other payments changed the ledger each of the %d times "+
		"that a float was held", maxDecisions).WithHint("make the same call again; nothing was signed")
}

// signPull signs what is held and puts it on disk.
func (e *Engine) signPull(ctx context.Context, p *Purchase, draft x402.Pull) error {
	if err := p.MaySign(ctx); err != nil {
		return err
	}
	a, err := e.Floats.SignPull(ctx, p.Payment.ID, draft)
	if err != nil {
		return err
	}
	return p.Submit(ctx, history.Signed{Payload: a.Payload, Requirement: p.Payment.Requirement,
		Evidence: a.Evidence, UniqueKey: a.Evidence.Unique()})
}

// bring brings a signed pull to the chain and waits until that says what became of it. The same bytes may be
// brought again at any time, by whatever process, unless the account that they take from is frozen.
func (e *Engine) bring(ctx context.Context, p history.Payment) error {
	defer e.giveUp(ctx, p.ID)
	for sent := (time.Time{}); ; {
		var frozen error
		if p.Payload != nil && time.Since(sent) > pullAgain {
			frozen = e.Store.NotFrozen(ctx, p.Network, p.Source) // it may be since it was signed
			if frozen == nil {
				if err := e.Floats.SendPull(ctx, p.Network, p.Payload); err != nil {
					e.Log.Warn("bring a float to the chain", "payment", p.ID, "err", err)
				}
				sent = time.Now()
				reached(ctx, StageFloat, p)
			}
		}
		status, err := e.statusOfPull(ctx, p)
		if err != nil {
			e.Log.Warn("ask the chain about a float", "payment", p.ID, "err", err)
			status.State = x402.Open // an error proves nothing
		}
		if status.State != x402.Open {
			p = e.learn(ctx, p, status)
			if p.State == history.Settled {
				e.Delivered(ctx, StatusPaid, p.ID) // nobody waits for what it bought
			}
			return nil
		}
		if frozen != nil {
			return frozen
		}
		if pause(ctx, pullPoll) != nil {
			return x402.Errorf(x402.Timeout, "the float that the payment needs is on its way to the agent's "+
				"account, and not there yet").WithDetail("transaction", p.Evidence.Transaction).
				WithHint("nothing was signed for the payment; make the same call again")
		}
	}
}
