package history

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/pgtest"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// byTests are seals of nobody's.
var byTests = Seals{
	Approval: func(a Approval) ([]byte, error) { return []byte("again " + a.ID), nil },
	Lift:     func(l Lift) ([]byte, error) { return fmt.Append(nil, "again ", l.UpTo), nil },
	Session:  func(s budget.Session) ([]byte, error) { return []byte("again " + s.ID), nil },
}

// bought pays for something, and finishes that.
func bought(t *testing.T, s *Store, h Hold, o Outcome) Payment {
	t.Helper()
	p := pay(t, s, h, Submitted)
	o.ReleaseLease, o.ClearWaiter = true, true
	p, err := s.Finish(t.Context(), p.ID, o)
	require.NoError(t, err)
	return p
}

// lived fills a ledger with payments in each state and everything else that there is, over the end of a
// month.
func lived(t *testing.T, s *Store, c *clock) {
	t.Helper()
	ctx := t.Context()
	page := func(body string) *Content {
		return &Content{Status: 200, Type: "text/plain",
			Body: []byte(body)}
	}
	for _, day := range []time.Time{time.Date(2026, 10, 30, 9, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 31, 23, 59, 0, 0, time.UTC), time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC),
		c.at} {
		c.set(day)
		_, err := s.NewSession(ctx, new(money.Dollars(1<<30)), func(b budget.Session) ([]byte, error) {
			return []byte("owner's " + b.ID), nil
		})
		require.NoError(t, err)
		for i, agent := range []string{"", "ann", "bob"} {
			h := testHold(uint64(10 + i))
			h.Payment.Agent, h.Payment.Host = agent, fmt.Sprintf("h%d.example", i)
			h.Payment.URL = "https://" + h.Payment.Host + "/Päge\\a\tb/" + day.Format(time.RFC3339)
			h.Payment.Fingerprint = [32]byte{byte(i), byte(day.Day())}
			h.Payment.IdempotencyKey = fmt.Sprint("key ", i, day.Unix())
			p := bought(t, s, h, Outcome{State: Settled, Proof: Claimed, Transaction: "0x" + agent,
				Facilitator: "f", Receipt: json.RawMessage(`{"a":"\u0000"}`), Content: page("page " + agent)})
			if i > 0 {
				require.NoError(t, s.Deliver(ctx, p.ID))
			}
			c.set(c.at.Add(time.Second))
		}
		bought(t, s, testHold(3), Outcome{State: Unknown, Note: "nobody\n\\N knows\ttoo"})
		over := bought(t, s, testHold(4), Outcome{State: Unknown})
		_, err = s.Expire(ctx, over.ID, over.Evidence, Outcome{State: Failed, ChainProof: 1}, testKeyholder())
		require.NoError(t, err)
		less := bought(t, s, testHold(5), Outcome{State: Settled, Proof: Claimed, Content: page("")})
		_, err = s.Charge(ctx, less.ID, less.Evidence, Charge{money.NewAmount(2), 2}, provenLess,
			testKeyholder())
		require.NoError(t, err)
		released := pay(t, s, testHold(6), Reserved)
		require.NoError(t, s.Release(ctx, released.ID, "not needed"))
		sent := pay(t, s, testHold(7), Submitted)
		require.NoError(t, s.ReleaseLease(ctx, sent.ID))
		require.NoError(t, s.ClearWaiter(ctx, sent.ID))
		c.set(c.at.Add(time.Minute))
	}
	yes := func(Approval) ([]byte, error) { return []byte("owner's"), nil }
	for quote := range byte(5) {
		a := asking(t, s, quote+1)
		switch quote {
		case 4:
			_, err := s.Deny(ctx, a.ID, byOwner)
			require.NoError(t, err)
		case 0, 1:
			_, err := s.Approve(ctx, a.ID, byOwner, yes)
			require.NoError(t, err)
		case 2:
			_, err := s.Accept(ctx, a.ID, "client")
			require.NoError(t, err)
		}
	}
	used, err := reserveApproved(s, 1, testHold(1))
	require.NoError(t, err)
	require.NoError(t, s.Submit(ctx, used, signedOf(used), testKeyholder()))
	_, err = s.Finish(ctx, used.ID, Outcome{State: Settled, Proof: Claimed, ReleaseLease: true,
		ClearWaiter: true})
	require.NoError(t, err)
	for _, account := range []string{"0xfrozen", "0xother"} {
		require.NoError(t, s.Freeze(ctx, Freeze{Network: "eip155:1", Account: account, By: "owner",
			Why: "why"}))
		if account == "0xfrozen" {
			_, err := s.Unfreeze(ctx, func(Lift) ([]byte, error) { return []byte("owner's"), nil })
			require.NoError(t, err)
		}
	}
	voucher := testChannel(1)
	_, err = s.RecordVoucher(ctx, Payment{}, Signed{Payload: voucher.Signed}, voucher, Outcome{},
		testKeyholder())
	require.NoError(t, err)
	_, err = byVoucher(t, s, testChannel(2))
	require.NoError(t, err)
	sale, err := s.OpenSale(ctx, testSale("sold", 5))
	require.NoError(t, err)
	sale.State = SaleSettling
	require.NoError(t, s.MoveSale(ctx, sale))
	_, err = s.OpenChannelSale(ctx, testSale("voucher", 1000), testSoldChannel(0), s.now().Add(time.Minute))
	require.NoError(t, err)
	facts, err := s.Facts(ctx, Question{})
	require.NoError(t, err)
	require.NoError(t, s.Label(ctx, facts.Session.ID, "the label"))
	_, err = s.Import(ctx, []Imported{{URL: "u", Amount: money.NewAmount(1)}, {URL: "v"}})
	require.NoError(t, err)
	h := testHold(9)
	h.Payment.Network = "solana:x"
	h.Funds.Delegated = new(money.NewAmount(77))
	p := bought(t, s, h, Outcome{State: Settled, Proof: Claimed})
	named, err := s.AttachIdempotencyKey(ctx, p.ID, "later")
	require.NoError(t, err)
	require.True(t, named)
}

// answers are what a ledger says to everybody who asks, but for seals and ids of ledgers.
func answers(t *testing.T, s *Store) map[string]any {
	t.Helper()
	ctx, all := t.Context(), map[string]any{}
	keep := func(name string, v any, err error) {
		t.Helper()
		require.NoError(t, err, name)
		all[name] = v
	}
	var ids []string
	for _, f := range []Filter{{Limit: 100}, {Limit: 3, URL: "H1.EXAMPLE"}, {Limit: 100, State: Failed},
		{Limit: 9, Agents: []string{"ann"}}, {Limit: 5, Before: "0xann"}} {
		list, more, totals, err := s.List(ctx, f)
		keep(fmt.Sprintf("list %+v", f), []any{list, more, totals}, err)
		parts, err := s.Parts(ctx, f, 5)
		keep(fmt.Sprintf("parts %+v", f), parts, err)
		for i, p := range list {
			if i%3 == 0 || p.State == Failed || p.Charged != nil {
				ids = append(ids, p.ID)
			}
		}
	}
	for _, since := range []time.Time{time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)} {
		for _, unit := range []time.Duration{time.Hour, day} {
			spent, err := s.Spending(ctx, since, unit, 9)
			keep(fmt.Sprint("spent ", since, unit), spent, err)
		}
	}
	var each []Payment
	keep("each", nil, s.Each(ctx, Range{}, func(p Payment) error { each = append(each, p); return nil }))
	all["each"] = each
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		p, err := s.Payment(ctx, id)
		keep("payment "+id, p, err)
		c, err := s.Content(ctx, id)
		c.Body = append([]byte{}, c.Body...) // not nil
		all["content "+id] = []any{c, fmt.Sprint(err)}
		events, err := s.Events(ctx, id)
		require.NoError(t, err)
		var told []any
		for _, e := range events {
			var detail map[string]any
			require.NoError(t, json.Unmarshal(e.Detail, &detail))
			delete(detail, "sums")
			delete(detail, "payment")
			told = append(told, []any{e.At, e.Event, detail})
		}
		all["events "+id] = told
		by, err := s.ApprovedBy(ctx, p)
		keep("approved by "+id, by, err)
	}
	use, err := s.ContentUse(ctx)
	keep("content", use, err)
	frozen, err := s.Freezes(ctx)
	keep("frozen", frozen, err)
	lift, err := s.Lifted(ctx)
	keep("lifted", lift.At, err)
	labels, err := s.Labels(ctx)
	keep("labels", labels, err)
	imported, err := s.AllImported(ctx)
	slices.SortFunc(imported, func(a, b Imported) int { return len(a.ID()) - len(b.ID()) })
	require.Len(t, imported, 2)
	keep("imported", len(imported), err)
	channels, err := s.Channels(ctx)
	keep("channels", channels, err)
	sales, more, earned, err := s.Sales(ctx, SaleFilter{Limit: 9})
	keep("sales", []any{sales, more, earned}, err)
	sold, err := s.SoldChannel(ctx, "eip155:84532", "0x01")
	keep("sold", sold, err)
	alerts, err := s.Alerts(ctx, 99)
	keep("alerts", alerts, err)
	claimed, err := s.Claimed(ctx, time.Time{}, "", 99)
	keep("claimed", claimed, err)
	open, err := s.Approvals(ctx)
	for i := range open {
		open[i].Seal = nil
	}
	keep("open approvals", open, err)
	facts, err := s.Facts(ctx, Question{Payment: testHold(1).Payment, Rules: budget.Query{Agent: "ann",
		HostEntries: []string{"h1.example"}, MaxFailures: 5}})
	facts.Used.Teams = nil
	keep("facts", []any{facts.Session, facts.Used, facts.LastUnfreeze, facts.ConsecutiveFailures, facts.Payee,
		facts.Content}, err)
	return all
}

// sameAnswers compares two ledgers, but for what a payment's number and packed form are.
func sameAnswers(t *testing.T, was, is map[string]any) {
	t.Helper()
	said := func(v any) string { return paymentNumber.ReplaceAllString(toJSON(v), "") } // the ledger's own
	for name, want := range was {
		require.Equal(t, said(want), said(is[name]), name)
	}
}

// movedRules keep all windows that answers asks for.
var movedRules = budget.Rules{Day: 1 << 40, Month: 1 << 40, Rate: 1 << 30, PerCall: 1 << 40,
	ApproveAbove: 1 << 40, HostDay: map[string]money.Dollars{"h1.example": 1 << 40},
	Agents: map[string]budget.Agent{"ann": {Day: new(money.Dollars(1 << 40)),
		Month: new(money.Dollars(1 << 40))},
		"zoe": {Day: new(money.Dollars(1 << 40)), Month: new(money.Dollars(1 << 40))}}, AgentsOpen: true}

// emptyFleet is a fleet's ledger, with rules that stop nothing, as the home that moves has it.
func emptyFleet(t *testing.T, c *clock) *Store {
	t.Helper()
	s, there := newFleetStore(t)
	there.set(c.at)
	applyRules(t, s, 2, movedRules)
	f := s.fleet.Fleet
	f.Writer = "home_moved"
	return openFleetWith(t, f, Options{Now: c.now})
}

var paymentNumber = regexp.MustCompile(`"Number":\d+,`)

// moving is a move between two ledgers of a test.
func moving(t *testing.T, home string, c *clock, fleet *Store) *Mover {
	t.Helper()
	s, err := OpenMoving(t.Context(), home, Options{Now: c.now})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return &Mover{Home: s, Fleet: fleet, Keys: testKeyholder(), Seals: byTests}
}

func TestALedgerMovesToTheFleet(t *testing.T) {
	s, c, home := newStore(t)
	lived(t, s, c)
	dead := pay(t, s, testHold(2), Reserved) // of a process that dies
	c.set(c.at.Add(time.Hour))
	require.NoError(t, s.Close())
	fleet := emptyFleet(t, c)
	m := moving(t, home, c, fleet)
	keys := testKeyholder()
	_, err := m.Home.VerifySealed(t.Context(), keys)
	require.NoError(t, err)

	done, err := m.ToFleet(t.Context())
	require.NoError(t, err)
	was, is := answers(t, m.Home), answers(t, fleet)
	sameAnswers(t, was, is)
	require.EqualValues(t, len(was["each"].([]Payment)), done.Payments)
	p, err := fleet.Payment(t.Context(), dead.ID)
	require.NoError(t, err)
	require.Equal(t, Failed, p.State)
	_, err = m.Home.VerifySealed(t.Context(), keys)
	require.NoError(t, err)
	_, err = fleet.Verify(t.Context(), Head{})
	require.NoError(t, err)
	size, err := fleet.VerifyContent(t.Context())
	require.NoError(t, err)
	require.Positive(t, size)

	_, err = Open(t.Context(), home, Options{})
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	bought(t, fleet, testHold(1), Outcome{State: Settled, Proof: Claimed})
	_, err = fleet.Verify(t.Context(), Head{})
	require.NoError(t, err)

	// and back, into the same home
	c.set(c.at.Add(time.Hour))
	require.NoError(t, fleet.Tidy(t.Context()))
	dies(t, fleet)
	require.NoError(t, m.Home.Close())
	old, err := m.Home.LedgerID(t.Context())
	require.NoError(t, err)
	back := &Mover{Fleet: fleet}
	_, err = back.ToHome(t.Context(), home, arrives(home))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(home, keptName(old)))
	again, err := Open(t.Context(), home, Options{Now: c.now})
	require.NoError(t, err)
	defer again.Close()
	_, err = again.VerifySealed(t.Context(), keys)
	require.NoError(t, err)
	sameAnswers(t, answers(t, fleet), answers(t, again))
	bought(t, again, testHold(1), Outcome{State: Settled, Proof: Claimed})
	_, err = again.VerifySealed(t.Context(), keys)
	require.NoError(t, err)
}

// Every answer of the server to a commit may be lost: the move finds out what was done, and goes on.
func TestAMoveLosesAnswers(t *testing.T) {
	for name, do := range map[string]pgtest.Action{"before": pgtest.CutBefore, "after": pgtest.CutAfter,
		"while": pgtest.CutWhile} {
		for nth := range 3 { // the mark, the copy, the release
			t.Run(fmt.Sprint(name, " commit ", nth), func(t *testing.T) {
				m := newMove(t)
				wire := pgtest.NewProxy(t, m.Fleet.fleet.URL)
				f := m.Fleet.fleet.Fleet
				f.URL = wire.URL()
				m.Fleet = openFleetWith(t, f, Options{Now: m.Home.now})
				_, err := m.Fleet.LedgerID(t.Context()) // it is connected
				require.NoError(t, err)
				step := 0
				m.step = func(name string) error {
					if slices.Contains([]string{"before fleet's mark", "before copy", "before release"},
						name) {
						if step == nth {
							wire.At("COMMIT", do)
						}
						step++
					}
					return nil
				}
				_, err = m.ToFleet(t.Context())
				require.NoError(t, err)
				require.False(t, holds(t, m.home))
				require.True(t, holds(t, m.fleet))
				_, err = m.Fleet.Verify(t.Context(), Head{})
				require.NoError(t, err)
				facts, err := m.Fleet.Facts(t.Context(), Question{})
				require.NoError(t, err)
				require.EqualValues(t, 11, facts.Used.Day.Total())
			})
		}
	}
}

// An attempt that begins while the last commit of the one before is on its way finds a ledger that has come,
// though it had not when it looked first.
func TestALateReleaseIsFound(t *testing.T) {
	m := newMove(t)
	from, err := m.Home.LedgerID(t.Context())
	require.NoError(t, err)
	_, err = m.ToFleet(t.Context())
	require.NoError(t, err)
	hasCome, err := m.markFleet(t.Context(), from, false)
	require.NoError(t, err)
	require.True(t, hasCome)
	_, err = m.markFleet(t.Context(), "led_another", false)
	require.ErrorContains(t, err, "has something of its own already")
	require.True(t, holds(t, m.fleet))
}

// A process that has the ledger open writes nothing more to it once it is marked; one that works on a payment
// keeps it from moving.
func TestNobodyWritesToALedgerThatMoves(t *testing.T) {
	s, c, home := newStore(t)
	p := pay(t, s, testHold(5), Submitted)
	fleet := emptyFleet(t, c)
	m := moving(t, home, c, fleet)
	_, err := m.ToFleet(t.Context())
	require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
	require.ErrorContains(t, err, "another process")
	require.True(t, holds(t, func() (*Store, error) { return besides(t, s), nil }), "nothing was marked")
	_, err = m.Abandon(t.Context())
	require.NoError(t, err)

	require.NoError(t, s.Close())
	reads := besides(t, s) // it pays for nothing yet
	_, err = reads.Facts(t.Context(), Question{})
	require.NoError(t, err)
	_, err = m.ToFleet(t.Context())
	require.NoError(t, err)
	for name, write := range map[string]func() error{
		"reserve": func() error { _, err := reserve(reads, testHold(1)); return err },
		"finish": func() error {
			_, err := reads.Finish(t.Context(), p.ID, Outcome{State: Unknown})
			return err
		},
		"submit":  func() error { return reads.Submit(t.Context(), p, signedOf(p), testKeyholder()) },
		"deliver": func() error { return reads.Deliver(t.Context(), p.ID) },
		"freeze":  func() error { return reads.Freeze(t.Context(), Freeze{By: "owner"}) },
		"sell":    func() error { _, err := reads.OpenSale(t.Context(), testSale("x", 1)); return err },
		"ask":     func() error { _, err := reads.AskApproval(t.Context(), Approval{}); return err },
	} {
		require.True(t, x402.HasCode(write(), x402.LedgerCorrupt), "%s: %v", name, write())
	}
	_, err = reads.Payment(t.Context(), p.ID)
	require.NoError(t, err, "it can be read")
}

// Whoever runs as the same user writes to ledger.db what they like. A mark that they make refuses, and one
// that they take away refuses at the signature.
func TestAMarkIsNoForgetting(t *testing.T) {
	s, c, home := newStore(t)
	bought(t, s, testHold(5), Outcome{State: Settled, Proof: Claimed})
	forge(t, s, `INSERT INTO meta VALUES ('move', '{"event":"moved","ledger":"led_x"}')`)
	_, err := reserve(s, testHold(1))
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	m := moving(t, home, c, nil)
	_, err = m.Home.VerifySealed(t.Context(), testKeyholder())
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "the chain tells of no move: %v", err)
	forge(t, s, `DELETE FROM meta WHERE key = 'move'`)
	require.NoError(t, s.Close())

	m.Fleet = emptyFleet(t, c)
	_, err = m.ToFleet(t.Context())
	require.NoError(t, err)
	forge(t, m.Home, `DELETE FROM meta WHERE key = 'move'`)
	again, err := Open(t.Context(), home, Options{Now: c.now})
	require.NoError(t, err)
	defer again.Close()
	p, err := reserve(again, testHold(1))
	require.NoError(t, err, "a hold is no payment")
	err = again.Submit(t.Context(), p, signedOf(p), testKeyholder())
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	require.ErrorContains(t, err, "has moved")
	_, err = again.VerifySealed(t.Context(), testKeyholder())
	require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
}

// A payment without an agent's name counts in the budgets that the owner says, also after other rules were
// sealed; those that come later do not.
func TestAMoveCountsAsTheOwnerSays(t *testing.T) {
	m := newMove(t)
	m.As = "zoe"
	_, err := m.ToFleet(t.Context())
	require.NoError(t, err)
	rules := movedRules
	rules.Agents = map[string]budget.Agent{"zoe": {Day: new(money.Dollars(12))}}
	for version := range int64(2) {
		applyRules(t, m.Fleet, 3+version, rules)
		h := testHold(2)
		h.Payment.Agent = "zoe"
		_, err = reserveBy(m.Fleet, rules, h)
		require.True(t, x402.HasCode(err, x402.BudgetExceeded), "11 and 2 are more than 12: %v", err)
	}
	h := testHold(1)
	h.Payment.Agent = "zoe"
	_, err = reserveBy(m.Fleet, rules, h)
	require.NoError(t, err)
	_, err = reserveBy(m.Fleet, rules, testHold(5))
	require.NoError(t, err, "of no agent")
	applyRules(t, m.Fleet, 5, rules)
	_, err = m.Fleet.Verify(t.Context(), Head{})
	require.NoError(t, err)
	require.Equal(t, "12", testFleet.sql.one(t, `SELECT used FROM counters WHERE budget = 'agent:zoe' AND
		win = 'day'`))
}

// A ledger moves into an empty one alone, and one of both at a time.
func TestAMoveNeedsAnEmptyLedger(t *testing.T) {
	m := newMove(t)
	other, err := m.fleet()
	require.NoError(t, err)
	defer other.Close()
	p := pay(t, other, testHold(1), Reserved)
	_, err = m.ToFleet(t.Context())
	require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
	require.True(t, holds(t, m.home))
	require.NoError(t, other.Release(t.Context(), p.ID, "x"))

	home, dir := newMoveHome(t)
	require.NoError(t, Create(t.Context(), dir, Options{}))
	own, err := home.home()
	require.NoError(t, err)
	pay(t, own, testHold(1), Submitted)
	require.NoError(t, own.Close())
	_, err = home.ToHome(t.Context(), dir, arrives(dir))
	require.True(t, x402.HasCode(err, x402.SetupFailed), "%v", err)
	require.ErrorContains(t, err, "of its own")
	require.True(t, holds(t, home.fleet))
}

// What another program writes behind the mark, as an older one may, which does not know it, is not lost.
func TestWhatIsWrittenMeanwhileMoves(t *testing.T) {
	for _, step := range []string{"after mark", "before moved"} {
		t.Run(step, func(t *testing.T) {
			m := newMove(t)
			m.step = func(name string) error {
				if name == step {
					require.NoError(t, m.Home.Freeze(t.Context(), Freeze{By: "owner", Why: "meanwhile"}))
				}
				return nil
			}
			_, err := m.ToFleet(t.Context())
			m.step = nil
			if step == "before moved" { // it was copied before
				require.True(t, x402.HasCode(err, x402.LedgerUnavailable), "%v", err)
			}
			_, err = m.ToFleet(t.Context())
			require.NoError(t, err)
			frozen, err := m.Fleet.Freezes(t.Context())
			require.NoError(t, err)
			require.Len(t, frozen, 1)
			_, err = m.Fleet.Verify(t.Context(), Head{})
			require.NoError(t, err)
			_, err = m.Home.VerifySealed(t.Context(), m.Keys)
			require.NoError(t, err)
		})
	}
}

// What a table gets moves with it, or is named here: what each ledger makes of the rest by itself, or has for
// itself.
func TestEveryColumnMoves(t *testing.T) {
	moves := map[string][]string{}
	for _, mt := range tablesToFleet("") {
		moves[mt.name] = strings.Fields(strings.ReplaceAll(mt.text(), ",", " "))
	}
	s, _, _ := newStore(t)
	var home []string
	require.NoError(t, s.view(t.Context(), func(tx *tx) (err error) {
		home, err = collect(tx, scanText, `SELECT m.name || ' ' || c.name FROM sqlite_schema m,
			pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'url_%'
			AND m.name NOT LIKE 'sqlite_%'`)
		return err
	}))
	fleet, _ := newFleetStore(t)
	var server []string
	require.NoError(t, fleet.view(t.Context(), func(tx *tx) (err error) {
		server, err = collect(tx, scanText, `SELECT table_name || ' ' || column_name
			FROM information_schema.columns WHERE table_schema = 'x402' AND table_name NOT IN ('test_clock',
				'standing')`)
		return err
	}))
	for where, of := range map[string]struct{ columns, stay []string }{
		"ledger.db": {home, []string{"memory bucket", "payment_search", "totals", "content_use",
			"sealed_sums",
			"memory_nodes", "rules", "turns"}},
		"fleet": {server, []string{"payments budgets", "payments operations", "sessions number", "locks",
			"turns",
			"operations", "instances", "writers", "epochs", "budgets", "counters", "made", "sources",
			"content_use",
			"rules", "logins"}},
	} {
		require.Greater(t, len(of.columns), 100)
		for _, c := range of.columns {
			table, column, _ := strings.Cut(c, " ")
			stays := slices.Contains(of.stay, c) || slices.Contains(of.stay, table)
			require.NotEqual(t, stays, slices.Contains(moves[table], column), "%s: %s", where, c)
		}
	}
}
