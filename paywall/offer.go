package paywall

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/chain/svm/decode"
	"x402-wallet/facilitator"
	"x402-wallet/scheme/selling"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/remedy"
)

// Tool is the price of something: of an MCP tool by its name, of what else an MCP server has, or of what HTTP
// sells.
type Tool struct {
	Kind        string // "" is a tool, or what HTTP sells; else OfResource, OfPrompt or OfEntry
	Name        string
	Description string // for buyers
	MimeType    string // of what is bought; "" is application/json
	Resource    string // its URL; "" is mcp://<kind>/<name>, or of HTTP the URL that was asked for
	Accepts     []Option
	// Quote computes what one call costs, instead of Accepts. It is called again when the payment
	// comes, which has to match what it returns then: so it should return the same for the same
	// call, at least for a minute. It is called concurrently.
	Quote func(context.Context, Call) ([]Option, error)
	Free  bool // keeps the entry, asks for nothing
	// settle, then run: the buyer pays for the attempt (paymentFlow "upfront"). Not for tools that
	// ask for input: the answer is another call
	Upfront bool
	// a payment without a payment-identifier, by which its buyer can ask for a lost answer, is refused.
	// Only version 2 has it, and MPP does not
	RequireIdentifier bool
	// where upto is an option and the tool does not say itself what a call costs (see Charge): the price in
	// dollars of each begun kilobyte of its answer; "": it costs the ceiling
	PerKilobyte string
	// how long who bought a call can sign in and get it again without paying; 0: not at all. Needs
	// Options.Origin and version 2
	Access time.Duration
	// how long a payment is valid, and so how long the tool may run; 0 is five minutes
	MaxTimeout time.Duration
	// how it is called, for those who look for one (V2): it is declared in its challenges, by which
	// facilitators list it, and stands on the paywall's own list (Resources). nil: neither
	Discovery *Discovery
	// Extensions are declared beside the paywall's own (V2), each {"info":{…},"schema":{…}}
	Extensions map[string]json.RawMessage
}

// Option is one way to pay. Exactly one of Price and Amount is given.
type Option struct {
	Network string // CAIP-2, a name ("base-sepolia") or a chain id ("84532")
	PayTo   string
	Price   string // dollars: "0.01" or "$0.01"
	Amount  string // atomic units of Asset
	Asset   string // an address or symbol of the registry; "" is the network's default
	// "exact", which "" is; "upto": then the price is the most that a call can cost, and what it does cost is
	// known when it has run (see Charge); or "batch-settlement": paid by vouchers out of a deposit, which
	// KeepClaiming claims. Only version 2 and EVM networks have the last two
	Scheme string
	// paid by Permit2, whatever the token knows besides. Tokens without EIP-3009 always are, and so is
	// "upto". Only version 2 has it
	Permit2 bool
	// of batch-settlement: the least deposit in dollars, "" is ten prices; and how long a buyer's money stays
	// after they asked it back without us, 0 is a day
	MinDeposit    string
	WithdrawDelay time.Duration
}

// Call is what a price may depend on.
type Call struct {
	Tool      string
	Arguments json.RawMessage // HTTP: nil
	Header    map[string][]string
}

// tool is a Tool that was checked.
type tool struct {
	Tool
	options     []option
	perKilobyte money.Dollars
	declared    atomic.Pointer[json.RawMessage] // of Discovery; nil: it is not
}

// option is an Option that was checked.
type option struct {
	selling.Option
	// terms are those of version 2 where they are the same for every call; nil: they are made for each
	terms *x402.Requirement
}

func (w *Paywall) checkTool(t Tool) (*tool, error) {
	t.MaxTimeout = cmp.Or(t.MaxTimeout, defaultTimeout)
	made := &tool{Tool: t}
	fail := func(err error) error {
		return fmt.Errorf("the %s %q: %w", cmp.Or(t.Kind, kindTool), t.Name, err)
	}
	switch {
	case !slices.Contains([]string{"", OfResource, OfPrompt, OfEntry}, t.Kind):
		return nil, fail(errors.New("is of no kind that is sold"))
	case (strings.TrimSpace(t.Name) == "") != (t.Kind == OfEntry):
		return nil, fmt.Errorf("a %s without a name", cmp.Or(t.Kind, kindTool))
	case t.Kind == OfResource && len(t.Name) > maxURI:
		return nil, fail(fmt.Errorf("a URI has at most %d bytes", maxURI))
	case t.Kind != "" && t.Discovery != nil:
		return nil, fail(errors.New("only a tool is declared for discovery"))
	case t.MaxTimeout < minTimeout || t.MaxTimeout > maxTimeout:
		return nil, fail(fmt.Errorf("a payment is good for %s to %s, not for %s", minTimeout, maxTimeout,
			t.MaxTimeout))
	case t.Quote != nil && len(t.Accepts) > 0:
		return nil, fail(errors.New("either Accepts or Quote says what it costs"))
	case t.Quote == nil && len(t.Accepts) == 0 && !t.Free:
		return nil, fail(errors.New("at least one way to pay is needed"))
	case len(t.Accepts) > x402.MaxAccepts:
		return nil, fail(fmt.Errorf("buyers read at most %d ways to pay", x402.MaxAccepts))
	}
	var err error
	made.options, err = w.checkOptions(t, t.Accepts)
	if err != nil {
		return nil, fail(err)
	}
	if err = errors.Join(w.checkExtras(t), made.checkMetering(made.options),
		w.checkDiscovery(made)); err != nil {
		return nil, fail(err)
	}
	for i, o := range made.options {
		if !o.isSettledByOne() { // there they name who settles, who may be another one later
			r, err := w.requirement(context.Background(), made, o, "", 2)
			if err != nil {
				return nil, fail(err)
			}
			made.options[i].terms = &r
		}
	}
	return made, nil
}

// checkExtras says what of version 2's extensions a tool cannot have here.
func (w *Paywall) checkExtras(t Tool) error {
	switch {
	case t.Access != 0 && (w.options.Origin == "" || w.options.Version == 1):
		return errors.New("to sign in for what was bought takes an origin, and version 2")
	case t.Access < 0 || t.Access > maxAccess:
		return fmt.Errorf("what was bought is given again for %s at most", maxAccess)
	case t.RequireIdentifier && w.options.Version == 1:
		return errors.New("version 1 has no payment-identifier to require")
	}
	return nil
}

// checkMetering reads the price of a kilobyte, and refuses what cannot be metered.
func (t *tool) checkMetering(options []option) (err error) {
	isMetered := slices.ContainsFunc(options, func(o option) bool { return o.Way.Traits().IsMetered })
	if t.PerKilobyte != "" {
		t.perKilobyte, err = money.ParseDollars(strings.TrimPrefix(t.PerKilobyte, "$"))
	}
	switch {
	case err != nil || (t.PerKilobyte != "" && t.perKilobyte <= 0):
		return fmt.Errorf("%q is no price of a kilobyte", t.PerKilobyte)
	case t.PerKilobyte != "" && !isMetered && t.Quote == nil:
		return errors.New("a price of a kilobyte is for the scheme upto")
	}
	return nil
}

func (w *Paywall) checkOptions(t Tool, list []Option) (all []option, err error) {
	var faults []error
	for i, o := range list {
		made, err := w.checkOption(t, o)
		if err != nil {
			faults = append(faults, fmt.Errorf("option %d: %w", i+1, err))
		} else if slices.ContainsFunc(all, func(other option) bool { return other == made }) {
			faults = append(faults, fmt.Errorf("option %d is another one again", i+1))
		}
		all = append(all, made)
	}
	return all, errors.Join(faults...)
}

func (w *Paywall) checkOption(t Tool, o Option) (made option, err error) {
	made.Network, err = network(o.Network)
	if err != nil {
		return made, err
	}
	if _, named := x402.V1Name(made.Network); w.options.Version == 1 && !named {
		return made, fmt.Errorf("%s has no name in version 1", made.Network)
	}
	made.Asset, err = w.asset(made.Network, o.Asset)
	if err != nil {
		return made, err
	}
	said := selling.Said{Scheme: o.Scheme, ByPermit2: o.Permit2 || made.Asset.Permit2Only,
		MinDeposit: o.MinDeposit, WithdrawDelay: o.WithdrawDelay, IsUpfront: t.Upfront,
		MaxTimeout: t.MaxTimeout}
	made.Way, err = w.way(said, made.Asset)
	if err != nil {
		return made, err
	}
	made.PayTo, err = payee(made.Network, o.PayTo, made.Asset)
	if err != nil {
		return made, err
	}
	made.Amount, made.Price, err = amount(o, made.Asset)
	if err != nil {
		return made, err
	}
	return made, made.Way.Complete(&made.Option, said, w.shop())
}

func network(name string) (string, error) {
	if name != "" && strings.Trim(name, "0123456789") == "" {
		name = "eip155:" + name
	}
	id, ok := x402.Network(name)
	if !ok {
		return "", fmt.Errorf("%q is no network: a CAIP-2 name, a name like base-sepolia, or a chain id",
			name)
	}
	return id, nil
}

func (w *Paywall) asset(network, name string) (x402.AssetInfo, error) {
	a, ok := w.options.Assets.Named(network, name)
	switch {
	case !ok && name == "":
		return a, fmt.Errorf("%s has no asset that is known here", network)
	case !ok:
		return a, fmt.Errorf("%q is no asset of %s that is known here: by its symbol or address, or added "+
			"as an asset", name, network)
	}
	return a, nil
}

// payee is an address that can be paid in this asset, spelt as buyers expect it.
func payee(network, address string, asset x402.AssetInfo) (string, error) {
	if x402.IsSolana(network) {
		if _, err := decode.AssociatedAccount(address, asset.Address, asset.Token2022); err != nil {
			return "", fmt.Errorf("pay_to %q is no Solana address", address)
		}
		if address == asset.Address || strings.Trim(address, "1") == "" { // the system program's
			return "", fmt.Errorf("pay_to %q could never spend what it is paid", address)
		}
		return address, nil
	}
	spelt, err := evm.Address(address)
	if err != nil {
		return "", fmt.Errorf("pay_to %q: %w", address, err)
	}
	if strings.EqualFold(spelt, asset.Address) || strings.Trim(spelt[2:], "0") == "" {
		return "", fmt.Errorf("pay_to %q could never spend what it is paid", address)
	}
	return spelt, nil
}

func amount(o Option, asset x402.AssetInfo) (a money.Amount, price money.Dollars, err error) {
	switch {
	case !asset.Rated():
		return a, 0, fmt.Errorf("%s is no dollar; its rate is missing in config.toml:\n%s", asset.Symbol,
			remedy.RateLines(asset))
	case (o.Price == "") == (o.Amount == ""):
		return a, 0, errors.New(`either a price in dollars or an amount in atomic units`)
	case o.Amount != "":
		if a, err = money.ParseAmount(o.Amount); err != nil {
			return a, 0, err
		}
		price = asset.Dollars(a)
	default:
		if price, err = money.ParseDollars(strings.TrimPrefix(o.Price, "$")); err != nil {
			return a, 0, err
		}
		a = asset.Units(price)
		if asset.Dollars(a) != price {
			return a, 0, fmt.Errorf("%s is no whole number of atomic units of %s", price.Price(),
				asset.Symbol)
		}
	}
	_, fits := a.Uint64()
	if a.IsZero() || (x402.IsSolana(asset.Network) && !fits) {
		return a, 0, errors.New("the amount is 0, or more than a token account can hold")
	}
	return a, price, nil
}

// price is that of the cheapest option, for people.
func (t *tool) price() string {
	if len(t.options) == 0 {
		return ""
	}
	cheapest := slices.MinFunc(t.options, func(a, b option) int { return cmp.Compare(a.Price, b.Price) })
	return cheapest.Price.Price()
}

// offer is an option as it is asked for: the requirement in each version that the request needs (by its
// number), to write and to compare with. It has none in version 1 where the network has no name there.
type offer struct {
	option
	terms [3]x402.Requirement
}

// offers returns what a call costs now, in the versions that the challenge and the shown payment, if any, are
// in. An option whose fee payer is not known is left out; without any left, ErrPrice.
func (w *Paywall) offers(ctx context.Context, t *tool, call Call, resource string, shown *payment) (
	list []offer, err error) {
	versions := []int{w.options.Version}
	if shown != nil && shown.Version != w.options.Version {
		versions = append(versions, shown.Version)
	} else if w.options.MPP && w.options.Version != 2 {
		versions = append(versions, 2)
	}
	options := t.options
	if t.Quote != nil {
		if options, err = w.quote(ctx, t, call); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPrice, err)
		}
	}
	var missing error
	for _, o := range options {
		made, err := w.offer(ctx, t, o, resource, versions)
		if err != nil {
			missing = err
			continue
		}
		list = append(list, made)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrPrice, missing)
	}
	return list, nil
}

func (w *Paywall) quote(ctx context.Context, t *tool, call Call) (options []option, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	list, err := t.Quote(ctx, call)
	if err == nil && (len(list) == 0 || len(list) > x402.MaxAccepts) {
		err = fmt.Errorf("%d ways to pay", len(list))
	}
	if err != nil {
		return nil, err
	}
	return w.checkOptions(t.Tool, list)
}

func (w *Paywall) offer(ctx context.Context, t *tool, o option, resource string, versions []int) (
	made offer, err error) {
	made.option = o
	for _, version := range versions {
		if version == 2 && o.terms != nil {
			made.terms[version] = *o.terms
			continue
		}
		r, err := w.requirement(ctx, t, o, resource, version)
		if err != nil && version == w.options.Version {
			return made, err
		}
		if err == nil {
			made.terms[version] = r
		}
	}
	return made, nil
}

// requirement is an entry of accepts. Its extra is what a buyer needs besides: the token's signing
// domain, from the registry; the fee payer and whatever else the facilitator says of this kind of
// payment.
func (w *Paywall) requirement(ctx context.Context, t *tool, o option, resource string,
	version int) (r x402.Requirement, err error) {
	extra := map[string]json.RawMessage{}
	entry := map[string]any{
		"scheme": o.scheme(), "network": o.Network, "asset": o.Asset.Address, "payTo": o.PayTo,
		"extra":             extra,
		"maxTimeoutSeconds": int64(t.MaxTimeout / time.Second),
	}
	if version == 1 {
		name, named := x402.V1Name(o.Network)
		if is := o.Way.Traits(); !named || is.IsNewer {
			return r, fmt.Errorf("%s cannot be paid by %s in version 1", o.Network, is.Name)
		}
		entry["network"], entry["maxAmountRequired"], entry["resource"] = name, o.Amount, resource
		entry["description"], entry["mimeType"] = t.Description, t.mimeType()
	} else {
		entry["amount"] = o.Amount
	}
	var kind facilitator.Kind
	if o.isSettledByOne() {
		kind, err = w.settlerKind(ctx, o, version)
		if err != nil {
			return r, err
		}
		maps.Copy(extra, kind.Extra)
	}
	if err := o.Way.Extra(o.Option, kind, extra); err != nil {
		return r, err
	}
	if t.Upfront {
		extra["paymentFlow"] = jsonOf("upfront")
	}
	return x402.DecodeRequirement(jsonOf(entry), version)
}

func (t *tool) mimeType() string { return cmp.Or(t.MimeType, "application/json") }
