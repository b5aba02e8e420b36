package dashboard

import (
	"strings"

	g "maragu.dev/gomponents"
)

// body is the list of what was paid, with the form that narrows it.
func (p found) body(f *frame) g.Node {
	title := "All payments"
	if p.narrows() {
		title = "What was found"
	}
	return g.Group{
		el("h1", text("History")),
		p.filter(f.at("history")),
		card("card", "found",
			head("found", title, g.If(len(p.Rows) > 0, p.exports(f.at("export")))),
			g.If(len(p.Totals) > 0, p.totals()),
			p.list(f)),
	}
}

func (p found) filter(address string) g.Node {
	var names []string
	for _, state := range p.States {
		names = append(names, string(state))
	}
	date := func(title, name, value string) g.Node {
		return el("label", text(title), input("date", name, attr("value", value)))
	}
	return el("form", class("card filter"), attr("role", "search"),
		attr("method", "get"), attr("action", address),
		el("label", class("grow"), text("Part of the URL"), input("search", "url", attr("value", p.URL),
			attr("maxlength", "2000"), attr("autocomplete", "off"), attr("spellcheck", "false"))),
		choice("Status", "status", p.Status, names),
		g.If(len(p.Agents) > 0, choice("Agent", "agent", p.Agent, p.Agents)),
		g.If(len(p.Teams) > 0, choice("Team", "team", p.Team, p.Teams)),
		date("From (UTC)", "from", p.From),
		date("To (UTC)", "to", p.To),
		el("div", class("do"), el("button", text("Search")),
			g.If(p.narrows(), g.Group{text(" "), el("a", href(address), text("Clear"))})))
}

// choice is one of the names, or any.
func choice(title, name, chosen string, names []string) g.Node {
	return el("label", text(title), el("select", attr("name", name),
		el("option", attr("value", ""), text("any")),
		g.Map(names, func(each string) g.Node {
			return el("option", g.If(each == chosen, attr("selected")), text(each))
		})))
}

// exports are links to files of all that was found.
func (p found) exports(address string) g.Node {
	export := func(format, title string) g.Node {
		return secondaryButton(address+"?"+p.query("", format), attr("download"), unseen("Export as "),
			text(title))
	}
	return el("p", class("export"), export("csv", "CSV"), text(" "), export("jsonl", "JSON lines"))
}

func (p found) totals() g.Node {
	said := g.Group{text("Spent and held in all: ")}
	for i, total := range p.Totals {
		if i > 0 {
			said = append(said, text(", "))
		}
		said = append(said, el("strong", text(total)))
	}
	return quiet(said)
}

func (p found) list(f *frame) g.Node {
	address := f.at("history")
	switch {
	case len(p.Rows) > 0:
		return g.Group{
			f.payments(p.Rows),
			el("nav", class("pager"), attr("aria-label", "More payments"),
				g.If(p.Before != "", secondaryButton(address+"?"+p.query("", ""), text("Newest"))),
				g.If(p.Older != "", secondaryButton(address+"?"+p.query(p.Older, ""), text("Older")))),
		}
	case !p.narrows():
		return el("p", text("Nothing was paid yet. "), code("x402-wallet demo"),
			text(" shows a first payment, with play money."))
	case p.Before != "":
		return el("p", text("There are no older ones."))
	}
	return el("p", text("No payment matches."))
}

func listed(names []string) string { return strings.Join(names, ", ") }
