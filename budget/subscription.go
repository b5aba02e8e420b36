package budget

import (
	"crypto/sha256"
	"fmt"
	"strconv"
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
	// Request is the fingerprint of what is asked for: a payment for anything else is none of it.
	Request [sha256.Size]byte
}

// MinEvery and MaxEvery bound the length of a slot: a slot has to have room for a call and its second try.
const (
	MinEvery = time.Minute
	MaxEvery = 366 * 24 * time.Hour
)

// everyUnits are those that the length of a slot is written in: a day is 24 hours, whatever a clock on the
// wall shows.
var everyUnits = []struct {
	name string
	is   time.Duration
}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}}

// ParseEvery reads the length of a slot: 30m, 12h, 1d, 2w.
func ParseEvery(text string) (time.Duration, error) {
	for _, unit := range everyUnits {
		digits, has := strings.CutSuffix(text, unit.name)
		n, err := strconv.ParseUint(digits, 10, 20)
		if !has || err != nil || digits[0] == '0' {
			continue
		}
		every := time.Duration(n) * unit.is
		if every >= MinEvery && every <= MaxEvery {
			return every, nil
		}
	}
	return 0, fmt.Errorf("%s is not from 1m to 366d, written like 30m, 12h, 1d or 2w", x402.Quote(text))
}

// EveryText writes the length of a slot as ParseEvery reads it.
func EveryText(every time.Duration) string {
	for _, unit := range everyUnits {
		if every%unit.is == 0 {
			return strconv.FormatInt(int64(every/unit.is), 10) + unit.name
		}
	}
	return every.String()
}

// ParseMoment reads a date, whose beginning in UTC is meant, or a time, in whole seconds.
func ParseMoment(text string) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	at = at.UTC()
	if err != nil || at.Nanosecond() != 0 || at.Year() < 2000 || at.Year() > 9999 {
		return time.Time{}, fmt.Errorf("%s is no date like 2027-01-01 nor a time like 2027-01-01T12:00:00Z",
			x402.Quote(text))
	}
	return at, nil
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

// Next is the slot that begins after a time; false where there is none any more.
func (s Subscription) Next(after time.Time) (begins time.Time, ok bool) {
	begins = s.Since
	if slot, in := s.Slot(after); in {
		begins = slot.Add(s.Every)
	}
	return begins, s.Every > 0 && begins.After(after) && begins.Before(s.Until)
}

// Due is the slot that is to be bought at a time: the one that this lies in, unless that or a later one was
// bought. last is the newest that was; zero: none. Slots that passed meanwhile are left out for good. A clock
// that was set back finds an older slot and buys nothing, one that was set forward buys one.
func (s Subscription) Due(last, now time.Time) (slot time.Time, ok bool) {
	slot, in := s.Slot(now)
	return slot, in && !s.Paused && slot.After(last)
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
//	somebody else is paid than last time
func (r Rules) checkSubscription(a Ask, facts Facts) (reasons []reason, err error) {
	if !a.isSubscription() || a.SignIn {
		return nil, nil
	}
	s, slot, err := r.subscriptionFor(a)
	if err != nil {
		return nil, err
	}
	if current, in := s.Slot(facts.Now); !in || !current.Equal(slot) {
		return nil, notOrdered(s, "its slot of "+stamp(slot)+" is not the one of "+stamp(facts.Now))
	}
	used := facts.Subscription
	if used.Total().Add(a.Price) > s.Total {
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
		add(!samePayee(used.LastPayTo, a.Payee.PayTo), "the subscription "+s.Name+" paid "+
			x402.Brief(used.LastPayTo)+" last time, and now "+x402.Brief(a.Payee.PayTo)+" wants to be paid")
	}
	return reasons, nil
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
	}
	return s, slot, nil
}

func notOrdered(s Subscription, why string) error {
	return x402.Errorf(x402.PolicyDenied, "the subscription %s does not pay this: %s", s.Name, why).
		WithHint("x402-wallet subscriptions show %s says how it stands", s.Name).
		WithDetail("subscription", s.Name)
}
