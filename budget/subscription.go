package budget

import (
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Subscription is a standing order of the owner's: one request, bought once in each of its slots. Its rule is
// sealed with all others, so whoever holds the key knows it without believing the ledger.
//
// The owner's yes to it stands in for one rule alone, approve_above, and only up to Max. Every other rule
// holds as for any payment.
type Subscription struct {
	Name   string
	Agent  string        // whose it is; "": of callers without a name
	Since  time.Time     // when its first slot begins: with the name it tells it from earlier ones
	Every  time.Duration // the length of a slot
	Until  time.Time     // no slot begins then or later, and nothing is paid
	Max    money.Dollars // for one slot; above it a person is asked
	Total  money.Dollars // for all slots together: never passed, whoever approves
	Paused bool
	// Request is the fingerprint of what is asked for: a payment for anything else is none of it. Anybody
	// who writes a row can copy it, so Host and Resource are compared with the row's own.
	Request  [sha256.Size]byte
	Host     string
	Resource string   // in the form of Payee.Resource
	PayTo    []string // who is paid without asking from the first payment on
}

// ID names a subscription for ever: another one of the same name begins at another time.
func (s Subscription) ID() string { return s.Name + ":" + keyTime(s.Since) }

// Slot is the slot that a time lies in, by its beginning; false where there is none, before the first and
// from Until on. Slots are of equal length in UTC, so no change of summer time makes one twice or leaves
// one out.
func (s Subscription) Slot(now time.Time) (begins time.Time, ok bool) {
	since := now.Sub(s.Since)
	if since < 0 || !now.Before(s.Until) || s.Every <= 0 {
		return time.Time{}, false
	}
	return s.Since.Add(since - since%s.Every), true
}

// Key is the idempotency key of a slot: it makes a slot one purchase.
func (s Subscription) Key(slot time.Time) string {
	return subscriptionPrefix + s.ID() + ":" + keyTime(slot)
}

// SubscriptionKeys are the bounds of the keys of all slots of a subscription, by its ID: from is the first of
// them or less, and no other key lies before to.
func SubscriptionKeys(id string) (from, to string) {
	return subscriptionPrefix + id + ":", subscriptionPrefix + id + ";" // the character behind the colon
}

const (
	subscriptionPrefix = "x402-subscription:"
	keyTimeForm        = "20060102T150405Z"
)

func keyTime(t time.Time) string { return t.UTC().Format(keyTimeForm) }

// IsSubscriptionKey reports whether an idempotency key is one that callers may not choose: those of
// subscriptions begin so.
func IsSubscriptionKey(key string) bool { return strings.HasPrefix(key, subscriptionPrefix) }

// SubscriptionOf is the ID of the subscription that a key is of, and the slot; false: it is of none.
func SubscriptionOf(key string) (id string, slot time.Time, ok bool) {
	rest, is := strings.CutPrefix(key, subscriptionPrefix)
	parts := strings.Split(rest, ":")
	if !is || len(parts) != 3 || parts[0] == "" {
		return "", time.Time{}, false
	}
	since, err := time.Parse(keyTimeForm, parts[1])
	if err == nil {
		slot, err = time.Parse(keyTimeForm, parts[2])
	}
	id = parts[0] + ":" + parts[1]
	// one spelling only: time.Parse is lenient in places
	return id, slot, err == nil && rest == parts[0]+":"+keyTime(since)+":"+keyTime(slot)
}

// SubscriptionUse is what a subscription's payments took, and who was paid how much last.
type SubscriptionUse struct {
	Use
	LastPrice *money.Dollars // nil: none was signed yet
	LastPayTo string         // in its network's one spelling
}

// isSubscription reports whether a payment is one of a subscription's, or claims to be.
func (a Ask) isSubscription() bool { return IsSubscriptionKey(a.Key) }

// checkSubscription refuses a payment under a subscription's key that is not a payment of that one's slot as
// the owner ordered it, and says why a person has to be asked:
//
//	the price is above the one that was paid last
//	the price is above the subscription's max
//	it pays nobody of PayTo, and somebody else than last time, or for the first time
func (r Rules) checkSubscription(a Ask, facts Facts) (reasons []reason, err error) {
	if !a.isSubscription() || a.SignIn {
		return nil, nil
	}
	s, slot, err := r.subscriptionFor(a)
	if err != nil {
		return nil, err
	}
	if current, in := s.Slot(facts.Now); !in || !current.Equal(slot) {
		return nil, notOrdered(s, "its slot of "+x402.Stamp(slot)+" is not the one of "+x402.Stamp(facts.Now))
	}
	used := facts.Subscription
	if !a.Prepaid && used.Total().Add(a.Price) > s.Total {
		left := s.Total.SubFloor(used.Total())
		return nil, x402.Errorf(x402.BudgetExceeded,
			"the price %s is above what is left of the subscription "+
				"%s: %s of %s", a.Price.Price(), s.Name, left.Price(), s.Total.Price()).
			WithHint("nothing more is bought by it; the owner makes a new one").
			WithDetail("layer", "subscription").WithDetail("subscription", s.Name).
			WithDetail("limit", s.Total).WithDetail("spent", used.Spent).WithDetail("held", used.Held).
			WithDetail("requested", a.Price).
			WithCommand(x402.Command("subscriptions", "show", s.Name), "The total of the subscription "+
				s.Name+", "+s.Total.Price()+", has "+left.Price()+" left: please make a new one if you want "+
				"it to go on.")
	}
	add := func(unusual bool, text string) {
		if unusual {
			reasons = append(reasons, reason{Rule: "subscription", Text: text})
		}
	}
	add(a.Price > s.Max, "the price "+a.Price.Price()+" is above the "+s.Max.Price()+
		" that the subscription "+s.Name+" pays without asking")
	if last := used.LastPrice; last != nil {
		add(a.Price > *last, "the price "+a.Price.Price()+" is above the last one of the subscription "+
			s.Name+", "+last.Price())
	}
	text := s.unknownPayee(used, a.Payee.PayTo)
	add(text != "", text)
	return reasons, nil
}

// unknownPayee says why a person is asked about a payee; "": nobody is asked.
func (s Subscription) unknownPayee(used SubscriptionUse, payTo string) string {
	isNow := func(known string) bool { return samePayee(known, payTo) }
	isFirst := used.LastPrice == nil
	switch {
	case slices.ContainsFunc(s.PayTo, isNow), !isFirst && isNow(used.LastPayTo):
		return ""
	case isFirst:
		return "the subscription " + s.Name + " pays " + x402.Brief(payTo) + " for the first time"
	}
	return "the subscription " + s.Name + " paid " + x402.Brief(used.LastPayTo) + " last time, and now " +
		x402.Brief(payTo) + " wants to be paid"
}

// samePayee compares addresses: those of EVM chains in any case, others to the letter.
func samePayee(last, now string) bool {
	isHex := strings.HasPrefix(strings.ToLower(now), "0x")
	return last == now || (isHex && strings.EqualFold(last, now))
}

// subscriptionFor is the subscription that a payment is of, if it may be one of its payments.
func (r Rules) subscriptionFor(a Ask) (s Subscription, slot time.Time, err error) {
	id, slot, ok := SubscriptionOf(a.Key)
	name, _, _ := strings.Cut(id, ":")
	s = r.Subscriptions[name]
	switch {
	case !ok || s.Name == "" || s.ID() != id:
		return s, slot, x402.Errorf(x402.PolicyDenied, "the owner's rules do not have the subscription that "+
			"this payment is for").
			WithHint("it was cancelled; x402-wallet subscriptions lists those there are")
	case s.Paused:
		return s, slot, notOrdered(s, "the owner paused it")
	case a.Agent != s.Agent:
		return s, slot, notOrdered(s, "it is another agent's")
	case a.Request != s.Request:
		return s, slot, notOrdered(s, "it is for another request")
	case a.Host != s.Host:
		return s, slot, notOrdered(s, "it is for another host")
	case a.Payee.Resource != s.Resource:
		return s, slot, notOrdered(s, "it is for another resource")
	}
	return s, slot, nil
}

func notOrdered(s Subscription, why string) error {
	return x402.Errorf(x402.PolicyDenied, "the subscription %s does not pay this: %s", s.Name, why).
		WithHint("x402-wallet subscriptions show %s says how it stands", s.Name).
		WithDetail("subscription", s.Name)
}
