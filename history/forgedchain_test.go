package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// What an edit of one cell is not: several that belong together.
func TestVerifyOfForgedChanges(t *testing.T) {
	for name, forge := range map[string]func(g *guarded){
		"a signed payment failed, in the chain and in every table": func(g *guarded) {
			p := g.sign(g.reserve(testHold(5)))
			g.sql(`UPDATE payments SET state = 'failed', updated_at = ?, note = 'x' WHERE id = ?`,
				sqldb.Micros(g.clock.now())+1, p.ID)
			g.sumUp()
			g.forge(p.ID, string(Failed), `{"note":"x"}`)
		},
		"a payment that nobody reserved": func(g *guarded) {
			const terms = `session, created_at, updated_at, fingerprint, method, url, target, host, network, scheme,
				dialect, asset, symbol, amount, usd, pay_to, source, requirement, agent`
			g.sql(`INSERT INTO payments (seq, id, state, ` + terms + `)
				SELECT 3, 'pay_forged', 'reserved', ` + terms + ` FROM payments WHERE seq = 1`)
			g.sumUp()
		},
		"a signature of nobody": func(g *guarded) {
			p := g.reserve(testHold(5))
			s := signedAs(p)
			s.Unique = audit.EncodeDigest([]byte{1})
			g.sql(`UPDATE payments SET state = 'submitted', unique_key = ? WHERE id = ?`, []byte{1}, p.ID)
			g.forge(p.ID, audit.SignedEvent, audit.JSON(s))
			g.sql(`UPDATE audit SET seal = ? WHERE seq = (SELECT max(seq) FROM audit)`, []byte{0})
		},
		"a text of bytes": func(g *guarded) {
			if g.Shared() {
				g.t.Skip("PostgreSQL keeps the types of columns")
			}
			g.sql(`UPDATE payments SET note = CAST(note AS BLOB)`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuarded(t, func(t *testing.T, g *guarded) {
				must.Get(g.VerifySealed(t.Context(), g.k))(t)
				forge(g)
				_, err := g.VerifySealed(t.Context(), g.k)
				requireCode(t, err, x402.LedgerCorrupt)
				t.Log(err)
			})
		})
	}
}

// Without the key, too, a signature is of the terms that were reserved.
func TestVerifyOfASignatureOfOtherTerms(t *testing.T) {
	eachGuarded(t, func(t *testing.T, g *guarded) {
		p := g.sign(g.reserve(testHold(5)))
		must.Get(g.Verify(t.Context(), Head{}))(t)
		g.signedAs(p.ID, "row", "x")
		g.relink(1)
		require.ErrorContains(t, must.Err(g.Verify(t.Context(), Head{})), "cannot be")
	})
}
