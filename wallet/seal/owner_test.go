package seal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/history/verify"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// wanted is a payment that a person is asked about.
func wanted(units uint64) history.Payment {
	return history.Payment{URL: "https://a.example/x", Method: "GET", Host: "a.example",
		Network: "eip155:8453", Asset: "0xasset", PayTo: "0xpayee",
		Amount: money.NewAmount(units), Price: money.Dollars(units)}
}

func asked(t *testing.T, g *Guard, quote byte, p history.Payment) history.Approval {
	t.Helper()
	return must.Get(asking.Asker{Store: g.Store}.AskApproval(t.Context(), history.Approval{
		Quote: [32]byte{quote}, Host: p.Host,
		Method: p.Method, URL: p.URL, Network: p.Network,
		Asset: p.Asset, Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, Agent: p.Agent}))(t)
}

// use holds a payment with whatever approval the ledger has of its quote.
func use(t *testing.T, g *Guard, quote byte, p history.Payment) (history.Payment, history.Approval) {
	t.Helper()
	p.ID = history.NewID(time.Now())
	hold := history.Hold{Payment: p, Funds: x402.Funds{Free: money.NewAmount(1_000_000)}}
	p = must.Get(historytest.Reserve(t.Context(), g.Store, hold, [32]byte{quote}))(t)
	approval, _, err := g.Store.ApprovalUsedBy(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p.ID, approval.Payment)
	return p, approval
}

// An approval counts if the owner gave it, as it stands in the ledger, to this payment, and to one.
func TestOnlyTheOwnersApprovalCounts(t *testing.T) {
	const again = `UPDATE approvals SET state = 'approved', payment = ''`
	paid := func(t *testing.T, g *Guard) { // the payment that the approval was for
		p, approval := use(t, g, 1, wanted(5000))
		require.NoError(t, g.Approved(t.Context(), p, approval))
		require.NoError(t, g.Checkpoint(t.Context()))
	}
	executed := func(query string) func(*testing.T, *Guard) {
		return func(t *testing.T, g *Guard) { require.NoError(t, execute(g, query)) }
	}
	for _, c := range []struct {
		name  string
		owner bool // the owner approved
		spoil func(t *testing.T, g *Guard)
		with  func(p *history.Payment)
		code  x402.Code
	}{
		{"the owner's", true, nil, nil, ""},
		{"nobody's", false, executed(fmt.Sprintf(
			`UPDATE approvals SET state = 'approved', expires_at = %d`,
			time.Now().Add(time.Hour).UnixMicro())), nil, x402.ApprovalRequired},
		{"nobody's, with bytes for a seal", false, executed(fmt.Sprintf(
			`UPDATE approvals SET state = 'approved', seal = zeroblob(32), expires_at = %d`,
			time.Now().Add(time.Hour).UnixMicro())), nil, x402.ApprovalRequired},
		{"for longer", true, executed(`UPDATE approvals SET expires_at = expires_at + 1`), nil,
			x402.ApprovalRequired},
		{"of another time", true, executed(`UPDATE approvals SET since = since + 1`), nil, x402.ApprovalRequired},
		{"another's id", true, executed(`UPDATE approvals SET id = 'apr_x'`), nil, x402.ApprovalRequired},
		{"another price, in the row too", true, executed(`UPDATE approvals SET usd = 6000, amount = '6000'`),
			func(p *history.Payment) {
				p.Amount, p.Price = money.NewAmount(6000), 6000
			}, x402.ApprovalRequired},
		{"the same quote, of a payment that was not shown", true, nil, func(p *history.Payment) {
			p.Amount, p.Price = money.NewAmount(6000), 6000
		}, x402.ApprovalRequired},
		{"another payee", true, nil, func(p *history.Payment) { p.PayTo = "0xother" }, x402.ApprovalRequired},
		{"used before", true, func(t *testing.T, g *Guard) {
			paid(t, g)
			require.NoError(t, execute(g, again))
		}, nil, x402.ApprovalRequired},
		{"used before, and that taken out of the chain", true, func(t *testing.T, g *Guard) {
			paid(t, g)
			require.NoError(t, execute(g, again+`; DELETE FROM audit WHERE event = 'approval used'`))
		}, nil, x402.LedgerCorrupt},
		{"used before, and the chain's end cut off", true, func(t *testing.T, g *Guard) {
			paid(t, g)
			require.NoError(t, execute(g, again+
				`; DELETE FROM audit WHERE seq >= (SELECT seq FROM audit WHERE event = 'approval used')`))
		}, nil, x402.LedgerCorrupt},
		{"used for what was never signed", true, func(t *testing.T, g *Guard) {
			p, _ := use(t, g, 1, wanted(5000))
			require.NoError(t, g.Store.Release(t.Context(), p.ID, "locked"))
		}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := sealed(t)
			a := asked(t, g, 1, wanted(5000))
			if c.owner {
				must.Get(g.Approve(t.Context(), a, "owner"))(t)
			}
			if c.spoil != nil {
				c.spoil(t, g)
			}
			p, approval := use(t, g, 1, wanted(5000))
			if c.with != nil { // what is about to be signed
				c.with(&p)
			}
			err := g.Approved(t.Context(), p, approval)
			if c.code == "" {
				require.NoError(t, err)
				require.NoError(t, verify.Owned(t.Context(), g.Store, g))
				return
			}
			requireCode(t, err, c.code)
		})
	}
}

// An approval is sealed for the agent that asked: in another one's name it is not the owner's.
func TestAnApprovalIsSealedForItsAgent(t *testing.T) {
	g := sealed(t)
	p := wanted(5000)
	p.Agent = "ann"
	must.Get(g.Approve(t.Context(), asked(t, g, 1, p), "owner"))(t)
	p, a := use(t, g, 1, p)
	require.NoError(t, g.Approved(t.Context(), p, a))
	p.Agent, a.Agent = "bob", "bob"
	requireCode(t, g.Approved(t.Context(), p, a), x402.ApprovalRequired)
}

// What the owner saw is what they approve, whatever was written into the ledger while they typed.
func TestWhatWasShownIsApproved(t *testing.T) {
	g := sealed(t)
	a := asked(t, g, 1, wanted(5000))
	require.NoError(t, execute(g, `UPDATE approvals SET usd = 900000, amount = '900000'`))
	_, err := g.Approve(t.Context(), a, "owner")
	require.ErrorContains(t, err, "changed in the ledger after it was shown")
	a = must.Get(g.Store.Approval(t.Context(), a.ID))(t)
	require.Equal(t, history.Pending, a.State)
}

// A freeze that a process with the key has seen stands until the owner lifts it.
func TestNobodyElseLiftsAFreeze(t *testing.T) {
	forged := func(upTo int) string {
		return fmt.Sprintf(`INSERT INTO lifts VALUES (%d, %d, zeroblob(32))`, upTo, time.Now().UnixMicro())
	}
	for _, c := range []struct{ name, spoil string }{
		{"taken out", `DELETE FROM freezes`},
		{"made another account's", `UPDATE freezes SET network = 'solana:x', account = 'y'`},
		{"renumbered", `UPDATE freezes SET seq = seq + 1`},
		{"lifted", forged(1)},
		{"lifted for ever", forged(1000)},
		{"taken out of the chain too", `DELETE FROM freezes; DELETE FROM audit WHERE event = 'frozen'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := sealed(t)
			require.NoError(t, g.Store.Freeze(t.Context(), history.Freeze{By: "owner"}))
			require.NoError(t, g.CheckpointIfUnlocked(t.Context()))
			require.NoError(t, g.VerifySeals(t.Context()), "frozen, and in order: the reservation says so")
			require.NoError(t, execute(g, c.spoil))
			for _, p := range []*Guard{g, open(t, g.Home, string(g.Rules.Text()))} {
				// one that saw it, and a new one
				require.True(t, x402.HasCode(p.VerifySeals(t.Context()), x402.LedgerCorrupt))
				_, err := p.Unfreeze(t.Context())
				require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "it does not pass for the owner's: %v",
					err)
				require.Error(t, verify.Owned(t.Context(), p.Store, p))
			}
			require.NoError(t, g.Seal(t.Context(), false), "the owner looked")
			require.NoError(t, g.VerifySeals(t.Context()))
			if list, err := g.Store.Freezes(t.Context()); c.name == "lifted" || c.name == "lifted for ever" {
				require.NoError(t, err)
				require.Len(t, list, 1, "and did not mean to lift it")
			}
		})
	}
	t.Run("the owner", func(t *testing.T) {
		g := sealed(t)
		for range 2 {
			require.NoError(t, g.Store.Freeze(t.Context(), history.Freeze{By: "owner"}))
			require.NoError(t, g.CheckpointIfUnlocked(t.Context()))
			require.Len(t, must.Get(g.Unfreeze(t.Context()))(t), 1)
			require.NoError(t, g.VerifySeals(t.Context()))
			require.NoError(t, verify.Owned(t.Context(), g.Store, g))
			require.Empty(t, must.Get(g.Store.Freezes(t.Context()))(t))
		}
		require.NoError(t, g.Store.Freeze(t.Context(), history.Freeze{By: "owner"}))
		require.NoError(t, g.CheckpointIfUnlocked(t.Context()))
		require.NoError(t, execute(g, `UPDATE lifts SET upto = 3 WHERE upto = 2`))
		require.True(t, x402.HasCode(g.VerifySeals(t.Context()), x402.LedgerCorrupt),
			"an old lift lifts nothing new")
	})
	t.Run("without the key", func(t *testing.T) {
		g := sealed(t)
		g.Key = key("")
		require.NoError(t, g.Store.Freeze(t.Context(), history.Freeze{By: "owner"}))
		require.NoError(t, g.CheckpointIfUnlocked(t.Context()), "it asks nobody")
		require.ErrorIs(t, must.Err(g.Unfreeze(t.Context())), errLocked)
	})
}

// Ledger and checkpoint put back together: a process that ran before notices, one that starts later
// cannot (threat-model.md).
func TestTheWholeHomeFromABackup(t *testing.T) {
	g := sealed(t)
	backup := t.TempDir()
	copied := func(from, to string, names ...string) {
		for _, name := range names {
			text := must.Get(os.ReadFile(filepath.Join(from, name)))(t)
			require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o600))
		}
	}
	require.NoError(t, execute(g, `VACUUM INTO '`+filepath.Join(backup, history.FileName)+`'`))
	copied(g.Home, backup, checkpointFile)
	reserve(t, g.Store)
	require.NoError(t, g.Checkpoint(t.Context()))
	// as it was, in the very file
	require.NoError(t, execute(g, `DELETE FROM payments; DELETE FROM audit WHERE seq > 2`))
	copied(backup, g.Home, checkpointFile)
	require.True(t, x402.HasCode(g.VerifySeals(t.Context()), x402.LedgerCorrupt))
	again := open(t, g.Home, string(g.Rules.Text()))
	again.Checkpoints = &g.own
	require.True(t, x402.HasCode(again.VerifySeals(t.Context()), x402.LedgerCorrupt),
		"the wallet opened again in that process")
	later := open(t, g.Home, string(g.Rules.Text()))
	require.NoError(t, later.VerifySeals(t.Context()))
	require.NoError(t, later.Seal(t.Context(), true), "the owner accepts it")
	require.NoError(t, g.VerifySeals(t.Context()), "for every process")
}

// Sessions that the owner began, and those that somebody wrote into the ledger.
func TestOwnSession(t *testing.T) {
	g := sealed(t)
	s := must.Get(g.NewSession(t.Context(), nil))(t)
	own := func(s budget.Session) bool {
		var seal []byte
		require.NoError(t, g.Store.View(t.Context(), func(tx *sqldb.Tx) error {
			return sqldb.Otherwise(tx.Row(`SELECT seal FROM sessions WHERE id = ?`, s.ID).Scan(&seal), nil)
		}))
		return must.Get(g.OwnSession(t.Context(), s, seal))(t)
	}
	require.True(t, own(s))
	later := s
	later.Started = s.Started.Add(time.Second)
	require.False(t, own(later))
	require.NoError(t,
		execute(g, `INSERT INTO sessions SELECT 'ses_x', started_at, last_at, cap, 0, seal FROM sessions`))
	require.False(t, own(budget.Session{ID: "ses_x", Started: s.Started}))
	byPayment := must.Get(g.Store.NewSession(t.Context(), nil, nil))(t)
	require.False(t, own(byPayment))
}

// What history verify finds with the key, and cannot find without.
func TestVerify(t *testing.T) {
	approve := func(t *testing.T, g *Guard) {
		must.Get(g.Approve(t.Context(), asked(t, g, 1, wanted(5000)), "owner"))(t)
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, g *Guard)
		code  x402.Code
	}{
		{"in order", func(t *testing.T, g *Guard) {
			approve(t, g)
			use(t, g, 1, wanted(5000))
			a := must.Get(g.Store.Accept(t.Context(), asked(t, g, 2, wanted(1)).ID, "client"))(t)
			require.Empty(t, a.Seal)
			require.NoError(t, g.Checkpoint(t.Context()))
		}, ""},
		{"an approval that the owner did not give", func(t *testing.T, g *Guard) {
			must.Get(g.Store.Approve(t.Context(), asked(t, g, 1, wanted(5000)).ID, "owner", nil))(t)
		}, x402.LedgerCorrupt},
		{"an approval that was moved", func(t *testing.T, g *Guard) {
			approve(t, g)
			require.NoError(t, execute(g, `UPDATE approvals SET pay_to = '0xother'`))
		}, x402.LedgerCorrupt},
		{"rules that the owner did not seal", func(t *testing.T, g *Guard) {
			loose := history.SealedRules{Version: 2,
				Config: []byte("[networks.'eip155:8453']\nrpc = 'https://liar.example'"),
				Seal:   []byte("a seal")}
			require.NoError(t, g.Store.SealRules(t.Context(), loose, g.Home, true, historytest.Keyholder()))
		}, x402.LedgerCorrupt},
		{"the chain made again", func(t *testing.T, g *Guard) { // by another wallet's ledger, consistently
			other := sealed(t)
			reserve(t, other.Store)
			require.NoError(t, other.Store.Close())
			text := must.Get(os.ReadFile(filepath.Join(other.Home, history.FileName)))(t)
			id := must.Get(g.Store.LedgerID(t.Context()))(t)
			require.NoError(t, g.Store.Close())
			require.NoError(t, os.WriteFile(filepath.Join(g.Home, history.FileName), text, 0o600))
			require.NoError(t, execute(g, `UPDATE meta SET value = '`+id+`' WHERE key = 'ledger_id'`))
			again := open(t, g.Home, string(g.Rules.Text()))
			_, err := verify.Ledger(t.Context(), again.Store, history.Head{})
			require.True(t, x402.HasCode(err, x402.LedgerCorrupt), "it tells whose chain it is: %v", err)
			*g = Guard{Home: g.Home, Rules: g.Rules, Key: g.Key,
				Store: again.Store} //nolint:govet // nobody holds its lock
		}, x402.LedgerCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := sealed(t)
			c.spoil(t, g)
			err := verify.Owned(t.Context(), g.Store, g)
			require.Equal(t, c.code, codeOf(err), "%v", err)
		})
	}
}

func codeOf(err error) x402.Code {
	if err == nil {
		return ""
	}
	return x402.AsError(err).Code
}

// The owner approves a list as it was shown to them, and nothing that came onto it since.
func TestAListIsApprovedAsItWasShown(t *testing.T) {
	for name, c := range map[string]struct {
		spoil string
		code  x402.Code
	}{
		"as it was shown": {"", ""},
		"another price":   {`UPDATE approvals SET usd = 9 WHERE id LIKE '%.002'`, x402.LedgerCorrupt},
		"one more": {`INSERT INTO approvals SELECT substr(id, 1, 36) || '.003', zeroblob(32), state,
			created_at, expires_at, declined, host, method, url, network, asset, symbol, amount, usd, pay_to,
			why, agent, payment, since, seal FROM approvals WHERE id LIKE '%.001'`, x402.LedgerCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			g := sealed(t)
			var list []history.Approval
			for quote := range byte(2) {
				p := wanted(5000)
				list = append(list, history.Approval{Quote: [32]byte{quote + 1}, Host: p.Host,
					Method: p.Method, URL: p.URL, Network: p.Network, Asset: p.Asset, Amount: p.Amount,
					Price: p.Price, PayTo: p.PayTo})
			}
			list = must.Get(asking.Asker{Store: g.Store}.AskApprovals(t.Context(), list))(t)
			shown := must.Get(g.Store.Asked(t.Context(), list[0].ID))(t)
			if c.spoil != "" {
				require.NoError(t, execute(g, c.spoil))
			}
			_, err := g.Approve(t.Context(), shown, "owner")
			now := must.Get(g.Store.Asked(t.Context(), list[0].ID))(t)
			if c.code == "" {
				require.NoError(t, err)
				require.Equal(t, history.Approved, now.State)
				p, approval := use(t, g, 2, wanted(5000))
				require.NoError(t, g.Approved(t.Context(), p, approval))
				return
			}
			requireCode(t, err, c.code)
			require.Equal(t, history.Pending, now.State, "none of it is approved")
		})
	}
}
