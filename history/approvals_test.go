package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func quoteOf(b byte) (q [32]byte) { q[0] = b; return q }

func asking(t *testing.T, s *Store, quote byte) Approval {
	t.Helper()
	p := testHold(250_000).Payment
	return must.Get(s.AskApproval(t.Context(), Approval{Quote: quoteOf(quote), Host: p.Host,
		Method: p.Method, URL: p.URL,
		Network: p.Network, Asset: p.Asset, Amount: p.Amount, Price: p.Price, PayTo: p.PayTo}))(t)
}

func hasApproval(t *testing.T, s *Store, quote byte) bool {
	t.Helper()
	f := must.Get(s.Facts(t.Context(), Question{Quotes: [][32]byte{quoteOf(quote)}}))(t)
	return len(f.Approvals) > 0
}

// payApproved holds a payment of a quote, if a person approved it, as the engine does: what moved
// is decided again.
func payApproved(s *Store, quote byte) error {
	for {
		_, err := reserveApproved(s, quote, testHold(1))
		if !errors.Is(err, ErrMoved) {
			return err
		}
	}
}

var errNobodyApproved = errors.New("nobody approved it")

func reserveApproved(s *Store, quote byte, h Hold) (Payment, error) {
	f, err := s.Facts(context.Background(), Question{Quotes: [][32]byte{quoteOf(quote)}})
	if err != nil {
		return Payment{}, err
	}
	if len(f.Approvals) == 0 {
		return Payment{}, errNobodyApproved
	}
	h.Decision, h.Approval = unlimited(f.Session.ID), &f.Approvals[0]
	return s.Reserve(context.Background(), h)
}

// What each decision makes of each state, and whether a payment passes then.
func TestDecisions(t *testing.T) {
	accept := func(s *Store, id string) error {
		return must.Err(s.Accept(context.Background(), id, "client"))
	}
	approve := func(s *Store, id string) error {
		return must.Err(s.Approve(context.Background(), id, "owner", nil))
	}
	deny := func(s *Store, id string) error {
		return must.Err(s.Deny(context.Background(), id, "owner"))
	}
	decline := func(s *Store, id string) error {
		return must.Err(s.Decline(context.Background(), id, "client"))
	}
	use := func(s *Store, _ string) error { return payApproved(s, 1) }
	type step = func(*Store, string) error
	for name, c := range map[string]struct {
		steps []step
		state Decision
		last  error // of the last step
	}{
		"asked":                         {nil, Pending, nil},
		"accepted":                      {[]step{accept}, Approved, nil},
		"approved":                      {[]step{approve}, Approved, nil},
		"denied":                        {[]step{deny}, Denied, nil},
		"declined once":                 {[]step{decline}, Pending, nil},
		"declined twice, then accepted": {[]step{decline, decline, accept}, Approved, nil},
		"worn down":                     {[]step{decline, decline, decline}, Denied, nil},
		"accepted after the owner's no": {[]step{deny, accept}, Denied, ErrDecided},
		"accepted after three times no": {[]step{decline, decline, decline, accept}, Denied, ErrDecided},
		"the owner changes their mind":  {[]step{deny, approve}, Approved, nil},
		"the owner revokes an approval": {[]step{approve, deny}, Denied, nil},
		"a client revokes an approval":  {[]step{approve, decline}, Pending, nil},
		"used":                          {[]step{approve, use}, Used, nil},
		"used, and approved again":      {[]step{approve, use, approve}, Used, ErrDecided},
		"used, and accepted again":      {[]step{accept, use, accept}, Used, ErrDecided},
		"used, and denied":              {[]step{approve, use, deny}, Used, ErrDecided},
		"used twice":                    {[]step{approve, use, use}, Used, errNobodyApproved},
		"used without":                  {[]step{use}, Pending, errNobodyApproved},
		"used after a no":               {[]step{approve, deny, use}, Denied, errNobodyApproved},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				a := asking(t, s, 1)
				var err error
				for i, step := range c.steps {
					if err = step(s, a.ID); i < len(c.steps)-1 {
						require.NoError(t, err)
					}
				}
				require.ErrorIs(t, err, c.last)
				now, err := s.Approval(t.Context(), a.ID)
				require.NoError(t, err)
				require.Equal(t, c.state, now.State)
				require.Equal(t, c.state == Approved, hasApproval(t, s, 1))
				require.Equal(t, c.state == Approved, payApproved(s, 1) == nil)
				require.Error(t, payApproved(s, 2), "another quote")
				_, err = s.Verify(t.Context(), Head{})
				require.NoError(t, err)
			})
		})
	}
}

// An approval is over at its very time, and so is a no.
func TestApprovalsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(*Store, string) error
		after  time.Duration
	}{
		"asked": {func(*Store, string) error { return nil }, AnswerTime},
		"denied": {func(s *Store, id string) error {
			return must.Err(s.Deny(context.Background(), id, ""))
		}, AnswerTime},
		"approved": {func(s *Store, id string) error {
			return must.Err(s.Approve(context.Background(), id, "", nil))
		}, approvedFor},
		"accepted": {func(s *Store, id string) error {
			return must.Err(s.Accept(context.Background(), id, ""))
		}, acceptedFor},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, clock *clock) {
				a := asking(t, s, 1)
				require.NoError(t, c.decide(s, a.ID))
				a = must.Get(s.Approval(t.Context(), a.ID))(t)
				require.WithinDuration(t, clock.now().Add(c.after), a.Expires, time.Millisecond)

				before := a.Expires.Add(-time.Millisecond)
				clock.set(before)
				require.Equal(t, a.ID, asking(t, s, 1).ID)
				require.Equal(t, a.State == Approved, hasApproval(t, s, 1))
				list := must.Get(OpenApprovals(t.Context(), s))(t)
				require.Len(t, list, 1)
				clock.set(a.Expires.Add(-time.Microsecond)) // the clock moves on by one at each reading
				require.False(t, hasApproval(t, s, 1))
				require.Error(t, payApproved(s, 1))
				list = must.Get(OpenApprovals(t.Context(), s))(t)
				require.Empty(t, list)
				require.ErrorIs(t, must.Err(s.Approve(t.Context(), a.ID, "owner", nil)), ErrDecided)
				require.NotEqual(t, a.ID, asking(t, s, 1).ID, "asked again")
			})
		})
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		require.ErrorIs(t, must.Err(s.Approval(t.Context(), "apr_none")), ErrNotFound)
		require.ErrorIs(t, must.Err(s.Deny(t.Context(), "apr_none", "")), ErrNotFound)
	})
}

// Whatever several processes do at once, each approval lets one payment pass.
func TestOneApprovalAllowsOnePayment(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		stores, quote := []*Store{s, besides(t, s)}, byte(0)
		rapid.Check(t, func(rt *rapid.T) {
			quote++
			yeses := rapid.IntRange(0, 3).Draw(rt, "yeses")
			for range yeses {
				a := asking(t, s, quote)
				must.Get(stores[rapid.IntRange(0, 1).Draw(rt, "where")].Approve(context.Background(),
					a.ID, "owner", nil))(rt)
				var passed atomic.Int64
				var all sync.WaitGroup
				for i := range rapid.IntRange(1, 6).Draw(rt, "calls") {
					all.Go(func() {
						switch err := payApproved(stores[i%2], quote); {
						case err == nil:
							passed.Add(1)
						case !errors.Is(err, errNobodyApproved):
							panic(err)
						}
					})
				}
				all.Wait()
				require.EqualValues(rt, 1, passed.Load())
			}
			require.True(rt, errors.Is(payApproved(s, quote), errNobodyApproved))
		})
	})
}

// Whether a payment in the ledger was approved is asked again by the signer: for these terms.
func TestWasApproved(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		h := testHold(250_000)
		h.Payment.ID = NewID(time.Now())
		a := must.Get(s.AskApproval(t.Context(), Approval{Quote: quoteOf(1), Host: h.Payment.Host,
			Method: h.Payment.Method, URL: h.Payment.URL,
			Network: h.Payment.Network, Asset: h.Payment.Asset, Amount: h.Payment.Amount,
			Price: h.Payment.Price, PayTo: h.Payment.PayTo}))(t)
		must.Get(s.Approve(t.Context(), a.ID, "owner", nil))(t)
		p := must.Get(reserveApproved(s, 1, h))(t)
		was := func(change func(*Payment)) bool {
			q := p
			change(&q)
			_, found, err := s.ApprovalUsedBy(t.Context(), q)
			require.NoError(t, err)
			return found
		}
		require.True(t, was(func(*Payment) {}))
		for i, change := range []func(*Payment){
			func(q *Payment) {
				q.ID = NewID(time.Now())
			}, func(q *Payment) { q.Price++ },
			func(q *Payment) { q.Amount = testHold(250_001).Payment.Amount },
			func(q *Payment) {
				q.PayTo = "0xother"
			}, func(q *Payment) {
				q.Host = "other.example"
			}, func(q *Payment) {
				q.Network = "eip155:8453"
			}, func(q *Payment) { q.Method = "POST" }, func(q *Payment) { q.URL += "?" },
			func(q *Payment) { q.Asset += "0" },
		} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				require.False(t, was(change))
			})
		}
	})
}

// A payment that is refused after all does not use the approval up: both are one transaction.
func TestARefusalKeepsTheApproval(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		must.Get(s.Approve(t.Context(), asking(t, s, 1).ID, "owner", nil))(t)
		poor := testHold(10)
		poor.Funds.Free = testHold(9).Payment.Amount
		_, err := reserveApproved(s, 1, poor)
		var short *ShortOfFunds
		require.True(t, errors.As(err, &short), "%v", err)
		require.True(t, hasApproval(t, s, 1))
	})
}

// A frozen wallet or account holds nothing, and what was held before is not put on disk as signed:
// in every process.
func TestFreeze(t *testing.T) {
	for name, c := range map[string]struct {
		freeze Freeze
		stops  bool
	}{
		"the wallet": {Freeze{By: "owner", Why: "stop"}, true},
		"this account": {Freeze{Network: "eip155:84532", Account: "0xagent", By: "agent",
			Why: "revoked"}, true},
		"another account": {Freeze{Network: "eip155:84532", Account: "0xother", By: "agent",
			Why: "revoked"}, false},
		"this account, another network": {Freeze{Network: "eip155:8453", Account: "0xagent", By: "agent",
			Why: "revoked"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				other := besides(t, s)
				held, sent := pay(t, s, testHold(1), Reserved), pay(t, s, testHold(1), Submitted)
				require.NoError(t, other.Freeze(t.Context(), c.freeze))
				require.NoError(t,
					other.Freeze(t.Context(), Freeze{Network: c.freeze.Network, Account: c.freeze.Account,
						By: "agent", Why: "again"}))
				list := must.Get(s.Freezes(t.Context()))(t)
				require.Len(t, list, 1)
				require.Equal(t, c.freeze.Why, list[0].Why, "the first reason stands")

				check := func(err error) {
					t.Helper()
					if !c.stops {
						require.NoError(t, err)
						return
					}
					requireCode(t, err, x402.WalletFrozen)
					require.Equal(t, c.freeze.By, x402.AsError(err).Details["by"])
				}
				_, err := reserve(s, testHold(1))
				check(err)
				check(s.Submit(t.Context(), held, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
					UniqueKey: "new"}, testKeyholder()))
				_, err = s.Finish(t.Context(), sent.ID, Outcome{State: Settled, Proof: Claimed})
				require.NoError(t, err, "what is out is brought to its end")

				require.Len(t, must.Get(other.Unfreeze(t.Context(), nil))(t), 1)
				must.Get(reserve(s, testHold(1)))(t)
				must.Get(s.Verify(t.Context(), Head{}))(t)
			})
		})
	}
}

// What the circuit breaker counts.
func TestLost(t *testing.T) {
	settled := func(s *Store) { pay(t, s, testHold(1), Settled) }
	unknown := func(s *Store) { pay(t, s, testHold(1), Unknown) }
	expired := func(s *Store) {
		must.Get(finish(s, pay(t, s, testHold(1), Unknown).ID,
			Outcome{State: Failed, ChainProof: x402.Status{State: x402.Expired}}))(t)
	}
	served := func(s *Store) {
		require.NoError(t, s.Deliver(t.Context(), pay(t, s, testHold(1), Unknown).ID))
	}
	unsent := func(s *Store) {
		require.NoError(t, s.Release(t.Context(), pay(t, s, testHold(1), Reserved).ID, "not sent"))
	}
	held := func(s *Store) { pay(t, s, testHold(1), Reserved) }
	sent := func(s *Store) { pay(t, s, testHold(1), Submitted) }
	look := func(s *Store) {
		require.NoError(t, s.Freeze(t.Context(), Freeze{By: "breaker"}))
		must.Get(s.Unfreeze(t.Context(), nil))(t)
	}
	type steps = []func(*Store)
	for name, c := range map[string]struct {
		did  steps
		want int
	}{
		"nothing":                 {nil, 0},
		"all lost":                {steps{unknown, expired, unknown}, 3},
		"settled ends the row":    {steps{unknown, settled, expired, unknown}, 2},
		"settled last":            {steps{unknown, unknown, settled}, 0},
		"under way or never sent": {steps{unknown, held, sent, unsent, expired}, 2},
		"served without receipt":  {steps{unknown, served, unknown}, 2},
		"no more than asked":      {steps{expired, expired, expired, expired, expired, expired}, 5},
		"the owner looked":        {steps{unknown, unknown, look, expired}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				for _, step := range c.did {
					step(s)
				}
				f := must.Get(s.Facts(t.Context(), Question{Rules: budget.Query{MaxFailures: 5}}))(t)
				require.Equal(t, c.want, f.ConsecutiveFailures)
			})
		})
	}
}

// An approval of what was never signed is usable again; once signed bytes were on disk it is used
// up, whatever became of them.
func TestAnApprovalOfAnUnsignedPaymentIsUsableAgain(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile    func(*Store, Payment)
		back, signed bool
	}{
		"never signed": {func(*Store, Payment) {}, true, false},
		"signed and not sent": {func(s *Store, p Payment) {
			require.NoError(t,
				s.Submit(t.Context(), p, Signed{Payload: []byte("{}"), Requirement: []byte("{}"),
					UniqueKey: "x"}, testKeyholder()))
		}, false, true},
		"asked again since": {func(s *Store, _ Payment) { asking(t, s, 1) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				must.Get(s.Approve(t.Context(), asking(t, s, 1).ID, "owner", nil))(t)
				h := testHold(1)
				h.Payment.ID = NewID(time.Now())
				p := must.Get(reserveApproved(s, 1, h))(t)
				c.meanwhile(s, p)
				err := s.Release(t.Context(), p.ID, "locked")
				require.Equal(t, c.signed, errors.Is(err, ErrTransition), "%v", err)
				require.Equal(t, c.signed, err != nil)
				require.Equal(t, c.back, hasApproval(t, s, 1))
				require.Equal(t, c.back, payApproved(s, 1) == nil)
				require.Error(t, payApproved(s, 1), "and once it stays")
				must.Get(s.Verify(t.Context(), Head{}))(t)
			})
		})
	}
}

// An approval is used up as it was read when the payment was decided on, or not at all.
func TestReserveUsesTheApprovalThatWasRead(t *testing.T) {
	for name, meanwhile := range map[string]func(*Store, string) error{
		"used": func(s *Store, _ string) error { return payApproved(s, 1) },
		"denied": func(s *Store, id string) error {
			return must.Err(s.Deny(context.Background(), id, "owner"))
		},
		"declined at a client, and accepted at another": func(s *Store, id string) error {
			if _, err := s.Decline(context.Background(), id, "client"); err != nil {
				return err
			}
			return must.Err(s.Accept(context.Background(), id, "client"))
		},
		"approved again": func(s *Store, id string) error {
			s.db.Now() // a moment later
			return must.Err(s.Approve(context.Background(), id, "owner", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				seal := func(Approval) ([]byte, error) { return []byte("owner"), nil }
				must.Get(s.Approve(t.Context(), asking(t, s, 1).ID, "owner", seal))(t)
				f := must.Get(s.Facts(t.Context(), Question{Quotes: [][32]byte{quoteOf(1)}}))(t)
				require.Len(t, f.Approvals, 1)
				require.NoError(t, meanwhile(s, f.Approvals[0].ID))
				now := must.Get(s.Facts(t.Context(), Question{}))(t)
				h := testHold(1)
				h.Decision, h.Approval = unlimited(now.Session.ID), &f.Approvals[0]
				require.ErrorIs(t, must.Err(s.Reserve(t.Context(), h)), ErrMoved)
			})
		})
	}
}

func TestReserveNeedsADecision(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
		require.ErrorIs(t, must.Err(s.Reserve(t.Context(), testHold(1))), errNoCaps)
		h := testHold(1)
		h.Decision = unlimited("")
		h.Decision.NeedsApproval = true
		require.ErrorIs(t, must.Err(s.Reserve(t.Context(), h)), errUnapproved)
	})
}

// An approval is used up only by a payment of what the person was shown, and up to that price.
func TestReserveRefusesAnotherPaymentsApproval(t *testing.T) {
	for name, change := range map[string]func(*Payment){
		"another host":    func(p *Payment) { p.Host = "other.example" },
		"another URL":     func(p *Payment) { p.URL += "/more" },
		"another method":  func(p *Payment) { p.Method = "POST" },
		"another network": func(p *Payment) { p.Network = "eip155:8453" },
		"another asset":   func(p *Payment) { p.Asset = "0xother" },
		"another payee":   func(p *Payment) { p.PayTo = "0xother" },
		"a higher amount": func(p *Payment) { p.Amount = money.NewAmount(250_001) },
		"a higher price":  func(p *Payment) { p.Price = 250_001 },
		"another agent":   func(p *Payment) { p.Agent = "ann" },
	} {
		t.Run(name, func(t *testing.T) {
			eachEngine(t, func(t *testing.T, s *Store, _ *clock) {
				must.Get(s.Approve(t.Context(), asking(t, s, 1).ID, "owner", nil))(t)
				h := testHold(1)
				change(&h.Payment)
				require.ErrorIs(t, must.Err(reserveApproved(s, 1, h)), errOtherApproval)
				_, err := reserveApproved(s, 1, testHold(250_000))
				require.NoError(t, err, "it is still good for what was shown")
			})
		})
	}
}

// Whose a question is stands in the audit chain: whoever changes it in the table is found.
func TestAForgedAskersNameIsFound(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		a := must.Get(g.AskApproval(t.Context(), Approval{Quote: quoteOf(0), Agent: "ann", Method: "GET",
			Host: "a.example", URL: "https://a.example/", Price: 1000, Amount: money.NewAmount(1000)}))(t)
		g.settle(g.sign(g.reserve(testHold(1))))
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
		g.sql(`UPDATE approvals SET agent = 'bob' WHERE id = ?`, a.ID)
		require.ErrorContains(t, must.Err(g.VerifySealed(t.Context(), g.k)), a.ID)
	})
}
