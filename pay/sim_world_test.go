//go:build !race

package pay

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/facilitator"
	"x402-wallet/history"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// mix is what kind of trouble a seed has, and how much of each. Few seeds have all of it: a fault
// that is everywhere hides others (swarm testing).
type mix struct {
	steps, processes                                       int
	leave, kill, reconcile, clock, node, thief, blind      int
	power, many                                            int
	tick                                                   int
	ticks                                                  []time.Duration
	seller, proof, settler, ask, funds, sign, status, save []choice
	refund, withdraw, approval                             int
	batch, member                                          []choice
	remembers                                              bool // sellers give what was paid for again
	// nobody makes the chain's figures differ from what the wallet knows
	exact bool
}

// findExact finds out whether nobody makes the chain's figures differ from what the wallet knows.
func (m *mix) findExact() {
	lies := func(list []choice) bool { return hasChoice(list, "says it settled and did not") }
	m.exact = m.clock == 0 && m.node == 0 && !lies(m.seller) && !lies(m.settler)
}

func hasChoice(list []choice, names ...string) bool {
	return slices.ContainsFunc(list, func(c choice) bool {
		return c.weight > 0 && slices.Contains(names, c.name)
	})
}

// newSim draws a world.
func newSim(g *ground, seed uint64) *sim {
	s := &sim{g: g, seed: seed, rng: rand.New(rand.NewPCG(seed, 0x402))}
	g.cur = s
	start := []time.Time{ // the middle of a day, the end of one, the end of a month
		g.epoch.AddDate(0, 0, 14).Add(12 * time.Hour), g.epoch.AddDate(0, 0, 15).Add(-40 * time.Second),
		g.epoch.AddDate(0, 1, 0).Add(-40 * time.Second),
	}[s.rng.IntN(3)]
	s.base = time.Until(start)
	s.umpire = umpire{rows: map[string]*rowSeen{}, begun: map[string]int{},
		keys: map[string]map[string]bool{}}
	some := func(percent, weight int) int { // of all seeds have it, some more than others
		if s.chance(percent) {
			return 1 + s.rng.IntN(weight)
		}
		return 0
	}
	m := &s.mix
	m.steps, m.processes = 60+s.rng.IntN(100), 1+s.rng.IntN(2)
	m.leave, m.kill, m.reconcile, m.clock, m.node, m.thief = some(50, 4), some(40, 3), some(60, 3),
		some(20, 1), some(50, 3), some(50, 6)
	m.blind = some(10, 2)
	m.power = some(30, 2)
	m.tick, m.ticks = some(60, 3), []time.Duration{10 * time.Millisecond, 100 * time.Millisecond,
		2 * time.Second, 25 * time.Second, 70 * time.Second}
	if s.chance(10) {
		m.ticks = append(m.ticks, 9*time.Hour)
	}
	draw := func(first choice, percent, weight int, others ...string) []choice {
		list := []choice{first}
		for _, name := range others {
			list = append(list, choice{name, some(percent, weight)})
		}
		return list
	}
	m.seller = draw(choice{"serves", 6}, 30, 6, "serves without a receipt", "serves without settling",
		"says it settled and did not", "asks again", "asks again after settling",
		"asks for more", "fails", "fails after settling", "cuts", "cuts after settling", "breaks off",
		"breaks off without a receipt", "hangs", "hangs after settling",
		"is unreachable", "redirects", "redirects after settling", "says no", "says no after settling",
		"says it is pending")
	m.proof = draw(choice{"serves", 6}, 30, 4, "asks again", "fails", "cuts", "is unreachable", "hangs",
		"redirects")
	m.settler = draw(choice{"settles", 6}, 30, 5, "says it settled and did not", "refuses",
		"refuses after settling", "leaves it open", "leaves it open after settling", "is unreachable")
	m.ask = draw(choice{"asks", 20}, 15, 2, "is unreachable", "is free", "asks for another price")
	m.funds = draw(choice{"", 20}, 15, 3, "no answer")
	m.sign = draw(choice{"", 20}, 15, 3, "locked")
	m.status = draw(choice{"", 20}, 20, 4, "no answer", "nonsense with an error")
	m.save = draw(choice{"", 60}, 25, 6, "fails", "fails after it took effect")
	m.save = append(m.save, choice{"and the process dies", min(m.kill, 2)})
	m.remembers = s.chance(30)
	m.findExact()

	s.rules = s.drawRules()
	s.eye = ledger{g.eye}
	s.world.balance = []uint64{15, 30, 1000}[s.rng.IntN(3)]
	s.world.initial = s.world.balance
	s.drawOwned()
	s.world.asks = map[string]*seller.Answer{}
	urls := 1 + s.rng.IntN(3)
	keys := s.rng.IntN(3) // per URL
	for n := range 1 + s.rng.IntN(4) {
		url := s.rng.IntN(urls)
		pu := &purchase{n: n + 1, url: fmt.Sprintf("https://%s/%d", s.host(url%2), url)}
		if keys > 0 && s.chance(60) {
			pu.key = fmt.Sprintf("url %d key %d of seed %d", url, s.rng.IntN(keys), seed)
		}
		s.purchases = append(s.purchases, pu)
	}
	for n := range urls {
		s.prices[n] = []uint64{5, 10}[s.rng.IntN(2)]
		s.seeds[n] = s.chance(25)
		s.standard[n] = !s.seeds[n] && s.chance(25)
		s.charges[n] = !s.seeds[n] && !s.standard[n] && s.chance(25)
		s.deaf[n] = s.standard[n] && s.chance(50)
	}
	s.drawMeters(urls)
	s.drawWays(urls, draw, some)
	s.drawAgents()
	s.drawMany()
	return s
}

// drawMeters draws which of the sellers take up to what they ask.
func (s *sim) drawMeters(urls int) {
	for n := range urls {
		s.meters[n] = !s.seeds[n] && !s.standard[n] && !s.charges[n] && s.chance(30)
	}
}

// host is a seller's name in this seed.
func (s *sim) host(n int) string { return fmt.Sprintf("h%d-%d.example", n, s.seed) }

func urlNumber(url string) int { return int(url[len(url)-1] - '0') }

var simAssets = x402.NewRegistry(nil)

// world is what is true, whatever anybody says of it.
type world struct {
	owned
	channelWorld
	permitWorld
	memberWorld
	balance, initial uint64
	node             struct {
		down bool
		lag  time.Duration
	}
	prices   [3]uint64
	seeds    [3]bool // sellers that speak the X-Payment-Required dialect: the wallet settles
	standard [3]bool // sellers that use its header, and ask as those do that settle themselves
	deaf     [3]bool // those of them that look for proof alone
	charges  [3]bool // sellers that ask in MPP, with a new challenge each time
	meters   [3]bool // sellers that take up to what they ask
	asked    int
	asks     map[string]*seller.Answer
	sigs     []*signature // all that were ever made
	served   int
}

// signature is one signed payment.
type signature struct {
	nonce, row  string
	amount      uint64
	isUpto      bool
	moved       uint64 // once it is settled; of upto as much as its amount at most
	counts      uint64 // of a voucher in an owner's channel: its price, for good, once it is on disk
	url, key    string // a key as its agent's
	agent       string
	validBefore time.Time
	seen        bool // by anybody but the wallet
	settled     bool
	settledAt   time.Time
	good        map[string]bool // contents that were served for it
	promise     *promise        // it is a voucher, with a deposit or without; nil: it is none
	permit      *permit         // it is one by Permit2; nil: it is not
	stops       bool            // its seller said that it charged too much
}

func (g *signature) tx() string { return "0x" + g.nonce[len(g.nonce)-8:] }

// live reports whether money has moved by it or still may.
func (s *sim) live(g *signature) bool {
	return g.settled || g.counts > 0 || (g.seen && s.now().Before(g.validBefore))
}

func (s *sim) signature(nonce string) *signature {
	for _, g := range s.sigs {
		if g.nonce == nonce {
			return g
		}
	}
	return nil
}

// signatureIn is the one that a payment carries.
func (s *sim) signatureIn(payload []byte) *signature {
	var p struct {
		Payload struct{ Nonce, Transaction string }
	}
	_ = json.Unmarshal(payload, &p)
	return s.signature(cmp.Or(p.Payload.Nonce, p.Payload.Transaction))
}

// take settles, as EIP-3009 does: once, before it expires, if the money is there.
func (s *sim) take(g *signature, who string) bool {
	if g.settled || !s.now().Before(g.validBefore) || s.balance < g.amount || (s.floats && s.own < g.amount) {
		return false
	}
	if g.permit != nil && !s.permitted(g) {
		return false
	}
	g.moved = g.amount
	if g.isUpto {
		g.moved = 1 + s.rng.Uint64N(g.amount)
	}
	if s.floats {
		s.own -= g.moved
	}
	g.settled, g.settledAt, s.balance = true, s.now(), s.balance-g.moved
	s.moved++
	if g.promise != nil {
		s.deposit(g)
	}
	s.mark()
	s.say("      %s settles %s", who, g.tx())
	return true
}

// worth is what has moved by it, or still may.
func (g *signature) worth() uint64 {
	if g.settled {
		return g.moved
	}
	return g.amount + g.counts
}

// takeable is what somebody could settle behind everybody's back.
func (s *sim) takeable() (list []*signature) {
	for _, g := range s.sigs {
		if g.seen && !g.settled && s.now().Before(g.validBefore) {
			list = append(list, g)
		}
	}
	return list
}

func (s *sim) lastBreath() (last time.Time) {
	for _, g := range s.sigs {
		if g.validBefore.After(last) {
			last = g.validBefore
		}
	}
	for _, t := range s.transfers {
		if t.made.After(last) {
			last = t.made
		}
	}
	return last
}

func (s *sim) changeNode() {
	s.node.down = s.chance(40)
	s.node.lag = []time.Duration{0, 3 * time.Second, 30 * time.Second}[s.rng.IntN(3)]
	s.say("the node: down %v, %s behind", s.node.down, s.node.lag)
}

// simScheme is a process's signer and node.
type simScheme struct {
	s *sim
	p *process
}

func (c *simScheme) Payable(x402.Requirement, x402.AssetInfo) error { return nil }

func (c *simScheme) Funds(ctx context.Context, _ string, _ x402.AssetInfo) (x402.Funds, error) {
	s, readAt := c.s, c.s.wallet()
	if s.at(ctx, c.p, "Funds", s.mix.funds...) == "no answer" || s.node.down || ctx.Err() != nil {
		return x402.Funds{}, x402.Errorf(x402.RPCError, "the node is down")
	}
	if s.floats {
		return s.ownedFunds(readAt), nil
	}
	view := s.now().Add(-s.node.lag)
	free := s.initial + s.returnedBy(view)
	for _, g := range s.sigs {
		if g.settled && !g.settledAt.After(view) {
			free -= g.moved
		}
	}
	return x402.Funds{Source: s.host(9), Balance: money.NewAmount(free), Free: money.NewAmount(free),
		ReadAt: readAt}, nil
}

func (c *simScheme) Authorize(ctx context.Context, o onchain.Order) (onchain.Authorization, error) {
	s := c.s
	if s.at(ctx, c.p, "Authorize", s.mix.sign...) == "locked" || ctx.Err() != nil {
		return onchain.Authorization{}, x402.Errorf(x402.WalletLocked, "locked")
	}
	s.signsFor(actorOf(ctx).call)
	of := actorOf(ctx).call.of
	g := &signature{nonce: fmt.Sprintf("0x%016x%08x", s.seed, len(s.sigs)+1), url: of.url, agent: of.agent,
		key:         whose(of.agent, of.key),
		validBefore: o.Now.Add(o.Validity), good: map[string]bool{}}
	if c := o.Requirement.Charge; c != nil {
		g.nonce = c.ID
		if s.signature(g.nonce) != nil {
			s.fail("two payments answer the challenge %s", c.ID)
		}
	}
	fmt.Sscan(o.Requirement.Amount.String(), &g.amount)
	g.isUpto = o.Requirement.Way() == x402.Upto
	s.sigs = append(s.sigs, g)
	s.say("      signed %s: %d until %s", g.tx(), g.amount, g.validBefore.Format("15:04:05"))
	return onchain.Authorization{
		Payload: json.RawMessage(fmt.Sprintf(`{"nonce":%q,"transaction":%q}`, g.nonce, g.nonce)),
		Evidence: x402.Evidence{Network: testNetwork, Asset: testUSDC, Payer: s.host(9),
			PayTo: o.Requirement.PayTo, Amount: o.Requirement.Amount,
			Nonce: g.nonce, ExpiresAt: g.validBefore},
	}, nil
}

func (c *simScheme) Status(ctx context.Context, e x402.Evidence) (x402.Status, error) {
	s := c.s
	switch drawn := s.at(ctx, c.p, "Status", s.mix.status...); {
	case drawn == "nonsense with an error":
		return x402.Status{State: x402.Expired}, errors.New("nonsense")
	case drawn == "no answer" || s.node.down || ctx.Err() != nil:
		return x402.Status{}, errors.New("no answer")
	}
	g, view := s.signature(e.Nonce), s.now().Add(-s.node.lag)
	switch {
	case g.settled && !g.settledAt.After(view):
		status := x402.Status{State: x402.Settled, Transaction: g.tx(), Block: blockOf(g.settledAt)}
		if g.isUpto {
			moved := money.NewAmount(g.moved)
			status.Amount = &moved
		}
		return status, nil
	case !view.Before(g.validBefore):
		return x402.Status{State: x402.Expired}, nil
	}
	return x402.Status{Unused: true}, nil
}

// simSeller is a process's way to all sellers.
type simSeller struct {
	s *sim
	p *process
}

func (t *simSeller) Check(seller.Request) error { return nil }

func (t *simSeller) Ask(ctx context.Context, r seller.Request) (*seller.Answer, error) {
	s, n := t.s, urlNumber(r.URL)
	drawn := s.at(ctx, t.p, "Ask", s.mix.ask...)
	if ctx.Err() != nil || drawn == "is unreachable" {
		return nil, x402.Errorf(x402.NetworkError, "unreachable")
	}
	if drawn == "is free" {
		return &seller.Answer{Status: 200, Content: []byte("free " + r.URL), ContentType: "text/plain"}, nil
	}
	price := s.prices[n]
	if drawn == "asks for another price" {
		price *= 2
	}
	a := *s.asking(r.URL, price)
	a.Date = s.now()
	return &a, nil
}

func (s *sim) asking(url string, price uint64) *seller.Answer {
	switch n := urlNumber(url); {
	case s.charges[n]:
		return s.charging(price)
	case s.isNew(n):
		return s.askingNew(url, price)
	}
	name := fmt.Sprint(url, " ", price)
	if s.asks[name] == nil {
		header := "PAYMENT-REQUIRED"
		if n := urlNumber(url); s.seeds[n] || s.standard[n] {
			header = "X-Payment-Required"
		}
		scheme := x402.Exact
		if s.meters[urlNumber(url)] {
			scheme = x402.Upto
		}
		text := fmt.Sprintf(
			`{"x402Version":2,"resource":{"url":%q},"accepts":[{"scheme":%q,"network":%q,"amount":"%d","asset":%q,"payTo":%q,"maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}]}`,
			url, scheme, testNetwork, price, testUSDC, testPayee)
		if s.seeds[urlNumber(url)] {
			text = settleForm(text)
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(text))
		a := &seller.Answer{Status: 402, Header: http.Header{http.CanonicalHeaderKey(header): {encoded}}}
		a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
		s.asks[name] = a
	}
	return s.asks[name]
}

func notSent(why string) error {
	return &seller.SendError{Err: x402.Errorf(x402.NetworkError, "%s", why)}
}
func sentTo(why string) error {
	return &seller.SendError{Sent: true, Err: x402.Errorf(x402.NetworkError, "%s", why)}
}

func (t *simSeller) Present(ctx context.Context, r seller.Request, with wire.Attachment) (*seller.Answer,
	error) {
	switch {
	case with.Header == wire.HeaderSignIn:
		return t.presentSignIn(ctx, r, with)
	case t.s.batches[urlNumber(r.URL)]:
		return t.presentBatch(ctx, r, with)
	}
	s, proof := t.s, strings.EqualFold(with.Header, "X-Payment-Signature")
	may := s.mix.seller
	if proof {
		may = s.mix.proof
	}
	drawn := s.at(ctx, t.p, "Present", may...)
	if ctx.Err() != nil || drawn == "is unreachable" {
		return nil, notSent(drawn)
	}
	var g *signature
	if proof {
		for _, other := range s.sigs {
			if other.tx() == with.Value && other.settled {
				g = other
			}
		}
	} else {
		raw, _ := base64.StdEncoding.DecodeString(with.Value)
		if credential, isMPP := strings.CutPrefix(with.Value, "Payment "); isMPP {
			raw, _ = base64.RawURLEncoding.DecodeString(credential)
		}
		g = s.left(ctx, raw)
	}
	answer, err := s.answer(g, r.URL, drawn, proof)
	if strings.HasPrefix(drawn, "hangs") {
		<-ctx.Done()
	}
	s.at(ctx, t.p, "answer arrives")
	if ctx.Err() != nil {
		return nil, sentTo("too late")
	}
	return answer, err
}

// charging asks in MPP. What is signed has its nonce by the challenge's id.
func (s *sim) charging(price uint64) *seller.Answer {
	s.asked++
	request := fmt.Sprintf(`{"amount":"%d","currency":%q,"recipient":%q,"methodDetails":{"chainId":%s}}`, price,
		testUSDC, testPayee, strings.TrimPrefix(testNetwork, "eip155:"))
	a := &seller.Answer{Status: 402, Header: http.Header{}}
	a.Header.Set("WWW-Authenticate", fmt.Sprintf(
		`Payment id="0x%016x%08x", realm="shop", method="evm", intent="charge", request=%q`, ^s.seed, s.asked,
		base64.RawURLEncoding.EncodeToString([]byte(request))))
	a.Challenge, a.ChallengeErr = wire.ReadChallenge(402, a.Header, nil)
	return a
}

// left is the moment at which signed bytes are out of the wallet's hands.
func (s *sim) left(ctx context.Context, payload []byte) *signature {
	g := s.signatureIn(payload)
	if g == nil {
		s.fail("I3: bytes that nobody signed left: %s", payload)
		return nil
	}
	g.seen = true
	if g.promise != nil {
		g.promise.alone = strings.Contains(string(payload), aloneMark)
		if d := g.promise.brings; d != nil && !g.promise.alone {
			d.seen = true
		}
	}
	if c := actorOf(ctx).call; c != nil {
		c.sent = g.row
	}
	s.onDisk(g, payload)
	s.leftPermit(g, payload)
	return g
}

// answer is what a seller does with a payment; g is nil for a proof of nothing.
//
//nolint:gocyclo // a table of what sellers do
func (s *sim) answer(g *signature, url, drawn string, proof bool) (*seller.Answer, error) {
	asked := *s.asking(url, s.prices[urlNumber(url)])
	if g == nil || g.url != url || (s.deaf[urlNumber(url)] && !proof) {
		return &asked, nil
	}
	if strings.HasSuffix(drawn, "after settling") {
		s.take(g, "the seller")
	}
	status := func(n int, body string) *seller.Answer {
		return &seller.Answer{Status: n, Content: []byte(body), ContentType: "text/plain"}
	}
	receipt := func(a *seller.Answer, success bool, reason string) *seller.Answer {
		a.Settlement = &wire.Settlement{Success: success, ErrorReason: reason, Raw: json.RawMessage(`{}`)}
		if success || reason == "settlement_pending" {
			a.Settlement.Transaction = g.tx()
		}
		return a
	}
	serve := func() *seller.Answer {
		s.served++
		body := fmt.Sprintf("ok %s #%d", url, s.served)
		g.good[body] = true
		return status(200, body)
	}
	bought := func() bool {
		return proof || s.take(g, "the seller") || (g.settled && s.mix.remembers && len(g.good) > 0)
	}
	switch strings.TrimSuffix(drawn, " after settling") {
	case "serves":
		if !bought() {
			return &asked, nil
		}
		if proof {
			return serve(), nil
		}
		return receipt(serve(), true, ""), nil
	case "serves without a receipt":
		if !bought() {
			return &asked, nil
		}
		return serve(), nil
	case "serves without settling":
		return serve(), nil
	case "says it settled and did not":
		return receipt(serve(), true, ""), nil
	case "asks for more":
		more := *s.asking(url, 2*s.prices[urlNumber(url)])
		return &more, nil
	case "fails":
		return status(500, "no "+url), nil
	case "cuts", "hangs":
		return nil, sentTo(drawn)
	case "breaks off", "breaks off without a receipt":
		a := status(200, "half of "+url)
		s.take(g, "the seller")
		if g.settled && drawn == "breaks off" {
			receipt(a, true, "")
		}
		a.Truncated = true
		return a, sentTo(drawn)
	case "redirects":
		return status(302, "elsewhere"), nil
	case "says no":
		return receipt(status(402, "no "+url), false, "invalid_signature"), nil
	case "says it is pending":
		return receipt(status(402, "no "+url), false, "settlement_pending"), nil
	default: // asks again
		return &asked, nil
	}
}

// simSettler is a process's facilitators.
type simSettler struct {
	s *sim
	p *process
}

func (f *simSettler) FeePayer(context.Context, facilitator.Terms, int, []string) (string, string, error) {
	return "", "", nil
}

func (f *simSettler) Settle(ctx context.Context, sub facilitator.Submission) facilitator.Result {
	s := f.s
	drawn := s.at(ctx, f.p, "Settle", s.mix.settler...)
	if ctx.Err() != nil || drawn == "is unreachable" {
		return facilitator.Result{Outcome: facilitator.NotSent}
	}
	g := s.left(ctx, sub.Payload)
	if g == nil {
		return facilitator.Result{Outcome: facilitator.Unknown}
	}
	r := facilitator.Result{Facilitator: "lab"}
	if strings.HasSuffix(drawn, "after settling") {
		s.take(g, "the facilitator")
	}
	switch strings.TrimSuffix(drawn, " after settling") {
	case "settles":
		r.Outcome = facilitator.Settled
		if !s.take(g, "the facilitator") && !g.settled {
			r.Outcome = facilitator.Refused
		}
	case "says it settled and did not":
		r.Outcome = facilitator.Settled
	case "refuses":
		r.Outcome = facilitator.Refused
	default:
		r.Outcome = facilitator.Unknown
	}
	if r.Outcome == facilitator.Settled {
		r.Settlement = &wire.Settlement{Success: true, Transaction: g.tx(), Raw: json.RawMessage(`{}`)}
	}
	s.at(ctx, f.p, "answer arrives")
	if ctx.Err() != nil {
		return facilitator.Result{Outcome: facilitator.Unknown}
	}
	return r
}

// ledger is a process's way to the ledger, with what a Guard does with it.
type ledger struct{ *history.Store }

func (l ledger) Submit(ctx context.Context, p history.Payment, signed history.Signed) error {
	return historytest.Guard{Store: l.Store}.Submit(ctx, p, signed, false)
}

func (l ledger) Expire(ctx context.Context, p history.Payment, status x402.Status) (
	history.Payment, error) {
	return historytest.Guard{Store: l.Store}.Expire(ctx, p, status)
}

func (l ledger) Charge(ctx context.Context, p history.Payment, status x402.Status) (
	history.Payment, error) {
	return historytest.Guard{Store: l.Store}.Charge(ctx, p, status)
}

// simStore is a process's way to its ledger. What changes something parks before; what only reads
// parks after, so that what was read may be old when it is used.
type simStore struct {
	Store ledger
	s     *sim
	p     *process
}

// change makes one change of the ledger: it may fail before or after it took effect, or be the last
// thing the process does.
func (w *simStore) change(ctx context.Context, what string, do func() error) error {
	drawn := w.s.at(ctx, w.p, what, w.s.mix.save...)
	if drawn == "fails" {
		return diskError()
	}
	err := do()
	switch drawn {
	case "fails after it took effect":
		return diskError()
	case "and the process dies":
		w.s.kill(w.p)
		w.p.survive()
	}
	return err
}

// look parks after a reading.
func (w *simStore) look(ctx context.Context, what string, err error) error {
	if w.s.at(ctx, w.p, what, choice{"", 60}, choice{"fails", w.s.mix.save[1].weight}) == "fails" {
		return diskError()
	}
	return err
}

func (w *simStore) Facts(ctx context.Context, q history.Question) (history.Facts, error) {
	f, err := w.Store.Facts(ctx, q)
	if q.Payment.Host == "" { // for an answer, which is decided already
		w.p.survive()
		return f, err
	}
	return f, w.look(ctx, "Facts", err)
}

func (w *simStore) Reserve(ctx context.Context, h history.Hold) (p history.Payment, err error) {
	var held history.Payment
	err = w.change(ctx, "Reserve", func() error {
		p, err := w.Store.Reserve(ctx, h)
		if err == nil {
			w.s.reserved(p, actorOf(ctx).call)
		}
		held = p
		return err
	})
	if err != nil {
		held = history.Payment{}
	}
	return held, err
}

// ReserveAll holds for several calls, each in the hold's own URL.
func (w *simStore) ReserveAll(ctx context.Context, holds []history.Hold) (held []history.Payment, err error) {
	err = w.change(ctx, "ReserveAll", func() error {
		w.s.withinCeiling(ctx, holds)
		held, err = w.Store.ReserveAll(ctx, holds)
		for _, p := range held {
			w.s.reserved(p, w.s.callOf(ctx, p))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// simGuard is the key's side of the ledger.
type simGuard struct{ *simStore }

func (simGuard) CheckConfig(context.Context) error          { return nil }
func (simGuard) VerifySeals(context.Context) error          { return nil }
func (simGuard) Checkpoint(context.Context) error           { return nil }
func (simGuard) CheckpointIfUnlocked(context.Context) error { return nil }
func (simGuard) LocalApprovals(context.Context) bool        { return true }

func (g simGuard) RecordVoucher(context.Context, history.Payment, history.Signed, history.Channel,
	history.Outcome, bool) (history.Payment, error) {
	return history.Payment{}, errors.ErrUnsupported
}

func (g simGuard) Submit(ctx context.Context, p history.Payment, signed history.Signed, _ bool) error {
	return g.change(ctx, "Submit", func() error {
		switch {
		case p.IsPull():
			g.s.transfer(signed.Evidence.Transaction).row = p.ID
		case p.IsSignIn():
		default:
			g.s.signatureIn(signed.Payload).row = p.ID
		}
		err := g.p.raw.Submit(ctx, p, signed)
		if err == nil && !p.IsPull() && !p.IsSignIn() {
			g.s.keepsTo(g.s.signatureIn(signed.Payload), actorOf(ctx).call)
		}
		if err == nil && signed.Channel != nil {
			g.s.submittedVoucher(g.s.signatureIn(signed.Payload))
		}
		return err
	})
}

func (g simGuard) Expire(ctx context.Context, p history.Payment, status x402.Status) (
	saved history.Payment, err error) {
	err = g.change(ctx, "Expire", func() error {
		saved, err = g.p.raw.Expire(ctx, p, status)
		if err == nil && saved.State == history.Failed {
			g.s.released(p.ID, "the chain proved it dead")
		}
		return err
	})
	return saved, err
}

func (g simGuard) Charge(ctx context.Context, p history.Payment, status x402.Status) (
	saved history.Payment, err error) {
	err = g.change(ctx, "Charge", func() error {
		saved, err = g.p.raw.Charge(ctx, p, status)
		return err
	})
	return saved, err
}

func (w *simStore) Release(ctx context.Context, id, why string) error {
	return w.change(ctx, "Release", func() error {
		err := w.Store.Release(ctx, id, why)
		if err == nil {
			w.s.released(id, why)
		}
		return err
	})
}

func (w *simStore) Finish(ctx context.Context, id string, o history.Outcome) (saved history.Payment,
	err error) {
	if c := actorOf(ctx).call; c != nil {
		c.recorded = true
	}
	err = w.change(ctx, "Finish "+string(o.State), func() error {
		saved, err = w.Store.Finish(ctx, id, o)
		if r := w.s.rows[id]; err == nil && r != nil && saved.Proof == history.Claimed {
			r.claimed = true
		}
		if err == nil && o.Content != nil {
			w.s.stored(id, *o.Content)
		}
		return err
	})
	if err != nil {
		saved = history.Payment{}
	}
	return saved, err
}

func (w *simStore) AcquireLease(ctx context.Context, id, from string) (mine bool, err error) {
	err = w.change(ctx, "Drive", func() error { mine, err = w.Store.AcquireLease(ctx, id, from); return err })
	return mine && err == nil, err
}

func (w *simStore) AttachIdempotencyKey(ctx context.Context, id, key string) (named bool, err error) {
	err = w.change(ctx, "Name", func() error {
		named, err = w.Store.AttachIdempotencyKey(ctx, id, key)
		if err == nil && named {
			w.s.named(id, key)
		}
		return err
	})
	return named && err == nil, err
}

func (w *simStore) ReleaseLease(ctx context.Context, id string) error {
	return w.change(ctx, "Rest", func() error { return w.Store.ReleaseLease(ctx, id) })
}

func (w *simStore) ClearWaiter(ctx context.Context, id string) error {
	return w.change(ctx, "Abandon", func() error { return w.Store.ClearWaiter(ctx, id) })
}

func (w *simStore) Deliver(ctx context.Context, id string) error {
	w.s.endsWithout(ctx, id)
	return w.change(ctx, "Deliver", func() error { return w.Store.Deliver(ctx, id) })
}

// Alive cannot tell of other processes when there are no descriptors left.
func (w *simStore) Alive(process string) bool {
	w.p.survive()
	return w.Store.Alive(process) && (!w.s.blind.Load() || process == w.Store.Self())
}

func (w *simStore) Self() string { return w.Store.Self() }

func (w *simStore) Payment(ctx context.Context, id string) (history.Payment, error) {
	p, err := w.Store.Payment(ctx, id)
	return p, w.look(ctx, "Payment", err)
}

func (w *simStore) Content(ctx context.Context, id string) (history.Content, error) {
	c, err := w.Store.Content(ctx, id)
	if who := actorOf(ctx); who.call != nil {
		w.s.reads++
		who.call.looked = w.s.reads
	}
	err = w.look(ctx, "Content", err)
	if who := actorOf(ctx); who.call != nil && err != nil && !errors.Is(err, history.ErrNotFound) {
		who.call.looked = -1 // it saw nothing
	}
	return c, err
}

func (w *simStore) ByKey(ctx context.Context, agent, key string) (history.Payment, error) {
	p, err := w.Store.ByKey(ctx, agent, key)
	return p, w.look(ctx, "ByKey", err)
}

func (w *simStore) ByRequest(ctx context.Context, fingerprint [32]byte) ([]history.Payment, error) {
	list, err := w.Store.ByRequest(ctx, fingerprint)
	return list, w.look(ctx, "ByRequest", err)
}

// Recent leaves out what other seeds left in the ledger, so that each is the same whenever it is run.
func (w *simStore) Recent(ctx context.Context, limit int) ([]history.Payment, error) {
	list, err := w.Store.Recent(ctx, limit)
	list = slices.DeleteFunc(list, func(p history.Payment) bool {
		return !strings.HasSuffix(p.Host, fmt.Sprintf("-%d.example", w.s.seed))
	})
	return list, w.look(ctx, "Recent", err)
}

func (w *simStore) RecentAt(ctx context.Context, agent, host string, limit int) ([]history.Payment, error) {
	list, err := w.Store.RecentAt(ctx, agent, host, limit)
	return list, w.look(ctx, "RecentAt", err)
}

func (w *simStore) Bought(ctx context.Context, agent, url, resource string) (history.Payment, error) {
	p, err := w.Store.Bought(ctx, agent, url, resource)
	err = w.look(ctx, "Bought", err)
	actorOf(ctx).call.drafted = w.s.wallet()
	return p, err
}

func (w *simStore) Earlier(ctx context.Context, p history.Payment, limit int) ([]history.Payment, error) {
	list, err := w.Store.Earlier(ctx, p, limit)
	return list, w.look(ctx, "Earlier", err)
}

func (w *simStore) Expired(ctx context.Context, network string, since time.Time) ([]history.Payment, error) {
	list, err := w.Store.Expired(ctx, network, since)
	return list, w.look(ctx, "LetDie", err)
}

func (w *simStore) HeldUpTo(ctx context.Context, p history.Payment, readAt time.Time) (money.Amount, error) {
	held, err := w.Store.HeldUpTo(ctx, p, readAt)
	return held, w.look(ctx, "HeldUpTo", err)
}

func (w *simStore) OpenFrom(ctx context.Context, network, source string) ([]history.Payment, error) {
	list, err := w.Store.OpenFrom(ctx, network, source)
	return list, w.look(ctx, "OpenFrom", err)
}

func (w *simStore) Unfinished(ctx context.Context, after string, limit int) ([]history.Payment, error) {
	list, err := w.Store.Unfinished(ctx, after, limit)
	return list, w.look(ctx, "Unfinished", err)
}

func (w *simStore) Claimed(ctx context.Context, since time.Time, after string, limit int) ([]history.Payment,
	error) {
	list, err := w.Store.Claimed(ctx, since, after, limit)
	return list, w.look(ctx, "Claimed", err)
}

// AskApproval asks a person who never answers.
func (w *simStore) AskApproval(_ context.Context, a history.Approval) (history.Approval, error) {
	w.p.survive()
	a.ID, a.State = "apr_nobody", history.Pending
	return a, nil
}

func (w *simStore) AskApprovals(_ context.Context, list []history.Approval) ([]history.Approval, error) {
	w.p.survive()
	for i := range list {
		list[i].ID, list[i].State = "apr_nobody", history.Pending
	}
	return list, nil
}

func (w *simStore) AskedTogether(ctx context.Context, id string) ([]history.Approval, error) {
	return w.Store.AskedTogether(ctx, id)
}

func (w *simStore) Accept(ctx context.Context, id, by string) (history.Approval, error) {
	return w.Store.Accept(ctx, id, by)
}

func (w *simStore) ApprovedBy(ctx context.Context, p history.Payment) (*asking.Approver, error) {
	return asking.Asker{Store: w.Store.Store}.ApprovedBy(ctx, p)
}

func (w *simStore) Freeze(ctx context.Context, f history.Freeze) error { return w.Store.Freeze(ctx, f) }

func (w *simStore) AlertOverdue(ctx context.Context, p history.Payment) error {
	w.p.survive()
	return w.Store.AlertOverdue(ctx, p)
}

func (w *simStore) AlertDamage(ctx context.Context, why string) error {
	w.p.survive()
	return w.Store.AlertDamage(ctx, why)
}

func (w *simStore) NotFrozen(ctx context.Context, network, source string) error {
	w.p.survive()
	return w.Store.NotFrozen(ctx, network, source)
}
