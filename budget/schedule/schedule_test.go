package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/budget"
	"x402-wallet/internal/must"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// When a slot is due: a row for each thing that clocks and people do.
func TestDue(t *testing.T) {
	s := budget.Subscription{Name: "news", Agent: "research", Since: at("2027-03-27T02:30:00Z"),
		Every: 24 * time.Hour, Until: at("2027-04-01T00:00:00Z"), Max: 50_000, Total: 200_000,
		Request: [32]byte{1}}
	paused := s
	paused.Paused = true
	for _, c := range []struct {
		name       string
		s          budget.Subscription
		last, now  string // "": none was bought
		want, next string // "": none
	}{
		{"before the first", s, "", "2027-03-27T02:29:59Z", "", "2027-03-27T02:30:00Z"},
		{"the first", s, "", "2027-03-27T02:30:00Z", "2027-03-27T02:30:00Z", "2027-03-28T02:30:00Z"},
		{"bought", s, "2027-03-27T02:30:00Z", "2027-03-28T02:29:59Z", "", "2027-03-28T02:30:00Z"},
		// 02:30 is no time in Berlin on that day, and twice one in October
		{"summer time", s, "2027-03-27T02:30:00Z", "2027-03-28T02:30:00Z", "2027-03-28T02:30:00Z",
			"2027-03-29T02:30:00Z"},
		{"in another zone", s, "", "2027-03-28T04:30:00+02:00", "2027-03-28T02:30:00Z",
			"2027-03-29T02:30:00Z"},
		{"three were missed: the newest alone", s, "2027-03-27T02:30:00Z", "2027-03-31T12:00:00Z",
			"2027-03-31T02:30:00Z", ""},
		{"a clock set back", s, "2027-03-30T02:30:00Z", "2027-03-28T12:00:00Z", "", "2027-03-29T02:30:00Z"},
		{"set right after it was ahead", s, "2027-03-31T02:30:00Z", "2027-03-28T02:30:00Z", "",
			"2027-03-29T02:30:00Z"},
		{"the last one", s, "", "2027-03-31T23:59:59Z", "2027-03-31T02:30:00Z", ""},
		{"until has passed", s, "", "2027-04-01T00:00:00Z", "", ""},
		{"paused", paused, "", "2027-03-28T12:00:00Z", "", "2027-03-29T02:30:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var last time.Time
			if c.last != "" {
				last = at(c.last)
			}
			slot, due := Due(c.s, last, at(c.now))
			require.Equal(t, c.want != "", due)
			if due {
				require.True(t, at(c.want).Equal(slot), "%s", slot)
			}
			next, ok := Next(c.s, at(c.now))
			require.Equal(t, c.next != "", ok)
			if ok {
				require.True(t, at(c.next).Equal(next), "%s", next)
			}
		})
	}
}

// However a clock jumps and how often is looked: no slot is due twice, never more than one at a time, none
// from Until on, and each is one of the subscription's and the one that time is in.
func TestNoSlotIsDueTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := budget.Subscription{Name: "x", Since: at("2027-01-01T00:00:00Z"),
			Every: rapid.SampledFrom([]time.Duration{
				time.Minute, 7 * time.Minute, 24 * time.Hour}).Draw(t, "every")}
		s.Until = s.Since.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "slots")) * s.Every)
		now, last, keys := s.Since, time.Time{}, map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			now = now.Add(time.Duration(rapid.Int64Range(-3*int64(s.Every), 5*int64(s.Every)).Draw(t,
				"jump")))
			slot, due := Due(s, last, now)
			if !due {
				continue
			}
			key := s.Key(slot)
			require.False(t, keys[key], "twice")
			keys[key], last = true, slot
			require.False(t, slot.After(now))
			require.True(t, slot.Add(s.Every).After(now))
			require.True(t, slot.Before(s.Until) && now.Before(s.Until))
			id, again, ok := budget.SubscriptionOf(key)
			require.True(t, ok)
			require.Equal(t, s.ID(), id)
			require.True(t, slot.Equal(again))
		}
	})
}

func TestParseEvery(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m": time.Minute, "90m": 90 * time.Minute,
		"12h": 12 * time.Hour, "1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour, "366d": MaxEvery} {
		every := must.Get(ParseEvery(text))(t)
		require.Equal(t, want, every)
		require.Equal(t, want, must.Get(ParseEvery(EveryText(every)))(t))
	}
	for _, text := range []string{"", "1s", "60s", "0m", "01d", "1", "d", "-1d", "1.5h", "1h30m", "367d",
		"99999999999999999999d", " 1d", "1D"} {
		require.Error(t, must.Err(ParseEvery(text)), text)
	}
}
