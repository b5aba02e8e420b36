//go:build linux || darwin || windows

package agent_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The freeze is lifted, in the transaction that signs, by a forged lift, which a trigger takes away again.
func TestFreeze_ForgedLift(t *testing.T) {
	w := newWorld(t)
	w.allow(func(*Rules) {})
	must.Get(w.pays(1))(t)
	p := w.reserve(10_000, nil)
	w.freezes()
	require.NoError(t, w.agent.Checkpoint(t.Context())) // the agent has seen it
	require.NoError(t, w.agent.VerifySeals(t.Context()))

	file := filepath.Join(w.home, history.FileName) + "?_pragma=busy_timeout(5000)"
	db := must.Get(sql.Open("sqlite", file))(t)
	defer func() { _ = db.Close() }()
	c := must.Get(db.Conn(context.Background()))(t)
	run := func(q string) { t.Helper(); must.Get(c.ExecContext(context.Background(), q))(t) }
	run(`BEGIN IMMEDIATE`)
	run(`INSERT INTO lifts VALUES (99, 1, x'00')`)
	run(`CREATE TRIGGER back AFTER INSERT ON audit WHEN new.event = 'signed'
		BEGIN DELETE FROM lifts WHERE upto = 99; END`)
	got := make(chan error, 1)
	require.NoError(t, w.agent.VerifySeals(t.Context())) // what the agent's Rules does at this moment
	go func() { got <- must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))) }()
	time.Sleep(700 * time.Millisecond)
	run(`COMMIT`)
	w.corrupt(<-got, "a freeze was lifted")
}

// A trigger takes what was signed out of the ledger again, in the same transaction.
func TestSign_TriggerForgets(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	must.Get(w.pays(1))(t)
	w.approve = true
	p := w.reserve(2000, nil)
	w.approve = false
	w.sql(`CREATE TABLE keep AS SELECT sums FROM sealed_sums`)
	w.sql(`CREATE TRIGGER "sqlite-stat1" AFTER INSERT ON audit WHEN new.event = 'signed' BEGIN
		DELETE FROM audit WHERE seq > (SELECT max(seq) FROM audit WHERE event = 'approval approved');
		UPDATE payments SET state = 'reserved', unique_key = NULL, evidence = NULL WHERE seq = new.payment;
	END`)
	w.sql(`CREATE TRIGGER b AFTER UPDATE ON sealed_sums
		BEGIN UPDATE sealed_sums SET sums = (SELECT sums FROM keep); END`)
	w.corrupt(must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))), "not one of this wallet's")
}

// While the agent waits for the lock of the checkpoint, what it signed is cut off the ledger. It gives out no
// signature: one yes of the owner's would be good any number of times.
func TestCheckpoint_SignatureIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	must.Get(w.pays(1))(t)
	const url = "https://api.example/x"
	q := history.Payment{Fingerprint: sha256.Sum256([]byte("one")), Method: "GET", URL: url,
		Target: url, Host: "api.example", Network: base, Scheme: "exact", Asset: usdc.Address,
		Symbol: "USDC", Amount: money.NewAmount(900_000), Price: 900_000, PayTo: payee, Source: w.evm,
		Requirement: json.RawMessage("{}")}
	a := must.Get(asking.Asker{Store: w.store}.AskApproval(t.Context(), history.Approval{Quote: q.Fingerprint,
		Host: q.Host, Method: q.Method, URL: q.URL, Network: q.Network, Asset: q.Asset, Symbol: q.Symbol,
		Amount: q.Amount, Price: q.Price, PayTo: q.PayTo}))(t)
	must.Get(w.guard.Approve(t.Context(), a, "owner"))(t)
	before := w.snapshot()
	lock := sqldb.NewFileLock(w.home, "mark")
	for range 2 {
		p := q
		p.ID = history.NewID(time.Now())
		p = must.Get(historytest.Reserve(t.Context(), w.store, history.Hold{Payment: p,
			Funds: x402.Funds{Source: p.Source, Free: money.NewAmount(1 << 40)}}, p.Fingerprint))(t)
		unlock := must.Get(lock.Lock(context.Background()))(t)
		got := make(chan error, 1)
		go func() { _, err := w.client.SignTransfer(t.Context(), w.transfer(p)); got <- err }()
		time.Sleep(700 * time.Millisecond) // it has signed, and waits for the lock
		w.restore(before)
		unlock()
		w.corrupt(<-got, "which this process sealed")
	}
}

func (w *world) file() string {
	return filepath.Join(w.home, history.FileName) + "?_pragma=busy_timeout(5000)"
}

func (w *world) freezes() {
	w.t.Helper()
	stop := history.Freeze{By: "owner", Why: "stop", At: time.Now()}
	require.NoError(w.t, w.store.Freeze(w.t.Context(), stop))
}

func (w *world) snapshot() string {
	to := filepath.Join(w.t.TempDir(), "copy.db")
	w.sql(`VACUUM INTO ?`, to)
	return to
}

func (w *world) restore(from string) {
	t := w.t
	db := must.Get(sql.Open("sqlite", w.file()))(t)
	defer func() { _ = db.Close() }()
	c := must.Get(db.Conn(context.Background()))(t)
	run := func(q string, a ...any) { t.Helper(); must.Get(c.ExecContext(context.Background(), q, a...))(t) }
	run(`ATTACH ? AS old`, from)
	run(`BEGIN IMMEDIATE`)
	for _, tab := range []string{"audit", "payments", "sealed_sums", "memory", "memory_nodes", "totals",
		"sessions", "approvals", "freezes", "lifts"} {
		run(`DELETE FROM main.` + tab)
		run(`INSERT INTO main.` + tab + ` SELECT * FROM old.` + tab)
	}
	run(`COMMIT`)
	require.NoError(t, c.Close())
}

// The agent is asked for a checkpoint and waits for its lock, while an older ledger is put in the place: it
// does not mark that.
func TestCheckpoint_OlderLedgerMeanwhile(t *testing.T) {
	w := newWorld(t)
	must.Get(w.pays(1))(t)
	to := w.snapshot()
	must.Get(w.pays(1_000_000))(t)
	w.freezes()
	require.NoError(t, w.agent.Checkpoint(t.Context())) // the agent has seen it
	require.Error(t, w.store.NotFrozen(t.Context(), base, w.evm))
	require.NoError(t, w.forge().Append(time.Now().UnixMicro(), "", "labelled", `{}`))

	lock := sqldb.NewFileLock(w.home, "mark")
	unlock := must.Get(lock.Lock(context.Background()))(t)
	got := make(chan error, 1)
	go func() { got <- w.ask("mark", "") }()
	time.Sleep(500 * time.Millisecond)
	w.restore(to)
	unlock()
	w.corrupt(<-got, "")
	mark := filepath.Join(w.home, "ledger.mark")
	text := must.Get(os.ReadFile(mark))(t)
	lower := text[:512] // the older of both lines twice
	if seqOf(t, text[512:]) < seqOf(t, lower) {
		lower = text[512:]
	}
	require.NoError(t, os.WriteFile(mark, slices.Concat(lower, lower), 0o600))
	w.corrupt(w.agent.VerifySeals(t.Context()), "")
}

// config.toml is made tighter, so that the agent seals it by itself. Between its look at the ledger and its
// transaction an older ledger is put in the place: that it does not seal.
func TestVerifySeals_OlderLedgerMeanwhile(t *testing.T) {
	w := newWorld(t)
	must.Get(w.pays(1))(t)
	to := w.snapshot()
	must.Get(w.pays(1_000_000))(t)
	w.freezes()
	require.NoError(t, w.agent.Checkpoint(t.Context()))
	require.Error(t, w.store.NotFrozen(t.Context(), base, w.evm))

	db := must.Get(sql.Open("sqlite", w.file()))(t)
	defer func() { _ = db.Close() }()
	c := must.Get(db.Conn(context.Background()))(t)
	run := func(q string, a ...any) { t.Helper(); must.Get(c.ExecContext(context.Background(), q, a...))(t) }
	run(`ATTACH ? AS old`, to)
	run(`BEGIN IMMEDIATE`)
	for _, tab := range []string{"audit", "payments", "sealed_sums", "memory", "memory_nodes", "totals",
		"sessions", "freezes", "lifts"} {
		run(`DELETE FROM main.` + tab)
		run(`INSERT INTO main.` + tab + ` SELECT * FROM old.` + tab)
	}
	tight := must.Get(config.Parse([]byte("# none\n[budget]\nper_call = \"0.50\"\n")))(t)
	w.agent.Rules = tight // as the agent reads config.toml anew
	got := make(chan error, 1)
	go func() { got <- w.agent.VerifySeals(t.Context()) }()
	time.Sleep(700 * time.Millisecond)
	run(`COMMIT`)
	w.corrupt(<-got, "")
	w.corrupt(w.agent.VerifySeals(t.Context()), "")
}

func seqOf(t *testing.T, line []byte) int64 {
	var m struct{ Seq int64 }
	require.NoError(t, json.Unmarshal(line, &m))
	return m.Seq
}

// Lifted freezes are deleted, and the next freeze would get a number that is lifted already.
func TestFreeze_AfterOthersAreDeleted(t *testing.T) {
	w := newWorld(t)
	must.Get(w.pays(1))(t)
	w.freezes()
	must.Get(w.guard.Unfreeze(t.Context()))(t)
	w.sql(`DELETE FROM freezes`)
	w.corrupt(w.agent.VerifySeals(t.Context()), "")
	w.freezes()
	require.Error(t, w.store.NotFrozen(t.Context(), base, w.evm), "it stops everything")
}

// Nothing that was reserved before the agent began is signed, also where the row says otherwise when it is
// read.
func TestSign_ReservedBeforeTheAgentBegan(t *testing.T) {
	w := newWorld(t)
	w.lock()
	<-w.ended
	p := w.reserve(1000, nil)
	require.NoError(t, w.keys.Unlock(t.Context(), wallet.FromValue("correct horse battery")))
	time.Sleep(10 * time.Millisecond)
	w.start()
	w.refused(must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))), "before the wallet was unlocked")
	w.sql(`UPDATE payments SET created_at = created_at + 1000000 WHERE id = ?`, p.ID)
	db := must.Get(sql.Open("sqlite", w.file()))(t)
	defer func() { _ = db.Close() }()
	c := must.Get(db.Conn(context.Background()))(t)
	must.Get(c.ExecContext(context.Background(), `BEGIN IMMEDIATE`))(t)
	must.Get(c.ExecContext(context.Background(),
		`UPDATE payments SET created_at = created_at - 1000000 WHERE id = ?`, p.ID))(t)
	got := make(chan error, 1)
	go func() { _, err := w.client.SignTransfer(t.Context(), w.transfer(p)); got <- err }()
	time.Sleep(700 * time.Millisecond)
	must.Get(c.ExecContext(context.Background(), `COMMIT`))(t)
	require.Error(t, <-got, "signed what was reserved before it began")
}

// A process that begins anew takes no older rules with an older mark, on a ledger whose audit chain says that
// newer ones were sealed.
func TestVerifySeals_OlderRules(t *testing.T) {
	w := newWorld(t)
	must.Get(w.pays(1))(t)
	old := must.Get(os.ReadFile(filepath.Join(w.home, "ledger.mark")))(t)
	tight := must.Get(config.Parse([]byte("# none\n[budget]\nper_call = \"0.50\"\n")))(t)
	owners := &seal.Guard{Home: w.home, Rules: tight, Store: w.store, Key: w.keys}
	require.NoError(t, owners.Seal(t.Context(), false))
	w.agent.Rules = tight
	must.Get(w.pays(1))(t)
	w.freezes()
	require.NoError(t, owners.Checkpoint(t.Context()))

	require.NoError(t, os.WriteFile(filepath.Join(w.home, "ledger.mark"), old, 0o600))
	w.sql(`DELETE FROM rules WHERE version = 2`)
	w.sql(`DELETE FROM freezes`)
	loose := must.Get(config.Parse([]byte("# none\n")))(t)
	fresh := &seal.Guard{Home: w.home, Rules: loose, Store: w.store, Key: w.keys}
	require.Error(t, fresh.VerifySeals(t.Context()), "the rules that were sealed before the newest are taken")
}
