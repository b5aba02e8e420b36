package dashboard

import (
	g "maragu.dev/gomponents"

	"x402-wallet/x402"
)

// document is the whole page: what every page has, around its own body.
func (f *frame) document() g.Node {
	return g.Group{raw("<!doctype html>"), el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")),
			el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("name", "color-scheme"), attr("content", "light dark")),
			el("title", text(f.Title+" – x402-wallet")),
			g.If(f.Script, el("script", attr("src", "/passkey.js"), attr("defer"))),
			g.If(f.Known || f.Service,
				el("link", attr("rel", "icon"), href(f.at("icon.svg")), attr("type", "image/svg+xml"))),
			el("style", raw(style)),
		),
		el("body",
			g.If(f.Known, el("a", class("skip"), href("#main"), text("Skip to the content"))),
			f.header(),
			el("main", attr("id", "main"), class("wrap"), attr("tabindex", "-1"), f.alerts(), f.Body(f)),
			f.footer(),
		),
	)}
}

func (f *frame) header() g.Node {
	return el("header", class("top"), el("div", class("wrap"),
		el("span", class("brand"), brandMark(), text("x402-wallet")),
		g.If(f.Known, el("nav", attr("aria-label", "Pages"),
			f.entry("overview", f.at(), text("Overview"),
				g.If(len(f.Waiting) > 0, g.Group{text(" "), count(f.Waiting, unseen(" waiting for you"))})),
			f.entry("money", f.at("money"), text("Add money")),
			f.entry("history", f.at("history"), text("History")),
		)),
	))
}

func (f *frame) entry(name, address string, title ...g.Node) g.Node {
	return el("a", href(address), g.If(f.Here == name, attr("aria-current", "page")), g.Group(title))
}

func count[T any](list []T, more ...g.Node) g.Node {
	return el("span", class("count"), textf("%d", len(list)), g.Group(more))
}

func (f *frame) alerts() g.Node {
	if len(f.Alerts) == 0 {
		return nil
	}
	return el("section", class("alerts"), attr("aria-label", "What you should know"),
		g.Map(f.Alerts, alert.node))
}

func (a alert) node() g.Node {
	classes, word := "alert", "Note."
	if a.Grave {
		classes, word = "alert grave", "Stopped."
	}
	return el("div", class(classes), alertMark(), el("p", el("strong", text(word)), text(" "+a.What),
		g.If(a.Do != "", text(" "+a.Do+":")),
		g.If(a.Run != "", g.Group{text(" "), code(a.Run)})))
}

func (f *frame) footer() g.Node {
	place := " on this machine. "
	if f.Service {
		place = ". "
	}
	return el("footer", class("wrap"),
		el("p", text("x402-wallet "+f.Version+place), g.If(f.Known, f.age()),
			text("Nothing on this page is loaded from elsewhere, and viewing it changes nothing.")),
		g.If(f.SignOut != "", post(f.at("signout"),
			hidden("shown", f.SignOut), el("button", class("plain"), text("Sign out")))))
}

// age says of when the page is, and whether it will be of a later moment by itself.
func (f *frame) age() g.Node {
	said := g.Group{text("As of "), instant(f.Now, exact(f.Now)), text(" UTC; ")}
	switch {
	case f.Every > 0:
		return append(said, textf("it updates itself every %d seconds (", f.Every),
			el("a", href(f.at()+"?update="+standsStill), text("turn that off")), text("). "))
	case f.Still:
		return append(said, el("a", href(f.at()), text("let it update itself")), text(". "))
	}
	return append(said, text("reload the page to update it. "))
}

func sentence(words string) func(*frame) g.Node {
	return func(f *frame) g.Node {
		return el("section", class("card narrow"), el("h1", text(f.Title)), el("p", text(words)))
	}
}

// ready is the page whose link takes the cookie along.
func ready(f *frame) g.Node {
	return el("section", class("card narrow"), el("h1", text("Your dashboard is ready")),
		el("p", el("a", class("button"), href(f.at()), text("Open it"))))
}

func problemBody(err x402.Error) func(*frame) g.Node {
	return func(f *frame) g.Node {
		return el("section", class("card narrow"), attr("role", "alert"), el("h1", text(f.Title)),
			el("p", code(string(err.Code))), el("p", text(err.Message)),
			g.If(err.Hint != "", el("p", text(err.Hint))),
			el("p", code("x402-wallet help "+string(err.Code)), text(" explains it.")))
	}
}
