package edits

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/internal/must"
	"x402-wallet/internal/passkey"
	"x402-wallet/wallet/agent"
	"x402-wallet/x402"
	"x402-wallet/x402/onchain"
)

// play plays the round.
func (r *round) play() {
	r.put(r.template.ledger)
	r.ticker.set(begin)
	r.umpire, r.chain = r.template.umpire.clone(), r.template.chain.clone()
	r.umpire.randomLimits(r.rand)
	r.chain.balance = pick[uint64](r.rand, 0, 20_000, 45_000)
	r.hole = r.report
	require.NoError(r.t, r.open())
	defer func() {
		r.moment = func(string) {}
		r.shell.close()
		_ = r.close()
	}()
	r.left, r.first, r.hasCountedMore = 1+r.rand.IntN(3), true, false
	isRemote, isRunning := r.rand.IntN(3) == 0, r.rand.IntN(2) == 0
	moments := []string{"now", "reserved", "read", "signed"} // which an unlock agent has no more
	r.when = moments[r.rand.IntN(map[bool]int{true: 3, false: 4}[isRemote])]
	r.again = r.rand.IntN(3) == 0
	r.begin(isRemote, nil)
	if isRunning {
		r.signsSmall(1 + r.rand.IntN(2))
	}
	r.ownerActs()
	r.moment = r.turn
	r.turn("now")
	if (!isRunning || r.rand.IntN(3) == 0) && !r.reopens(isRemote, isRunning) {
		return
	}
	r.attacks()
}

// report says that something was signed that the owner's limits forbid.
func (r *round) report(x wanted, why string) {
	r.t.Errorf("signed, though %s\n%s\n"+
		"-args -edits.seed %d -edits.rounds 1; by %s, edits at %q, again %t:\n%s",
		why, x, r.seed, map[bool]string{true: "the unlock agent", false: "the wallet itself"}[r.isRemote],
		r.when, r.again, strings.Join(r.shell.log, ";\n"))
}

// turn is the shell's: its edits are made once, at one moment, or again and again.
func (r *round) turn(moment string) {
	if r.isFree || moment != r.when {
		return
	}
	if r.left == 0 && !r.again {
		return
	}
	r.shell.open()
	defer r.shell.close()
	if r.left == 0 {
		for _, statement := range r.shell.log {
			_, _ = r.shell.db.Exec(statement)
		}
	}
	for number := 0; r.left > 0; r.left-- {
		before := r.shell.changed
		r.shell.edit(number > 0 && r.rand.IntN(2+number) > 0)
		number++
		r.edited++
		r.rows += r.shell.changed - before
	}
	if r.rand.IntN(2) == 0 {
		r.shell.tidy(r.umpire.asked.ID)
	}
}

// ownerActs is what the owner does before the edits: it holds.
func (r *round) ownerActs() {
	ctx := r.t.Context()
	switch r.rand.IntN(16) {
	case 0:
		require.NoError(r.t, r.store.Freeze(ctx, history.Freeze{By: "owner", Why: "stop"}))
		r.umpire.frozen[""] = true
	case 1:
		_, evm := r.keys.Addresses()
		require.NoError(r.t, r.store.Freeze(ctx, history.Freeze{By: "owner", Network: base, Account: evm}))
		r.umpire.frozen[base+" "+evm] = true
	case 2:
		must.Get(r.guard.NewSession(ctx, nil))(r.t)
		r.umpire.session = r.ticker.now()
	case 3:
		r.lands()
	case 4:
		_, own := r.config(false, false)
		r.chain.claimed[own] = r.umpire.promised[own]
	}
	require.NoError(r.t, r.guard.Checkpoint(ctx)) // whoever holds the key has seen it
}

// reopens has the process that signs begin anew, or the ledger be opened anew by the same one. It reports
// whether the ledger could be opened. Now and then the shell puts an older file in its place: with the older
// checkpoint beside it only a process notices that which ran before.
func (r *round) reopens(isRemote, isRunning bool) bool {
	known := r.recorder
	if !isRunning || r.rand.IntN(2) == 0 {
		known = nil
	}
	if err := r.close(); err != nil {
		r.refused["CLOSE"]++
		return false
	}
	if !r.isFree && r.rand.IntN(10) == 0 {
		older := r.template.older[r.rand.IntN(len(r.template.older))]
		r.shell.log = append(r.shell.log, "-- and an older file was put in its place")
		if known == nil || r.rand.IntN(2) == 0 {
			older.mark = nil
		}
		r.put(older)
	}
	if err := r.open(); err != nil {
		r.after["OPEN "+code(err)]++
		r.end, r.store = func() {}, nil
		return false
	}
	r.begin(isRemote, known)
	return true
}

// attacks tries what is forbidden, then small sums until one is refused, and what gives money back.
func (r *round) attacks() {
	r.signsSmall(1)
	for range 2 {
		r.asksAgain()
	}
	for range 4 {
		way := ways[r.rand.IntN(len(ways))]
		for range 20 {
			x := way.make(r.world, r.rand)
			x.way = way.name
			if !r.isAllowed(x) {
				_ = r.try(x)
				break
			}
		}
	}
	if r.rand.IntN(3) == 0 {
		r.isTold()
	}
	if r.rand.IntN(2) == 0 {
		r.signsHeld()
	}
	for range r.rand.IntN(4) {
		r.givesBack()
	}
	if r.rand.IntN(8) == 0 && !r.isFree {
		_, _ = r.store.NewSession(r.t.Context(), nil, nil)
		r.shell.log = append(r.shell.log, "-- and a session began that no owner sealed")
	}
	r.signsSmall(12)
}

// asksAgain tries what a person said no to, or somebody else yes, and what was approved once and bought.
func (r *round) asksAgain() {
	list := r.template.refused
	for _, y := range r.umpire.approvals {
		if y.isUsed {
			list = append(slices.Clip(list), y.wanted)
		}
	}
	x := pick(r.rand, list...)
	if x.channel == "" { // its ceiling was another one
		x.isApproved, x.key = false, ""
		_ = r.try(x)
	}
}

// signsSmall signs small sums in one way until one is refused. Without edits none is.
func (r *round) signsSmall(most int) {
	r.rand.Shuffle(len(r.order), func(i, j int) { r.order[i], r.order[j] = r.order[j], r.order[i] })
	var in way
	for _, i := range r.order {
		if _, found := r.allowed(r.rand, ways[i]); found {
			in = ways[i]
			break
		}
	}
	for range most {
		if in.name == "" {
			return
		}
		x, found := r.allowed(r.rand, in)
		if !found { // the limits are used up: one more
			_ = r.try(x)
			return
		}
		err := r.try(x)
		isEdited := len(r.shell.log) > 0
		// a yes to another sum of the subscription's one request is in the way
		isOther := x.isOrdered && err != nil && strings.Contains(err.Error(), "approval that the hold names")
		isStricter := isOther || (r.hasCountedMore && x402.HasCode(err, x402.BudgetExceeded))
		if err != nil && !isEdited && !isStricter {
			r.t.Errorf("refused without an edit: %v\n%s\n-args -edits.seed %d -edits.rounds 1", err, x,
				r.seed)
		}
		if isEdited && r.first {
			r.first = false
			r.after[code(err)]++
		}
		if err != nil {
			return
		}
	}
}

// isTold has the owner say yes by passkey to what was shown to them before the edits, and buys that.
func (r *round) isTold() {
	ctx, x := r.t.Context(), r.template.pending
	q := agent.QuestionOf(r.template.shown, "browser")
	var challenge []byte
	var err error
	if r.isRemote {
		challenge, err = r.asksRemote(agent.Request{Op: "passkey",
			Passkey: &agent.PasskeyRequest{Question: q}})
	} else {
		challenge, err = r.approver.Challenge(ctx, q)
	}
	if err == nil {
		options := must.Get(passkey.RequestOptions(r.owners.Origin, challenge))(r.t)
		answer := r.owners.Get(options)
		if r.isRemote {
			_, err = r.asksRemote(agent.Request{Op: "passkey",
				Passkey: &agent.PasskeyRequest{Question: q, Answer: answer}})
		} else {
			err = r.approver.Approve(ctx, q, answer)
		}
	}
	if err != nil {
		r.refused["passkey "+code(err)]++
		return
	}
	r.umpire.approvals = append(r.umpire.approvals, yes{wanted: x})
	r.ways["passkey"]++
	for range 2 { // which is one too many
		_ = r.try(x)
	}
}

// signsHeld tries what was reserved before the edits.
func (r *round) signsHeld() {
	for _, held := range r.template.held {
		p := held.payment
		if row, err := r.store.Payment(r.t.Context(), p.ID); err == nil {
			_, _ = r.store.AcquireLease(r.t.Context(), p.ID, row.LeaseOwner)
		}
		_ = r.signs(held.wanted, p)
	}
}

// givesBack has money given back that was signed for: by the unlock agent, which looks itself, or by this
// process's own look at the chain.
func (r *round) givesBack() {
	i := r.rand.IntN(len(r.umpire.signed))
	s := &r.umpire.signed[i]
	ctx := r.t.Context()
	op := pick(r.rand, "expire", "charge")
	var err error
	if r.isRemote {
		_, err = r.asksRemote(agent.Request{Op: op, Payment: s.id})
	} else {
		err = r.looks(ctx, op, s.id)
	}
	if err != nil {
		r.refused[op+" "+code(err)]++
		return
	}
	truth, known := r.chain.status[s.unique]
	isOver := known && truth.State == x402.Expired
	if s.counts > 0 && !isOver {
		r.hole(wanted{way: s.way, id: s.id, amount: s.counts}, "its money was given back ("+op+
			"), and the chain says "+string(truth.State)+truth.Note)
	}
	s.counts, s.isOver = 0, true
}

// looks is what package pay does about a payment that has no end.
func (r *round) looks(ctx context.Context, op, id string) error {
	if err := r.guard.VerifySeals(ctx); err != nil {
		return err
	}
	p, err := r.store.Payment(ctx, id)
	if err != nil {
		return err
	}
	status, _ := r.chain.Status(ctx, p.Evidence)
	if op == "charge" {
		return must.Err(r.recorder.Charge(ctx, r.rules().For(p.Agent), p, status))
	}
	if status.State != x402.Expired {
		return x402.Errorf(x402.PolicyDenied, "it is not over")
	}
	return must.Err(r.recorder.Expire(ctx, p, history.Expiry(p, status)))
}

// try reserves and signs something, as the owner approves it where they are asked.
func (w *world) try(x wanted) error {
	if x.isApproved {
		if a, err := w.asks(x); err == nil && a.State == history.Pending {
			// A person says yes to what they are shown: what that is, the umpire knows.
			if _, err := w.guard.Approve(w.t.Context(), a, "owner"); err == nil {
				w.umpire.approvals = append(w.umpire.approvals, yes{wanted: x})
			}
		}
	}
	p, err := w.reserve(x)
	if err != nil {
		w.tried++
		w.refused["hold "+code(err)]++
		return err
	}
	return w.signs(x, p)
}

// signs has a payment that is reserved signed, and tells the umpire.
func (w *world) signs(x wanted, p history.Payment) error {
	w.umpire.asked, w.believed = p, history.Payment{}
	w.moment("reserved")
	keeping := func(ctx context.Context, d onchain.Draft) (signatures []byte, err error) {
		w.signatures, err = w.ask(ctx, d)
		return w.signatures, err
	}
	w.tried++
	if err := x.sign(w, x, keeping, p); err != nil {
		w.refused[code(err)]++
		if w.rand == nil || w.isFree || w.rand.IntN(2) == 0 { // as package pay does
			_ = w.store.Release(w.t.Context(), p.ID, "it was not signed")
		}
		return err
	}
	w.signed++
	w.ways[x.way]++
	w.tells(x)
	return nil
}

// tells lets the umpire know of a signature.
func (w *world) tells(x wanted) {
	b := w.believed
	x.id, x.agent, x.host, x.method, x.key = b.ID, b.Agent, b.Host, b.Method, b.IdempotencyKey
	if at, err := url.Parse(b.URL); err == nil && !x.isPull {
		x.path = at.Path
	}
	if evidence, err := w.message.Signed(w.signatures); err == nil {
		x.unique = evidence.Evidence.Unique()
	}
	if x.channel != "" {
		x.ceiling = w.ceiling
		price, _ := b.Amount.Uint64()
		x.amount, x.price = price, price // a deposit counts, whatever the call costs
		if x.counts > 0 && x.isOwners {
			x.counts = x.ceiling - min(x.ceiling, w.umpire.promised[x.channel])
		}
	}
	w.hasCountedMore = w.hasCountedMore || uint64(b.Price) > x.counts
	now := w.ticker.now()
	why := w.umpire.forbids(x, now)
	w.umpire.note(x, now)
	if _, known := w.chain.status[x.unique]; !known {
		w.chain.status[x.unique] = x402.Status{State: x402.Settled, Transaction: "0x02"}
	}
	if why != "" {
		w.hole(x, why)
	}
}

// code is what an error is called.
func code(err error) string {
	if err == nil {
		return "signed"
	}
	if _, is := errors.AsType[*history.AlreadyPaying](err); is {
		return "ALREADY_PAYING"
	}
	return string(x402.AsError(err).Code)
}
