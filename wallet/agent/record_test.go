//go:build linux || darwin || windows

package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mr-tron/base58"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm/payload"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/scheme/signing"
	"x402-wallet/wallet"
	. "x402-wallet/wallet/agent"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// forge is the ledger in the hands of somebody who runs as the same user, and knows how it is made.
func (w *world) forge() *historytest.Forger {
	w.t.Helper()
	f := must.Get(historytest.Forge(w.home))(w.t)
	w.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.forge().Get(&n, query, args...))
	return n
}

// pays reserves a payment and has it signed by the agent.
func (w *world) pays(units uint64) (history.Payment, error) {
	p := w.reserve(units, nil)
	_, err := w.client.SignTransfer(w.t.Context(), w.transfer(p))
	return p, err
}

func (w *world) corrupt(err error, why string) {
	w.t.Helper()
	requireCode(w.t, err, x402.LedgerCorrupt)
	require.ErrorContains(w.t, err, why)
}

// What is handed out is recorded before, sealed, and under the checkpoint; where either fails nobody
// gets a signature.
func TestASignatureIsRecordedBeforeItIsHandedOut(t *testing.T) {
	const rows = `SELECT count(*) FROM audit WHERE event = 'signed' AND length(seal) = 32
		AND payment = (SELECT seq FROM payments WHERE id = ?)`
	w := newWorld(t)
	p := must.Get(w.pays(1000))(t)
	require.Equal(t, 1, w.count(rows, p.ID))
	now := must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, history.Submitted, now.State, "it counts until the chain says otherwise")
	require.NotEmpty(t, now.Evidence.Nonce)
	w.sql(`DELETE FROM audit WHERE event = 'signed'`)
	w.corrupt(w.guard.VerifySeals(t.Context()), "event")

	w = newWorld(t)
	w.sql(`CREATE TRIGGER no BEFORE INSERT ON audit WHEN new.event = 'signed'
		BEGIN SELECT RAISE(ABORT, 'no'); END`)
	p = w.reserve(1000, nil)
	signature, err := w.client.SignTransfer(t.Context(), w.transfer(p))
	require.Error(t, err)
	require.Zero(t, signature)
	require.Zero(t, w.count(rows, p.ID))

	w = newWorld(t)
	p = w.reserve(1000, nil)
	unlock := must.Get(sqldb.NewFileLock(w.home, "mark").Lock(t.Context()))(t)
	signed := make(chan error, 1)
	go func() { signed <- must.Err(w.client.SignTransfer(t.Context(), w.transfer(p))) }()
	require.Eventually(t, func() bool { return w.count(rows, p.ID) == 1 }, time.Minute, 10*time.Millisecond)
	w.sql(`INSERT INTO lifts VALUES (1, 1, x'00')`) // the checkpoint will not vouch for that
	unlock()
	w.corrupt(<-signed, "a freeze was lifted")
	require.Equal(t, 1, w.count(rows, p.ID), "it counts: somebody may have got hold of it")
}

// spoiler changes a ledger after a payment was signed, and answers the one to ask a signature for.
type spoiler = func(w *world, f *historytest.Forger, signed history.Payment) history.Payment

// The agent signs what is on the sealed chain, whatever the tables beside it say.
func TestForgedRowsAreNotSigned(t *testing.T) {
	copied := func(w *world, f *historytest.Forger, p history.Payment) history.Payment {
		q := p
		q.ID, q.PayTo = history.NewID(time.Now()), "0x000000000000000000000000000000000000dEaD"
		q.Amount, q.Price = money.NewAmount(990_000), 990_000
		_, err := f.Exec(`CREATE TEMP TABLE one AS SELECT * FROM payments WHERE id = ?1;
			UPDATE one SET id = ?2, pay_to = ?3, amount = '990000', usd = 990000, state = 'reserved',
				unique_key = NULL, seq = NULL, created_at = ?4;
			INSERT INTO payments SELECT * FROM one; DROP TABLE one`, p.ID, q.ID, q.PayTo, time.Now().UnixMicro())
		require.NoError(w.t, errors.Join(err, f.Recount()))
		return q
	}
	// onChain reserves a copy by a row of the chain, and changes the ledger after that.
	onChain := func(change string) spoiler {
		return func(w *world, f *historytest.Forger, p history.Payment) history.Payment {
			p = copied(w, f, p)
			require.NoError(w.t, f.Reserve(p.ID))
			must.Get(f.Exec(change, p.ID))(w.t)
			return p
		}
	}
	// before changes the ledger, and has the wallet itself reserve after that.
	before := func(change string) spoiler {
		return func(w *world, f *historytest.Forger, _ history.Payment) history.Payment {
			must.Get(f.Exec(change))(w.t)
			return w.reserve(1, nil)
		}
	}
	for _, c := range []struct {
		name  string
		spoil spoiler
		why   string
	}{
		{"a row that the chain does not know", copied, "no reservation"},
		{"with a row of the chain that says little", func(w *world, f *historytest.Forger,
			p history.Payment) history.Payment {
			p = copied(w, f, p)
			at := w.count(`SELECT created_at FROM payments WHERE id = ?`, p.ID)
			require.NoError(w.t, f.Append(int64(at), p.ID, "reserved", `{"amount":"990000"}`))
			return p
		}, "not the one that was reserved"},
		{"whose chain does not hold together", onChain(`UPDATE audit SET hash = zeroblob(32) WHERE payment =
			(SELECT seq FROM payments WHERE id = ?)`), "the audit chain breaks"},
		{"at another time", onChain(`UPDATE payments SET created_at = created_at + 1 WHERE id = ?`),
			"not the one that was reserved"},
		{"all of its sums at zero", func(w *world, f *historytest.Forger, p history.Payment) history.Payment {
			p = copied(w, f, p)
			require.NoError(w.t, f.Reserve(p.ID))
			must.Get(f.Exec(`UPDATE totals SET spent = 0, held = 0`))(w.t)
			return p
		}, "a budget's sum"},
		{"what was signed called failed", func(w *world, f *historytest.Forger,
			p history.Payment) history.Payment {
			_, err := f.Exec(`UPDATE payments SET state = 'failed'`)
			require.NoError(w.t, errors.Join(err, f.Recount()))
			require.NoError(w.t, f.Append(time.Now().UnixMicro(), p.ID, "failed", `{"chain":"x"}`))
			return w.reserve(1, nil)
		}, "a budget's sum"},
		{"what was signed taken away", before(`DELETE FROM payments; DELETE FROM totals`),
			"not the one that was reserved"}, // the next one has its number
		{"no session", before(`DELETE FROM sessions`), "the owner did not begin it"},
		{"an ended session", before(`UPDATE sessions SET ended = 1`), "the owner did not begin it"},
		{"a session of nine hours ago", before(`UPDATE sessions SET last_at = last_at - 9 * 3600000000`),
			"the owner did not begin it"},
		{"the last sums again",
			before(`UPDATE sealed_sums SET sums = '{"days":null,"months":null,"memory":""}'`), "is another one"},
		{"a row that claims to be signed", func(w *world, f *historytest.Forger,
			p history.Payment) history.Payment {
			require.NoError(w.t, f.Append(time.Now().UnixMicro(), p.ID, "expired", `{"n":1}`))
			return w.reserve(1, nil)
		}, "is not sealed by this wallet"},
		{"the seal of an older row on a new one", func(w *world, f *historytest.Forger,
			p history.Payment) history.Payment {
			require.NoError(w.t, f.Append(time.Now().UnixMicro(), p.ID, "expired", `{"n":1}`))
			must.Get(f.Exec(`UPDATE audit SET seal = (SELECT seal FROM audit WHERE event = 'signed')
				WHERE event = 'expired'`))(w.t)
			return w.reserve(1, nil)
		}, "is another one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := must.Get(w.pays(990_000))(t)
			p = c.spoil(w, w.forge(), p)
			signature, err := w.client.SignTransfer(t.Context(), w.transfer(p))
			w.corrupt(err, c.why)
			require.Zero(t, signature)
			require.NoError(t, w.guard.Seal(t.Context(), true), "the way out is the owner's")
		})
	}
	// Rows that are forged to the last byte are what anybody may ask for: they count.
	w := newWorld(t)
	first, err := w.pays(990_000)
	require.NoError(t, err)
	for range 2 {
		p := copied(w, w.forge(), first)
		require.NoError(t, w.forge().Reserve(p.ID))
		_, err = w.client.SignTransfer(t.Context(), w.transfer(p))
	}
	require.True(t, x402.HasCode(err, x402.BudgetExceeded), "$2.00 is the limit: %v", err)
}

// What a person answered at a client the agent cannot know: their yes has to be sealed.
func TestTheAgentBelievesTheOwnersSealAlone(t *testing.T) {
	w := newWorld(t)
	require.True(t, x402.HasCode(w.ask("heard", "pay_00"), x402.InvalidArgument), "nobody tells it")
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	p := w.reserve(2000, nil)
	require.NoError(t, w.store.Release(t.Context(), p.ID, "x"))
	a := must.Get(asking.Asker{Store: w.store}.AskApproval(t.Context(), history.Approval{
		Quote: sha256.Sum256([]byte("q")),
		Host:  p.Host, Method: p.Method, URL: p.URL, Network: p.Network,
		Asset: p.Asset, Amount: p.Amount, Price: p.Price, PayTo: p.PayTo}))(t)
	must.Get(w.store.Accept(t.Context(), a.ID, "client"))(t)
	p.ID = history.NewID(time.Now())
	funds := x402.Funds{Source: p.Source, Free: money.NewAmount(1 << 40)}
	p, err := historytest.Reserve(t.Context(), w.store, history.Hold{Payment: p, Funds: funds}, a.Quote)
	require.NoError(t, err)
	_, err = w.client.SignTransfer(t.Context(), w.transfer(p))
	requireCode(t, err, x402.ApprovalRequired)
	require.Contains(t, x402.AsError(err).Hint, "x402-wallet approve "+a.ID)

	remote := &client.Client{Home: w.home, Before: func() bool { return true }}
	require.False(t, client.Guard{Remote: remote}.LocalApprovals(t.Context()),
		"so nobody is asked at a client")
	w.approve = true
	must.Get(w.pays(2000))(t)
	require.True(t, w.lock())
	require.NoError(t, <-w.ended)
	require.True(t, client.Guard{Remote: remote}.LocalApprovals(t.Context()), "here the wallet signs itself")
	require.True(t, client.Guard{}.LocalApprovals(t.Context()))
}

// An approval that was used and signed for is used up, whatever the chain's end says.
func TestAnApprovalIsGoodOnce(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.ApproveAbove = 1000 })
	w.approve = true
	p := must.Get(w.pays(2000))(t)
	w.approve = false
	f := w.forge()
	must.Get(f.Exec(`UPDATE approvals SET state = 'approved', payment = ''`))(t)
	require.NoError(t, f.Append(time.Now().UnixMicro(), p.ID, "approval returned", `{}`))
	funds := x402.Funds{Source: p.Source, Free: money.NewAmount(1 << 40)}
	again := p
	again.ID = history.NewID(time.Now())
	again = must.Get(historytest.Reserve(t.Context(), w.store, history.Hold{Payment: again, Funds: funds},
		p.Fingerprint))(t)
	_, used, err := w.store.ApprovalUsedBy(t.Context(), again)
	require.NoError(t, err)
	require.True(t, used)
	requireCode(t, must.Err(w.client.SignTransfer(t.Context(), w.transfer(again))), x402.ApprovalRequired)
}

var expired = &x402.Status{State: x402.Expired, Note: "its time is over"}

// Money is given back by what the agent's own node says, for what was really signed, and once.
func TestTheAgentLooksForItself(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.Day = 1_000_000 })
	p := must.Get(w.pays(1_000_000))(t)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	full := func() {
		t.Helper()
		requireCode(t, must.Err(w.pays(1)), x402.BudgetExceeded)
	}
	elsewhere := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: lockedKey{w.keys}}
	guard := client.Guard{Local: elsewhere,
		Recorder: &Recorder{Store: w.store, Guard: elsewhere, Tally: &Tally{}},
		Remote:   &client.Client{Home: w.home, Before: func() bool { return true }}}
	_, err := guard.Expire(t.Context(), p, *expired) // the caller's word
	w.refused(err, "it can still settle")
	require.EqualValues(t, 1, w.asked.Load())
	full()
	w.status.Store(&x402.Status{State: x402.Settled})
	require.True(t, x402.HasCode(w.ask("expire", p.ID), x402.PolicyDenied))
	full()
	w.bad.Store(x402.Errorf(x402.PolicyUnsealed, "changed"))
	require.True(t, x402.HasCode(w.ask("expire", p.ID), x402.PolicyUnsealed), "whose node is that?")
	w.bad.Store(nil)
	w.status.Store(expired)
	require.True(t, x402.HasCode(w.ask("expire", "pay_00"), x402.PolicyDenied))

	lives := func() {
		t.Helper()
		w.refused(w.ask("expire", p.ID), "has not expired: it is good until")
		full()
	}
	lives()
	w.ahead.Store(int64(20 * time.Minute)) // somebody set it forward
	lives()
	w.passes(p.ID)
	w.ahead.Store(0)
	lives()
	w.ahead.Store(int64(time.Until(p.Evidence.ExpiresAt.Add(Lateness - 10*time.Second))))
	lives()
	w.ahead.Store(int64(time.Until(p.Evidence.ExpiresAt.Add(Lateness))))
	evidence := must.Get(json.Marshal(p.Evidence))(t)
	other := p.Evidence
	other.Nonce = "0x" + hex.EncodeToString(make([]byte, 32))
	changed := must.Get(json.Marshal(other))(t)
	w.sql(`UPDATE payments SET evidence = ?`, string(changed))
	w.corrupt(w.ask("expire", p.ID), "asked after by something else")
	w.sql(`UPDATE payments SET evidence = ?`, string(evidence))
	full()

	p = must.Get(guard.Expire(t.Context(), p, x402.Status{}))(t)
	require.Equal(t, history.Failed, p.State)
	require.NoError(t, must.Err(w.pays(1_000_000)), "it is free again")
	w.sql(`UPDATE payments SET state = 'submitted' WHERE id = ?`, p.ID)
	w.corrupt(w.ask("expire", p.ID), "expired already")
	w.sql(`UPDATE payments SET state = 'failed' WHERE id = ?`, p.ID)
	full()
}

// Whoever chooses the node chooses the evidence: under rules that nobody sealed nothing expires.
func TestNothingExpiresUnderForgedRules(t *testing.T) {
	w := newWorld(t)
	p := must.Get(w.pays(1000))(t)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	process := func(rules seal.Rules) client.Guard {
		g := &seal.Guard{Home: w.home, Rules: rules, Store: w.store, Key: w.keys}
		return client.Guard{Local: g, Recorder: &Recorder{Store: w.store, Guard: g, Rules: *w.rules.Load(),
			Tally: &Tally{}, Now: func() time.Time { return p.Evidence.ExpiresAt.Add(Lateness) }}}
	}
	forged, err := config.Parse([]byte("[networks.\"eip155:84532\"]\nrpc = \"https://liar.example\"\n"))
	require.NoError(t, err)
	requireCode(t, must.Err(process(forged).Expire(t.Context(), p, *expired)), x402.PolicyUnsealed)
	must.Get(process(w.guard.Rules).Expire(t.Context(), p, *expired))(t)
}

// passes lets the time of what the agent signed pass, by its monotonic clock.
func (w *world) passes(id string) {
	w.t.Helper()
	require.NotZero(w.t, w.tally.Pass(id))
}

// lockedKey is that of a wallet that is locked.
type lockedKey struct{ seal.Key }

func (lockedKey) Locked() bool { return true }

// Whoever holds the key adds up what it signed by itself: the whole home put back to an older copy
// gives no budget back to it, and it signs nothing twice.
func TestNobodyGetsPastTheTally(t *testing.T) {
	w := newWorld(t)
	require.True(t, w.lock())
	require.NoError(t, <-w.ended)
	require.NoError(t, w.keys.Unlock(t.Context(), wallet.FromValue("correct horse battery")))
	tally := &Tally{}
	process := func() client.Guard { // unlocked in its own process; what it met of the ledger it forgets here
		g := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
		return client.Guard{Local: g, Recorder: w.recorder(w.keys, g, tally)}
	}
	submit := func(p history.Payment) error {
		m := w.transfer(p)
		e, own := m.Evidence(), process()
		object := must.Get(payload.EncodeAuthorization(m.Authorization))(t)
		if _, err := own.Recorder.Sign(t.Context(), p.ID, object); err != nil {
			return err
		}
		return own.Submit(t.Context(), p, history.Signed{Payload: json.RawMessage(`{}`),
			Requirement: json.RawMessage(`{}`), Evidence: e, UniqueKey: e.Unique()}, false)
	}
	older := map[string][]byte{}
	names := []string{history.FileName, "ledger.mark"}
	reopen := func(change func(path, name string)) {
		t.Helper()
		require.NoError(t, w.store.Close())
		for _, name := range names {
			change(filepath.Join(w.home, name), name)
		}
		w.store = must.Get(ledgers.Open(t.Context(), w.home, historytest.Options()))(t)
		t.Cleanup(func() { _ = w.store.Close() })
	}
	reopen(func(path, name string) {
		text := must.Get(os.ReadFile(path))(t)
		older[name] = text
	})
	back := func() {
		t.Helper()
		reopen(func(path, name string) { require.NoError(t, os.WriteFile(path, older[name], 0o600)) })
	}
	require.NoError(t, submit(w.reserve(1_000_000, nil)))
	back()
	require.NoError(t, submit(w.reserve(999_999, nil)), "nothing on disk knows of the first million")
	back()
	require.True(t, x402.HasCode(submit(w.reserve(2, nil)), x402.BudgetExceeded))
	last := w.reserve(1, nil)
	require.NoError(t, submit(last))
	w.sql(`UPDATE payments SET state = 'failed'`) // nor what somebody says of it
	require.Error(t, submit(w.reserve(1, nil)))

	p := w.reserve(1, func(p *history.Payment) { p.Host = "other.example" })
	facts := budget.Facts{Now: p.Created}
	r := process().Recorder
	rules := r.Rules
	rules.Budget = budget.Rules{PerCall: 1_000_000, Day: 100_000_000, Month: 100_000_000, Rate: 60,
		ApproveAbove: 1_000_000}
	require.NoError(t, r.Permit(t.Context(), rules, p, TermsOf(p, usdc), facts, false))
	err := r.Permit(t.Context(), rules, p, TermsOf(p, usdc), facts, false)
	w.refused(err, "signed this payment already")
	tally.TakeBack(p.ID)
	err = r.Permit(t.Context(), rules, p, TermsOf(p, usdc), facts, false)
	w.refused(err, "signed this payment already")
}

// A payment that a check has to read is recorded by nobody who did not sign it; one of a channel that package
// channel has checked is, within the limits.
func TestSubmit_WithoutACheck(t *testing.T) {
	w := newWorld(t)
	g := &seal.Guard{Home: w.home, Rules: w.guard.Rules, Store: w.store, Key: w.keys}
	r := w.recorder(w.keys, g, &Tally{})
	submit := func(scheme string, units uint64) error {
		p := w.reserve(units, func(p *history.Payment) { p.Scheme = scheme })
		e := x402.Evidence{Network: p.Network, Nonce: p.ID}
		return r.Submit(t.Context(), p, history.Signed{Evidence: e, UniqueKey: e.Unique()}, false)
	}
	require.NoError(t, submit("nuwa-open", 1000))
	requireCode(t, submit("nuwa-open", 2_000_000), x402.BudgetExceeded)
	requireCode(t, submit(x402.Exact, 1000), x402.WalletLocked)
}

// The rules are asked about a payment at a time that may be true.
func TestPaymentsOfOtherTimes(t *testing.T) {
	w := newWorld(t)
	rules := *w.rules.Load()
	for _, c := range []struct {
		ago  time.Duration
		code x402.Code
	}{{0, ""}, {Oldest - time.Second, ""}, {Oldest + time.Second, x402.PolicyDenied},
		{-Early + time.Second, ""}, {-Early - time.Second, x402.ClockSuspect}} {
		p := w.reserve(1, nil)
		r := &Recorder{Store: w.store, Guard: w.guard, Tally: &Tally{},
			Now: func() time.Time { return p.Created.Add(c.ago) }}
		err := r.Permit(t.Context(), rules, p, TermsOf(p, usdc), budget.Facts{Now: p.Created}, false)
		if c.code == "" {
			require.NoError(t, err, c.ago)
		} else {
			require.True(t, x402.HasCode(err, c.code), "%s: %v", c.ago, err)
		}
	}
}

// swapping changes the ledger after a message was read.
type swapping struct {
	signing.Check
	swap func(payment string)
}

func (s swapping) Read(ctx context.Context, q signing.Question) (signing.Message, error) {
	m, err := s.Check.Read(ctx, q)
	s.swap(q.Payment.ID)
	return m, err
}

// The row that a message was compared with is the row that is recorded.
func TestARowCannotBeSwapped(t *testing.T) {
	for name, change := range map[string]string{
		"cheaper":       `UPDATE payments SET amount = '1', usd = 1 WHERE id = ?`,
		"another host":  `UPDATE payments SET host = 'other.example' WHERE id = ?`,
		"other payee":   `UPDATE payments SET pay_to = source WHERE id = ?`,
		"other session": `UPDATE payments SET session = 'ses_other' WHERE id = ?`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.reserve(990_000, nil)
			f := w.forge()
			rules := *w.rules.Load()
			rules.Checks = maps.Clone(rules.Checks)
			rules.Checks[x402.Exact] = swapping{rules.Checks[x402.Exact], func(id string) {
				require.EqualValues(t, 1, must.Get(f.Exec(change, id))(t))
				require.NoError(t, f.Reserve(id))
			}}
			s := &Server{Store: w.store, Now: time.Now,
				Rules:    func(context.Context) (Rules, error) { return rules, nil },
				Recorder: w.recorder(w.keys, w.agent, &Tally{})}
			message := must.Get(payload.EncodeAuthorization(w.transfer(p).Authorization))(t)
			signature, err := s.Sign(t.Context(), Request{Payment: p.ID, Message: message})
			w.corrupt(err, "not the one that was signed")
			require.Empty(t, signature)
		})
	}
}

// By what the chain is asked later is what was signed.
func TestSolanaEvidenceIsTheMessages(t *testing.T) {
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := newWorld(t)
	s.Fund(w.solana, 1_000_000)
	asset, _ := x402.NewRegistry(nil).Named(sandbox.Solana, "")
	draft, row := w.draft(s, asset)
	other := s.FeePayer
	for name, change := range map[string]func(*x402.Evidence){
		"network":     func(e *x402.Evidence) { e.Network = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp" },
		"payer":       func(e *x402.Evidence) { e.Payer = other },
		"fee payer":   func(e *x402.Evidence) { e.FeePayer = w.solana },
		"source":      func(e *x402.Evidence) { e.Source = other },
		"destination": func(e *x402.Evidence) { e.Destination = other },
		"payee":       func(e *x402.Evidence) { e.PayTo = other },
		"asset":       func(e *x402.Evidence) { e.Asset = other },
		"amount":      func(e *x402.Evidence) { e.Amount = money.NewAmount(1) },
		"memo":        func(e *x402.Evidence) { e.Memo += "x" },
		"blockhash":   func(e *x402.Evidence) { e.Blockhash = other },
		"all":         func(e *x402.Evidence) { *e = x402.Evidence{} },
	} {
		t.Run(name, func(t *testing.T) {
			d := draft
			d.Payment = w.reserve(10_000, row).ID
			change(&d.Evidence)
			_, err := w.client.SignSolana(t.Context(), d)
			w.refused(err, "is not that of the reserved payment")
		})
	}
	// It would be looked for where it is not, and its money be free again though it settled.
	d := draft
	d.Payment = w.reserve(10_000, row).ID
	d.Evidence.LastValidBlockHeight += decode.MaxLife + 1
	_, err := w.client.SignSolana(t.Context(), d)
	w.refused(err, "it says that it is good until block")
	for _, end := range []time.Time{{}, time.Now().Add(-time.Second)} {
		d := draft
		d.Payment = w.reserve(10_000, row).ID
		d.Evidence.ExpiresAt = end
		_, err = w.client.SignSolana(t.Context(), d)
		w.refused(err, "which is over")
	}
	p := w.reserve(10_000, row)
	draft.Payment = p.ID
	draft.Evidence.Signature, draft.Evidence.Nonce = "made up", "made up"
	signature := must.Get(w.client.SignSolana(t.Context(), draft))(t)
	p = must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, base58.Encode(signature[:]), p.Evidence.Signature, "the agent's own")
	require.Empty(t, p.Evidence.Nonce)
}

// What cannot be trusted of a Tally's payments is nothing: its windows are those of the payments.
func TestTallyWindows(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tally := &Tally{}
	add := func(id, host, session string, at time.Time, price money.Dollars) {
		tally.Add(history.Payment{ID: id, Host: host, Session: session, Created: at, Price: price}, at)
	}
	add("1", "a.example", "one", noon.Add(-13*time.Hour), 1) // the day and the month before
	add("2", "a.example:8443", "one", noon.Add(-50*time.Minute), 2)
	add("3", "b.example", "two", noon.Add(-30*time.Second), 4)
	q := budget.Query{HostEntries: []string{"a.example"}, BusyHour: true}
	facts := tally.Facts(budget.Facts{Now: noon, Session: budget.Session{ID: "one"}}, q, noon)
	require.EqualValues(t, 3, facts.Used.Session.Held)
	require.EqualValues(t, 6, facts.Used.Day.Held)
	require.EqualValues(t, 6, facts.Used.Month.Held)
	require.EqualValues(t, 2, facts.Used.HostDay["a.example"].Held)
	require.Equal(t, 1, facts.LastMinute)
	require.Equal(t, 2, facts.LastHour)
	tally.TakeBack("2")
	tally.TakeBack("2")
	facts = tally.Facts(budget.Facts{Now: noon, Session: budget.Session{ID: "one"}}, q, noon)
	require.EqualValues(t, 1, facts.Used.Session.Held)
	require.EqualValues(t, 4, facts.Used.Day.Held)
	require.Zero(t, facts.Used.HostDay["a.example"].Held)
}

// Whoever writes to the ledger can say that its reservations came one after another in the last half
// hour. How many are signed in a minute is counted by the clock of the process that signs.
func TestRateIsByTheSignersClock(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) { r.Budget.Rate = 2 })
	now := time.Now()
	r := &Recorder{Store: w.store, Guard: w.guard, Tally: &Tally{}, Now: func() time.Time { return now }}
	permit := func(reserved time.Duration) error {
		p := w.reserve(1, nil)
		p.Created = now.Add(-reserved)
		return r.Permit(t.Context(), *w.rules.Load(), p, TermsOf(p, usdc), budget.Facts{Now: p.Created},
			false)
	}
	require.NoError(t, permit(20*time.Minute))
	require.NoError(t, permit(10*time.Minute))
	requireCode(t, permit(5*time.Minute), x402.RateLimited)
	now = now.Add(budget.RateWindow - SigningTime - time.Millisecond)
	require.True(t, x402.HasCode(permit(0), x402.RateLimited))
	now = now.Add(time.Millisecond)
	require.NoError(t, permit(0), "there was room for it when it was reserved, and signing takes a while")
}

// What was signed before this process began is known by the sealed sums alone.
func TestAnotherAgentKnowsWhatWasSigned(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		must.Get(w.pays(1_000_000))(t)
	}
	require.True(t, w.lock())
	require.NoError(t, <-w.ended)
	require.NoError(t, w.keys.Unlock(t.Context(), wallet.FromValue("correct horse battery")))
	time.Sleep(time.Millisecond) // so that it began before the next payment is reserved
	w.start()
	requireCode(t, must.Err(w.pays(1)), x402.BudgetExceeded)
}

// An agent's windows in a Tally are of its own payments, of the day and of the month.
func TestTallyOfAgents(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	tally := &Tally{}
	for i, p := range []struct {
		agent string
		ago   time.Duration
		price money.Dollars
	}{{"ann", 3 * 24 * time.Hour, 1}, {"ann", 24 * time.Hour, 2}, {"ann", time.Hour, 4},
		{"bob", time.Hour, 8}, {"", time.Hour, 16}} {
		tally.Add(history.Payment{ID: string(rune('0' + i)), Agent: p.agent, Created: noon.Add(-p.ago),
			Price: p.price}, noon)
	}
	held := func(n money.Dollars) budget.Use { return budget.Use{Held: n} }
	of := func(agent string) budget.NodeUsage {
		return tally.Facts(budget.Facts{Now: noon}, budget.Query{Agent: agent}, noon).Used.Agent
	}
	require.Equal(t, budget.NodeUsage{Day: held(4), Month: held(6)}, of("ann"))
	require.Equal(t, budget.NodeUsage{Day: held(8), Month: held(8)}, of("bob"))
	require.Zero(t, of(""))
	tally.TakeBack("2")
	require.Equal(t, budget.NodeUsage{Month: held(2)}, of("ann"))
}

// Whoever holds the key asks the rules about an agent's payment by what is sealed, and once more by what this
// process signed: neither lets an agent's window be passed, and of a name that was revoked nothing is signed.
func TestWhoSignsKeepsToAnAgentsWindows(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) {
		r.Budget.Agents = map[string]budget.Agent{"ann": {Day: new(money.Dollars(5))}, "bob": {}}
	})
	r := &Recorder{Store: w.store, Guard: w.guard, Tally: &Tally{}, Now: time.Now}
	permit := func(agent string, sealed money.Dollars) error {
		p := w.reserve(3, nil)
		p.Agent = agent
		facts := budget.Facts{Now: p.Created}
		facts.Used.Agent.Day.Held = sealed
		return r.Permit(t.Context(), *w.rules.Load(), p, TermsOf(p, usdc), facts, false)
	}
	err := permit("ann", 3)
	require.Equal(t, "agent", x402.AsError(err).Details["layer"], "by what is sealed: %v", err)
	require.NoError(t, permit("ann", 2))
	err = permit("ann", 0)
	require.Equal(t, "agent", x402.AsError(err).Details["layer"], "by the tally: %v", err)
	require.NoError(t, permit("bob", 0))
	require.True(t, x402.HasCode(permit("gone", 0), x402.PolicyDenied))
}

// Where the owner set no limit of a session, what the chain says is delegated is one, also before anything
// was signed in the session, when its cap is in a table alone.
func TestSessionCap_IsNoMoreThanTheChainSays(t *testing.T) {
	for name, edit := range map[string]string{
		"raised": `UPDATE sessions SET cap = 1000000000`,
		"none":   `UPDATE sessions SET cap = NULL`,
		"lower":  `UPDATE sessions SET cap = 300000`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked, delegated := 0, money.Dollars(500_000)
			w.allow(func(r *Rules) {
				r.Budget.Session = nil
				r.Delegated = func(context.Context, history.Payment) (*money.Dollars, error) {
					asked++
					return new(delegated), nil
				}
			})
			limit := must.Get(w.store.NewSession(t.Context(), new(delegated), nil))(t).Cap
			require.Equal(t, delegated, *limit)
			w.sql(edit)
			_, err := w.pays(500_001)
			require.ErrorContains(t, err, "session budget")
			_, err = w.pays(300_000)
			require.NoError(t, err)
			w.sql(`UPDATE sessions SET cap = 1000000000`) // what was signed seals it
			delegated = 900_000                           // a session's limit is what was there at its start
			for units, fits := range map[uint64]bool{200_001: false, 200_000: name != "lower"} {
				if _, err = w.pays(units); fits {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "session budget")
				}
			}
			require.Equal(t, 2, asked)
		})
	}
}

// A node that does not tell what is delegated is no reason to sign without a limit.
func TestSessionCap_TheNodeIsAway(t *testing.T) {
	w := newWorld(t)
	w.allow(func(r *Rules) {
		r.Budget.Session = nil
		r.Delegated = func(context.Context, history.Payment) (*money.Dollars, error) {
			return nil, x402.Errorf(x402.RPCError, "no answer")
		}
	})
	_, err := w.pays(1)
	requireCode(t, err, x402.RPCError)
}

// Who holds the key asks the owner's program itself: whoever else uses the agent may not have asked it.
func TestTheAgentAsksTheOwnersProgram(t *testing.T) {
	w := newWorld(t)
	var asked []string
	refuse := x402.Errorf(x402.PolicyDenied, "not on a Sunday")
	w.allow(func(r *Rules) {
		r.MayPay = func(_ context.Context, p history.Payment) error {
			asked = append(asked, p.ID)
			if p.Amount.String() == "2000" {
				return refuse
			}
			return nil
		}
	})
	p, err := w.pays(2000)
	require.ErrorContains(t, err, "not on a Sunday")
	requireCode(t, err, x402.PolicyDenied)
	now := must.Get(w.store.Payment(t.Context(), p.ID))(t)
	require.Equal(t, history.Reserved, now.State, "nothing is recorded as signed")
	passed := must.Get(w.pays(3000))(t)
	require.Equal(t, []string{p.ID, passed.ID}, asked)
}
