package edits

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/history/turns"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// template is a ledger with a history, and what the umpire and the chain know of that.
type template struct {
	ledger snapshot
	older  []snapshot // of the days before
	umpire *umpire
	chain  *chain

	shown   history.Approval // a question that was shown to the owner
	pending wanted           // what it is about
	refused []wanted         // to which the owner did not say yes, or not they
	held    []heldPayment    // that are reserved, and not signed
}

// heldPayment is one that waits for its signature.
type heldPayment struct {
	wanted  wanted
	payment history.Payment
}

// newTemplate signs in every way on four days, and has some of that settle, fail and be left open.
func newTemplate(w *world) (made template) {
	w.umpire = &umpire{frozen: map[string]bool{}, payees: map[string]bool{}, paidHere: map[string]string{},
		prices: map[string]uint64{}, signedIn: map[string]bool{}, promised: map[string]uint64{}}
	const much = 1 << 40
	w.umpire.limits = limits{perCall: 100_000, approveAbove: 40_000, session: much, day: much, month: much,
		host: much, ann: much, lab: much, subscriptionMax: 60_000, subscriptionAll: much,
		rate: 1000, float: 50_000}
	w.chain = &chain{claimed: map[string]uint64{}, status: map[string]x402.Status{}}
	r := rand.New(rand.NewPCG(1, 1)) // the same history for every seed of the edits
	for i, at := range []time.Time{begin.AddDate(0, 0, -26), begin.AddDate(0, 0, -14),
		begin.AddDate(0, 0, -1), begin.Add(-4 * time.Hour), begin.Add(-10 * time.Minute)} {
		w.ticker.set(at)
		require.NoError(w.t, w.open())
		w.begin(false, nil)
		if i == 0 {
			require.NoError(w.t, w.guard.Seal(w.t.Context(), false))
			w.openChannel(false, false, channelHost)
			w.openChannel(true, false, ownersHost)
			w.openChannel(false, true, channelHost)
			w.openChannel(true, true, ownersHost)
		}
		w.day(r, i)
		if i == 4 {
			w.ticker.set(begin.Add(-time.Minute)) // a client's yes is good for a short time
			w.waits(r, &made)
		}
		require.NoError(w.t, w.close())
		made.older = append(made.older, w.snapshot())
	}
	made.ledger = made.older[4]
	made.older = made.older[:4]
	made.umpire, made.chain = w.umpire.clone(), w.chain.clone()
	return made
}

// day is what happens on one of the days.
func (w *world) day(r *rand.Rand, number int) {
	w.outcomes(r)
	w.signsAll(r, number > 2)
	w.lands()
	switch number {
	case 1:
		require.NoError(w.t, w.store.Freeze(w.t.Context(), history.Freeze{By: "agent", Why: "stop"}))
		must.Get(w.guard.Unfreeze(w.t.Context()))(w.t)
		require.NoError(w.t, w.guard.Seal(w.t.Context(), false))
	case 2:
		must.Get(turns.Take(w.t.Context(), w.store, "tell", "somebody"))(w.t)
		must.Get(w.guard.NewSession(w.t.Context(), nil))(w.t)
		w.umpire.session = w.ticker.now()
	}
	require.NoError(w.t, w.guard.Checkpoint(w.t.Context()))
}

// signsAll signs in every way, but for what is left to the rounds: the first vouchers of two channels, and
// what the subscription buys today.
func (w *world) signsAll(r *rand.Rand, isToday bool) {
	for _, each := range ways {
		isLeft := each.name == "first voucher" || each.name == "owner's first voucher"
		if isLeft || (isToday && each.name == "subscription") {
			continue
		}
		x, found := w.allowed(r, each)
		require.True(w.t, found, "%s: nothing of it is allowed", each.name)
		require.NoError(w.t, w.try(x), "%s", x)
	}
}

// allowed is something to be signed in a way that the owner's limits allow.
func (w *world) allowed(r *rand.Rand, in way) (x wanted, found bool) {
	for range 40 {
		x = in.make(w, r)
		x.way = in.name
		if w.isAllowed(x) {
			return x, true
		}
	}
	return x, false
}

// isAllowed reports whether the owner's limits let something be signed, with their yes if they are asked.
func (w *world) isAllowed(x wanted) bool {
	u := *w.umpire
	if x.isApproved {
		u.approvals = append(slices.Clone(u.approvals), yes{wanted: x})
	}
	now := w.ticker.now()
	return u.forbids(x, now) == "" && u.lastMinute(now) < u.limits.rate
}

// outcomes has the payments of the days before settle, fail, or come to less, and says so on the chain.
func (w *world) outcomes(r *rand.Rand) {
	for i, s := range w.umpire.signed {
		p := must.Get(w.store.Payment(w.t.Context(), s.id))(w.t)
		if p.State != history.Submitted || s.counts == 0 {
			continue
		}
		switch r.IntN(6) {
		case 0:
			if s.way == "owner's channel" {
				continue
			}
			w.chain.status[s.unique] = x402.Status{State: x402.Expired, Note: "over"}
			must.Get(w.recorder.Expire(w.t.Context(), p,
				history.Expiry(p, w.chain.status[s.unique])))(w.t)
			w.umpire.signed[i].counts, w.umpire.signed[i].isOver = 0, true
		case 1:
			w.chain.status[s.unique] = x402.Status{Note: "not seen"}
			must.Get(w.store.Finish(w.t.Context(), p.ID, history.Outcome{State: history.Unknown,
				Note: "no answer", ReleaseLease: true}))(w.t)
		default:
			w.chain.status[s.unique] = x402.Status{State: x402.Settled, Transaction: "0x01"}
			must.Get(w.store.Finish(w.t.Context(), p.ID, history.Outcome{State: history.Settled,
				Proof: history.Claimed, Transaction: "0x01", Receipt: json.RawMessage(`{"ok":true}`),
				Content: &history.Content{Status: 200, Type: "text/plain", Body: []byte("goods")}}))(w.t)
		}
	}
}

// lands lets the floats that are on their way come to the agent's account, and be spent there.
func (w *world) lands() {
	w.chain.landed += uint64(len(w.umpire.pulls))
	w.umpire.pulls = nil
}

// waits leaves payments that are reserved, and questions in every state.
func (w *world) waits(r *rand.Rand, made *template) {
	for range 3 {
		x, found := w.allowed(r, ways[r.IntN(8)])
		require.True(w.t, found)
		x.isApproved = false
		if w.umpire.needsYes(x) != "" {
			continue
		}
		made.held = append(made.held, heldPayment{x, must.Get(w.reserve(x))(w.t)})
	}
	asked := func(name string) (x wanted, a history.Approval) {
		x = ways[0].make(w, r)
		x.way, x.agent, x.account, x.host, x.path = ways[0].name, "", "", "asked.example", "/"+name
		_, x.source = w.keys.Addresses()
		x.payTo, x.amount, x.counts, x.key = payees[2], 45_000, 45_000, ""
		return x, must.Get(w.asks(x))(w.t)
	}
	made.pending, made.shown = asked("pending")
	ask := func(name string) history.Approval {
		x, a := asked(name)
		made.refused = append(made.refused, x)
		return a
	}
	denied := ask("denied")
	must.Get(w.store.Deny(w.t.Context(), denied.ID, "owner"))(w.t)
	declined := ask("declined")
	must.Get(w.store.Decline(w.t.Context(), declined.ID, "client"))(w.t)
	accepted := ask("accepted")
	must.Get(w.store.Accept(w.t.Context(), accepted.ID, "client"))(w.t)
	x, approved := asked("approved")
	must.Get(w.guard.Approve(w.t.Context(), approved, "owner"))(w.t)
	w.umpire.approvals = append(w.umpire.approvals, yes{wanted: x})
	require.NoError(w.t, w.guard.Checkpoint(w.t.Context()))
}

// asks opens a question to the owner.
func (w *world) asks(x wanted) (history.Approval, error) {
	p := x.payment()
	return asking.Asker{Store: w.store}.AskApproval(w.t.Context(), history.Approval{Quote: p.Fingerprint,
		Host: p.Host, Method: p.Method, URL: p.URL, Network: p.Network, Asset: p.Asset, Symbol: p.Symbol,
		Amount: p.Amount, Price: p.Price, PayTo: p.PayTo, Agent: p.Agent})
}

// reserve reserves a payment as anybody can who writes to the ledger's file: no rule is asked. It uses up the
// owner's yes to it, if there is one.
func (w *world) reserve(x wanted) (history.Payment, error) {
	most := must.Get(money.ParseAmount("1" + strings.Repeat("0", 30)))(w.t)
	funds := x402.Funds{Source: x.source, Free: most, Balance: most, ReadAt: w.ticker.now()}
	if x402.IsSolana(x.network) {
		funds.Delegated = &most
	}
	return historytest.Reserve(w.t.Context(), w.store, history.Hold{Payment: x.payment(), Funds: funds},
		x.fingerprint)
}

// olderFile is a copy of the ledger in a file of its own.
func (w *world) olderFile(s snapshot, number int) string {
	dir := w.t.TempDir()
	path := filepath.Join(dir, fmt.Sprintf("older-%d.db", number))
	require.NoError(w.t, write(path, s.ledger))
	return path
}
