// Package schedule says when a subscription buys, and reads and writes its times as the owner does. It
// decides nothing: whether a payment is one of a subscription's slot, package budget decides by itself.
package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
)

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

// Next is the slot that begins after a time; false where there is none any more.
func Next(s budget.Subscription, after time.Time) (begins time.Time, ok bool) {
	begins = s.Since
	if slot, in := s.Slot(after); in {
		begins = slot.Add(s.Every)
	}
	return begins, s.Every > 0 && begins.After(after) && begins.Before(s.Until)
}

// Due is the slot that is to be bought at a time: the one that this lies in, unless that or a later one was
// bought. last is the newest that was; zero: none. Slots that passed meanwhile are left out for good. A clock
// that was set back finds an older slot and buys nothing, one that was set forward buys one.
func Due(s budget.Subscription, last, now time.Time) (slot time.Time, ok bool) {
	slot, in := s.Slot(now)
	return slot, in && !s.Paused && slot.After(last)
}
