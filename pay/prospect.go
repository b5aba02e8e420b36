package pay

import (
	"context"
	"slices"
	"sync"

	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

// reader reads the chain's layer.
type reader struct {
	funds  func(ctx context.Context, o option) (x402.Funds, error)
	newCap func() (*money.Dollars, error) // SessionCap, asked once
}

// chain reads what there is now.
func (e *Engine) chain(ctx context.Context) reader {
	return reader{funds: e.funds, newCap: e.sessionCapOnce(ctx)}
}

func (e *Engine) funds(ctx context.Context, o option) (x402.Funds, error) {
	scheme, _ := e.payer(o)
	return scheme.Funds(ctx, o.Network, o.asset)
}

// Estimator judges what others say that sellers ask. It reads the chain once for each asset, and an
// error is remembered like an answer: many listings and a node that is down are no reason to wait
// for it many times.
type Estimator struct {
	engine *Engine
	mu     sync.Mutex
	read   map[fundsKey]func() (x402.Funds, error)
	newCap func() (*money.Dollars, error)
}

type fundsKey struct {
	scheme string
	asset  money.Asset
	source string // its name
}

// NewEstimator judges with what the chains say from now on.
func (e *Engine) NewEstimator() *Estimator {
	return &Estimator{engine: e, read: map[fundsKey]func() (x402.Funds, error){}}
}

// nobody is the payee, in an estimate, of an option without PayTo.
const nobody = "0x000000000000000000000000000000000000dEaD"

// Weigh is what Estimate would say if the seller asked this. The seller is not asked; nothing is
// signed or held. An option on EVM may have no PayTo: the rules about payees say nothing of it. An error
// means that the seller may not be spoken of as one; a host that the owner does not allow is a reason against
// every option.
func (p *Estimator) Weigh(ctx context.Context, q Request, accepts []x402.Requirement) (Estimate, error) {
	in, err := q.parse(AgentFrom(ctx))
	if err != nil {
		return Estimate{}, err
	}
	if err := p.engine.Transport.Check(q.Request); err != nil { // as it is written: nobody here means another
		return Estimate{}, err
	}
	chain := p.chain(ctx)
	if denied := p.engine.Rules.CheckHost(in.agent, in.host); denied != nil {
		chain.funds = func(context.Context, option) (x402.Funds, error) { return x402.Funds{}, denied }
	}
	accepts = slices.Clone(accepts)
	for i := range accepts {
		if accepts[i].PayTo == "" {
			accepts[i].PayTo, in.anyPayee = nobody, true
		}
	}
	stored := &quote{answer: &seller.Answer{FinalURL: q.URL}, challenge: &wire.Challenge{Accepts: accepts}}
	out := p.engine.weigh(ctx, in, stored, chain)
	for i := range out.Options {
		if in.anyPayee && out.Options[i].PayTo == nobody {
			out.Options[i].PayTo = ""
		}
	}
	return out, nil
}

func (p *Estimator) chain(ctx context.Context) reader {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newCap == nil {
		p.newCap = p.engine.chain(ctx).newCap
	}
	return reader{funds: p.funds, newCap: p.newCap}
}

func (p *Estimator) funds(ctx context.Context, o option) (x402.Funds, error) {
	key := fundsKey{scheme: o.Way(), asset: o.asset.Key(), source: o.sourceName()}
	p.mu.Lock()
	read := p.read[key]
	if read == nil {
		read = sync.OnceValues(func() (x402.Funds, error) { return p.engine.funds(ctx, o) })
		p.read[key] = read
	}
	p.mu.Unlock()
	return read()
}
