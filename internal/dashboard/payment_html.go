package dashboard

import g "maragu.dev/gomponents"

// body is one payment: what it came to, what happened, its evidence, and what it bought.
func (p paid) body(f *frame) g.Node {
	return g.Group{
		back(f.at("history"), "History"),
		el("h1", class("wrapped"), text(short(300, p.For))),
		el("section", class("card"), attr("aria-label", "The payment"),
			el("p", class("big"), text(p.Price+" "), p.status.node()),
			el("p", text(p.Next)),
			quiet(instant(p.At, exact(p.At)), text(" UTC, "), el("span", class("mono"), text(p.ID))),
			el("dl", class("facts"),
				g.Map(p.Facts, func(each [2]string) g.Node { return exactFact(each[0], each[1]) }),
				exactFact("The whole URL", p.For)),
			g.If(p.Receipt, el("p", secondaryButton(f.at("payments", p.ID, "receipt"), attr("download"),
				text("Download its receipt"))))),
		titled("events", "What happened", el("ol", class("events"), g.Map(p.Events, event.node))),
		p.evidence(),
		p.bought(f),
	}
}

func (e event) node() g.Node {
	at := el("time", class("quiet"), attr("datetime", stamp(e.At)), text(exact(e.At)+" UTC"))
	return el("li", line(el("strong", text(e.What)), at),
		g.If(e.Detail != "", detail(e.Detail, text("Detail"), unseen(" of "+e.What))))
}

func (p paid) evidence() g.Node {
	if len(p.Documents) == 0 {
		return nil
	}
	return titled("evidence", "Evidence",
		g.Map(p.Documents, func(d document) g.Node { return detail(d.Text, text(d.Name)) }))
}

// bought is the content, as text: nothing of it is shown as a browser would.
func (p paid) bought(f *frame) g.Node {
	const title = "What it bought"
	switch {
	case p.Gone != "":
		return titled("content", title, quiet(text("The content was "+p.Gone+".")))
	case p.Content == nil:
		return nil
	}
	said, shown := "The seller wrote this; it is shown as text.", el("p", text("It is not text."))
	if p.Cut {
		said += " This is its beginning."
	}
	if p.Content.Content != nil {
		shown = el("pre", class("content"), attr("tabindex", "0"), attr("aria-label", "The content"),
			text(*p.Content.Content))
	}
	return card("card", "content",
		head("content", title, secondaryButton(f.at("payments", p.ID, "content"), attr("download"),
			text("Download as it came"))),
		quiet(textf("HTTP %d, %s. %s", p.Content.HTTPStatus, p.Content.ContentType, said)),
		shown)
}
