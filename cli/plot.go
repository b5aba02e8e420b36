package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"x402-wallet/history/report"
	"x402-wallet/tools"
	"x402-wallet/x402/money"
)

const (
	gaugeWidth = 10  // cells of a budget's gauge
	barWidth   = 40  // cells of a plot's longest bar: a line stays under 80
	nearlyUsed = 0.8 // of a budget, from where it is yellow
	mostDays   = 366
)

// gauge draws how much of a limit is spent (full) and held (shaded), and the part in percent.
// Whoever looks closely sees that a thing is used a little, and that one is not used up: only
// nothing is empty and only all is full.
func gauge(spent, held, limit int64) (bar string, part float64) {
	if limit <= 0 {
		return strings.Repeat("█", gaugeWidth) + " 100%", 1
	}
	cells := func(n int64) int {
		c := int(float64(n) / float64(limit) * gaugeWidth)
		if n > 0 {
			c = max(c, 1)
		}
		return min(c, gaugeWidth)
	}
	full := cells(spent)
	used := max(cells(spent+held), full)
	if held > 0 && used == full && full < gaugeWidth {
		used++
	}
	if spent+held < limit && used == gaugeWidth {
		used, full = gaugeWidth-1, min(full, gaugeWidth-1)
	}
	part = float64(spent+held) / float64(limit)
	return fmt.Sprintf("%s%s%s %3d%%", strings.Repeat("█", full), strings.Repeat("▒", used-full),
		strings.Repeat("·", gaugeWidth-used), int(part*100)), part
}

// eighths are bars that end within a cell.
var eighths = []rune(" ▏▎▍▌▋▊▉")

// bar is a value's bar beside the largest one's. Something is never nothing.
func bar(value, most int64) string {
	if value <= 0 || most <= 0 {
		return ""
	}
	n := max(int(float64(value)/float64(most)*barWidth*8), 1)
	text := strings.Repeat("█", n/8)
	if n%8 > 0 {
		text += string(eighths[n%8])
	}
	return text
}

// dayOut is a day of history --plot.
type dayOut struct {
	Day   string        `json:"day"`
	Spent money.Dollars `json:"spent"`
	Held  money.Dollars `json:"held"`
}

// plot shows what was spent on each of the last days, from the first with a payment on. JSON has all of
// them.
func (u *ui) plot(ctx context.Context, w *tools.Wallet, days int, now time.Time) error {
	first := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-days)
	spent, err := report.SpendingSince(ctx, w.Store, first, 24*time.Hour, 0)
	if err != nil {
		return err
	}
	list, most, sum := []dayOut{}, money.Dollars(0), money.Dollars(0)
	for day := first; !day.After(now); day = day.AddDate(0, 0, 1) {
		of := spent.Over[day]
		list = append(list, dayOut{Day: day.Format(time.DateOnly), Spent: of.Spent, Held: of.Held})
		most, sum = max(most, of.Spent.Add(of.Held)), sum.Add(of.Spent).Add(of.Held)
	}
	return u.answer(map[string]any{"days": list}, func() {
		if most == 0 {
			u.say("nothing was paid in %d days", days)
			return
		}
		paid := func(d dayOut) bool { return d.Spent.Add(d.Held) > 0 }
		for _, d := range list[slices.IndexFunc(list, paid):] {
			u.say("%s", strings.TrimRight(d.Day+"  "+u.dayBar(d, most), " "))
		}
		u.note("%s in %d days (UTC); ▒ is held until its outcome is known", sum.Price(), days)
	})
}

// dayBar is a day's bar and sum beside the largest one.
func (u *ui) dayBar(d dayOut, most money.Dollars) string {
	all := d.Spent.Add(d.Held)
	spent, held, price := bar(int64(d.Spent), int64(most)), "", ""
	if d.Held > 0 {
		both := utf8.RuneCountInString(bar(int64(all), int64(most)))
		held = strings.Repeat("▒", max(both-utf8.RuneCountInString(spent), 1))
	}
	if all > 0 {
		price = all.Price()
	}
	return paint(u.colorOut && spent != "", green, spent) + paint(u.colorOut && held != "", yellow, held) +
		"  " + price
}
