package matrix

import (
	"cmp"
	"fmt"
	"slices"

	"x402-wallet/e2e/testworld"

	"github.com/stretchr/testify/require"
)

// cases are what happens to one wallet, one after the other.
var cases = []struct {
	name string
	run  func(s *stand)
}{
	{"first purchase", (*stand).buysOnce},
	{"second purchase", (*stand).buysOnce},
	{"answer lost", (*stand).losesAnAnswer},
	{"killed before the seller has it", func(s *stand) { s.isKilled(holdsPayment) }},
	{"killed after the seller served", func(s *stand) { s.isKilled(holdsAnswer) }},
	{"edge of the budget", (*stand).isAtTheEdge},
}

// times is the next purchase, however often it is tried. The seller serves it so many times: as much moves by
// the records of both sides, and the history has it in this state.
func (s *stand) times(times int, state string, tries func(n int)) {
	s.t.Helper()
	n := s.bought
	s.bought++
	for range times {
		s.counts(n)
	}
	price, spent, earned := uint64(times)*s.price(n), s.way.spent(s), s.way.earned(s)
	tries(n)
	require.Equal(s.t, price, s.way.spent(s)-spent, "paid by the payer")
	require.Equal(s.t, price, s.way.earned(s)-earned, "paid to the payee")
	rows := s.states(n)
	require.NotEmpty(s.t, rows)
	require.Equal(s.t, state, rows[0])
	require.True(s.t, len(rows) == times || s.signsIn(n), "payments: %v", rows)
}

// counts adds what a purchase takes of the budget: some are paid by what the first of several took.
func (s *stand) counts(n int) {
	if s.signsIn(n) {
		return
	}
	if s.paid%s.way.covers == 0 {
		s.used += s.way.counts
	}
	s.paid++
}

// gets is a call that is answered so, with what was bought if it says that.
func (s *stand) gets(n int, status string) answer {
	s.t.Helper()
	p := s.follows(n)
	require.Equal(s.t, status, p.Status+p.Error, "%+v", p)
	if status == "paid" || status == "free" {
		require.Contains(s.t, p.Content, s.way.goods)
	}
	return p
}

func (s *stand) buysOnce() {
	s.times(1, "settled", func(n int) { s.gets(n, s.status(n)) })
}

// losesAnAnswer makes a call again whose payment settled, and whose answer did not arrive.
func (s *stand) losesAnAnswer() {
	s.times(s.way.serves, s.way.after, func(n int) {
		s.door.will(losesAnswer)
		lost := s.gets(n, s.way.unheard)
		require.Equal(s.t, s.way.serves == 1, lost.SafeToRetry, "%+v", lost)
		s.gets(n, s.way.lost)
	})
}

// isKilled makes a call again whose payment was on its way when the wallet was killed.
func (s *stand) isKilled(f fault) {
	times, status, state := s.way.serves, s.way.lost, s.way.after
	if f == holdsPayment {
		times, status, state = 1, s.status(s.bought), "settled"
	}
	s.times(times, state, func(n int) {
		s.door.will(f)
		i, ended := s.turn%len(s.agents), make(chan error, 1)
		go func() {
			p, err := s.buy(n)
			ended <- fmt.Errorf("%+v: %w", p, err)
		}()
		s.door.awaits(s.t, ended)
		s.agents[i].Kill()
		s.door.free <- struct{}{}
		<-ended
		if len(s.agents) > 1 { // the other one takes it up
			s.gets(n, status)
			s.agents[i] = s.setup.start(s, i)
			return
		}
		s.agents[i] = s.setup.start(s, i)
		s.gets(n, status)
	})
}

// isAtTheEdge buys what the budget has room for to the last unit, and not for one unit more.
func (s *stand) isAtTheEdge() {
	s.usesUp()
	signsIn := s.way.path
	s.way.path = cmp.Or(s.way.dear, signsIn)
	s.limit(s.used + s.way.counts - 1)
	s.isAnswered("BUDGET_EXCEEDED")
	s.limit(s.used + s.way.counts)
	s.buysOnce()
	s.usesUp()
	s.isAnswered("BUDGET_EXCEEDED")
	if s.way.dear != "" {
		s.way.path = signsIn
		s.gets(s.bought, "free")
	}
	s.run(nil, "reconcile")
	s.run(nil, "history", "verify")
}

// usesUp buys what the budget has been charged for already.
func (s *stand) usesUp() {
	for s.paid%s.way.covers != 0 {
		s.buysOnce()
	}
}

// limit sets the window whose edge is tried.
func (s *stand) limit(units uint64) {
	s.t.Helper()
	dollars := fmt.Sprintf("%d.%06d", units/1e6, units%1e6)
	args := slices.Concat([]string{"budget", "set", s.setup.limit[0], dollars}, s.setup.limit[1:])
	seen, err := s.home.AtTerminal(s.t, s.bin, testworld.Passphrase, args...)
	require.NoError(s.t, err, seen)
}

// isAnswered is a purchase that is not made: nothing moves.
func (s *stand) isAnswered(answer string) {
	s.t.Helper()
	spent, earned := s.way.spent(s), s.way.earned(s)
	s.gets(s.bought, answer)
	require.Equal(s.t, spent, s.way.spent(s))
	require.Equal(s.t, earned, s.way.earned(s))
}
