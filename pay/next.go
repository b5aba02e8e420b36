package pay

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
	"x402-wallet/x402/wire"
)

// What a caller, or the person behind it, does next after a refusal.

// tooMuch is the refusal of an option above maxAmount. Whose limit that was nobody knows here, so whoever
// reads it asks the person before offering more.
func tooMuch(o *option, most, asked string) error {
	units := ""
	if len(most) < 4 && most != "0" && strings.Trim(most, "0123456789") == "" { // as who means dollars writes
		units = fmt.Sprintf(" (%q counts atomic units; dollars are written %q)", most, "$"+most)
	}
	return x402.Errorf(x402.AmountExceedsMax, "the seller asks %s, maxAmount is %s%s", o.price.Price(),
		inDollars(o.asset, most), units).
		WithDetail("requested", asked).WithDetail("maxAmount", most).
		WithNext(x402.Next{Do: x402.Change, Why: "the very same call is refused again; if the limit is the " +
			"person's, ask them before you offer more",
			Say: "It costs " + o.price.Price() + ", above the limit of " + inDollars(o.asset, most) +
				" that was set for it: may I pay that?"})
}

// maxInput bounds what is repeated of how a seller wants to be called.
const maxInput = 2 << 10

// wrongCall refuses a call that is not the one which the challenge sells: its seller would take the money and
// answer that the request is wrong (agentkit#1494, x402#3249). nil: it is that one, or the challenge does not
// say.
func wrongCall(c *wire.Challenge, q intent) *x402.Error {
	is := c.Called()
	if is.Method == "" || seller.IsMCP(q.Method) {
		return nil
	}
	call := is.Method
	if is.NeedsBody {
		call += " with a body"
	}
	var what string
	switch {
	case is.Method != q.Method:
		what = "the call is a " + q.Method
	case is.NeedsBody && len(q.Body) == 0:
		what = "the call has no body"
	default:
		return nil
	}
	return x402.Errorf(x402.InvalidArgument, "the challenge is for a %s, and %s", call, what).
		WithHint("nothing was held or signed").WithDetail("method", is.Method).
		WithDetail("input", x402.BriefTo(string(is.Input), maxInput)).
		WithNext(x402.Next{Do: x402.Change, Why: "call it by " + call +
			"; details.input is how, in the seller's words"})
}

// inDollars is a maxAmount in a text.
func inDollars(asset x402.AssetInfo, most string) string {
	if amount, err := money.ParseAmount(most); err == nil {
		return asset.Dollars(amount).Price()
	}
	return most // dollars already
}

// weighOffer says of an option that only maxAmount rules out what the owner's rules would make of its
// price: a higher maxAmount alone may not help. No node is asked.
func (e *Engine) weighOffer(ctx context.Context, q intent, o option) {
	asked, _, ok := q.limit.allows(o.Amount, o.price)
	if o.why == nil || o.why.Code != x402.AmountExceedsMax || ok {
		return
	}
	p := payment(q, o, x402.Funds{})
	p.IdempotencyKey = "" // whose it is makes no difference to what it costs
	err := e.Rules.CheckCall(q.agent, o.price)
	if err == nil {
		err = e.decide(ctx, e.propose(p, o, x402.Funds{}))
	}
	covered := fmt.Sprintf("maxAmount %q covers it", asked)
	coded := x402.AsError(err)
	switch {
	case err == nil:
		o.why.WithHint("%s, and the owner's rules allow it", covered)
	case coded.Code == x402.ApprovalRequired:
		o.why.WithHint("%s, and then a person is asked to approve it: %s", covered, coded.Message)
	default:
		next := coded.NextStep()
		next.Why = cmp.Or(next.Why, coded.Message)
		o.why.WithHint("a higher maxAmount alone does not help: %s", coded.Message).WithNext(next)
		o.why.FixedBy = coded.FixableBy()
	}
}

// insufficient explains the third layer's no: what is short, by how much, and where it has to come from.
func (e *Engine) insufficient(ctx context.Context, o option, funds x402.Funds,
	lack *history.ShortOfFunds) error {
	if o.source != nil {
		return o.source.Lack(o.offer(), funds, lack)
	}
	if err := plainIfNil(o.way).Lack(o.offer(), funds); err != nil {
		return err
	}
	if funds.Allowance != nil {
		return e.Floats.Lack(o.offer(), funds, lack)
	}
	if err := e.revoked(ctx, o, funds); err != nil {
		return toDelegate(err, o)
	}
	network, tokens := x402.Title(o.Network), func(a money.Amount) string {
		return a.Units(o.asset.Decimals) + " " + o.asset.Symbol
	}
	needed, _ := lack.Held.Add(o.Amount)
	held := ""
	if !lack.Held.IsZero() {
		held = ", and unfinished payments hold " + o.asset.Dollars(lack.Held).Price() + " of that"
	}
	code, what := x402.InsufficientFunds, "the balance of "+o.asset.Symbol
	delegated := funds.Delegated != nil && funds.Delegated.Cmp(needed) < 0
	if delegated {
		code, what = x402.DelegationExhausted, "what the owner delegated"
	}
	no := x402.Errorf(code, "%s on %s does not cover the price %s: %s is there%s", what, network,
		o.price.Price(), o.asset.Dollars(lack.Free).Price(), held).
		WithDetail("layer", "chain").WithDetail("network", o.Network).WithDetail("asset", o.asset.Address).
		WithDetail("symbol", o.asset.Symbol).WithDetail("source", funds.Source).
		WithDetail("available", lack.Free.SubFloor(lack.Held)).WithDetail("held", lack.Held).
		WithDetail("requested", o.Amount).WithDetail("balance", funds.Balance)
	short := needed.SubFloor(funds.Balance)
	send := fmt.Sprintf("%s (%s) on %s to %s", tokens(short), o.asset.Address, network,
		cmp.Or(funds.Address, funds.Source))
	if !delegated {
		command := AddressCommand(o.account)
		if funds.Delegated != nil { // the account is the owner's own
			command = x402.Command("delegation", "show", "--network", o.Network, "--token-account",
				funds.Source)
		}
		return no.WithDetail("short", short).WithHint("the owner has to send at least %s", tokens(short)).
			WithCommand(command, "Please send at least "+send+" so that I can pay "+o.price.Price()+".")
	}
	no.WithDetail("delegated", *funds.Delegated).WithDetail("short", needed.SubFloor(*funds.Delegated))
	say := fmt.Sprintf("Please let me spend at least %s from your account %s on %s", tokens(needed),
		funds.Source, network)
	if !short.IsZero() {
		say += ", and send at least " + send
	}
	return no.WithHint("the owner has to delegate at least %s", tokens(needed)).
		WithCommand(remedy.Delegate(o.asset, funds.Source, needed), say+"; it replaces what you delegated "+
			"before, and FILE is your own key's.")
}

// lookBack is how many payments are looked at for the account that was paid from last: what is older says
// little of what the owner set up.
const lookBack = 200

// revoked is NO_DELEGATION where the wallet's own account is empty, and what it paid last came out of an
// account that delegated to it: sending money to the wallet is not what the owner had in mind.
func (e *Engine) revoked(ctx context.Context, o option, funds x402.Funds) error {
	isOwn := x402.IsSolana(o.Network) && funds.Delegated == nil && funds.Address != ""
	if !isOwn || o.account != "" || !funds.Balance.IsZero() {
		return nil
	}
	newest, err := e.Store.Recent(ctx, lookBack)
	at := slices.IndexFunc(newest, func(p history.Payment) bool {
		isHere := p.Network == o.Network && p.Asset == o.asset.Key().Address
		return isHere && e.Rules.Teams.Account(p.Agent) == ""
	})
	if err != nil || at < 0 || newest[at].Source == funds.Source {
		return nil //nolint:nilerr // then it is short of funds, which is also true
	}
	last := newest[at].Source
	return x402.Errorf(x402.NoDelegation, "the token account %s on %s, which was paid from last, delegates "+
		"nothing to this wallet any more: it was revoked, or all of it is spent", last,
		x402.Title(o.Network)).
		WithDetail("reason", "none").WithDetail("tokenAccount", last).WithDetail("network", o.Network).
		WithDetail("requested", o.Amount)
}

// toDelegate says, where nothing is delegated to the wallet, how the price of an option is.
func toDelegate(err error, o option) error {
	if o.source != nil {
		return o.source.Explain(err, o.Network)
	}
	coded := x402.AsError(err)
	account, known := coded.Details["tokenAccount"].(string)
	toOther := coded.Code == x402.DelegateMismatch && coded.Details["reason"] == "delegate"
	if !known || (coded.Code != x402.NoDelegation && !toOther) {
		return err
	}
	return coded.WithCommand(remedy.Delegate(o.asset, account, o.Amount), "Please let me spend at least "+
		o.asset.Dollars(o.Amount).Price()+" of "+o.asset.Symbol+" from your account "+account+" on "+
		x402.Title(o.Network)+"; it replaces whatever it delegates now, and FILE is your own key's.")
}

// isWrongRequest reports whether a status says that the request itself is wrong, so that it will be refused
// again however it is paid for.
func isWrongRequest(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusGone, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// nextAfter is the next step after an error of a payment whose money is held, and the answer that it got, if
// any.
func nextAfter(v verdict, p history.Payment, a *seller.Answer, now time.Time) x402.Next {
	next := nextOfHeld(v.code, p, now)
	if wantsBrowser(a) && next.Do == x402.Repeat && next.At != "" { // the same call is answered alike
		return x402.Next{Do: x402.Wait, At: next.At, Why: browserWanted + "; from then on the same call " +
			"asks the chain, and a new payment is possible once it is proven that nothing moved"}
	}
	if a == nil || v.code != x402.PaymentRejected || a.Challenge != nil || !isWrongRequest(a.Status) {
		return next
	}
	why := fmt.Sprintf("the seller refuses the request itself (HTTP %d); content says why; a corrected "+
		"call is another payment", a.Status)
	if end := p.Evidence.ExpiresAt; now.Before(end) {
		why += ", and the money of this one stays held until " + x402.Stamp(end.Add(maxSkew)) +
			" at most, unless it moved"
	}
	return x402.Next{Do: x402.Change, Why: why}
}

// nextOfHeld is the next step after an error of a payment whose money is held. As long as it can be settled
// the very same call brings the same signed bytes. After that nothing brings it to an end but the chain: the
// same call asks it, and pays anew when it is proven that nothing moved.
func nextOfHeld(code x402.Code, p history.Payment, now time.Time) x402.Next {
	if p.Evidence.ExpiresAt.IsZero() {
		return x402.Next{Do: x402.Repeat, Why: "the same call takes up this payment and cannot pay twice"}
	}
	over := p.Evidence.ExpiresAt.Add(maxSkew)
	at := x402.Stamp(over)
	switch {
	case !now.Before(over):
		return x402.Next{Do: x402.Repeat, Why: "this payment has expired: the same call asks the chain " +
			"first, and pays anew only once it is proven that nothing moved"}
	case code == x402.ToolExecutionFailed:
		return x402.Next{Do: x402.Change, At: at, Why: "content says what the tool did not take; a call " +
			"with other arguments is another payment, and the money of this one stays held until " + at +
			" at most, unless it moved"}
	case !now.Before(p.Evidence.ExpiresAt), code == x402.PriceChanged, code == x402.RedirectRefused:
		return x402.Next{Do: x402.Wait, At: at, Why: "from then on the same call asks the chain, and pays " +
			"anew once it is proven that nothing moved; sooner it only brings the old payment, which " +
			"cannot pay twice"}
	}
	return x402.Next{Do: x402.Repeat, At: at, Why: "the same call brings the same signed payment and " +
		"cannot pay twice; if it stays refused, a new payment is possible from " + at + ", once the chain " +
		"proves that nothing moved"}
}

// leastPause is how long a call waits at least that was repeated in vain.
const leastPause = 10 * time.Second

// againInVain is the next step where that was to repeat, and repeating did not help. A model that is told
// to repeat does so at once, so from then on it is told to wait: until the payment's end where the seller
// refuses it, else for twice as long each time.
func againInVain(v verdict, p history.Payment, now time.Time, next x402.Next) x402.Next {
	if !v.again || next.Do != x402.Repeat || next.At == "" {
		return next
	}
	later := x402.Stamp(now.Add(max(now.Sub(p.Created), leastPause)))
	why := "the same signed payment was brought again in vain; repeating the same call cannot pay twice, " +
		"and a new payment is possible from " + next.At + ", once the chain proves that nothing moved"
	refused := v.code == x402.PaymentRejected || v.code == x402.SettlementFailed
	if refused || later > next.At {
		later = next.At
	}
	return x402.Next{Do: x402.Wait, At: later, Why: why}
}

// AddressCommand shows where money for an account is sent to; "": the wallet's own.
func AddressCommand(account string) string {
	if account == "" {
		return x402.Command("address", "--qr")
	}
	return x402.Command("address", "--qr", "--account", account)
}
