package dashboard

import (
	"cmp"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/x402"
)

type spending struct {
	budget.Use
	Range, Name             string      // its title and name
	Ranges                  [][2]string // all there are: name and title
	Only                    string      // the one day or hour in which all of it was spent; "": more
	Plot                    plot        // over the range, or over that one day; none over one hour
	Table                   bool        // in numbers, too
	Hosts, Networks, Agents bars
}

type span struct {
	name, title, said string
	unit              time.Duration                  // of the kept sums
	step              func(time.Time, int) time.Time // the beginning of the step so many away
	steps             int
	label, long       string
	every             int // steps between labels
}

var spans = []span{
	{name: "24h", title: "24 hours", said: "the last 24 hours", unit: time.Hour, steps: 24, every: 3,
		label: "15:04", long: "Mon 2 Jan, 15:04", step: hours},
	{name: "30d", title: "30 days", said: "the last 30 days", unit: 24 * time.Hour, steps: 30, every: 4,
		label: "2 Jan", long: "Mon 2 Jan 2006", step: days},
	{name: "12m", title: "12 months", said: "the last 12 months", unit: 24 * time.Hour, steps: 12, every: 1,
		label: "Jan", long: "January 2006", step: func(t time.Time, n int) time.Time {
			return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC).AddDate(0, n, 0)
		}},
}

func hours(t time.Time, n int) time.Time {
	return t.Truncate(time.Hour).Add(time.Duration(n) * time.Hour)
}

func days(t time.Time, n int) time.Time { return t.Truncate(24*time.Hour).AddDate(0, 0, n) }

func (l *look) spending(now time.Time) (out spending, err error) {
	chosen := cmp.Or(l.r.FormValue("range"), "30d")
	out.Table = l.r.FormValue("table") == "1"
	for _, span := range spans {
		out.Ranges = append(out.Ranges, [2]string{span.name, span.title})
		if span.name != chosen {
			continue
		}
		out.Range, out.Name = span.title, span.name
		first := span.step(now, 1-span.steps)
		all, err := report.SpendingSince(l.r.Context(), l.wallet.Store, first, span.unit, mostParts)
		if err != nil {
			return out, err
		}
		steps := span.sum(all, first)
		for _, s := range steps {
			out.Spent, out.Held = out.Spent.Add(s.Spent), out.Held.Add(s.Held)
		}
		out.Plot = draw(steps, span.every, span.said)
		out.Hosts = barsOf(all.Hosts, out.Use, func(host string) string { return host })
		out.Networks = barsOf(all.Networks, out.Use, x402.NetworkName)
		out.Agents = barsOf(all.Agents, out.Use, func(agent string) string { return agent })
		if err := l.closer(&out, all, span); err != nil {
			return out, err
		}
	}
	if out.Range == "" {
		return out, x402.Errorf(x402.InvalidArgument, "no such range")
	}
	return out, nil
}

// sum adds the kept sums up to steps from a time on.
func (s span) sum(all report.Spending, first time.Time) (steps []step) {
	for n := range s.steps {
		from, to := s.step(first, n), s.step(first, n+1)
		sum := step{Label: from.Format(s.label), Long: from.Format(s.long), At: from}
		for at := from; at.Before(to); at = at.Add(s.unit) {
			sum.Spent, sum.Held = sum.Spent.Add(all.Over[at].Spent), sum.Held.Add(all.Over[at].Held)
		}
		steps = append(steps, sum)
	}
	return steps
}

// closer looks at the hours of the one day on which everything was spent: a single bar among empty days says
// less than a sentence. Of a single hour there is no plot at all.
func (l *look) closer(out *spending, all report.Spending, of span) error {
	moment, only := onlyOne(all)
	if !only {
		return nil
	}
	if of.unit == time.Hour {
		out.Only = moment.Format("Mon 2 Jan 2006, 15:04 to ") + moment.Add(time.Hour).Format("15:04")
		out.Plot = plot{}
		return nil
	}
	day := span{said: moment.Format("2 January 2006"), unit: time.Hour, steps: 24, every: 3, label: "15:04",
		long: "Mon 2 Jan, 15:04", step: hours}
	all, err := report.SpendingSince(l.r.Context(), l.wallet.Store, moment, time.Hour, 0)
	if err != nil {
		return err
	}
	if _, one := onlyOne(all); one {
		return l.closer(out, all, day)
	}
	out.Only, out.Plot = moment.Format("Mon 2 Jan 2006"), draw(day.sum(all, moment), day.every, day.said)
	return nil
}

// onlyOne is the one hour or day in which anything was spent.
func onlyOne(all report.Spending) (at time.Time, only bool) {
	n := 0
	for moment, use := range all.Over {
		if use.Total() > 0 {
			at, n = moment, n+1
		}
	}
	return at, n == 1
}
