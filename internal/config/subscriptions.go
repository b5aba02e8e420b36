package config

import (
	"maps"
	"net/http"
	"reflect"
	"time"
	"unicode/utf8"

	"x402-wallet/budget/schedule"
	"x402-wallet/x402/money"
)

// Subscription is a standing order of the owner's, [subscriptions.NAME]: one request, bought once in each
// slot of its time. It is a rule like all others, so that the seal over config.toml covers all of
// it, and no row of the ledger can order anything.
type Subscription struct {
	URL     string            `toml:"url"`
	Method  string            `toml:"method"` // "": GET
	Headers map[string]string `toml:"headers"`
	Body    string            `toml:"body"`
	Network string            `toml:"network"` // pay only there; "": anywhere
	Asset   string            `toml:"asset"`   // likewise
	Agent   string            `toml:"agent"`   // whose it is; "": of callers without a name
	PayTo   []string          `toml:"pay_to"`  // who is paid without asking from the first payment on
	Since   time.Time         `toml:"-"`
	Every   time.Duration     `toml:"-"`
	Until   time.Time         `toml:"-"`
	Max     money.Dollars     `toml:"-"` // for one slot, without asking
	Total   money.Dollars     `toml:"-"` // for all of them
	Paused  bool              `toml:"paused"`
}

type fileSubscription struct {
	Subscription
	Since string  `toml:"since"`
	Every string  `toml:"every"`
	Until string  `toml:"until"`
	Max   *string `toml:"max"`
	Total *string `toml:"total"`
}

// Bounds of subscriptions: more of them nobody overlooks, and the file has to stay one that is read.
const (
	maxSubscriptions    = 100
	maxSubscriptionBody = 16 << 10
	maxSubscriptionText = 2048
	MaxPayees           = 20
)

func (c *Checker) subscriptions(written map[string]fileSubscription, agents map[string]Agent,
	teams map[string]Team) map[string]Subscription {
	list := map[string]Subscription{}
	c.Refuse(len(written) > maxSubscriptions, "subscriptions", "are %d; at most %d are kept", len(written),
		maxSubscriptions)
	for _, name := range sorted(written) {
		key, f := Dotted("subscriptions", name), written[name]
		c.Refuse(!IsName(name), key,
			"a subscription's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
		if f.Agent != "" && len(agents) > 0 {
			_, known := agents[f.Agent]
			c.Refuse(!known && !teams[f.Agent].Account, key+".agent", "is no agent under [agents]: %q",
				f.Agent)
		}
		list[name] = c.subscription(key, f)
	}
	return list
}

func (c *Checker) subscription(key string, f fileSubscription) Subscription {
	s := f.Subscription
	s.Headers = nil
	c.OwnerURL(key+".url", f.URL, "https://api.example.com/news")
	for part, text := range map[string]string{"url": f.URL, "method": f.Method, "network": f.Network,
		"asset": f.Asset, "agent": f.Agent} {
		c.plainText(key+"."+part, text, maxSubscriptionText)
	}
	c.Refuse(len(f.PayTo) > MaxPayees, key+".pay_to", "are %d; at most %d are kept", len(f.PayTo), MaxPayees)
	for _, address := range f.PayTo {
		c.Refuse(address == "", key+".pay_to", "has an empty address")
		c.plainText(key+".pay_to", address, maxSubscriptionText)
	}
	c.Refuse(len(f.Body) > maxSubscriptionBody || !utf8.ValidString(f.Body), key+".body",
		"must be text of at most %d bytes", maxSubscriptionBody)
	if len(f.Headers) > 0 {
		s.Headers = map[string]string{}
	}
	for name, value := range f.Headers {
		c.plainText(key+".headers", name, maxSubscriptionText)
		c.plainText(key+".headers", value, maxSubscriptionText)
		s.Headers[http.CanonicalHeaderKey(name)] = value
	}
	c.Refuse(len(s.Headers) != len(f.Headers), key+".headers", "has the same header twice")
	var err error
	s.Every, err = schedule.ParseEvery(f.Every)
	c.Refuse(err != nil, key+".every", "%v", err)
	s.Since = c.moment(key+".since", f.Since)
	s.Until = c.moment(key+".until", f.Until)
	c.Refuse(!s.Until.IsZero() && !s.Until.After(s.Since), key+".until", "is not after since")
	for part, of := range map[string]struct {
		written *string
		into    *money.Dollars
	}{"max": {f.Max, &s.Max}, "total": {f.Total, &s.Total}} {
		if of.written == nil {
			c.Fail(key+"."+part, "is missing: dollars like \"0.05\"")
			continue
		}
		*of.into = c.dollars(key+"."+part, of.written, "")
		c.Refuse(*of.into == 0, key+"."+part, "is nothing; it must be more than that")
	}
	return s
}

// moment is a date, whose beginning in UTC is meant, or a time.
func (c *Checker) moment(key, written string) time.Time {
	at, err := schedule.ParseMoment(written)
	c.Refuse(err != nil, key, "%v", err)
	return at
}

// isWithin reports whether a subscription asks for the same as before in the same slots, for no longer and
// for no more, and pays nobody else without asking.
func (s Subscription) isWithin(was Subscription) bool {
	if s.Until.After(was.Until) || s.Max > was.Max || s.Total > was.Total || (was.Paused && !s.Paused) ||
		!within(was.PayTo, s.PayTo) {
		return false
	}
	s.Until, s.Max, s.Total, s.Paused, s.PayTo = was.Until, was.Max, was.Total, was.Paused, was.PayTo
	return maps.Equal(s.Headers, was.Headers) && reflect.DeepEqual(s, was)
}
