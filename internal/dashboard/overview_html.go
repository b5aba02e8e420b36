package dashboard

import (
	"fmt"
	"strings"

	g "maragu.dev/gomponents"

	"x402-wallet/history"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

// body is the first page: what waits for the person, what was spent, and how the wallet stands.
func (p first) body(f *frame) g.Node {
	spent := p.Spending.card(f)
	if p.Empty {
		spent = gettingStarted(f)
	}
	return g.Group{
		el("div", class("head"), el("h1", text("Overview")), el("p", keysStatus(f.Locked), f.freezeButton())),
		f.waiting(),
		el("div", class("columns"), spent, p.budgetsCard()),
		p.standing(f),
		p.subscriptions(),
		f.decided(),
		p.latest(f),
	}
}

func (f *frame) freezeButton() g.Node {
	if f.Frozen {
		return nil
	}
	return el("a", class("button danger"), href(f.at("freeze")), text("Stop all payments"))
}

func keysStatus(locked bool) g.Node {
	if locked {
		return el("span", class("status"), lockedMark(), text("keys locked"))
	}
	return el("span", class("status good"), unlockedMark(), text("keys unlocked"))
}

func gettingStarted(f *frame) g.Node {
	return card("card empty", "begin",
		barsMark(),
		el("h2", attr("id", "begin"), text("Nothing was paid yet")),
		el("p", text("Your first payment will show up here. To get there:")),
		el("ol", class("steps"),
			el("li", text("See it with play money first: "), code("x402-wallet demo")),
			el("li", text("Send a little USDC to "),
				el("a", href(f.at("money")), text("one of its addresses")),
				text(". ETH or SOL is not needed.")),
			el("li", text("Give the wallet to your agent: "), code("x402-wallet install claude-code")),
			el("li", text("Or pay for something yourself: "),
				code("x402-wallet pay --max '$0.05' https://…"))))
}

func (f *frame) waiting() g.Node {
	if len(f.Waiting) == 0 {
		return nil
	}
	return card("waiting", "waiting",
		el("h2", attr("id", "waiting"), text("Waiting for you "), count(f.Waiting)),
		el("ul", class("cards"), g.Map(f.Waiting, f.asked)))
}

func (f *frame) asked(a history.Approval) g.Node {
	price, about := text(a.Price.Price()), of(a.Symbol+" on "+x402.NetworkName(a.Network))
	what, choice := short(160, a.Method+" "+a.URL), a.Price.Price()+" for"
	if len(a.Together) > 0 {
		about, what = of(a.URL+", "+a.Host), parts(a.Together)
	}
	if a.IsSignIn() {
		price, about, choice = text("Sign in"), nil, "signing in at"
	}
	return el("li", class("card ask"),
		el("p", class("big"), price, about),
		el("p", class("wrapped"), text(what)),
		quiet(g.If(a.Agent != "", g.Group{text("Asked by "), el("strong", text(a.Agent)), text(": ")}),
			text(a.Why)),
		el("p", class("foot"),
			el("a", class("button"), href(f.at("approvals", a.ID)), text("Review and decide"),
				unseen(": "+choice+" "+a.Host)),
			text(" "),
			el("span", class("quiet"), text("open until "), minute(a.Expires), text(" UTC"))))
}

// parts are the first of a list of payments, and how many there are.
func parts(list []history.Approval) string {
	const most = 5
	var shown []string
	for _, a := range list[:min(len(list), most)] {
		shown = append(shown, short(80, a.Host)+" "+a.Price.Price())
	}
	words := strings.Join(shown, ", ")
	if len(list) > most {
		words += fmt.Sprintf(" and %d in all", len(list))
	}
	return words
}

// standing is what lies on the chains, what is unfinished, and whom the money went to.
func (p first) standing(f *frame) g.Node {
	if p.Empty {
		return p.Balances.card(f)
	}
	s := p.Spending
	return g.Group{
		el("div", class("columns even"), p.Balances.card(f), p.unfinished(f)),
		el("div", class("columns even"),
			s.Hosts.card("sellers", "By seller", s.Range),
			s.Networks.card("networks", "By network", s.Range),
			g.If(len(s.Agents.List) > 0, s.Agents.card("agents", "By agent", s.Range))),
	}
}

func (p first) unfinished(f *frame) g.Node {
	if len(p.Unfinished) == 0 {
		return card("card", "unfinished", head("unfinished", "Unfinished payments"),
			quiet(text("None: the outcome of every payment is known.")))
	}
	inState := func(state history.State) g.Node {
		return el("a", href(f.at("history")+"?status="+string(state)), text(string(state)))
	}
	return card("card", "unfinished",
		head("unfinished", "Unfinished payments", el("span", class("quiet"), code("x402-wallet reconcile"),
			text(" checks the chain now"))),
		el("ul", class("open"), g.Map(p.Unfinished, f.open)),
		g.If(p.More, quiet(text("There are more: "), inState(history.Unknown), text(", "),
			inState(history.Submitted), text(", "), inState(history.Reserved), text("."))))
}

func (f *frame) open(r row) g.Node {
	return el("li",
		line(el("a", href(f.at("payments", r.ID)), text(short(120, r.For))), sum(r.Price, of(r.Symbol))),
		el("p", class("line quiet"), el("span", r.status.node(), text(" "), instant(r.At, r.Since),
			text(" on "+r.Network))),
		quiet(text(r.Next)))
}

func (p first) subscriptions() g.Node {
	if len(p.Subscriptions) == 0 {
		return nil
	}
	return titled("subscriptions", "Subscriptions",
		el("ul", class("open"), g.Map(p.Subscriptions, subscription)))
}

func subscription(s tools.SubscriptionOut) g.Node {
	about := fmt.Sprintf("%s, every %s, %s each time without asking, until %s", s.State, s.Every,
		s.Max.Price(), s.Until)
	if s.Agent != "" {
		about += ", for " + s.Agent
	}
	if s.Next != "" {
		about += "; next at " + s.Next
	}
	if s.Last != nil {
		about += "; last: " + s.Last.State
		if s.Last.Why != "" {
			about += ", " + s.Last.Why
		}
	}
	return el("li", line(el("strong", text(s.Name)), sum(s.Spent.Price(), of("of "+s.Total.Price()))),
		el("p", class("wrapped"), text(short(160, s.Method+" "+s.URL))),
		quiet(text(about)))
}

func (f *frame) decided() g.Node {
	if len(f.Decided) == 0 {
		return nil
	}
	return titled("decided", "Decided, still valid",
		el("ul", class("open"), g.Map(f.Decided, func(a history.Approval) g.Node {
			what := short(120, a.Method+" "+a.URL)
			if len(a.Together) > 0 {
				what = a.URL + ", " + a.Host
			}
			return el("li",
				line(el("a", href(f.at("approvals", a.ID)), text(what)), sum(a.Price.Price(), of(a.Symbol))),
				quiet(el("strong", text(string(a.State))), text(" until "), minute(a.Expires), text(" UTC")))
		})))
}

func (p first) latest(f *frame) g.Node {
	if len(p.Recent) == 0 {
		return nil
	}
	return card("card", "recent",
		head("recent", "Latest payments", el("a", href(f.at("history")), text("All of them"))),
		f.payments(p.Recent))
}
