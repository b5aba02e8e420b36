package pay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history"
	"x402-wallet/internal/steps"
	"x402-wallet/scheme"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/foreign"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
	"x402-wallet/x402/wire"
)

// quote is what a seller asks and what of it this wallet can pay.
type quote struct {
	answer    *seller.Answer
	challenge *wire.Challenge
	options   []option // those that could be read, in the seller's order
	ahead     readings // of the chain, while the seller was asked
	// what a batch of payments holds already of the best option; nil: nothing, it is still to be held
	held *Purchase
	kept *keptChannel // between the two tries of a call; may be nil
}

type option struct {
	x402.Requirement
	asset       x402.AssetInfo
	price       money.Dollars      // above every limit where nothing says what the asset is worth
	target      string             // where the request led, and the payment goes; "": to its own URL
	account     string             // that pays, as budget.Rules has it
	source      scheme.Source      // nil: the agent's own account, or what is delegated to it
	use         *scheme.ChannelUse // what it takes of its channel; nil: that is not decided, or it has none
	channel     string             // that an owner funds, which it is paid through; "": there is none
	maxValidity time.Duration      // of what is signed (x402.Funds); 0: no such limit
	way         scheme.Way
	extensions  map[string]json.RawMessage // of the challenge
	stage       stage                      // how far it came
	why         *x402.Error                // nil: payable
}

// stage orders the reasons: of several refused options, the one that came farthest tells the caller most.
type stage uint8

const (
	stageForm   stage = iota // scheme, network, what the seller wrote
	stageAsset               // not in the registry
	stageWanted              // not what the caller asked for
	stageMax                 // the caller's maxAmount
	stageRules               // the owner's rules
	stageFunds               // the chain
)

// quote asks the seller without payment. A nil challenge means that nothing is asked: the answer
// is the content.
func (e *Engine) quote(ctx context.Context, q intent) (*quote, error) {
	asking, step := steps.Begin(ctx, steps.Ask)
	over := awaiting(ctx)
	answer, err := e.Transport.Ask(asking, q.Request.Request)
	over()
	ended(step, answer, err)
	if err != nil {
		return nil, err
	}
	if answer.Challenge == nil && answer.ChallengeErr == nil {
		return &quote{answer: answer}, nil
	}
	if answer.ChallengeErr != nil {
		return nil, answer.ChallengeErr
	}
	if skew := e.Now().Sub(answer.Date).Abs(); !answer.Date.IsZero() && skew > maxSkew {
		return nil, x402.Errorf(x402.ClockSuspect, "this machine's clock and the seller's are %s apart",
			skew.Round(time.Second)).
			WithHint("set the clock right; nothing is signed while they are more than %s apart", maxSkew).
			WithDetail("sellerTime", answer.Date.UTC().Format(time.RFC3339))
	}
	answer.Challenge.Complete(e.payableOn(q), e.Assets)
	forgetSecrets(answer.Challenge)
	return &quote{answer: answer, challenge: answer.Challenge}, nil
}

// payableOn are the networks that a seller may mean who names none: the one that the call asks for, or all
// that the owner has.
func (e *Engine) payableOn(q intent) []string {
	if q.Network != "" && slices.Contains(e.Policy.Networks, q.Network) {
		return []string{q.Network}
	}
	return e.Policy.Networks
}

// forgetSecrets takes the secrets of a query out of what is kept of a challenge, given on with a
// payment and sent to facilitators: sellers say the URL back that they were asked. A V2 payment
// need not name its resource; what an option is accepted by stays as it is.
func forgetSecrets(c *wire.Challenge) {
	if WithoutSecrets(c.Resource.URL) != c.Resource.URL {
		c.Resource = wire.Resource{}
	}
	for i := range c.Accepts {
		r := &c.Accepts[i]
		kept := WithoutSecrets(r.ResourceURL)
		if kept == r.ResourceURL {
			continue
		}
		var members map[string]json.RawMessage
		r.ResourceURL = kept
		if err := json.Unmarshal(r.Raw, &members); err != nil {
			continue // it was read from there
		}
		members["resource"], _ = json.Marshal(kept)
		r.Raw, _ = json.Marshal(members)
	}
}

// flows are the orders of serving and settling that sellers know (reference client 2.27), the best
// for a buyer first: after authorization he is charged for what was made, in the others before.
var flows = []string{"", "authorization", "upfront", "escrow"}

// judge says of every option whether it can be paid, as far as can be said without asking a chain.
func (e *Engine) judge(found *quote, q intent) []option {
	options := make([]option, 0, len(found.challenge.Accepts))
	target, call := elsewhere(found.answer.FinalURL, q.URL), e.callOf(q, found.answer.FinalURL)
	for _, r := range found.challenge.Accepts {
		o := option{Requirement: r, target: target, account: e.Rules.Account}
		o.asset, _ = e.Assets.Asset(r.Network, r.Asset)
		o.price = o.asset.Dollars(r.Amount)
		o.way, _ = e.way(o.Way())
		e.addFee(&o)
		o.extensions = found.challenge.Extensions
		err := e.whyNot(&o, q)
		if err == nil {
			err = plainIfNil(o.way).WhyNot(call, o.offer())
		}
		if err != nil {
			o.why = x402.AsError(err)
		}
		options = append(options, o)
	}
	return options
}

// addFee makes an option's amount the most that it may cost.
func (e *Engine) addFee(o *option) {
	fee := plainIfNil(o.way).Fee(o.offer())
	total, fits := o.Amount.Add(fee)
	if fee.IsZero() || !fits {
		return
	}
	o.Amount, o.Fee, o.price = total, fee, o.asset.Dollars(total)
}

// whyNot runs the checks in the order of the stages.
func (e *Engine) whyNot(o *option, q intent) error {
	o.stage = stageForm
	if words := foreign.Of(o.Requirement); words != "" {
		return foreign.Refusal(words)
	}
	if err := e.checkWay(o.Way()); err != nil {
		return err
	}
	if flow := o.ExtraString("paymentFlow"); !slices.Contains(flows, flow) {
		return x402.Errorf(x402.InvalidRequirement, "the payment flow %s is not known", x402.Quote(flow))
	}
	scheme, ok := e.scheme(o.Way(), o.Network)
	if !ok {
		return e.unpaid(o)
	}
	if o.asset.Address == "" {
		return unknownAsset(o, scheme)
	}
	if err := scheme.Payable(o.Requirement, o.asset); err != nil {
		return err
	}
	if !o.asset.Rated() {
		o.stage = stageAsset
		return remedy.Unrated(o.asset)
	}
	o.stage = stageWanted
	if q.Network != "" && q.Network != o.Network {
		return x402.Errorf(x402.InvalidRequirement, "the call asks for the network %s only",
			x402.Title(q.Network))
	}
	if q.Asset != "" && !strings.EqualFold(q.Asset, o.asset.Symbol) &&
		money.NewAsset(o.Network, q.Asset) != o.AssetKey() {
		return x402.Errorf(x402.InvalidRequirement, "the call asks for the asset %s only",
			x402.Quote(q.Asset))
	}
	o.stage = stageMax
	if asked, most, ok := q.limit.allows(o.Amount, o.price); !ok {
		return tooMuch(o, most, asked)
	}
	o.stage = stageRules
	if err := e.Rules.CheckCall(q.agent, o.price); err != nil {
		return err
	}
	o.stage = stageFunds
	return nil
}

// unpaid says why there is no scheme for an option: an account may have fewer than the wallet's own.
func (e *Engine) unpaid(o *option) error {
	for key := range e.Schemes {
		if e.Rules.Account != "" && key.Family == x402.Namespace(o.Network) {
			return x402.Errorf(x402.InvalidRequirement, "the account %q pays nothing by %s: only the "+
				"wallet's own does", e.Rules.Account, o.Way()).
				WithHint("nothing was signed; take another option or seller")
		}
	}
	return foreign.Refusal(foreign.Network(x402.Quote(o.Network)))
}

// unknownAsset says why an option in a token that the registry does not have is not paid. What else is
// wrong with it comes first: a network without a node, above all.
func unknownAsset(o *option, scheme Scheme) error {
	if err := scheme.Payable(o.Requirement, o.asset); err != nil && !x402.HasCode(err, x402.UntrustedAsset) {
		return err
	}
	err := remedy.UnknownAsset(o.Requirement)
	if err.Code == x402.UntrustedAsset {
		o.stage = stageAsset
	}
	return err
}

// candidates are the options without a reason against them, best first: preferred network, then
// cheapest, then the better flow, then the simpler way, then the seller's order.
func (e *Engine) candidates(options []option) []int {
	var list []int
	for i, o := range options {
		if o.why == nil {
			list = append(list, i)
		}
	}
	rank := func(network string) int {
		if i := slices.Index(e.Policy.Prefer, network); i >= 0 {
			return i
		}
		return len(e.Policy.Prefer)
	}
	sort.SliceStable(list, func(a, b int) bool {
		x, y := options[list[a]], options[list[b]]
		if rx, ry := rank(x.Network), rank(y.Network); rx != ry {
			return rx < ry
		}
		if cx, cy := x.isChannelled(), y.isChannelled(); cx != cy && x.price == y.price {
			return cy // a deposit is money that lies elsewhere
		}
		if x.price != y.price {
			return x.price < y.price
		}
		if fx, fy := slices.Index(flows, x.ExtraString("paymentFlow")),
			slices.Index(flows, y.ExtraString("paymentFlow")); fx != fy {
			return fx < fy
		}
		_, rx := e.way(x.Way())
		_, ry := e.way(y.Way())
		return rx < ry
	})
	return list
}

// refusal is the one error for a challenge none of whose options can be paid: the reason of the
// option that came farthest, of equals one that a person can do something about, with every option's own
// reason in the details.
func refusal(c *wire.Challenge, options []option) error {
	if c.AsksSignInOnly() {
		return wire.SignInRefused("there is nothing to pay for").
			WithHint("x402_pay signs in, as far as the owner's rules let it (policy.sign_in)")
	}
	best, reasons := farthest(options), reasonsOf(c, options)
	e := x402.Errorf(x402.InvalidRequirement, "none of the seller's %d options can be paid", len(reasons))
	isOne := len(reasons) == 1
	switch {
	case best != nil && best.tellsMost():
		*e = *best.why
		e.Details = maps.Clone(best.why.Details)
	case isOne:
		e.Message = "the seller's only option cannot be paid: " + reasons[0]["why"].(string)
	}
	if best != nil && best.stage == stageWanted {
		e = e.WithHint("leave out network and asset, or name those of an option that the seller offers").
			WithNext(x402.Next{Do: x402.Change, Why: "network or asset rule out what the seller offers"})
	}
	if places := c.IgnoredDetails(); places != nil {
		e.WithDetail("unreadable", places)
	}
	return e.WithDetail("options", reasons)
}

// farthest is the option whose reason tells most; nil where none could be read.
func farthest(options []option) (best *option) {
	for i := range options {
		o := &options[i]
		isEqual := best != nil && o.stage == best.stage
		if best == nil || o.stage > best.stage || (isEqual && o.isPersons() && !best.isPersons()) {
			best = o
		}
	}
	return best
}

func (o option) isPersons() bool { return o.why.FixableBy() == x402.ByPerson }

// tellsMost reports whether the option's reason is the answer by itself: it is about more than its form,
// or somebody can do something about it.
func (o option) tellsMost() bool {
	isForm := o.stage == stageForm || o.stage == stageWanted
	return !isForm || o.isPersons() || o.why.Code != x402.InvalidRequirement // a network check that failed
}

func reasonsOf(c *wire.Challenge, options []option) (rows []map[string]any) {
	for _, o := range options {
		row := map[string]any{"option": o.Index, "network": o.Network, "amount": o.Amount, "code": o.why.Code,
			"why": o.why.Message}
		if o.isPersons() {
			row["fixedBy"] = x402.ByPerson
		}
		if lines, there := o.why.Details["config"]; there {
			row["config"] = lines
		}
		rows = append(rows, row)
	}
	for _, u := range c.Unreadable {
		rows = append(rows, map[string]any{"option": u.Index, "code": x402.InvalidRequirement,
			"why": u.Why.Error()})
	}
	return rows
}

// Option is one way to pay, as x402_estimate_cost tells it.
type Option struct {
	Scheme            string       `json:"scheme"`
	Network           string       `json:"network"`
	Amount            money.Amount `json:"amount"`
	Price             string       `json:"price,omitempty"`
	Asset             string       `json:"asset"`
	Symbol            string       `json:"symbol,omitempty"`
	PayTo             string       `json:"payTo"`
	MaxTimeoutSeconds int64        `json:"maxTimeoutSeconds"`
	Version           int          `json:"version"`
	Payable           bool         `json:"payable"`
	Why               string       `json:"why,omitempty"`
	Code              x402.Code    `json:"code,omitempty"`
}

// Estimate is the answer of x402_estimate_cost.
type Estimate struct {
	URL             string   `json:"url"`
	PaymentRequired bool     `json:"paymentRequired"`
	HTTPStatus      int      `json:"httpStatus"`
	Options         []Option `json:"options"`
	Chosen          *int     `json:"chosen"`

	Next x402.Next `json:"next"`

	Wait      time.Duration   `json:"-"` // how long the answer to a payment by the chosen option is waited for
	Challenge *wire.Challenge `json:"-"` // what the seller asks for; nil: nothing

	// Payees are paid by the options that the wallet can sign, whether or not it may and has the money now:
	// each one's network and whole address.
	Payees []budget.Payee `json:"-"`
}

// Least is the lowest price in dollars of all options, payable or not; "" where none has one.
func (e Estimate) Least() string {
	least, price := money.Dollars(0), ""
	for _, o := range e.Options {
		if d, err := money.ParseDollars(strings.TrimPrefix(o.Price, "$")); err == nil &&
			(price == "" || d < least) {
			least, price = d, o.Price
		}
	}
	return price
}

// Estimate asks what something costs and which option Pay would choose now: none, where the challenge is for
// another call. It signs nothing and holds nothing.
func (e *Engine) Estimate(ctx context.Context, q Request) (Estimate, error) {
	out, err := e.Offers(ctx, q)
	if err != nil || out.Challenge == nil {
		return out, err
	}
	in, err := q.parse(AgentFrom(ctx))
	if err != nil {
		return Estimate{}, err
	}
	wrong := wrongCall(out.Challenge, in)
	if wrong == nil {
		return out, nil
	}
	out.Chosen, out.Next = nil, wrong.NextStep()
	out.Next.Why = wrong.Message + "; " + out.Next.Why
	for i := range out.Options {
		if o := &out.Options[i]; o.Payable {
			o.Payable, o.Why, o.Code = false, wrong.Message, wrong.Code
		}
	}
	return out, nil
}

// Offers is Estimate for whoever only asks what there is: the challenge may be for another call.
func (e *Engine) Offers(ctx context.Context, q Request) (Estimate, error) {
	in, err := q.parse(AgentFrom(ctx))
	if err != nil {
		return Estimate{}, err
	}
	if err := e.mayAsk(ctx, in.Request.Request, in.host); err != nil {
		return Estimate{}, err
	}
	if _, ok := e.deferred(ctx, in); ok {
		return Estimate{}, x402.Errorf(x402.EstimateFailed,
			"this server is paid through a channel and names its price with the answer").
			WithHint("call it with maxAmount: a call that costs more is not paid").
			WithNext(x402.Next{Do: x402.Change, Why: "only the call itself tells the price"})
	}
	ctx, cancel := context.WithTimeout(ctx, e.Policy.Deadline)
	defer cancel()
	found, err := e.quote(ctx, in)
	if err != nil {
		return Estimate{}, err
	}
	defer found.answer.Release()
	return e.weigh(ctx, in, found, e.chain(ctx)), nil
}

// Read gets a short document that a seller publishes, without paying for it; nil: there is none.
func (e *Engine) Read(ctx context.Context, url string) ([]byte, error) {
	in, err := Request{Request: seller.Request{URL: url, MaxContent: x402.MaxBody}}.parse(AgentFrom(ctx))
	if err == nil {
		err = e.mayAsk(ctx, in.Request.Request, in.host)
	}
	if err != nil {
		return nil, err
	}
	answer, err := e.Transport.Ask(ctx, in.Request.Request)
	if err != nil {
		return nil, err
	}
	defer answer.Release()
	if !isOK(answer.Status) || answer.Truncated {
		return nil, nil
	}
	return answer.Content, nil
}

// weigh is what a quote comes to for this wallet.
func (e *Engine) weigh(ctx context.Context, q intent, found *quote, chain reader) Estimate {
	out := Estimate{URL: q.URL, HTTPStatus: found.answer.Status, Options: []Option{},
		Challenge: found.challenge}
	if found.challenge == nil {
		out.Next = x402.Next{Do: x402.Done}
		if !isOK(found.answer.Status) {
			out.Next = notServed(found.answer, e.Now())
		}
		return out
	}
	out.PaymentRequired, out.Next = !found.challenge.AsksSignInOnly(), x402.Next{Do: x402.Done}
	options := e.judge(found, q)
	if err := e.keepToOwners(ctx, q.host, options); err != nil {
		e.Log.Warn("look for channels that an owner funds", "err", err)
	}
	for _, i := range e.candidates(options) {
		out.Payees = append(out.Payees, budget.Payee{Network: options[i].Network, PayTo: options[i].PayTo})
		if err := e.wouldPass(ctx, q, options[i], chain); err != nil {
			options[i].why = x402.AsError(err)
		} else if out.Chosen == nil {
			out.Chosen, out.Wait = &i, e.Policy.patience(options[i].MaxTimeout)
			if options[i].MaxTimeout > out.Wait {
				out.Next.Why = fmt.Sprintf("the seller may take up to %s to answer a payment, and the "+
					"wallet waits %s for it (policy.max_wait)", options[i].MaxTimeout, out.Wait)
			}
		}
	}
	for _, o := range options {
		out.Options = append(out.Options, o.shown())
	}
	if out.Chosen == nil {
		out.Next = x402.AsError(refusal(found.challenge, options)).NextStep()
	}
	for _, u := range found.challenge.Unreadable {
		out.Options = append(out.Options, Option{Why: u.Why.Error(), Code: x402.InvalidRequirement})
	}
	return out
}

func (o option) shown() Option {
	shown := Option{
		Scheme: x402.Brief(o.Way()), Network: o.Network, Amount: o.Amount, Asset: x402.Brief(o.Asset),
		Symbol: o.asset.Symbol, PayTo: x402.Brief(o.PayTo),
		MaxTimeoutSeconds: int64(o.MaxTimeout / time.Second), Version: o.Version, Payable: o.why == nil,
	}
	if o.asset.Rated() {
		shown.Price = o.price.Price()
	}
	if o.why != nil {
		shown.Why, shown.Code = o.why.Message, o.why.Code
	}
	return shown
}

// wouldPass is the second and third layer as they stand now, without holding anything. Under rules
// that are not sealed no node is asked.
func (e *Engine) wouldPass(ctx context.Context, q intent, o option, chain reader) error {
	if err := e.Guard.CheckConfig(ctx); err != nil {
		return err
	}
	if c, isOne := o.way.(scheme.Channelled); isOne {
		return e.wouldPassThrough(ctx, c, q, o, chain)
	}
	var first error
	for _, from := range e.sources(ctx, q.host, o) {
		err := e.wouldPassFrom(ctx, q, from, chain)
		if err == nil || !aboutSource(x402.AsError(err).Code) {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}

func (e *Engine) wouldPassFrom(ctx context.Context, q intent, o option, chain reader) error {
	funds, err := chain.funds(ctx, o)
	if err != nil {
		return toDelegate(err, o)
	}
	funds = o.within(funds)
	if o.Amount.Cmp(funds.Free) > 0 || tooMuchAtOnce(o, funds) {
		return e.insufficient(ctx, o, funds, &history.ShortOfFunds{Free: funds.Free, Wanted: o.Amount})
	}
	p := payment(q, o, funds)
	p.IdempotencyKey = "" // whose it is makes no difference to what it costs
	w := e.propose(p, o, funds)
	w.sessionCap, w.anyPayee = chain.newCap, q.anyPayee && o.PayTo == nobody
	w.ask.Always = plainIfNil(o.way).AlwaysAsk(ctx, o.Requirement)
	return e.decide(ctx, w)
}
