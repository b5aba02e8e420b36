package dashboard

import g "maragu.dev/gomponents"

func (p first) budgetsCard() g.Node {
	return card("card", "budgets",
		head("budgets", "Budgets", quietSpan(p.PerCall.Price()+" a call at most")),
		el("ul", class("budgets"), g.Map(p.Budgets, budgetBar.node)))
}

func (b budgetBar) node() g.Node {
	var used g.Node
	switch {
	case b.Full:
		used = class("full")
	case b.Near:
		used = class("near")
	}
	limit, left := "", text("no limit is set")
	if b.Limit != nil {
		limit, left = " of "+b.Limit.Price(), b.left()
	}
	held := g.Group{text(" "), el("small", class("and"), text("+ "+b.Held.Price()+" held"))}
	return el("li", used,
		line(el("strong", text(b.Name)),
			el("span", text(b.Spent.Price()), g.If(b.Held > 0, held), text(limit))),
		g.If(b.Limit != nil, meter(10, b.SpentPart, b.HeldPart)),
		el("p", class("line quiet"), el("span", left), text(" "), b.resets()))
}

func (b budgetBar) left() g.Node {
	if b.Full {
		return el("strong", text("nothing left"))
	}
	return text(b.Remaining.Price() + " left")
}

func (b budgetBar) resets() g.Node {
	if b.Resets.IsZero() {
		return el("span", text(b.Note))
	}
	note := " UTC"
	if b.Note != "" {
		note += " " + b.Note
	}
	return el("span", text("resets "), instant(b.Resets, b.Resets.Format("2 Jan, 15:04")), text(note))
}
