package history

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// walk is a fleet's store whose methods are called one after the other, and what they were called for.
type walk struct {
	*Store
	t   *testing.T
	ctx context.Context

	settled, delivered, released Payment
	approval                     Approval
	list                         []Approval
	head                         Head
	turn                         Turn
	alerts                       []string // by their ids
}

// fleetMethods calls each exported method of a store, in this order, and compares its answer.
var fleetMethods = []struct {
	name string
	call func(w *walk)
}{
	{"InPlace", func(w *walk) { w.no(w.InPlace()) }},
	{"LedgerID", func(w *walk) { require.Contains(w.t, got(w.LedgerID(w.ctx))(w), "led_") }},
	{"Backup", func(w *walk) {
		_, err := w.Backup(w.ctx, filepath.Join(w.t.TempDir(), "copy"))
		require.True(w.t, x402.HasCode(err, x402.SetupFailed), "%v", err)
	}},
	{"Share", func(w *walk) {
		shared, open := w.Share(Options{})
		require.True(w.t, open)
		require.Equal(w.t, got(w.LedgerID(w.ctx))(w), got(shared.LedgerID(w.ctx))(w))
		require.NoError(w.t, shared.Close())
	}},
	{"Rules", func(w *walk) { require.EqualValues(w.t, 1, got(w.Rules(w.ctx))(w).Version) }},
	{"Agents", func(w *walk) { require.Empty(w.t, got(w.Agents(w.ctx))(w)) }},
	{"EveryRules", func(w *walk) { require.Len(w.t, got(w.EveryRules(w.ctx))(w), 1) }},
	{"ApplyRules", func(w *walk) {
		rules := SealedRules{Version: 1, Config: []byte("other"), Seal: []byte("other")}
		require.ErrorIs(w.t, w.ApplyRules(w.ctx, rules, nil), ErrRulesMoved)
	}},
	{"SealedIn", func(w *walk) { require.Empty(w.t, got(w.SealedIn(w.ctx))(w)) }},
	{"SealRules", func(w *walk) {
		err := w.SealRules(w.ctx, SealedRules{Version: 2}, "", false, testKeyholder())
		require.True(w.t, x402.HasCode(err, x402.PolicyUnsealed), "%v", err)
		require.Contains(w.t, x402.AsError(err).Hint, "policy seal --fleet")
	}},
	{"Facts", func(w *walk) {
		require.Empty(w.t, got(w.Facts(w.ctx, Question{Payment: testHold(1).Payment}))(w).Session.ID)
	}},
	{"GoBy", func(w *walk) {
		q := Question{Payment: testHold(1).Payment}
		w.GoBy(1)
		require.EqualValues(w.t, 1, got(w.Facts(w.ctx, q))(w).Rules)
		require.False(w.t, w.RulesMoved())
		w.GoBy(2)
		_, err := w.Facts(w.ctx, q)
		require.True(w.t, x402.HasCode(err, x402.PolicyUnsealed), "%v", err)
		require.Equal(w.t, x402.Repeat, x402.AsError(err).NextStep().Do)
		require.EqualValues(w.t, 1, got(w.Facts(w.ctx, Question{}))(w).Rules, "a report is one of any rules")
		w.GoBy(1)
	}},
	{"RulesMoved", func(w *walk) { require.True(w.t, w.RulesMoved()) }},
	{"NewSession", func(w *walk) {
		seal := func(budget.Session) ([]byte, error) { return []byte("owner"), nil }
		require.EqualValues(w.t, 900, *got(w.NewSession(w.ctx, new(money.Dollars(900)), seal))(w).Cap)
	}},
	{"SessionSeal", func(w *walk) {
		session := got(w.Facts(w.ctx, Question{}))(w).Session.ID
		require.Equal(w.t, "owner", string(got(w.SessionSeal(w.ctx, session))(w)))
	}},
	{"Self", func(w *walk) { require.Empty(w.t, w.Self()) }},
	{"Reserve", func(w *walk) {
		w.settled = pay(w.t, w.Store, testHold(7), Reserved)
		require.NotEmpty(w.t, w.settled.ID)
	}},
	{"ReserveAll", func(w *walk) {
		holds := []Hold{testHold(8), testHold(9)}
		for i := range holds {
			holds[i].Decision = unlimited(w.settled.Session)
		}
		rows := got(w.ReserveAll(w.ctx, holds))(w)
		w.delivered, w.released = rows[0], rows[1]
	}},
	{"Alive", func(w *walk) { require.True(w.t, w.Alive(w.Self())) }},
	{"HeldOn", func(w *walk) {
		held := got(w.HeldOn(w.ctx, w.settled.Network, w.settled.Source))(w)
		require.Equal(w.t, map[string]money.Amount{"0xasset": money.NewAmount(24)}, held)
	}},
	{"HeldUpTo", func(w *walk) {
		require.Equal(w.t, money.NewAmount(15), got(w.HeldUpTo(w.ctx, w.delivered, time.Time{}))(w))
	}},
	{"OpenFrom", func(w *walk) {
		open := got(w.OpenFrom(w.ctx, w.settled.Network, w.settled.Source))(w)
		w.are(open, w.settled, w.delivered, w.released)
	}},
	{"Sign", func(w *walk) {
		w.no(w.Sign(w.ctx, w.delivered, Signed{UniqueKey: "signed"}, []byte("message"), testKeyholder()))
	}},
	{"Submit", func(w *walk) {
		signed := Signed{Payload: []byte(`{}`), Requirement: []byte(`{}`), UniqueKey: "signed"}
		w.no(w.Submit(w.ctx, w.delivered, signed, testKeyholder()))
		signed.UniqueKey = "other"
		w.no(w.Submit(w.ctx, w.settled, signed, testKeyholder()))
	}},
	{"ReleaseLease", func(w *walk) { w.no(w.ReleaseLease(w.ctx, w.delivered.ID)) }},
	{"AcquireLease", func(w *walk) { require.True(w.t, got(w.AcquireLease(w.ctx, w.delivered.ID, ""))(w)) }},
	{"AttachIdempotencyKey", func(w *walk) {
		require.True(w.t, got(w.AttachIdempotencyKey(w.ctx, w.delivered.ID, "key"))(w))
	}},
	{"ByKey", func(w *walk) { w.are([]Payment{got(w.ByKey(w.ctx, "", "key"))(w)}, w.delivered) }},
	{"Unfinished", func(w *walk) {
		w.are(got(w.Unfinished(w.ctx, w.settled.ID, 9))(w), w.delivered, w.released)
	}},
	{"Release", func(w *walk) { w.no(w.Release(w.ctx, w.released.ID, "not needed")) }},
	{"Finish", func(w *walk) {
		bought := Outcome{State: Settled, Proof: Claimed, Transaction: "0xtx", ReleaseLease: true,
			Content: &Content{Status: 200, Body: []byte("bought")}}
		require.Equal(w.t, Settled, got(w.Finish(w.ctx, w.delivered.ID, bought))(w).State)
		bought.Transaction = "0xty"
		require.Equal(w.t, Settled, got(w.Finish(w.ctx, w.settled.ID, bought))(w).State)
	}},
	{"ClearWaiter", func(w *walk) { w.no(w.ClearWaiter(w.ctx, w.settled.ID)) }},
	{"Deliver", func(w *walk) { w.no(w.Deliver(w.ctx, w.delivered.ID)) }},
	{"Payment", func(w *walk) { require.True(w.t, got(w.Payment(w.ctx, w.delivered.ID))(w).Delivered) }},
	{"ByRequest", func(w *walk) { w.are(got(w.ByRequest(w.ctx, w.settled.Fingerprint))(w), w.settled) }},
	{"Recent", func(w *walk) { w.are(got(w.Recent(w.ctx, 2))(w), w.released, w.delivered) }},
	{"Claimed", func(w *walk) {
		w.are(got(w.Claimed(w.ctx, time.Time{}, "", 9))(w), w.settled, w.delivered)
		w.are(got(w.Claimed(w.ctx, time.Time{}, w.settled.ID, 9))(w), w.delivered)
	}},
	{"List", func(w *walk) {
		list, more, totals, err := w.List(w.ctx, Filter{Limit: 1, URL: "WEATHER", Before: "0xtx"})
		w.no(err)
		w.are(list, w.settled)
		require.False(w.t, more)
		require.Equal(w.t, map[string]money.Dollars{"USDC": 15}, totals)
	}},
	{"Parts", func(w *walk) {
		parts := got(w.Parts(w.ctx, Filter{}, 3))(w)
		require.Equal(w.t, []Part{{"api.example", 15}}, parts.Sellers)
		require.Equal(w.t, []Part{{w.settled.Network, 15}}, parts.Networks)
	}},
	{"Spending", func(w *walk) {
		spent := got(w.Spending(w.ctx, w.settled.Created.Truncate(day), day, 3))(w)
		require.Equal(w.t, []NamedSum{{"api.example", budget.Use{Spent: 15}}}, spent.Hosts)
		require.Equal(w.t, budget.Use{Spent: 15}, spent.Over[w.settled.Created.Truncate(day)])
	}},
	{"Each", func(w *walk) {
		var list []Payment
		some := Range{State: Settled, URL: "Weather", After: w.settled.Created}
		w.no(w.Each(w.ctx, some, func(p Payment) error {
			list = append(list, p)
			return nil
		}))
		w.are(list, w.settled, w.delivered)
	}},
	{"Earlier", func(w *walk) { w.are(got(w.Earlier(w.ctx, w.delivered, 3))(w), w.settled) }},
	{"Bought", func(w *walk) {
		w.are([]Payment{got(w.Bought(w.ctx, "", w.settled.URL, w.settled.Resource()))(w)}, w.delivered)
	}},
	{"Events", func(w *walk) {
		var events []string
		for _, e := range got(w.Events(w.ctx, w.settled.ID))(w) {
			events = append(events, e.Event)
		}
		require.Equal(w.t, []string{"reserved", "submitted", "settled"}, events)
		require.NotEmpty(w.t, got(w.Events(w.ctx, ""))(w))
		require.Empty(w.t, got(w.Events(w.ctx, "pay_none"))(w))
	}},
	{"Content", func(w *walk) {
		require.Equal(w.t, "bought", string(got(w.Content(w.ctx, w.settled.ID))(w).Body))
	}},
	{"ContentUse", func(w *walk) {
		require.Equal(w.t, ContentUse{Stored: 12, Owed: 6}, got(w.ContentUse(w.ctx))(w))
	}},
	{"VerifyContent", func(w *walk) { require.EqualValues(w.t, 12, got(w.VerifyContent(w.ctx))(w)) }},
	{"Tidy", func(w *walk) {
		w.no(w.Tidy(w.ctx))
		facts := got(w.Facts(w.ctx, Question{Payment: testHold(1).Payment}))(w)
		require.Equal(w.t, ContentUse{Stored: 12, Owed: 6}, facts.Content)
	}},
	{"Prune", func(w *walk) {
		rows, freed, err := w.Prune(w.ctx, w.settled.Created.Add(time.Hour), false)
		w.no(err)
		require.Equal(w.t, []int64{1, 6}, []int64{rows, freed})
		_, err = w.Content(w.ctx, w.delivered.ID)
		require.ErrorIs(w.t, err, ErrContentRemoved)
	}},
	{"Charge", func(w *walk) {
		charged := Charge{Amount: money.NewAmount(3), Worth: 3}
		p := got(w.Charge(w.ctx, w.settled.ID, w.settled.Evidence, charged, provenLess, testKeyholder()))(w)
		require.Equal(w.t, money.Dollars(3), p.Worth())
	}},
	{"Expire", func(w *walk) {
		over := Outcome{State: Failed}
		p := got(w.Expire(w.ctx, w.delivered.ID, w.delivered.Evidence, over, testKeyholder()))(w)
		require.True(w.t, p.FalseReceipt)
	}},
	{"Expired", func(w *walk) {
		w.are(got(w.Expired(w.ctx, w.delivered.Network, time.Time{}))(w), w.delivered)
	}},

	{"AskApproval", func(w *walk) { w.approval = asking(w.t, w.Store, 1) }},
	{"AskApprovals", func(w *walk) { w.list = askedTogether(w.t, w.Store, 3) }},
	{"AskedTogether", func(w *walk) {
		require.Equal(w.t, w.list, got(w.AskedTogether(w.ctx, w.list[1].ID))(w))
	}},
	{"Asked", func(w *walk) {
		require.Equal(w.t, w.list, got(w.Asked(w.ctx, ListOf(w.list[0].ID)))(w).Together)
		require.Equal(w.t, Denied, got(w.Deny(w.ctx, w.list[0].ID, "client"))(w).State)
	}},
	{"Unanswered", func(w *walk) { w.no(w.Unanswered(w.ctx, w.approval.ID, "client")) }},
	{"Approvals", func(w *walk) { require.Len(w.t, got(w.Approvals(w.ctx))(w), 1+3) }},
	{"Decline", func(w *walk) {
		require.Equal(w.t, Pending, got(w.Decline(w.ctx, w.approval.ID, "client"))(w).State)
	}},
	{"Deny", func(w *walk) {
		require.Equal(w.t, Denied, got(w.Deny(w.ctx, w.approval.ID, "client"))(w).State)
	}},
	{"Accept", func(w *walk) {
		_, err := w.Accept(w.ctx, w.approval.ID, "client")
		require.ErrorIs(w.t, err, ErrDecided)
	}},
	{"Approve", func(w *walk) {
		seal := func(Approval) ([]byte, error) { return []byte("owner"), nil }
		w.approval = got(w.Approve(w.ctx, w.approval.ID, byOwner, seal))(w)
	}},
	{"Approval", func(w *walk) {
		require.Equal(w.t, w.approval, got(w.Approval(w.ctx, w.approval.ID))(w))
	}},
	{"Given", func(w *walk) { require.Len(w.t, got(w.Given(w.ctx))(w), 1) }},
	{"ApprovalUsedBy", func(w *walk) {
		var err error
		w.settled, err = reserveApproved(w.Store, 1, testHold(1))
		w.no(err)
		a, approved, err := w.ApprovalUsedBy(w.ctx, w.settled)
		w.no(err)
		require.True(w.t, approved)
		require.Equal(w.t, w.approval.ID, a.ID)
	}},
	{"ApprovedBy", func(w *walk) { require.Equal(w.t, byOwner, got(w.ApprovedBy(w.ctx, w.settled))(w).By) }},
	{"Head", func(w *walk) { w.head = got(w.Head(w.ctx))(w) }},
	{"UsedBy", func(w *walk) {
		uses := got(w.UsedBy(w.ctx, quoteOf(1), w.approval.Since, w.head))(w)
		require.Equal(w.t, []string{w.settled.ID}, uses)
		_, err := w.UsedBy(w.ctx, quoteOf(1), 0, Head{Seq: 1, Hash: []byte("x")})
		require.True(w.t, x402.HasCode(err, x402.LedgerCorrupt), "%v", err)
	}},
	{"Has", func(w *walk) { require.True(w.t, got(w.Has(w.ctx, w.head))(w)) }},
	{"AtHead", func(w *walk) {
		w.no(w.AtHead(w.ctx, func(h Head) error { require.Equal(w.t, w.head, h); return nil }))
	}},

	{"Freeze", func(w *walk) { w.no(w.Freeze(w.ctx, Freeze{By: "owner", Why: "why"})) }},
	{"Freezes", func(w *walk) { require.Len(w.t, got(w.Freezes(w.ctx))(w), 1) }},
	{"NotFrozen", func(w *walk) {
		require.True(w.t, x402.HasCode(w.NotFrozen(w.ctx, "n", "a"), x402.WalletFrozen))
	}},
	{"Unfreeze", func(w *walk) { require.Len(w.t, got(w.Unfreeze(w.ctx, nil))(w), 1) }},
	{"Lifted", func(w *walk) { require.Positive(w.t, got(w.Lifted(w.ctx))(w).UpTo) }},
	{"Unlift", func(w *walk) {
		w.no(w.Unlift(w.ctx, got(w.Lifted(w.ctx))(w).UpTo))
		require.Len(w.t, got(w.Freezes(w.ctx))(w), 1)
		got(w.Unfreeze(w.ctx, nil))(w)
	}},

	{"Label", func(w *walk) {
		require.ErrorIs(w.t, w.Label(w.ctx, "ses_none", "x"), ErrNotFound)
		w.no(w.Label(w.ctx, w.settled.Session, "name"))
	}},
	{"Labels", func(w *walk) {
		require.Equal(w.t, map[string]string{w.settled.Session: "name"}, got(w.Labels(w.ctx))(w))
	}},
	{"Import", func(w *walk) {
		require.Equal(w.t, 1, got(w.Import(w.ctx, []Imported{{URL: "u"}, {URL: "u"}}))(w))
	}},
	{"AllImported", func(w *walk) { require.Len(w.t, got(w.AllImported(w.ctx))(w), 1) }},
	{"RecordDelegation", func(w *walk) {
		for _, d := range []struct{ now, largest uint64 }{{9, 9}, {10, 10}, {7, 10}} {
			largest := got(w.RecordDelegation(w.ctx, "solana:x", "a", money.NewAmount(d.now)))(w)
			require.Equal(w.t, money.NewAmount(d.largest), largest)
		}
	}},
	{"Ahead", func(w *walk) { require.Zero(w.t, got(w.Ahead(w.ctx))(w)) }},
	{"Redate", func(w *walk) {
		require.True(w.t, x402.HasCode(w.Redate(w.ctx), x402.LedgerUnavailable))
	}},

	{"LockChannel", func(w *walk) { got(w.LockChannel(w.ctx, "a", "b"))(w)() }},
	{"SaveChannel", func(w *walk) { w.no(w.SaveChannel(w.ctx, testChannel(0))) }},
	{"Channel", func(w *walk) {
		c := testChannel(0)
		require.Equal(w.t, c.ID, got(w.Channel(w.ctx, c.Service, c.Key))(w).ID)
	}},
	{"RecordVoucher", func(w *walk) {
		c := testChannel(1)
		got(w.RecordVoucher(w.ctx, Payment{}, Signed{Payload: c.Signed}, c, Outcome{}, testKeyholder()))(w)
		require.Equal(w.t, Settled, got(byVoucher(w.t, w.Store, testChannel(2)))(w).State)
	}},
	{"Refuse", func(w *walk) {
		c := testChannel(2)
		c.Refused = []byte(`{"why":"x"}`)
		w.no(w.Refuse(w.ctx, c))
	}},
	{"Channels", func(w *walk) {
		list := got(w.Channels(w.ctx))(w)
		require.Len(w.t, list, 1)
		require.EqualValues(w.t, 2, list[0].Nonce)
		require.JSONEq(w.t, `{"why":"x"}`, string(list[0].Refused))
	}},
	{"BatchChannels", func(w *walk) {
		c := testChannel(0)
		c.Network, c.Service = "eip155:84532", "0x01"
		w.no(w.SaveChannel(w.ctx, c))
		require.Len(w.t, got(w.BatchChannels(w.ctx))(w), 1)
	}},
	{"BatchChannelsWith", func(w *walk) { require.Len(w.t, got(w.BatchChannelsWith(w.ctx, "nuwa"))(w), 1) }},

	{"OpenSale", func(w *walk) { got(w.OpenSale(w.ctx, testSale("dropped", 1)))(w) }},
	{"SaleByKey", func(w *walk) {
		require.Equal(w.t, SaleRunning, got(w.SaleByKey(w.ctx, "dropped"))(w).State)
	}},
	{"DropSale", func(w *walk) {
		w.no(w.DropSale(w.ctx, got(w.SaleByKey(w.ctx, "dropped"))(w).ID))
		_, err := w.SaleByKey(w.ctx, "dropped")
		require.ErrorIs(w.t, err, ErrNotFound)
	}},
	{"MoveSale", func(w *walk) {
		sale := got(w.OpenSale(w.ctx, testSale("settled", 5)))(w)
		sale.State = SaleSettling
		w.no(w.MoveSale(w.ctx, sale))
		sale.State = SaleSettled
		w.no(w.MoveSale(w.ctx, sale))
		sale.State = SaleFailed
		require.ErrorIs(w.t, w.MoveSale(w.ctx, sale), ErrTransition)
	}},
	{"SoldTo", func(w *walk) {
		sale := got(w.SoldTo(w.ctx, "mcp://tool/search", [32]byte{}, "0xthem", time.Time{}))(w)
		require.Equal(w.t, "settled", sale.UniqueKey)
	}},
	{"Sales", func(w *walk) {
		list, more, earned, err := w.Sales(w.ctx, SaleFilter{Resource: "SEARCH"})
		w.no(err)
		require.Len(w.t, list, 1)
		require.False(w.t, more)
		require.Equal(w.t, map[string]money.Dollars{"USDC": 5}, earned)
	}},
	{"OpenChannelSale", func(w *walk) {
		until := w.now().Add(time.Minute)
		sale := got(w.OpenChannelSale(w.ctx, testSale("voucher", 1000), testSoldChannel(0), until))(w)
		sale.State = SaleSettling
		w.no(w.MoveSale(w.ctx, sale))
	}},
	{"ChargeChannel", func(w *walk) {
		w.no(w.ChargeChannel(w.ctx, got(w.SaleByKey(w.ctx, "voucher"))(w), charged(1000)))
	}},
	{"HoldChannel", func(w *walk) {
		w.no(w.HoldChannel(w.ctx, testSoldChannel(1000), "refund", w.now().Add(time.Minute)))
	}},
	{"SoldChannel", func(w *walk) {
		require.Equal(w.t, "refund", got(w.SoldChannel(w.ctx, "eip155:84532", "0x01"))(w).Holder)
	}},
	{"ReleaseChannel", func(w *walk) { w.no(w.ReleaseChannel(w.ctx, "eip155:84532", "0x01", "refund")) }},
	{"OwedChannels", func(w *walk) { require.Len(w.t, got(w.OwedChannels(w.ctx))(w), 1) }},
	{"UpdateSoldChannel", func(w *walk) {
		paid := func(c *SoldChannel) { c.OwedSince = time.Time{} }
		w.no(w.UpdateSoldChannel(w.ctx, "eip155:84532", "0x01", "", paid))
		require.Empty(w.t, got(w.OwedChannels(w.ctx))(w))
	}},

	{"Verify", func(w *walk) { require.Positive(w.t, got(w.Verify(w.ctx, w.head))(w)) }},
	{"VerifySealed", func(w *walk) {
		require.Positive(w.t, got(w.VerifySealed(w.ctx, Keyholder{After: w.head}))(w))
	}},
	{"Demand", func(w *walk) { w.Demand("none") }},
	{"HasSigned", func(w *walk) { require.True(w.t, got(w.HasSigned(w.ctx))(w)) }},
	{"AlertDamage", func(w *walk) { w.no(w.AlertDamage(w.ctx, "a page is gone")) }},
	{"AlertOverdue", func(w *walk) { w.no(w.AlertOverdue(w.ctx, w.settled)) }},
	{"Alerts", func(w *walk) { require.NotEmpty(w.t, got(w.Alerts(w.ctx, 10))(w)) }},
	{"NextAlert", func(w *walk) {
		_, waits, err := w.NextAlert(w.ctx)
		w.no(err)
		require.True(w.t, waits)
	}},
	{"NoteRun", func(w *walk) {
		run := SubscriptionRun{Slot: w.settled.Created.Truncate(time.Second), State: RunFailed, Why: "why"}
		w.no(w.NoteRun(w.ctx, testSubscription(), run, &SubscriptionAlert{Window: "w", Why: "why"}))
	}},
	{"SubscriptionRuns", func(w *walk) {
		runs := got(w.SubscriptionRuns(w.ctx))(w)
		require.Equal(w.t, RunFailed, runs[testSubscription().ID()].State)
	}},
	{"SubscriptionSpent", func(w *walk) {
		require.Zero(w.t, got(w.SubscriptionSpent(w.ctx, testSubscription().ID()))(w))
	}},
	{"SubscriptionPayments", func(w *walk) {
		require.Empty(w.t, got(w.SubscriptionPayments(w.ctx, testSubscription().ID(), 9))(w))
	}},
	{"Propose", func(w *walk) {
		require.Contains(w.t, got(w.Propose(w.ctx, Proposal{URL: "u", Every: "1d"}))(w).ID, "prp_")
	}},
	{"Proposals", func(w *walk) { require.Len(w.t, got(w.Proposals(w.ctx))(w), 1) }},
	{"EndProposal", func(w *walk) {
		id := got(w.Proposals(w.ctx))(w)[0].ID
		w.no(w.EndProposal(w.ctx, id))
		require.ErrorIs(w.t, w.EndProposal(w.ctx, id), ErrNotFound)
	}},
	{"TakeTurn", func(w *walk) {
		w.turn = got(w.TakeTurn(w.ctx, "alerts", "a"))(w)
		_, err := w.Store.TakeTurn(w.ctx, "alerts", "b")
		require.ErrorIs(w.t, err, ErrNoTurn)
	}},
	{"RenewTurn", func(w *walk) { w.no(w.RenewTurn(w.ctx, w.turn)) }},
	{"Due", func(w *walk) {
		for _, a := range got(w.Due(w.ctx, w.turn, true, time.Time{}))(w).Alerts {
			w.alerts = append(w.alerts, a.ID)
		}
		require.NotEmpty(w.t, w.alerts)
	}},
	{"HoldBack", func(w *walk) { w.no(w.HoldBack(w.ctx, w.turn, time.Now(), w.alerts...)) }},
	{"MarkFailed", func(w *walk) { w.no(w.MarkFailed(w.ctx, w.turn, time.Now(), w.alerts...)) }},
	{"MarkTold", func(w *walk) {
		w.no(w.MarkTold(w.ctx, w.turn, "n", w.alerts...))
		for _, a := range got(w.Alerts(w.ctx, 10))(w) {
			require.Equal(w.t, slices.Contains(w.alerts, a.ID), a.State == AlertTold, "%+v", a)
		}
	}},
	{"LeaveTurn", func(w *walk) { w.no(w.LeaveTurn(w.ctx, w.turn)) }},
	{"Sample", func(w *walk) { require.True(w.t, got(w.Sample(w.ctx))(w).Whole()) }},
	{"CheckSealed", func(w *walk) { w.no(w.CheckSealed(w.ctx, testKeyholder())) }},
	{"Close", func(w *walk) { w.no(w.Close()) }},
}

func (w *walk) no(err error) {
	w.t.Helper()
	require.NoError(w.t, err)
}

// are compares payments by their ids.
func (w *walk) are(list []Payment, want ...Payment) {
	w.t.Helper()
	var ids, wanted []string
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	for _, p := range want {
		wanted = append(wanted, p.ID)
	}
	require.Equal(w.t, wanted, ids)
}

// got is an answer without an error.
func got[T any](v T, err error) func(w *walk) T {
	return func(w *walk) T {
		w.t.Helper()
		require.NoError(w.t, err)
		return v
	}
}

// Every method of a store answers on a fleet's ledger, and a new one is called here, too.
func TestEveryMethodOnAFleet(t *testing.T) {
	s, _ := newFleetStore(t)
	w := &walk{Store: s}
	called := map[string]bool{}
	for _, m := range fleetMethods {
		called[m.name] = true
		ok := t.Run(m.name, func(t *testing.T) {
			w.t, w.ctx = t, t.Context()
			m.call(w)
		})
		require.True(t, ok, m.name)
	}
	for method := range reflect.TypeFor[*Store]().Methods() {
		require.True(t, called[method.Name], "%s is called on no fleet's store", method.Name)
	}
}
