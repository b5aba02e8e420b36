package verify

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/report"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// fullLedger is a ledger with every kind of row.
func fullLedger(t *testing.T, s *history.Store, c *historytest.Clock) history.Keyholder {
	t.Helper()
	k := historytest.Keyholder()
	k.Query = func(history.Payment) budget.Query { return budget.Query{HostEntries: []string{"api.example"}} }
	k.OwnSession = func(_ budget.Session, seal []byte) (bool, error) { return len(seal) > 0, nil }
	f := &ledgerFiller{t: t, Store: s, k: k}
	f.rules(1, true)
	first := f.payments()
	c.Set(c.Now().Add(25 * time.Hour)) // another day
	must.Get(s.NewSession(t.Context(), nil,
		func(budget.Session) ([]byte, error) { return []byte("owner"), nil }))(t)
	f.approvals()
	f.freezes()
	f.channels()
	f.others(first)
	f.rules(2, false)
	f.signedByAgent()
	c.Set(c.Now().Add(2 * time.Hour)) // an approval is over
	askedAbout(t, s, 9)
	f.submitted(nil)
	f.hold(nil)
	k.After = must.Get(s.Head(t.Context()))(t)
	must.Get(Sealed(t.Context(), s, k))(t)
	return k
}

// ledgerFiller writes the rows of fullLedger.
type ledgerFiller struct {
	t *testing.T
	*history.Store
	k     history.Keyholder
	holds int
}

var boughtContent = &history.Content{Status: 200, Type: "text/plain", Body: []byte("bought")}

func (f *ledgerFiller) rules(version int64, accept bool) {
	require.NoError(f.t, f.SealRules(f.t.Context(), history.SealedRules{Version: version,
		Config: fmt.Append(nil, "config", version), Seal: []byte("seal")}, "/home", accept, f.k))
}

// hold reserves a payment, by an approval where one is named.
func (f *ledgerFiller) hold(change func(*history.Payment), approval ...byte) (p history.Payment) {
	f.holds++
	h := historytest.Hold(uint64(f.holds))
	h.Payment.Fingerprint[0], h.Payment.Requirement = byte(f.holds), json.RawMessage(`{"asked":1}`)
	if len(approval) == 0 {
		h.Payment.URL += fmt.Sprint("/", f.holds%3)
	}
	if change != nil {
		change(&h.Payment)
	}
	var quotes [][32]byte
	for _, q := range approval {
		quotes = append(quotes, quoteOf(q))
	}
	p = must.Get(historytest.Reserve(f.t.Context(), f.Store, h, quotes...))(f.t)
	_, approved, err := f.ApprovalUsedBy(f.t.Context(), p)
	require.NoError(f.t, err)
	require.Equal(f.t, len(approval) > 0, approved)
	return p
}

func signedFor(p history.Payment) history.Signed {
	return history.Signed{Payload: []byte(`{"signed":"` + p.ID + `"}`), Requirement: []byte(`{"sent":1}`),
		UniqueKey: "nonce " + p.ID, Evidence: x402.Evidence{FeePayer: "payer"}}
}

func (f *ledgerFiller) submitted(change func(*history.Payment), approval ...byte) history.Payment {
	p := f.hold(change, approval...)
	require.NoError(f.t, f.Submit(f.t.Context(), p, signedFor(p), f.k))
	return p
}

func (f *ledgerFiller) finish(p history.Payment, o history.Outcome) {
	must.Get(f.Finish(f.t.Context(), p.ID, o))(f.t)
}

func (f *ledgerFiller) expire(p history.Payment) {
	p = must.Get(f.Payment(f.t.Context(), p.ID))(f.t)
	o := history.Expiry(p, x402.Status{State: x402.Expired, Note: "over"})
	must.Get(f.Expire(f.t.Context(), p, o, f.k))(f.t)
}

func withKey(name string) func(*history.Payment) {
	return func(p *history.Payment) { p.IdempotencyKey = name }
}

// payments end in every way; first is one that was settled.
func (f *ledgerFiller) payments() (first history.Payment) {
	ctx := f.t.Context()
	f.submitted(withKey("used"))
	f.expire(f.submitted(withKey("free again")))
	require.NoError(f.t, f.Release(ctx, f.hold(nil).ID, "not sent"))
	first = f.submitted(
		func(p *history.Payment) {
			p.Host, p.Target, p.Symbol = "other.example", "https://other.example", "EURC"
		})
	f.finish(first, history.Outcome{State: history.Settled, Proof: history.Claimed, Transaction: "0x1",
		Settling: history.Settling{Facilitator: "one"}, Receipt: []byte(`{"ok":1}`),
		Content: boughtContent, Note: "claimed"})
	require.NoError(f.t, f.Deliver(ctx, first.ID))
	f.finish(first, history.Outcome{State: history.Settled, Proof: history.Chain, Transaction: "0x1",
		ChainProof: x402.Status{State: x402.Settled, Note: "<it is>"}})
	f.finish(first, history.Outcome{State: history.Unknown,
		Content: &history.Content{Status: 200, Body: []byte("late")}})
	claimed := f.submitted(nil)
	f.finish(claimed, history.Outcome{State: history.Settled, Proof: history.Claimed, Receipt: []byte(`{"ok":2}`)})
	f.expire(claimed) // a false receipt
	f.finish(f.submitted(nil),
		history.Outcome{State: history.Unknown, Note: "who knows", ReleaseLease: true, ClearWaiter: true})
	return first
}

func (f *ledgerFiller) approvals() {
	ctx := f.t.Context()
	seal := func(history.Approval) ([]byte, error) { return []byte("owner"), nil }
	var asked [6]history.Approval
	for q := range byte(6) {
		asked[q] = askedAbout(f.t, f.Store, q)
		if q == 1 || q == 3 || q == 4 {
			must.Get(f.Approve(ctx, asked[q].ID, "owner", seal))(f.t)
		}
	}
	must.Get(f.Decline(ctx, asked[5].ID, "client"))(f.t)
	must.Get(f.Deny(ctx, asked[2].ID, "owner"))(f.t)
	f.submitted(nil, 3)
	require.NoError(f.t, f.Release(ctx, f.hold(nil, 4).ID, "not sent"))
}

func (f *ledgerFiller) freezes() {
	ctx := f.t.Context()
	require.NoError(f.t, f.Freeze(ctx, history.Freeze{By: "owner", Why: "a look"}))
	must.Get(f.Unfreeze(ctx, func(history.Lift) ([]byte, error) { return []byte("owner"), nil }))(f.t)
	require.NoError(f.t,
		f.Freeze(ctx, history.Freeze{Network: "eip155:1", Account: "0xother", By: "agent", Why: "odd"}))
}

func (f *ledgerFiller) channels() {
	ctx := f.t.Context()
	require.NoError(f.t, f.SaveChannel(ctx, testChannel(0)))
	voucher := testChannel(1)
	voucher.PendingCall, voucher.Claimed = json.RawMessage(`{"url":"x"}`), money.NewAmount(50)
	p := f.hold(nil)
	must.Get(f.RecordVoucher(ctx, p, history.Signed{Payload: voucher.Signed,
		Requirement: json.RawMessage("{}"), UniqueKey: "voucher 1"}, voucher,
		history.Outcome{State: history.Settled, Proof: history.Claimed, Content: boughtContent}, f.k))(f.t)
	voucher = testChannel(2)
	voucher.Amount, voucher.Refused = money.NewAmount(100), json.RawMessage(`{"why":"no"}`)
	must.Get(f.RecordVoucher(ctx, history.Payment{}, history.Signed{Payload: voucher.Signed}, voucher,
		history.Outcome{}, f.k))(f.t)
	require.NoError(f.t, f.Refuse(ctx, voucher))
}

// others are the rows that belong to no payment of ours, and a session's label.
func (f *ledgerFiller) others(first history.Payment) {
	ctx := f.t.Context()
	must.Get(f.RecordDelegation(ctx, "solana:x", "account", money.NewAmount(7)))(f.t)
	require.NoError(f.t, report.Label(ctx, f.Store, first.Session, "the first"))
	_, err := report.Import(ctx, f.Store, []report.Imported{{Transaction: "a", URL: "https://a.example/"}})
	require.NoError(f.t, err)
}

// signedByAgent leaves a payment as the unlock agent signed it, before it is submitted, and attaches an
// idempotency key to another.
func (f *ledgerFiller) signedByAgent() {
	ctx := f.t.Context()
	byAgent := f.hold(withKey("agent's"))
	message := signedFor(byAgent)
	message.Payload, message.Requirement = nil, nil // these come with Submit
	require.NoError(f.t, f.Sign(ctx, byAgent, message, []byte("message"), f.k))
	late := f.submitted(nil)
	require.True(f.t, must.Get(f.AttachIdempotencyKey(ctx, late.ID, "attached"))(f.t))
}

func quoteOf(b byte) (q [32]byte) { q[0] = b; return q }

func askedAbout(t *testing.T, s *history.Store, quote byte) history.Approval {
	t.Helper()
	p := historytest.Hold(250_000).Payment
	return must.Get(asking.Asker{Store: s}.AskApproval(t.Context(), history.Approval{
		Quote: quoteOf(quote), Host: p.Host,
		Method: p.Method, URL: p.URL, Network: p.Network, Asset: p.Asset, Amount: p.Amount,
		Price: p.Price, PayTo: p.PayTo}))(t)
}

func testChannel(nonce uint64) history.Channel {
	return history.Channel{Service: "did:rooch:payee", Key: "did:rooch:payer#key-1", Server: "nuwa",
		Network: "rooch:local", Source: "hub", ID: "0x01",
		Nonce: nonce, Amount: money.NewAmount(100 * nonce), Signed: json.RawMessage(`{"nonce":"` +
			string(rune('0'+nonce)) + `"}`)}
}
