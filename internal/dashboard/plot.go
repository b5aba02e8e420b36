package dashboard

import (
	"fmt"
	"math"
	"time"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/x402/money"
)

type step struct {
	Label, Long string
	At          time.Time
	budget.Use
}

// plot is bars over time. Widths are in percent of what there is, so that it fits a phone; heights
// are in pixels.
type plot struct {
	Bars  []bar
	Lines []gridline
	Said  string // all of it, in a sentence
	Any   bool
}

type bar struct {
	step
	X, Middle, Width  float64
	SpentY, SpentHigh float64
	HeldY, HeldHigh   float64
	Labelled, Wide    bool // Wide: only where there is room
	// where its label is, inside of the plot also at its ends
	LabelX float64
	Anchor string
}

type gridline struct {
	Y     float64
	Label string
}

const (
	plotHeight = 200 // pixels
	leastHigh  = 2   // pixels: something is never nothing
	filled     = .7  // of a step's width
	gutter     = 12  // percent, left of the bars: the lines' labels are there, inside of the plot
)

// draw puts a label at each so many steps, counted from the last.
func draw(steps []step, every int, said string) plot {
	var p plot
	var most step
	var sum budget.Use
	for _, s := range steps {
		if s.Total() > most.Total() {
			most = s
		}
		sum.Spent, sum.Held = sum.Spent.Add(s.Spent), sum.Held.Add(s.Held)
	}
	top := p.grid(most.Total())
	width := (100 - gutter) / float64(len(steps))
	high := func(d money.Dollars) float64 {
		if d == 0 {
			return 0
		}
		return max(round(float64(d)/float64(top)*plotHeight), leastHigh)
	}
	for i, s := range steps {
		at := float64(i)
		b := bar{step: s, X: round(gutter + (at+(1-filled)/2)*width), Middle: round(gutter + (at+.5)*width),
			Width: round(width * filled), SpentHigh: high(s.Spent), HeldHigh: high(s.Held)}
		b.SpentY = round(plotHeight - b.SpentHigh)
		b.HeldY = round(b.SpentY - b.HeldHigh)
		fromEnd := len(steps) - 1 - i
		b.Labelled, b.Wide = fromEnd%every == 0, fromEnd%(2*every) != 0
		b.LabelX, b.Anchor = b.Middle, "middle"
		switch i {
		case 0:
			b.LabelX, b.Anchor = b.X, "start"
		case len(steps) - 1:
			b.LabelX, b.Anchor = 100, "end"
		}
		p.Bars = append(p.Bars, b)
	}
	p.Any = most.Total() > 0
	if !p.Any {
		p.Said = "Nothing was spent in " + said + "."
		return p
	}
	p.Said = fmt.Sprintf("%s spent and %s held in %s; most in one step: %s (%s).", sum.Spent.Price(),
		sum.Held.Price(), said, most.Total().Price(), most.Long)
	return p
}

// grid draws lines at round sums, and returns the topmost.
func (p *plot) grid(most money.Dollars) (top money.Dollars) {
	const lines = 4
	unit, power := money.Dollars(1), money.Dollars(1)
	for i := 1; unit*lines < most; i++ { // 1, 2, 5, 10, 20, …
		if i%3 == 0 {
			power *= 10
		}
		unit = []money.Dollars{1, 2, 5}[i%3] * power
	}
	n := max((most+unit-1)/unit, 1)
	if most == 0 {
		return 1
	}
	for i := range n + 1 {
		label := ""
		if i > 0 { // the base needs none
			label = (i * unit).Price()
		}
		part := float64(i) / float64(n)
		p.Lines = append(p.Lines, gridline{Y: round(plotHeight - part*plotHeight), Label: label})
	}
	return n * unit
}

// bars are parts of a whole, lying; the widest is the dearest.
type bars struct {
	List   []lying
	Others money.Dollars // what is not in the list
}

type lying struct {
	Name string
	budget.Use
	SpentPart, HeldPart float64 // percent of the dearest
}

func barsOf(parts []report.NamedSum, whole budget.Use, name func(string) string) (b bars) {
	b.Others = whole.Total()
	for _, p := range parts {
		most := parts[0].Total()
		b.List = append(b.List, lying{Name: name(p.Key), Use: p.Use, SpentPart: percent(p.Spent, most),
			HeldPart: percent(p.Held, most)})
		b.Others = b.Others.SubFloor(p.Total())
	}
	return b
}

// percent is a part, in hundredths of a percent; something is never nothing.
func percent(part, whole money.Dollars) float64 {
	switch {
	case part <= 0:
		return 0
	case whole <= 0:
		return 100
	}
	return max(round(float64(part)/float64(whole)*100), .5)
}

func round(f float64) float64 { return math.Round(f*100) / 100 }
