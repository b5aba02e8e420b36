//go:build !race

package pay

import (
	"context"
	"fmt"

	"x402-wallet/budget"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// newEvery-th seeds have sellers that are paid in the ways that came later: through channels with a deposit,
// by Permit2 with approvals, or let in who signs in. The others are as they were before.
const newEvery = 3

// drawWays draws which sellers those are, after everything else.
func (s *sim) drawWays(urls int, draw func(choice, int, int, ...string) []choice, some func(int, int) int) {
	s.locks = map[channelName]*simLock{}
	if s.seed%newEvery != 0 {
		return
	}
	m := &s.mix
	m.batch = draw(choice{"takes it", 8}, 25, 4, honestCounts...)
	if s.chance(50) {
		m.batch = append(m.batch, draw(choice{"takes it", 0}, 35, 4, lyingCounts...)...)
	}
	s.lying = hasChoice(m.batch, lyingCounts...)
	m.member = draw(choice{"lets in", 8}, 30, 5, memberAnswers...)
	m.refund, m.withdraw, m.approval = some(40, 2), some(15, 1), some(40, 4)
	for n := range urls {
		isOld := s.seeds[n] || s.standard[n] || s.charges[n] || s.meters[n]
		if isOld && n > 0 {
			continue
		}
		s.seeds[n], s.standard[n], s.charges[n], s.meters[n], s.deaf[n] = false, false, false, false, false
		switch s.rng.IntN(6) {
		case 0, 1, 2:
			s.batches[n] = true
		case 3, 4:
			s.permits[n] = true
		}
		s.members[n] = s.chance(40) || !(s.batches[n] || s.permits[n])
	}
	s.besides, s.shops, s.shared = s.chance(25), 1+s.rng.IntN(3)*s.rng.IntN(2), s.chance(20)
	s.least = []uint64{0, 0, 0, 0, 10, 10, 20, 500}[s.rng.IntN(8)]
	s.most = []uint64{10, 20, 40, 60}[s.rng.IntN(4)]
	s.drawPermits()
	s.shown = map[string]bool{}
	for n := range 1 + s.rng.IntN(4) {
		url := s.rng.IntN(urls)
		s.purchases = append(s.purchases, &purchase{n: len(s.purchases) + 1,
			url: fmt.Sprintf("https://%s/%d", s.host(url%2), url), key: s.anotherKey(n)})
	}
	if s.chance(75) { // limits that are not in the way of what is looked for here
		session := money.Dollars(200)
		s.rules.Session, s.rules.Day, s.rules.Month, s.rules.HostDay = &session, 200, 1000, nil
		s.balance, s.initial, s.past = 1000, 1000, nil
		s.mark()
	}
	s.rules.SignIn = budget.RuleAllow
	m.steps += 80
	if s.chance(60) { // the trouble is the sellers', so that more is bought
		m.node, m.clock, m.leave = 0, 0, m.leave/4
		m.ask, m.funds = m.ask[:1], m.funds[:1]
		m.findExact()
	} else if s.chance(40) { // or the node's, while money of channels is asked back
		m.node, m.refund, m.withdraw = 6, 4, 2
		m.findExact()
	}
	s.drawOwners(urls)
	m.exact = m.exact && !s.lying
}

func (s *sim) anotherKey(n int) string {
	if s.chance(60) {
		return ""
	}
	return fmt.Sprintf("another key %d of seed %d", n, s.seed)
}

func (s *sim) isNew(n int) bool { return s.batches[n] || s.permits[n] || s.members[n] }

// askingNew is how such a seller asks.
func (s *sim) askingNew(url string, price uint64) *seller.Answer {
	n := urlNumber(url)
	extensions := s.extensions(url)
	if s.batches[n] {
		return s.askingBatch(url, price, s.authorizer(url), "", extensions)
	}
	extra := `"name":"USDC","version":"2"`
	if s.permits[n] {
		extra += `,"assetTransferMethod":"permit2"`
	}
	return s.challenge(url, fmt.Sprintf(`{"scheme":"exact","network":%q,"amount":"%d","asset":%q,"payTo":%q,`+
		`"maxTimeoutSeconds":60,"extra":{%s}}`, testNetwork, price, testUSDC, testPayee, extra), extensions)
}

// extensions are what such a seller declares.
func (s *sim) extensions(url string) string {
	n, text := urlNumber(url), ""
	if s.permits[n] && s.sponsored[n] {
		text = fmt.Sprintf(`%q:{"info":{"description":"x","version":"1"},"schema":{}}`, x402.EIP2612Sponsoring)
	}
	if s.members[n] {
		if text != "" {
			text += ","
		}
		text += s.signInOffer(url)
	}
	if text == "" {
		return ""
	}
	return `,"extensions":{` + text + "}"
}

// signsFor is told that a call signs a payment.
func (s *sim) signsFor(c *call) {
	if c.letIn {
		s.fail("S: %s was let in by its sign-in, and a payment is signed as well", c.of.url)
	}
}

// notCharged: a voucher of which the seller's books show that it was not charged is nobody's any more.
func (s *sim) notCharged(id string) {
	for _, c := range s.calls {
		if g := s.of(id); c.sent == id && g.promise != nil && !g.promise.deposits {
			c.sent = ""
		}
	}
}

// endsWithout: a deposit that was made without a call being charged is done with, and the call goes on.
func (s *sim) endsWithout(ctx context.Context, id string) {
	if c := actorOf(ctx).call; c != nil && c.sent == id {
		if g := s.of(id); g != nil && g.promise != nil && !c.returned {
			c.sent = ""
		}
	}
}
