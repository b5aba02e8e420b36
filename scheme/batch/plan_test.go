package batch

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/scheme"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/wire"
)

func units(n uint64) money.Amount { return money.NewAmount(n) }

func pointer(a money.Amount) *money.Amount { return &a }

// What a call takes of its channel: a voucher alone as long as the deposit covers it, else at least what the
// seller wants and never more than the owner lets lie there.
func TestPlanOfAChannel(t *testing.T) {
	open := []history.BatchOpen{{Payment: "pay_1", Amount: units(3000)}}
	for name, c := range map[string]struct {
		state            channelState
		ceiling, deposit uint64
		err              error
	}{
		"the first call": {channelState{minDeposit: units(10_000), most: units(100_000)}, 1000, 10_000,
			nil},
		"no least deposit":                  {channelState{most: units(100_000)}, 1000, 10_000, nil},
		"no least deposit, and little room": {channelState{most: units(2500)}, 1000, 2000, nil},
		"room for the price alone":          {channelState{most: units(1000)}, 1000, 1000, nil},
		"no room for the price":             {channelState{most: units(999)}, 1000, 1000, errTooLittle},
		"no room for the seller's wish": {channelState{minDeposit: units(10_000), most: units(9999)}, 1000,
			10_000, errTooLittle},
		"a voucher": {channelState{charged: units(2000), promised: units(2000),
			book: history.BatchBook{Funds: units(3000)}}, 3000, 0, nil},
		"the deposit is used up": {channelState{charged: units(2000), promised: units(2000),
			most: units(10_000), minDeposit: units(5000), book: history.BatchBook{Funds: units(2999)}}, 3000,
			5000, nil},
		"and more is missing than the least": {channelState{charged: units(9000), promised: units(9000),
			most: units(10_000), minDeposit: units(500), book: history.BatchBook{Funds: units(2000)}}, 10_000,
			8000, nil},
		"and less is missing than the price": {channelState{charged: units(2000), promised: units(2000),
			most: units(1000), minDeposit: units(1), book: history.BatchBook{Funds: units(2999)}}, 3000,
			1000, nil},
		"for which there is no room": {channelState{charged: units(2000), promised: units(2000),
			most: units(999), minDeposit: units(1), book: history.BatchBook{Funds: units(2999)}}, 3000,
			1000, errTooLittle},
		"a deposit is on its way": {channelState{most: units(100_000),
			book: history.BatchBook{Deposit: &open[0]}}, 1000, 0, errDepositOpen},
		"and a part of the price is there": {channelState{most: units(100_000),
			book: history.BatchBook{Funds: units(500), Deposit: &open[0]}}, 1000, 0, errDepositOpen},
		"an earlier voucher is open: it counts": {channelState{charged: units(2000), promised: units(3000),
			book: history.BatchBook{Funds: units(9000), Vouchers: open}}, 4000, 0, nil},
		"it was not charged": {channelState{charged: units(2000), promised: units(3000),
			book: history.BatchBook{Funds: units(9000)}}, 3000, 0, nil},
		"a lost ledger's voucher was charged": {channelState{charged: units(7000), promised: units(3000),
			book: history.BatchBook{Funds: units(9000), Vouchers: open}}, 8000, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.state.price = units(1000)
			ceiling, deposit, err := c.state.plan()
			require.ErrorIs(t, err, c.err)
			require.Equal(t, units(c.ceiling), ceiling)
			require.Equal(t, units(c.deposit), deposit)
		})
	}
}

const (
	countNothing  = scheme.CountNothing
	countCharged  = scheme.CountCharged
	countBefore   = scheme.CountBefore
	countRejected = scheme.CountRejected
	countTooMuch  = scheme.CountTooMuch
)

// The table of what sellers say (judgeCount), for a voucher of 4000 over 3000 that were charged, or over what
// the book says instead. A voucher that is shown again was charged where others, that promise more, were
// charged after it; one that is shown for the first time was not.
func TestJudgeCount(t *testing.T) {
	const id = "0x01"
	say := func(charged uint64) *wire.ChannelCount {
		return &wire.ChannelCount{ID: id, Charged: pointer(units(charged))}
	}
	with := func(n *wire.ChannelCount, now uint64) *wire.ChannelCount {
		n.ChargedNow = pointer(units(now))
		return n
	}
	showing := func(n *wire.ChannelCount, ceiling uint64) *wire.ChannelCount {
		n.Voucher = &x402.ChannelVoucher{Ceiling: units(ceiling)}
		return n
	}
	took := func(n *wire.ChannelCount) count { return count{ChannelCount: n, success: true} }
	foreign := func(n *wire.ChannelCount) count { return count{ChannelCount: n} }
	ours := func(n *wire.ChannelCount) count { return count{ChannelCount: n, own: true} }
	again := func(c count) count { c.again = true; return c }
	shownAgain := func(charged, ceiling uint64) count {
		return again(ours(showing(say(charged), ceiling)))
	}
	elsewhere := func(charged uint64) *wire.ChannelCount {
		return &wire.ChannelCount{ID: "0x02", Charged: pointer(units(charged))}
	}
	for name, c := range map[string]struct {
		count         count
		want          scheme.Counted
		charged, book uint64
	}{
		"took it, in no words":               {took(nil), countCharged, 4000, 3000},
		"took it for its price":              {took(with(say(4000), 1000)), countCharged, 4000, 3000},
		"took it for less":                   {took(with(say(3600), 600)), countCharged, 3600, 3000},
		"took it, and says the sum":          {took(say(4000)), countCharged, 4000, 3000},
		"took more":                          {took(with(say(5000), 2000)), countTooMuch, 4000, 3000},
		"took another sum":                   {took(with(say(5000), 1000)), countTooMuch, 4000, 3000},
		"took it from another channel":       {took(elsewhere(4000)), countTooMuch, 4000, 3000},
		"says nothing":                       {count{}, countNothing, 3000, 3000},
		"counts less":                        {foreign(say(2000)), countRejected, 2000, 3000},
		"counts the same":                    {foreign(say(3000)), countRejected, 3000, 3000},
		"counts more, without a voucher":     {foreign(say(3500)), countNothing, 3000, 3000},
		"counts more, with a forged voucher": {foreign(showing(say(3500), 3500)), countNothing, 3000, 3000},
		"counts more than its voucher":       {ours(showing(say(3501), 3500)), countNothing, 3000, 3000},
		"counts more, with our voucher":      {ours(showing(say(3500), 3500)), countRejected, 3500, 3000},
		"shown again, and it was charged":    {shownAgain(4000, 4000), countBefore, 4000, 3000},
		"shown first, and it says so":        {ours(showing(say(4000), 4000)), countNothing, 3000, 3000},
		"shown first, and it charged a part": {ours(showing(say(3500), 4000)), countNothing, 3000, 3000},
		"shown again, and it charged a part": {shownAgain(3500, 4000), countBefore, 3500, 3000},
		"a lost ledger's":                    {ours(showing(say(9000), 9000)), countRejected, 9000, 3000},
		"counts in another channel":          {ours(elsewhere(1)), countNothing, 3000, 3000},
		"shown again, and it is in the book": {shownAgain(4000, 4000), countBefore, 4000, 4000},
		"shown again, with no voucher":       {again(foreign(say(4000))), countBefore, 4000, 4000},
		"shown again, and later ones are":    {shownAgain(6000, 6000), countBefore, 6000, 6000},
		"shown again, and it counts less":    {again(foreign(say(3000))), countRejected, 3000, 4000},
		"shown first, and it counts less":    {foreign(say(2000)), countRejected, 2000, 4000},
		"shown again, below what is charged": {again(foreign(say(6000))), countBefore, 6000, 6000},
		"shown again, and it says its own":   {again(foreign(say(4000))), countBefore, 4000, 6000},
		"shown again, and it says a part":    {again(foreign(say(3001))), countBefore, 3001, 6000},
		"shown again, and it was not taken":  {again(foreign(say(3000))), countRejected, 3000, 6000},
		"shown first, below what is charged": {foreign(say(6000)), countRejected, 6000, 6000},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, charged := judgeCount(c.count, id, units(4000), units(1000), units(c.book))
			require.Equal(t, c.want, outcome)
			require.Equal(t, units(c.charged), charged)
		})
	}
}

// channelModel is a buyer's book beside a seller that takes vouchers, refuses them, loses answers and lies.
type channelModel struct {
	t       *rapid.T
	state   channelState
	signed  map[uint64]bool // the ceilings of our vouchers
	highest uint64
}

func amountOf(a money.Amount) uint64 {
	n, _ := a.Uint64()
	return n
}

// buy makes one call, with the second try that a corrected book is worth. The most that the seller can claim
// grows by the price, whatever it says.
func (m *channelModel) buy(price uint64) {
	most := m.highest + price
	m.state.price = units(price)
	for range 2 {
		ceiling, _, err := m.state.plan()
		require.NoError(m.t, err)
		c := amountOf(ceiling)
		require.LessOrEqual(m.t, c, most, "more was promised than before, and the price")
		m.signed[c], m.highest = true, max(m.highest, c)
		m.state.promised = units(m.highest)
		said := m.answer()
		outcome, charged := judgeCount(said, "c", ceiling, units(price), m.state.charged)
		require.LessOrEqual(m.t, amountOf(charged), m.highest, "nothing counts that was not promised")
		if outcome == countNothing {
			m.state.book.Vouchers = append(m.state.book.Vouchers, history.BatchOpen{Amount: ceiling})
			return
		}
		m.state.charged, m.state.book.Vouchers = charged, nil
		if outcome != countRejected {
			return
		}
	}
}

// answer is anything that a seller can say, with a voucher that it has of ours or with a forged one.
func (m *channelModel) answer() count {
	number := func(name string) *money.Amount {
		if rapid.Bool().Draw(m.t, "no "+name) {
			return nil
		}
		return pointer(units(rapid.Uint64Range(0, m.highest+10).Draw(m.t, name)))
	}
	c := count{success: rapid.IntRange(0, 2).Draw(m.t, "takes it") == 0}
	if rapid.IntRange(0, 5).Draw(m.t, "says nothing") == 0 {
		return c
	}
	c.ChannelCount = &wire.ChannelCount{ID: "c", Charged: number("charged"), ChargedNow: number("now")}
	if shown := number("voucher"); shown != nil {
		c.Voucher = &x402.ChannelVoucher{Ceiling: *shown}
		c.own = m.signed[amountOf(*shown)]
	}
	return c
}

// Whatever a seller says, a call raises what it can claim by its price at most.
func TestNoSellerGetsTwoVouchersForOneCall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &channelModel{t: rt, signed: map[uint64]bool{}, state: channelState{most: units(1 << 50),
			book: history.BatchBook{Funds: units(1 << 60)}}}
		for range rapid.IntRange(1, 40).Draw(rt, "calls") {
			m.buy(rapid.Uint64Range(1, 40).Draw(rt, "price"))
		}
	})
}

// An honest seller whose answers are lost is paid for each call once: at most one try more sets the book
// right.
func TestAnHonestSellerIsPaidOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		charged, newest := uint64(0), uint64(0)
		s := channelState{most: units(1 << 50), book: history.BatchBook{Funds: units(1 << 60)}}
		wanted, lostAnswers := uint64(0), uint64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			s.price = units(rapid.Uint64Range(1, 5000).Draw(rt, "price"))
			reaches, answers := rapid.Bool().Draw(rt, "reaches it"), rapid.Bool().Draw(rt, "answers")
			served := false
			for try := 0; !served && try < 2; try++ {
				ceiling, _, err := s.plan()
				require.NoError(rt, err)
				if ceiling.Cmp(s.promised) > 0 {
					s.promised = ceiling
				}
				open := history.BatchOpen{Amount: ceiling}
				if !reaches {
					s.book.Vouchers = append(s.book.Vouchers, open)
					break
				}
				c := count{ChannelCount: &wire.ChannelCount{ID: "c"}}
				if amountOf(ceiling) == charged+amountOf(s.price) {
					charged = amountOf(ceiling)
					newest, served, c.success = charged, true, true
					c.ChargedNow = pointer(s.price)
				}
				c.Charged = pointer(units(charged))
				c.Voucher, c.own = &x402.ChannelVoucher{Ceiling: units(newest)}, newest > 0
				if served && !answers {
					s.book.Vouchers = append(s.book.Vouchers, open)
					lostAnswers++
					break
				}
				outcome, sum := judgeCount(c, "c", ceiling, s.price, s.charged)
				require.NotEqual(rt, countNothing, outcome)
				require.NotEqual(rt, countTooMuch, outcome)
				s.charged, s.book.Vouchers = sum, nil
			}
			if reaches {
				require.True(rt, served, "the second try is right")
				wanted += amountOf(s.price)
			}
			require.Equal(rt, wanted, charged, "each call that reached it was charged once")
		}
	})
}

// Of the vouchers whose answers were lost the seller's count tells which it charged, in full or in part, and
// which it never took: the call of one that it charged is not paid again.
func TestWhichVouchersWereCharged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type lost struct {
			ceiling, price uint64
			charged        bool
		}
		var open []lost
		charged, promised := uint64(0), uint64(0)
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			price := rapid.Uint64Range(1, 9).Draw(rt, "price")
			v := lost{ceiling: promised + price, price: price}
			promised = v.ceiling
			// it takes what goes on from its own count, and charges the price or less
			if v.ceiling == charged+price && rapid.Bool().Draw(rt, "takes it") {
				v.charged = true
				charged += rapid.Uint64Range(1, price).Draw(rt, "charges")
			}
			open = append(open, v)
		}
		for _, v := range open {
			require.Equal(rt, v.charged, wasCharged(units(v.ceiling), units(v.price), units(charged)),
				"%+v of %d", v, charged)
		}
	})
}

// A deposit that its seller says it has lies with it, and is not proven: the chain may show that it came to
// nothing.
func TestADepositByTheSellersWord(t *testing.T) {
	for name, c := range map[string]struct {
		end         history.Payment
		holds, sure uint64
	}{
		"the chain has it":   {history.Payment{State: history.Settled, Proof: history.Chain}, 1000, 1000},
		"it came to nothing": {history.Payment{State: history.Failed}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.payments.put(history.Payment{ID: "pay_1", State: history.Settled, Proof: history.Claimed})
			of := channel{book: history.BatchBook{Deposit: &history.BatchOpen{Payment: "pay_1",
				Amount: units(1000)}}}
			update := func(holds, sure uint64) {
				t.Helper()
				of = must.Get(b.updateBook(t.Context(), of))(t)
				require.Equal(t, []money.Amount{units(holds), units(sure)},
					[]money.Amount{of.book.Holds(), of.book.Funds})
				require.Nil(t, of.book.Deposit)
			}
			update(1000, 0)
			update(1000, 0)
			c.end.ID = "pay_1"
			b.payments.put(c.end)
			update(c.holds, c.sure)
			update(c.holds, c.sure)
		})
	}
}

// A deposit counts in the windows of the agent that makes it, so nobody else's vouchers spend it: each has a
// channel of its own with the same seller.
func TestAgentsHaveTheirOwnChannels(t *testing.T) {
	b := newBench(t)
	ids := map[string]bool{}
	for _, agent := range []string{"", "ann", "bob"} {
		call := asked("0xSeller")
		call.Agent = agent
		c, _, err := b.open(t.Context(), call, true)
		require.NoError(t, err)
		again, _, err := b.open(t.Context(), call, true)
		require.NoError(t, err)
		require.Equal(t, c.ID, again.ID)
		ids[c.ID] = true
	}
	require.Len(t, ids, 3)
	require.Regexp(t, "^0x[0-9a-f]{64}$", saltOf("ann"))
}

// An owner who leaves Permit2 out has no deposit by it either.
func TestDepositsByPermit2AreTheOwnersToAllow(t *testing.T) {
	o := scheme.Option{Requirement: x402.Requirement{Scheme: x402.BatchSettlement,
		Extra: map[string]json.RawMessage{"assetTransferMethod": json.RawMessage(`"permit2"`)}}}
	require.True(t, x402.HasCode((&Channels{}).WhyNot(scheme.Call{}, o), x402.InvalidRequirement))
	require.NoError(t, (&Channels{MayPermit: true}).WhyNot(scheme.Call{}, o))
	require.NoError(t, (&Channels{}).WhyNot(scheme.Call{}, scheme.Option{}))
}
