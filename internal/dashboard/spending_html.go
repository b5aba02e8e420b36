package dashboard

import (
	"net/url"

	g "maragu.dev/gomponents"
)

func (s spending) card(f *frame) g.Node {
	return card("card spend", "spending",
		head("spending", "Spending", el("nav", class("choice"), attr("aria-label", "Range"),
			g.Map(s.Ranges, func(each [2]string) g.Node {
				return el("a", href(f.rangeAt(each[0], "")),
					g.If(each[1] == s.Range, attr("aria-current", "true")), text(each[1]))
			}))),
		el("p", class("big"), text(s.Spent.Price()+" "), small("spent"),
			g.If(s.Held > 0, g.Group{text(" "),
				el("span", class("and"), text("+ "+s.Held.Price()+" "), small("held"))})),
		g.If(s.Only != "", s.only()),
		g.If(len(s.Plot.Bars) > 0, g.Group{s.Plot.figure(), legend()}),
		g.If(s.Plot.Any, s.numbers(f)))
}

// rangeAt is the address of the first page over a range of time.
func (f *frame) rangeAt(name, more string) string {
	address := f.at() + "?range=" + url.QueryEscape(name) + more
	if f.Still {
		address += "&update=" + standsStill
	}
	return address
}

func (s spending) only() g.Node {
	when := "All of it on "
	if !s.Plot.Any {
		when = "All of it at one time: "
	}
	return el("p", text(when), el("strong", text(s.Only)), text(" UTC."))
}

// figure draws the plot, whose texts stand over its bars.
func (p plot) figure() g.Node {
	const margin = 14 // above the plot; the labels are below it
	across := func(classes string, y any) g.Node {
		return el("line", class(classes), attr("x1", "0"), attr("x2", "100%"), num("y1", y), num("y2", y))
	}
	return el("div", class("plot"),
		el("svg", attr("role", "img"), attr("aria-labelledby", "plot-title plot-said"), attr("width", "100%"),
			num("height", plotHeight+40),
			el("title", attr("id", "plot-title"), text("Spending over time")),
			el("desc", attr("id", "plot-said"), text(p.Said)),
			hatch(),
			el("svg", num("y", margin), attr("width", "100%"), num("height", plotHeight+40-margin),
				attr("overflow", "visible"),
				g.Map(p.Lines, func(l gridline) g.Node { return across("grid", l.Y) }),
				g.Map(p.Bars, bar.node),
				g.Map(p.Lines, gridline.label),
				across("base", plotHeight))),
		g.If(!p.Any, el("p", class("none"), text("Nothing in this period"))))
}

func (b bar) node() g.Node {
	piece := func(classes string, y, high float64) g.Node {
		return rect(classes, share("x", b.X), share("width", b.Width), num("y", y), num("height", high),
			num("rx", 2))
	}
	return g.Group{
		el("g",
			el("title", textf("%s: %s spent, %s held", b.Long, b.Spent.Price(), b.Held.Price())),
			g.If(b.Spent > 0, piece("spent", b.SpentY, b.SpentHigh)),
			g.If(b.Held > 0, piece("held", b.HeldY, b.HeldHigh))),
		g.If(b.Labelled, b.label()),
	}
}

func (b bar) label() g.Node {
	classes := "axis"
	if b.Wide {
		classes = "axis wide"
	}
	return el("text", class(classes), share("x", b.LabelX), num("y", plotHeight+20),
		attr("text-anchor", b.Anchor), text(b.Label))
}

func (l gridline) label() g.Node {
	if l.Label == "" {
		return nil
	}
	return el("text", class("axis sum-label"), num("x", 2), num("y", l.Y), num("dy", -4), text(l.Label))
}

func (s spending) numbers(f *frame) g.Node {
	if !s.Table {
		return quiet(el("a", href(f.rangeAt(s.Name, "&table=1")+"#table"), text("Show as a table")))
	}
	amounts := func(title string) g.Node { return el("th", attr("scope", "col"), class("sum"), text(title)) }
	return el("div", class("scroll"), attr("id", "table"), attr("tabindex", "0"), attr("role", "region"),
		attr("aria-label", "Spending as a table"),
		el("table",
			el("thead", el("tr", el("th", attr("scope", "col"), text("When (UTC)")),
				amounts("Spent"), amounts("Held"))),
			el("tbody", g.Map(s.Plot.Bars, bar.tableRow))))
}

func (b bar) tableRow() g.Node {
	if b.Total() == 0 {
		return nil
	}
	return el("tr", el("td", instant(b.At, b.Long)),
		el("td", class("sum"), text(b.Spent.Price())),
		el("td", class("sum"), text(b.Held.Price())))
}

func (b bars) card(id, title, period string) g.Node {
	heading := el("h2", attr("id", id), text(title+" "), el("small", class("quiet"), text(period)))
	if len(b.List) == 0 {
		return card("card", id, heading, quiet(text("Nothing in this period.")))
	}
	return card("card", id, heading, el("ul", class("bars"), g.Map(b.List, lying.node),
		g.If(b.Others > 0, el("li", line(quietSpan("all others"), sum(b.Others.Price()))))))
}

func (l lying) node() g.Node {
	return el("li",
		line(wrapped(short(80, l.Name)),
			sum(l.Total().Price(), g.If(l.Held > 0, of(l.Held.Price()+" of it held")))),
		meter(8, l.SpentPart, l.HeldPart))
}
