package dashboard

import g "maragu.dev/gomponents"

// freezeBody is the page that stops all payments; token is its form's.
func freezeBody(token string) func(*frame) g.Node {
	return func(f *frame) g.Node {
		page := frozen()
		if !f.Frozen {
			page = freezeForm(f.at("freeze"), token)
		}
		return g.Group{back(f.at(), "Overview"), card("card narrow", "stop", page)}
	}
}

func frozen() g.Node {
	return g.Group{
		el("h1", attr("id", "stop"), text("All payments are stopped")),
		el("p", text("Nothing is paid until you lift it in a terminal, with the passphrase: "),
			code("x402-wallet unfreeze")),
	}
}

func freezeForm(action, token string) g.Node {
	return g.Group{
		el("h1", attr("id", "stop"), text("Stop all payments?")),
		el("p", text("From then on no agent and no program pays anything with this wallet. What was sent "+
			"already cannot be called back.")),
		el("p", text("To allow payments again you type your passphrase in a terminal: "),
			code("x402-wallet unfreeze")),
		post(action, hidden("shown", token),
			el("button", class("danger"), text("Stop all payments now")), text(" "),
			quietSpan("needs no passphrase")),
	}
}
