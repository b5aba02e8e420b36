package dashboard

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	g "maragu.dev/gomponents"
)

// at is the address of one of these pages, by the parts of its path.
func (f *frame) at(parts ...string) string {
	var escaped []string
	for _, part := range parts {
		escaped = append(escaped, url.PathEscape(part))
	}
	return f.Base + "/" + strings.Join(escaped, "/")
}

func back(address, title string) g.Node {
	return el("p", class("back"), el("a", href(address), text(title)))
}

// card is a part of a page under its heading, which has that id.
func card(classes, heading string, children ...g.Node) g.Node {
	return el("section", class(classes), attr("aria-labelledby", heading), g.Group(children))
}

// titled is a card with no more than its heading above what it shows.
func titled(id, title string, children ...g.Node) g.Node {
	return card("card", id, el("h2", attr("id", id), text(title)), g.Group(children))
}

func head(id, title string, beside ...g.Node) g.Node {
	return el("div", class("head"), el("h2", attr("id", id), text(title)), g.Group(beside))
}

func line(left, right g.Node) g.Node { return el("p", class("line"), left, text(" "), right) }

func quiet(children ...g.Node) g.Node { return el("p", class("quiet"), g.Group(children)) }

func quietSpan(words string) g.Node { return el("span", class("quiet"), text(words)) }

func wrapped(words string) g.Node { return el("span", class("wrapped"), text(words)) }

func small(words string) g.Node { return el("small", text(words)) }

func code(words string) g.Node { return el("code", text(words)) }

// unseen is for those who have the page read to them.
func unseen(words string) g.Node { return el("span", class("hidden"), text(words)) }

// sum is an amount at the right of a line, and what belongs to it.
func sum(amount string, more ...g.Node) g.Node {
	return el("span", class("sum"), text(amount), g.Group(more))
}

// of is what stands small behind an amount.
func of(words string) g.Node { return g.Group{text(" "), small(words)} }

func secondaryButton(address string, children ...g.Node) g.Node {
	return el("a", class("button plain"), href(address), g.Group(children))
}

func instant(at time.Time, words string) g.Node {
	return el("time", attr("datetime", stamp(at)), text(words))
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func minute(at time.Time) g.Node { return instant(at, at.UTC().Format("2006-01-02 15:04")) }

func exact(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

func fact(name string, value ...g.Node) g.Node {
	return el("div", el("dt", text(name)), el("dd", g.Group(value)))
}

// exactFact is a fact whose every letter counts.
func exactFact(name, value string) g.Node { return fact(name, class("mono"), text(value)) }

// post is a form that changes something.
func post(action string, children ...g.Node) g.Node {
	return el("form", attr("method", "post"), attr("action", action), g.Group(children))
}

func input(kind, name string, attributes ...g.Node) g.Node {
	return el("input", attr("type", kind), attr("name", name), g.Group(attributes))
}

func hidden(name, value string) g.Node { return input("hidden", name, attr("value", value)) }

func detail(words string, summary ...g.Node) g.Node {
	return el("details", el("summary", summary...), el("pre", attr("tabindex", "0"), text(words)))
}

func (s status) node() g.Node {
	mark := openMark
	switch s.Kind {
	case "good":
		mark = goodMark
	case "bad":
		mark = badMark
	}
	return el("span", class("status "+s.Kind), mark(), text(s.Status))
}

func (f *frame) payments(rows []row) g.Node {
	column := func(title string) g.Node { return el("th", attr("scope", "col"), text(title)) }
	return el("table", class("list"),
		el("thead", el("tr", column("Time (UTC)"), column("For"), column("Network"), column("Status"),
			el("th", attr("scope", "col"), class("sum"), text("Price")))),
		el("tbody", g.Map(rows, func(r row) g.Node {
			return el("tr",
				el("td", class("time"), minute(r.At)),
				el("td", class("for"), el("a", href(f.at("payments", r.ID)), text(short(120, r.For)))),
				el("td", text(r.Network), g.If(r.Agent != "", of(r.Agent))),
				el("td", r.status.node()),
				el("td", class("sum"), text(r.Price), of(r.Symbol)))
		})))
}

// num and share are an attribute of a drawing: a number, and a percentage.
func num(name string, value any) g.Node { return attr(name, fmt.Sprint(value)) }

func share(name string, percent float64) g.Node { return attr(name, fmt.Sprint(percent)+"%") }

func rect(classes string, attributes ...g.Node) g.Node {
	return el("rect", class(classes), g.Group(attributes))
}

func meter(height int, spent, held float64) g.Node {
	high, round := num("height", height), num("rx", height/2)
	return el("svg", class("meter"), attr("width", "100%"), high, attr("aria-hidden", "true"),
		rect("track", attr("width", "100%"), high, round),
		rect("spent", share("width", spent), high, round),
		g.If(held > 0, rect("held", share("x", spent), share("width", held), high, num("rx", 2))))
}
