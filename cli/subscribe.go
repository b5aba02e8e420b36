package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/budget"
	"x402-wallet/budget/schedule"
	"x402-wallet/history"
	"x402-wallet/history/subscriptions"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Making a subscription: a standing order is a rule, [subscriptions.NAME] of config.toml, sealed with all
// others.

type ordering struct {
	name, every, max, until, start, total, network, asset, agent string
	request                                                      requestFlags
}

func (o *ordering) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "name", "", "its `NAME`; without it one is made of the URL")
	cmd.Flags().StringVar(&o.total, "total", "", "never pay more than this `AMOUNT` in dollars for all of it")
	cmd.Flags().StringVar(&o.start, "start", "", "the `TIME` of its first run, a date or like "+
		"2027-01-01T08:00:00Z; without it now")
	cmd.Flags().StringVar(&o.network, "network", "", "pay only on this `NETWORK`, like base or eip155:8453")
	cmd.Flags().StringVar(&o.asset, "asset", "", "pay only with this `ASSET`, a symbol or an address")
}

func (p *Program) subscribeCommand(ui *ui) *cobra.Command {
	var o ordering
	cmd := ui.loosens(&cobra.Command{
		Use: "subscribe URL", Short: "Buy a URL again and again, within bounds (asks for the passphrase)",
		Args: wants("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := webURL(args[0]); err != nil {
				return err
			}
			for _, needed := range []string{"every", "max", "until", "total"} {
				if !cmd.Flags().Changed(needed) {
					return usagef("--%s is missing: a subscription has bounds", needed)
				}
			}
			in, err := o.request.read(cmd)
			if err != nil {
				return err
			}
			s, err := o.subscription(args[0], time.Now())
			if err != nil {
				return err
			}
			s.Method, s.Headers, s.Body = strings.ToUpper(in.Method), in.Headers, in.Body
			return p.subscribe(cmd.Context(), ui, o.name, s, nil)
		},
	})
	o.request.add(cmd)
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.every, "every", "", "how often: a `TIME` like 30m, 12h, 1d or 2w")
	cmd.Flags().StringVar(&o.max, "max", "", "pay at most this `AMOUNT` in dollars each time, without asking")
	cmd.Flags().StringVar(&o.until, "until", "",
		"not from this `TIME` on, a date or like 2027-01-01T08:00:00Z")
	cmd.Flags().StringVar(&o.agent, "agent", "", "for this agent, by its `NAME`, and within its limits")
	cmd.Flags().StringVar(&o.agent, "account", "", "from this account, by its `NAME`, and within its limits")
	cmd.MarkFlagsMutuallyExclusive("agent", "account")
	return cmd
}

// subscription is what the flags say, but for the request's method, headers and body.
func (o *ordering) subscription(target string, now time.Time) (s config.Subscription, err error) {
	s = config.Subscription{URL: target, Network: o.network, Asset: o.asset, Agent: o.agent,
		Since: now.UTC().Truncate(time.Second)}
	s.Every, err = schedule.ParseEvery(o.every)
	if err != nil {
		return s, usagef("--every %v", err)
	}
	s.Until, err = schedule.ParseMoment(o.until)
	if err != nil {
		return s, usagef("--until %v", err)
	}
	if o.start != "" {
		s.Since, err = schedule.ParseMoment(o.start)
		if err != nil {
			return s, usagef("--start %v", err)
		}
	}
	s.Max, err = dollarFlag("max", o.max)
	if err == nil {
		s.Total, err = dollarFlag("total", o.total)
	}
	switch {
	case err != nil:
		return s, err
	case !s.Until.After(s.Since) || !s.Until.After(now):
		return s, usagef("--until %s is over before it begins", o.until)
	case s.Total < s.Max:
		return s, usagef("--total %s is less than --max %s: nothing could be bought at that", s.Total, s.Max)
	}
	return s, nil
}

func dollarFlag(name, text string) (money.Dollars, error) {
	d, err := money.ParseDollars(strings.TrimPrefix(text, "$"))
	if err != nil || d == 0 {
		return 0, usageError{text: fmt.Sprintf("--%s %s is not dollars like 0.05", name, text)}
	}
	return d, nil
}

// subscribe writes a subscription into the rules and seals them. name "" makes one of the URL; then is done
// after that, if it is not nil.
func (p *Program) subscribe(ctx context.Context, ui *ui, name string, s config.Subscription,
	then func() error) error {
	var payees []budget.Payee
	edit := func(text []byte, rules *config.Config) ([]byte, error) {
		if name == "" {
			name = freeName(s.URL, rules.Subscriptions)
		}
		if _, taken := rules.Subscriptions[name]; taken {
			return nil, x402.Errorf(x402.InvalidArgument, "there is a subscription %s already", name).
				WithHint("give another --name, or first: x402-wallet subscriptions cancel %s", name)
		}
		if s.Agent != "" && len(rules.Agents) > 0 {
			if err := knownAgent(rules, s.Agent); err != nil {
				return nil, err
			}
		}
		if s.Max > rules.Budget.PerCall {
			ui.note("%s your limit for one call is %s, and holds for each run, too",
				paint(ui.colorErr, yellow, "warning:"), rules.Budget.PerCall.Price())
		}
		payees = p.payees(ctx, ui, s)
		for _, payee := range payees {
			if !slices.Contains(s.PayTo, payee.PayTo) { // it may be paid on several networks
				s.PayTo = append(s.PayTo, payee.PayTo)
			}
		}
		return writeSubscription(text, name, s)
	}
	return p.changeRulesThen(ctx, ui, edit, func(guardedRules, string) error {
		if then != nil {
			if err := then(); err != nil {
				return err
			}
		}
		first := s.Since.Format(time.RFC3339)
		return ui.answer(ordered{name, first, s.PayTo}, func() {
			ui.say("%s: %s every %s until %s, %s each time and %s in all", name, safe(s.URL),
				schedule.EveryText(s.Every), s.Until.Format(time.DateOnly), s.Max.Price(), s.Total.Price())
			for _, payee := range payees {
				ui.say("pays %s on %s", safe(payee.PayTo), x402.NetworkName(payee.Network))
			}
			ui.note("first at %s UTC, by x402-wallet run, by the service, or by x402-wallet subscriptions "+
				"due from a timer", moment(first))
		})
	})
}

// ordered is what subscribe says as JSON.
type ordered struct {
	Subscription string   `json:"subscription"`
	First        string   `json:"first"`
	PayTo        []string `json:"payTo,omitempty"`
}

// payees asks the seller of a subscription once whom it wants to be paid, and pays nothing. Where it does not
// say, the person is told.
func (p *Program) payees(ctx context.Context, ui *ui, s config.Subscription) (list []budget.Payee) {
	price, err := waitFor(ui, "waiting for the seller and the nodes", func() (pay.Estimate, error) {
		ctx := pay.WithAgent(ctx, s.Agent)
		w, err := p.OpenWallet(ctx, nil, nil)
		if err != nil {
			return pay.Estimate{}, err
		}
		defer func() { _ = w.Close() }()
		return w.Estimate(ctx, tools.PayIn{URL: s.URL, Method: s.Method, Headers: s.Headers, Body: s.Body,
			Network: s.Network, Asset: s.Asset})
	})
	for _, payee := range price.Payees {
		if !slices.Contains(list, payee) && len(list) < config.MaxPayees {
			list = append(list, payee)
		}
	}
	if len(list) == 0 {
		why := "it asks for no payment that the wallet can make"
		if err != nil {
			why = x402.AsError(err).Message
		}
		ui.note("the seller did not say whom to pay (%s): the first payment asks you", safe(why))
	}
	return list
}

func writeSubscription(text []byte, name string, s config.Subscription) ([]byte, error) {
	table := tomlTable{{"url", edit.Quote(s.URL)}}
	table.add("method", s.Method)
	table.add("body", s.Body)
	table.add("network", s.Network)
	table.add("asset", s.Asset)
	table.add("agent", s.Agent)
	table.addList("pay_to", s.PayTo)
	if len(s.Headers) > 0 {
		var list []string
		for _, header := range slices.Sorted(maps.Keys(s.Headers)) {
			list = append(list, edit.Quote(header)+" = "+edit.Quote(s.Headers[header]))
		}
		table = append(table, tomlKey{"headers", "{ " + strings.Join(list, ", ") + " }"})
	}
	table.add("since", s.Since.Format(time.RFC3339))
	table.add("every", schedule.EveryText(s.Every))
	table.add("until", s.Until.Format(time.RFC3339))
	table.add("max", s.Max.String())
	table.add("total", s.Total.String())
	return table.write(text, "subscriptions", name)
}

// freeName makes a name of a URL's host and the end of its path that no subscription has.
func freeName(target string, taken map[string]config.Subscription) string {
	const longest, room = 40, 3
	words := target
	if u, err := url.Parse(target); err == nil {
		parts := strings.Split(strings.Trim(u.Path, "/"), "/")
		words = u.Hostname() + "-" + parts[len(parts)-1]
	}
	isOther := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	base := strings.Join(strings.FieldsFunc(strings.ToLower(words), isOther), "-")
	if base == "" || base[0] < 'a' {
		base = "at-" + base
	}
	base = strings.Trim(base[:min(len(base), longest-room)], "-")
	name := base
	for n := 2; ; n++ {
		if _, is := taken[name]; !is {
			return name
		}
		name = fmt.Sprintf("%s-%d", base, n)
	}
}

// acceptCommand makes a subscription of what an agent proposed: it is the owner's from then on.
func (p *Program) acceptCommand(ui *ui) *cobra.Command {
	var o ordering
	cmd := ui.loosens(&cobra.Command{
		Use: "accept ID", Short: "Make the subscription that an agent proposed (asks for the passphrase)",
		Args: wants("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			proposal, err := p.proposal(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.agent, o.every = proposal.Agent, proposal.Every
			if o.max == "" {
				o.max = proposal.Max.String()
			}
			if o.until == "" {
				o.until = proposal.Until.Format(time.RFC3339)
			}
			if o.total == "" {
				o.total = mostOf(proposal, time.Now()).String()
			}
			s, err := o.subscription(proposal.URL, time.Now())
			if err != nil {
				return err
			}
			ui.proposal(proposal)
			return p.subscribe(cmd.Context(), ui, o.name, s, func() error {
				return p.endProposal(cmd.Context(), proposal.ID)
			})
		},
	})
	o.addFlags(cmd)
	cmd.Flags().Lookup("total").Usage = "never pay more than this `AMOUNT` in dollars for all of it; " +
		"without it as much as all its runs may cost"
	cmd.Flags().StringVar(&o.max, "max", "",
		"pay at most this `AMOUNT` in dollars each time, instead of what "+
			"the agent proposed")
	cmd.Flags().StringVar(&o.until, "until", "",
		"not from this `TIME` on, instead of what the agent proposed")
	return cmd
}

// mostOf is what all runs of a proposal cost at its price.
func mostOf(proposal subscriptions.Proposal, now time.Time) money.Dollars {
	every, err := schedule.ParseEvery(proposal.Every)
	if err != nil {
		return proposal.Max
	}
	var sum money.Dollars
	for range int64(proposal.Until.Sub(now)/every) + 1 { // a few million at most, of a slot of a minute
		sum = sum.Add(proposal.Max)
	}
	return sum
}

func (p *Program) proposal(ctx context.Context, id string) (found subscriptions.Proposal, err error) {
	store, err := p.OpenLedger(ctx)
	if err != nil {
		return found, errors.Join(p.haveWallet(), err)
	}
	defer store.Close()
	list, err := subscriptions.Proposals(ctx, store)
	if err != nil {
		return found, err
	}
	i := slices.IndexFunc(list, func(p subscriptions.Proposal) bool { return p.ID == id })
	if i < 0 {
		return found, noProposal(id)
	}
	return list[i], nil
}

func (p *Program) endProposal(ctx context.Context, id string) error {
	store, err := p.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := subscriptions.EndProposal(ctx, store, id); !errors.Is(err, history.ErrNotFound) {
		return err
	}
	return nil // another process ended it
}

func noProposal(id string) error {
	return x402.Errorf(x402.InvalidArgument, "there is no proposal %s", x402.Quote(id)).
		WithHint("x402-wallet subscriptions lists those that wait")
}
