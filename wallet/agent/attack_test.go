//go:build linux || darwin || windows

package agent_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What somebody who runs as the same user did to the ledger in a review, to get more than the owner's limits
// let.

// swap commits an edit of a payment's row, and keeps the lock for writing while the agent is asked something:
// what it read before is the edited row. Then the row is restored.
func (w *world) swap(edit, restore, op, id string) error {
	w.t.Helper()
	w.sql(edit, id)
	db := must.Get(sql.Open("sqlite", w.file()))(w.t)
	defer func() { _ = db.Close() }()
	c := must.Get(db.Conn(context.Background()))(w.t)
	run := func(query string, args ...any) {
		w.t.Helper()
		must.Get(c.ExecContext(context.Background(), query, args...))(w.t)
	}
	run(`BEGIN IMMEDIATE`)
	run(restore, id)
	asked := make(chan error, 1)
	go func() { asked <- w.ask(op, id) }()
	time.Sleep(700 * time.Millisecond) // it has read the row, and waits for the lock
	run(`COMMIT`)
	require.NoError(w.t, c.Close())
	return <-asked
}

// isOver lets the time pass in which a payment could settle.
func (w *world) isOver(id string) {
	p := must.Get(w.store.Payment(w.t.Context(), id))(w.t)
	w.passes(id)
	w.ahead.Store(int64(time.Until(p.Evidence.ExpiresAt.Add(Lateness))))
}

// A settled payment whose row says for a moment that it was prepaid frees nothing: nobody asks the chain
// about what was prepaid.
func TestExpire_RowIsSwapped(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.Day = 1_000_000 })
	p := must.Get(w.pays(1_000_000))(t)
	w.status.Store(&x402.Status{State: x402.Settled})
	w.isOver(p.ID)
	err := w.swap(`UPDATE payments SET scheme = 'batch-settlement', usd = 0 WHERE id = ?`,
		`UPDATE payments SET scheme = 'exact', usd = 1000000 WHERE id = ?`, "expire", p.ID)
	w.corrupt(err, "asked after by something else")
	requireCode(t, must.Err(w.pays(1)), x402.BudgetExceeded)
}

// What a payment by upto came to counts at what it is worth, whatever its row said when it was read.
func TestCharge_RowIsSwapped(t *testing.T) {
	w := newWorld(t)
	w.set(known(ownersVault))
	w.allow(func(r *Rules) { r.Budget.Day = 1_000_000 })
	p := w.reserve(1_000_000, byWay(x402.Upto))
	_, _, err := w.client.SignPermit2(t.Context(), w.permit(p))
	require.NoError(t, err)
	charged := money.NewAmount(999_999)
	w.status.Store(&x402.Status{State: x402.Settled, Transaction: "0x01", Amount: &charged})
	w.isOver(p.ID)
	err = w.swap(`UPDATE payments SET usd = 0 WHERE id = ?`,
		`UPDATE payments SET usd = 1000000 WHERE id = ?`, "charge", p.ID)
	w.corrupt(err, "asked after by something else")
	requireCode(t, must.Err(w.pays(1)), x402.BudgetExceeded)
}

// A yes of the owner's is good once, also where rows of the audit chain name the payment by another number
// before they are sealed.
func TestApproved_ReturnedByAnotherNumber(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	w.approve = true
	p := w.reserve(2000, nil)
	f := w.forge()
	renumber := func() {
		const last = `(SELECT max(seq) FROM audit WHERE event = 'approval used')`
		must.Get(f.Exec(`UPDATE audit SET payment = 0 WHERE seq = ` + last))(t)
		var seq int64
		require.NoError(t, f.Get(&seq, `SELECT `+last))
		require.NoError(t, f.Relink(seq))
	}
	renumber()
	must.Get(w.client.SignTransfer(t.Context(), w.transfer(p)))(t)

	must.Get(f.Exec(`UPDATE approvals SET state = 'approved', payment = ''`))(t)
	require.NoError(t, f.Append(time.Now().UnixMicro(), "", "approval returned", `{}`))
	again := p
	again.ID, again.State = history.NewID(time.Now()), ""
	again = must.Get(historytest.Reserve(t.Context(), w.store, history.Hold{Payment: again,
		Funds: x402.Funds{Source: p.Source, Free: money.NewAmount(1 << 40)}}, p.Fingerprint))(t)
	renumber()
	requireCode(t, must.Err(w.client.SignTransfer(t.Context(), w.transfer(again))), x402.ApprovalRequired)
}

// A yes of the owner's is good for an hour.
func TestApproved_Expired(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	w.approve = true
	p := w.reserve(2000, nil)
	f := w.forge()
	const later = 2 * 3_600_000_000
	must.Get(f.Exec(`UPDATE payments SET created_at = created_at + ? WHERE id = ?`, later, p.ID))(t)
	must.Get(f.Exec(`UPDATE sessions SET last_at = last_at + ?1, started_at = started_at + ?1`, later))(t)
	require.NoError(t, f.Recount())
	require.NoError(t, f.Reserve(p.ID))
	w.ahead.Store(later * 1000)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	requireCode(t, must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))), x402.ApprovalRequired)
}

// capped are rules whose session is limited by what the chain says is delegated, half a dollar.
func (w *world) capped(change func(*Rules)) {
	w.allow(func(r *Rules) {
		r.Budget.Session = nil
		r.Delegated = func(context.Context, history.Payment) (*money.Dollars, error) {
			return new(money.Dollars(500_000)), nil
		}
		change(r)
	})
}

// The chain is asked until something is sealed of a session: a first signature that the ledger did not take
// is none.
func TestSessionCap_FirstSignatureFailed(t *testing.T) {
	w := newWorld(t)
	w.capped(func(*Rules) {})
	must.Get(w.store.NewSession(t.Context(), new(money.Dollars(500_000)), nil))(t)
	w.sql(`CREATE TRIGGER no BEFORE INSERT ON audit WHEN new.event = 'signed'
		BEGIN SELECT RAISE(ABORT, 'no'); END`)
	require.Error(t, must.Err(w.pays(1)))
	w.sql(`DROP TRIGGER no`)
	w.sql(`UPDATE sessions SET cap = 1000000000`)
	require.ErrorContains(t, must.Err(w.pays(900_000)), "session budget")
}

// A session that was signed in before, and is over, does not come back with another cap.
func TestSessionCap_OldSessionAgain(t *testing.T) {
	w := newWorld(t)
	w.capped(func(*Rules) {})
	first := must.Get(w.store.NewSession(t.Context(), new(money.Dollars(500_000)), nil))(t)
	must.Get(w.pays(1))(t)
	second := must.Get(w.guard.NewSession(t.Context(), new(money.Dollars(500_000))))(t)
	must.Get(w.pays(1))(t)
	p := w.reserve(900_000, nil)
	f := w.forge()
	const later = 9 * 3_600_000_000
	now := time.Now().UnixMicro() + later
	must.Get(f.Exec(`UPDATE sessions SET ended = 1 WHERE id = ?`, second.ID))(t)
	must.Get(f.Exec(`UPDATE sessions SET ended = 0, cap = NULL, started_at = ?, last_at = ? WHERE id = ?`,
		now-1_000_000, now, first.ID))(t)
	must.Get(f.Exec(`UPDATE payments SET session = ?, created_at = created_at + ? WHERE id = ?`, first.ID,
		later, p.ID))(t)
	require.NoError(t, f.Recount())
	must.Get(f.Exec(`UPDATE totals SET held = 900000, spent = 0 WHERE scope = 'session' AND key = ?`,
		first.ID))(t)
	require.NoError(t, f.Reserve(p.ID))
	w.ahead.Store(later * 1000)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.ErrorContains(t, must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))), "session budget")
}

// The session is all accounts': its cap is what is delegated to the wallet's own one, whoever signs first in
// it.
func TestSessionCap_NamedAccountSignsFirst(t *testing.T) {
	w := newWorld(t)
	passphrase := wallet.FromValue("correct horse battery")
	named := owner.NewAccount{Name: "research"}
	research := must.Get(owner.AddAccount(t.Context(), w.keys, passphrase, named))(t)
	w.later = must.Get(wallet.Open(w.home))(t)
	defer func() { _ = w.later.Close() }()
	require.NoError(t, w.later.Unlock(t.Context(), passphrase))
	w.capped(func(r *Rules) {
		r.Budget.Agents = map[string]budget.Agent{"research": {}}
		r.Budget.Teams = budget.Teams{"research": {Agents: []string{"research"}, Account: true}}
	})
	must.Get(w.store.NewSession(t.Context(), new(money.Dollars(500_000)), nil))(t)
	w.sql(`UPDATE sessions SET cap = 1000000000`)
	p := w.reserve(1, func(p *history.Payment) { p.Agent, p.Source = "research", research.EVM })
	m := w.transfer(p)
	m.Authorization.From = research.EVM
	must.Get(w.client.SignTransfer(t.Context(), m))(t)
	require.ErrorContains(t, must.Err(w.pays(900_000)), "session budget")
}
