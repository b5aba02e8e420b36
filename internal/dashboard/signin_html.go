package dashboard

import g "maragu.dev/gomponents"

// passkeyForm is sent by the script with a passkey's answer to the options that it fetches; use is "get", or
// "create" for a new passkey.
func passkeyForm(action, use string, children ...g.Node) g.Node {
	return post(action, attr("data-passkey", use),
		attr("data-options", action+"/challenge"), hidden("answer", ""), g.Group(children))
}

// said is where the script says what went wrong.
func said() g.Node {
	return g.Group{
		el("p", class("bad"), attr("role", "alert")),
		el("noscript", el("p", class("bad"),
			text("This takes a script of the wallet's own: allow it for this page."))),
	}
}

func signInBody(f *frame) g.Node {
	return card("card narrow", "signin",
		el("h1", attr("id", "signin"), text("Sign in")),
		el("p", text("These are the pages of the wallet's owner. A passkey opens them.")),
		passkeyForm(f.at("signin"), "get", el("button", text("Sign in with a passkey")), said()),
		quiet(text("The first one is made in a terminal, as the service's user: "),
			code("x402-wallet passkeys add NAME")))
}

func refusedBody(why string) func(*frame) g.Node {
	return func(f *frame) g.Node {
		return el("section", class("card narrow"), attr("role", "alert"), el("h1", text(f.Title)),
			el("p", text(why)), el("p", el("a", href(f.at()), text("Sign in"))))
	}
}

func (a adding) body(f *frame) g.Node {
	if a.Done {
		return card("card narrow", "adding",
			el("h1", attr("id", "adding"), text("The passkey "+a.Name+" is made")),
			el("p",
				text("Go back to the terminal: it becomes yours when you type the passphrase there. Then "),
				el("a", href(f.at()), text("sign in")), text(".")))
	}
	return card("card narrow", "adding",
		el("h1", attr("id", "adding"), text("Add the passkey "+a.Name)),
		el("p", text("With it you sign in to these pages, and approve payments of this wallet. Make it at a "+
			"device that no agent uses.")),
		g.If(a.Problem != "", el("p", class("bad"), attr("role", "alert"), text(a.Problem))),
		passkeyForm(f.at("passkeys", "add", a.Token), "create",
			el("button", text("Make the passkey")), said()))
}
