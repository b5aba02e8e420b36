package dashboard

import (
	"fmt"

	g "maragu.dev/gomponents"
)

func moneyBody(list []address) func(*frame) g.Node {
	return func(f *frame) g.Node {
		return g.Group{
			el("h1", text("Add money")),
			el("p", class("lead"), text("Send USDC to one of these, on a network that is listed. ETH or SOL "+
				"is not needed. A little is enough: what is here is what an agent can spend.")),
			el("div", class("columns even"), g.Map(list, address.node)),
			el("p", el("a", href(f.at()), text("Overview"))),
		}
	}
}

func (a address) node() g.Node {
	id, title, networks := "address-"+a.Name, a.Name+" address", "No such network is set up in config.toml"
	if a.Account != "" {
		id += "-" + a.Account
		title += " of " + a.Account
	}
	if a.Networks != "" {
		networks = "For " + a.Networks
	}
	return titled(id, title,
		quiet(text(networks)),
		el("p", class("copy mono"), text(a.Address)),
		quiet(text("A click selects all of it, to be copied.")),
		el("svg", class("qr"), attr("role", "img"), attr("aria-label", "QR code of the "+a.Name+" address"),
			attr("viewBox", fmt.Sprintf("0 0 %d %d", a.Modules, a.Modules)),
			num("width", 220), num("height", 220), attr("shape-rendering", "crispEdges"),
			rect("paper", attr("width", "100%"), attr("height", "100%")),
			el("path", class("dot"), attr("d", a.QR))))
}

func (b balances) card(f *frame) g.Node {
	return card("card", "balances",
		head("balances", "On the chains", el("a", href(f.at("money")), text("Add money"))),
		b.holdings(), b.deposits(),
		g.If(len(b.Empty) > 0, quiet(text("Nothing on "+listed(b.Empty)+"."))),
		g.If(len(b.Silent) > 0, quiet(el("strong", text("Not known:")),
			text(" no answer from "+listed(b.Silent)+"."))),
		quiet(text("Asked "), minute(b.At), text(" UTC.")))
}

func (b balances) holdings() g.Node {
	switch {
	case len(b.Rows) > 0:
		return el("ul", class("open"), g.Map(b.Rows, holding.node))
	case len(b.Empty) > 0:
		return el("p", text("There is no money yet."))
	case len(b.Silent) == 0:
		return el("p", text("No network has a node in config.toml."))
	}
	return nil
}

func (t holding) node() g.Node {
	return el("li", line(el("strong", text(t.Network)), sum(t.Balance, of(t.Symbol))),
		g.If(t.Delegated != "", quiet(textf("The agent may spend %s of it (delegated).", t.Delegated))),
		g.If(t.InVault != "",
			quiet(textf("In your vault, of which the agent may spend %s now.", t.InVault))),
		g.If(t.Owner != "", quiet(textf("The agent may take %s of what is in your account ", t.Allowed),
			el("span", class("mono wrapped"), text(t.Owner)), text(" (allowance)."))),
		g.If(t.Waiting != "", quiet(textf("%s are held by unfinished payments.", t.Waiting))))
}

func (b balances) deposits() g.Node {
	if len(b.Deposits) == 0 {
		return nil
	}
	return g.Group{
		el("h3", class("quiet"), text("Deposits with sellers")),
		el("ul", class("open"), g.Map(b.Deposits, func(d deposit) g.Node {
			server := short(80, d.Server)
			return el("li", line(wrapped(server), sum(d.Locked)),
				quiet(text("On "+d.Network+". It comes back by "),
					code("x402-wallet channel refund "+server)))
		})),
	}
}
