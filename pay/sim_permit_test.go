//go:build !race

package pay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// permitWorld is a world with sellers that are paid by Permit2, which may move what the payer approved: the
// owner once and for all, or a signed approval (EIP-2612) that a facilitator brings with the payment. The
// token takes those in the order of their nonces.
//
// What must stay true, besides what holds for all payments:
//
//	P1  where no approval is brought, what is signed and still good is never above what Permit2 may move
//	P2  an approval leaves with the payment that it was signed for
//	P3  of one process no two payments that are under way have the same approval of the token
//	P4  what Permit2 may move is never above what the owner approved, and what is signed and still good;
//	    and what was approved for a payment that somebody kept back
type permitWorld struct {
	permits, sponsored [3]bool
	approvedOnce       uint64 // by the owner
	allowance          uint64
	leftover           uint64 // of the allowance: of an approval that was taken without its payment
	tokenNonce         int
	allowed            []permitMoment
}

type permitMoment struct {
	at        time.Time
	allowance uint64
	nonce     int
}

// permit is what a payment by Permit2 has besides.
type permit struct {
	by      *call
	process *process
	nonce   int    // of its approval; -1: it has none
	value   uint64 // of that
}

func (s *sim) drawPermits() {
	for n := range s.permits {
		s.sponsored[n] = s.chance(70)
	}
	s.approvedOnce = []uint64{0, 0, 10, 20, 1000}[s.rng.IntN(5)]
	s.allowance = s.approvedOnce
	s.markPermit()
}

func (s *sim) markPermit() {
	s.allowed = append(s.allowed, permitMoment{s.now(), s.allowance, s.tokenNonce})
}

func (s *sim) seenPermit() permitMoment {
	view := s.now().Add(-s.node.lag)
	was := s.allowed[0]
	for _, m := range s.allowed {
		if !m.at.After(view) {
			was = m
		}
	}
	return was
}

// permitted moves the allowance as a payment's settlement does, or leaves all as it is.
func (s *sim) permitted(g *signature) bool {
	allowance, nonce, left := s.allowance, s.tokenNonce, s.leftover
	if p := g.permit; p.nonce == nonce && s.now().Before(g.validBefore) { // one that fails is passed over
		allowance, nonce, left = p.value, nonce+1, 0
	}
	if allowance < g.amount {
		return false
	}
	s.allowance, s.tokenNonce, s.leftover = allowance-g.amount, nonce, min(left, allowance-g.amount)
	s.markPermit()
	return true
}

// approvable are signatures of which somebody could bring the approval alone.
func (s *sim) approvable() (list []*signature) {
	for _, g := range s.takeable() {
		if g.permit != nil && g.permit.nonce == s.tokenNonce {
			list = append(list, g)
		}
	}
	return list
}

// takeApproval is the approval without the payment.
func (s *sim) takeApproval(g *signature) {
	s.say("      somebody brings the approval of %s alone", g.tx())
	s.allowance, s.leftover = g.permit.value, g.permit.value
	s.tokenNonce++
	s.markPermit()
}

// simPermits is a process's signer and node for Permit2.
type simPermits struct{ simScheme }

func (c *simPermits) Funds(ctx context.Context, network string, asset x402.AssetInfo) (x402.Funds, error) {
	funds, err := c.simScheme.Funds(ctx, network, asset)
	allowance := money.NewAmount(c.s.seenPermit().allowance)
	funds.Permitted = &allowance
	if of := actorOf(ctx).call; of != nil && c.s.seenPermit().allowance > 0 {
		of.unlimited = true
	}
	return funds, err
}

func (c *simPermits) Authorize(ctx context.Context, o onchain.Order) (a onchain.Authorization, err error) {
	s := c.s
	if a, err = c.simScheme.Authorize(ctx, o); err != nil {
		return a, err
	}
	g, m := s.sigs[len(s.sigs)-1], s.seenPermit()
	of := actorOf(ctx).call
	g.permit = &permit{by: of, process: c.p, nonce: -1}
	a.Evidence.Way = o.Requirement.Way()
	if m.allowance >= g.amount {
		return a, nil
	}
	if _, offered := o.Extensions[x402.EIP2612Sponsoring]; !offered {
		s.sigs = s.sigs[:len(s.sigs)-1]
		return onchain.Authorization{}, x402.Errorf(x402.NoDelegation, "Permit2 may not move it")
	}
	s.turnOf(g, m.nonce)
	g.permit.nonce, g.permit.value = m.nonce, g.amount
	s.say("      with the approval %d", m.nonce)
	a.Extensions = map[string]json.RawMessage{x402.EIP2612Sponsoring: json.RawMessage(
		fmt.Sprintf(`{"info":{"nonce":"%d"}}`, m.nonce))}
	return a, nil
}

// turnOf is P3.
func (s *sim) turnOf(g *signature, nonce int) {
	for _, o := range s.sigs {
		if o.permit == nil || o == g || o.permit.nonce != nonce || o.permit.process != g.permit.process {
			continue
		}
		sawEnough := o.permit.by.unlimited || g.permit.by.unlimited // then none of them waits
		by := o.permit.by
		isOver := by.returned || by.ended || (by.batch != nil && by.recorded)
		if by != g.permit.by && o.seen && !isOver && !sawEnough {
			s.fail("P3: %s is signed with the approval %d, and so is %s, which is under way", g.tx(), nonce,
				o.tx())
		}
	}
}

// leftPermit is P2.
func (s *sim) leftPermit(g *signature, payload []byte) {
	if g.permit == nil || g.permit.nonce < 0 {
		return
	}
	var p struct {
		Extensions map[string]struct{ Info struct{ Nonce string } }
	}
	_ = json.Unmarshal(payload, &p)
	if p.Extensions[x402.EIP2612Sponsoring].Info.Nonce != fmt.Sprint(g.permit.nonce) {
		s.fail("P2: %s left without its approval: %s", g.tx(), payload)
	}
}

// checkPermits is P1 and P4.
func (s *sim) checkPermits() {
	var open, alone uint64
	isSponsored := false
	for _, g := range s.sigs {
		if g.permit == nil {
			continue
		}
		isSponsored = isSponsored || s.sponsored[urlNumber(g.url)]
		if g.seen && !g.settled && s.now().Before(g.validBefore) {
			open += g.amount
			if g.permit.nonce >= 0 {
				alone = max(alone, g.permit.value)
			}
		}
	}
	if s.mix.exact && !isSponsored && open > s.allowance {
		s.fail("P1: %d left signed, and Permit2 may move %d", open, s.allowance)
	}
	if max(s.allowance, alone) > s.approvedOnce+s.leftover+open {
		s.fail("P4: Permit2 may move %d, and %d left signed", max(s.allowance, alone), open)
	}
}
