package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

func (g *guarded) charge(p Payment, asked x402.Evidence, amount uint64, o Outcome) (Payment, error) {
	c := Charge{Amount: money.NewAmount(amount), Worth: money.Dollars(amount)}
	return g.Charge(g.t.Context(), askedBy(p, asked), c, o, g.k)
}

func (g *guarded) used() budget.Use {
	g.t.Helper()
	f := must.Get(g.Facts(g.t.Context(), Question{Rules: g.k.Query(Payment{Host: "api.example"})}))(g.t)
	require.Equal(g.t, f.Used.Day, f.Used.HostDay["api.example"])
	require.Equal(g.t, f.Used.Day, f.Used.Session)
	return f.Used.Day
}

var provenLess = Settlement(x402.Status{State: x402.Settled, Transaction: "0xtx"})

// What was charged less is free again, once, in every sum and for the next signature; the row keeps what was
// signed for, and the whole ledger is what its chain says.
func TestCharge(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		before := g.used()
		for _, claimed := range []bool{false, true} {
			p := g.sign(g.reserve(testHold(500)))
			if claimed {
				g.settle(p)
			}
			got := must.Get(g.charge(p, x402.Evidence{}, 120, provenLess))(t)
			require.Equal(t, []any{Settled, Chain, "0xtx", "500", "120", money.Dollars(500),
				money.Dollars(120)}, []any{got.State, got.Proof, got.Transaction, got.Amount.String(),
				got.Paid().String(), got.Price, got.Worth()})
			require.ErrorIs(t, must.Err(g.charge(p, x402.Evidence{}, 20, provenLess)), ErrTransition, "once")
			_, err := g.Expire(t.Context(), p, Outcome{State: Failed}, g.k)
			require.ErrorIs(t, err, ErrTransition, "nobody wrote into the ledger")
		}
		require.Equal(t, before.Spent+240, g.used().Spent)
		require.Equal(t, before.Held, g.used().Held)
		must.Get(g.VerifySealed(t.Context(), g.k))(t)

		room := guardedCap - g.used().Total()
		require.NoError(t, g.next(testHold(uint64(room))), "what is free again can be spent")
		require.Error(t, g.next(testHold(1)))
		must.Get(g.VerifySealed(t.Context(), g.k))(t)

		// by accepting the ledger its owner gets the same sums
		sums := g.sums()
		require.NoError(t, g.SealRules(t.Context(), SealedRules{Version: 2, Config: []byte("c"),
			Seal: []byte("t")},
			g.home, true, g.k))
		require.Equal(t, sums.Days, g.sums().Days)
		require.Equal(t, sums.Session.Sum, g.sums().Session.Sum)
		must.Get(g.VerifySealed(t.Context(), g.k))(t)
	})
}

func TestChargeRefuses(t *testing.T) {
	for name, forge := range map[string]func(g *guarded, p Payment) error{
		"no less": func(g *guarded, p Payment) error {
			return must.Err(g.charge(p, x402.Evidence{}, 500, provenLess))
		},
		"more": func(g *guarded, p Payment) error {
			return must.Err(g.charge(p, x402.Evidence{}, 501, provenLess))
		},
		"worth more": func(g *guarded, p Payment) error {
			c := Charge{Amount: money.NewAmount(1), Worth: 501}
			return must.Err(g.Charge(g.t.Context(), p, c, provenLess, g.k))
		},
		"a claim": func(g *guarded, p Payment) error {
			return must.Err(g.charge(p, x402.Evidence{}, 1, Outcome{State: Settled, Proof: Claimed}))
		},
		"other evidence": func(g *guarded, p Payment) error {
			return must.Err(g.charge(p, x402.Evidence{Nonce: "0x01"}, 1, provenLess))
		},
		"charged before, and taken out of the tables": func(g *guarded, p Payment) error {
			must.Get(g.charge(p, x402.Evidence{}, 400, provenLess))(g.t)
			g.sql(`UPDATE payments SET charged = '', returned = 0, state = 'unknown', proof = ''
				WHERE id = ?`, p.ID)
			return must.Err(g.charge(p, x402.Evidence{}, 1, provenLess))
		},
		"expired since, and taken out of the tables": func(g *guarded, p Payment) error {
			must.Get(g.charge(p, x402.Evidence{}, 400, provenLess))(g.t)
			g.sql(`UPDATE payments SET charged = '', returned = 0, state = 'unknown', proof = ''
				WHERE id = ?`, p.ID)
			_, err := g.Expire(g.t.Context(), p, Outcome{State: Failed}, g.k)
			requireCode(g.t, err, x402.LedgerCorrupt)
			return err
		},
		"without the key": func(g *guarded, p Payment) error {
			k := g.k
			k.MAC = func([]byte) ([]byte, error) { return []byte("another"), nil }
			return must.Err(g.Charge(g.t.Context(), p, Charge{}, provenLess, k))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				p := g.sign(g.reserve(testHold(500)))
				require.Error(t, forge(g, p))
			})
		})
	}
	// nobody else lowers what counts
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.sign(g.reserve(testHold(500)))
		g.settle(p)
		g.sql(`UPDATE payments SET charged = '1', returned = 499 WHERE id = ?`, p.ID)
		require.Error(t, g.next(testHold(900)), "the sums are those of the sealed rows")
		requireCode(t, must.Err(g.Verify(t.Context(), Head{})), x402.LedgerCorrupt)
	})
}
