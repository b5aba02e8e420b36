package dashboard

import (
	"fmt"

	g "maragu.dev/gomponents"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// body asks about an approval: what it costs, whom it pays and what for, and the forms that decide it.
func (q question) body(f *frame) g.Node {
	until := "Open until"
	if q.State == history.Approved {
		until = "Good until"
	}
	return g.Group{
		g.If(!f.Open, back(f.at(), "Overview")),
		card("card narrow", "ask",
			el("h1", attr("id", "ask"), text(q.title())),
			q.cost(),
			el("dl", class("facts"), q.terms(),
				g.If(q.Agent != "", fact("Asked by", text(q.Agent))),
				fact("Asked because", text(q.Why)),
				fact(until, minute(q.Expires), text(" UTC"))),
			q.meaning(f),
			g.If(q.Problem != "",
				el("p", class("bad"), attr("role", "alert"), attr("id", "problem"), text(q.Problem))),
			g.If(q.Open, q.forms(f))),
	}
}

func (q question) title() string {
	if q.IsSignIn() {
		return "Sign in at " + q.Host + "?"
	}
	pending, approved := "Approve this payment?", "You approved this payment"
	denied := "This payment was denied"
	if n := len(q.Together); n > 0 {
		pending = fmt.Sprintf("Approve these %d payments?", n)
		approved, denied = "You approved these payments", "These payments were denied"
	}
	switch q.State {
	case history.Pending:
		return pending
	case history.Approved:
		return approved
	case history.Denied:
		return denied
	case history.Used:
		return "This approval was used"
	}
	return "This request has expired"
}

func (q question) cost() g.Node {
	price, about := q.Price.Price(), fmt.Sprintf("%s atomic units of %s", q.Amount, q.Symbol)
	switch {
	case q.IsSignIn():
		price, about = "It costs nothing", "the wallet signs in with its key, and asks once for this host"
	case len(q.Together) > 0:
		about = fmt.Sprintf("in all, for %d payments at %s", len(q.Together), q.Host)
	}
	return el("p", class("big"), text(price), of(about))
}

// terms are exactly what is approved.
func (q question) terms() g.Node {
	if len(q.Together) > 0 {
		return g.Map(q.Together, func(a history.Approval) g.Node {
			return exactFact(a.Price.Price(), fmt.Sprintf("%s: %s %s, to %s on %s (%s atomic units of %s)",
				a.Host, a.Method, a.URL, a.PayTo, x402.Title(a.Network), a.Amount, a.Symbol))
		})
	}
	return g.Group{
		g.If(!q.IsSignIn(), exactFact("To", q.PayTo)),
		fact("On", text(x402.Title(q.Network))),
		exactFact("Host", q.Host),
		exactFact("For", q.Method+" "+q.URL),
	}
}

// meaning says what follows from what was decided.
func (q question) meaning(f *frame) g.Node {
	switch {
	case q.State == history.Approved && q.IsSignIn():
		return el("p", text("The agent can sign in until then, and at this host again."))
	case q.State == history.Approved && len(q.Together) > 0:
		return el("p", text("The agent can make each of these payments once, until then."))
	case q.State == history.Approved:
		return el("p", text("The agent can make this payment once, until then."))
	case q.State == history.Denied:
		return el("p", text("Nobody is asked about it again until then."))
	case q.State == history.Used && len(q.Together) > 0:
		return el("p", text("The history has the payments."))
	case q.State == history.Used && f.Open:
		return el("p", text("The payment: "), el("span", class("mono"), text(q.Payment)))
	case q.State == history.Used:
		return el("p", text("The payment: "), el("a", href(f.at("payments", q.Payment)), text(q.Payment)))
	case q.State == history.Expired:
		return el("p", text("When the agent makes its call again, you are asked again."))
	}
	return nil
}

// forms are those that still decide something: a yes to what is not approved, a no to what is not denied.
func (q question) forms(f *frame) g.Node {
	action := f.at("approvals", q.ID)
	yes, no := q.approveByPassphrase(action), q.denyForm(action)
	if q.Passkey {
		yes, no = q.approveByPasskey(action), q.denyByPasskey(action, f.Open)
	}
	return g.Group{
		g.If(q.State != history.Approved, yes),
		g.If(q.State != history.Denied, no),
	}
}

func (q question) approveByPassphrase(action string) g.Node {
	if q.Over {
		return el("p", class("bad"), attr("id", "over"),
			text("Too many wrong passphrases: this dashboard accepts no more. Run "),
			code("x402-wallet approve "+q.ID), text(" in a terminal, or "), code("x402-wallet dashboard"),
			text(" again."))
	}
	describedBy := "why"
	if q.Problem != "" {
		describedBy += " problem"
	}
	return post(action, attr("autocomplete", "off"), class("yes"),
		hidden("shown", q.Shown),
		el("label", attr("for", "passphrase"), text("Passphrase of the wallet")),
		el("p", class("quiet"), attr("id", "why"), text(q.consequence())),
		input("password", "passphrase", attr("id", "passphrase"), attr("required"),
			attr("autocomplete", "off"), attr("maxlength", "1024"), attr("aria-describedby", describedBy),
			g.If(q.Problem != "", attr("aria-invalid", "true"))),
		el("button", attr("name", "decision"), attr("value", "approve"), text(q.approveLabel())))
}

// consequence is what a yes means, said beside its button.
func (q question) consequence() string {
	switch {
	case q.IsSignIn():
		return "This lets the wallet sign in at this host, now and later."
	case len(q.Together) > 0:
		return "This approves each of these payments, once and only on exactly these terms."
	}
	return "This approves one payment, once and only on exactly these terms."
}

func (q question) approveLabel() string {
	if q.IsSignIn() {
		return "Approve"
	}
	return "Approve " + q.Price.Price()
}

func (q question) denyButton(attributes ...g.Node) g.Node {
	label := "Deny"
	if q.State == history.Approved {
		label = "Withdraw it"
	}
	return el("button", class("plain"), g.Group(attributes), text(label))
}

func (q question) denyForm(action string) g.Node {
	return post(action, class("no"), hidden("shown", q.Shown),
		q.denyButton(attr("name", "decision"), attr("value", "deny")), text(" "),
		quietSpan("needs no passphrase"))
}

func (q question) approveByPasskey(action string) g.Node {
	if q.Locked {
		return el("p", class("bad"), attr("id", "locked"),
			text("The wallet is locked. Unlock it first, as the service's user, and load this page again: "),
			code("x402-wallet unlock"))
	}
	return passkeyForm(action, "get", class("yes"),
		hidden("shown", q.Shown), hidden("decision", "approve"),
		quiet(text(q.consequence())),
		el("button", text(q.approveLabel()+" with a passkey")),
		said())
}

// denyByPasskey takes a passkey's answer only of who is not signed in.
func (q question) denyByPasskey(action string, open bool) g.Node {
	form := g.Group{class("no"), hidden("shown", q.Shown), hidden("decision", "deny"), q.denyButton(),
		text(" ")}
	if open {
		return passkeyForm(action, "get", form, said())
	}
	return post(action, form,
		quietSpan("needs no passkey: you are signed in"))
}
