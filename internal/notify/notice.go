package notify

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/x402"
)

// Notice is what is told: enough to decide whether to look, and where. It is ASCII throughout; what a
// stranger wrote in it is bounded, and what would not be seen is escaped.
type Notice struct {
	Kind      string `json:"kind"`            // an alert's (alerts.Kind), "more" or "test"
	ID        string `json:"id"`              // the approval's; of others the alert's or its own
	Alert     string `json:"alert,omitempty"` // the same in each try: who is told twice knows it by that
	At        string `json:"at"`              // RFC 3339, as ExpiresAt
	Text      string `json:"text"`            // all of it in one line, for a person
	Price     string `json:"price,omitempty"`
	Host      string `json:"host,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Why       string `json:"why,omitempty"`
	ExpiresAt string `json:"expiresAt,omitempty"`
	Used      string `json:"used,omitempty"` // of a budget, as Limit
	Limit     string `json:"limit,omitempty"`
	Left      string `json:"left,omitempty"` // of funds
	More      int    `json:"more,omitempty"` // how many others are told of by this notice
	Command   string `json:"command,omitempty"`
	Page      string `json:"page,omitempty"` // where the owner decides in a browser
}

// The kinds of notices that are no alert's.
const (
	kindMore = "more"
	kindTest = "test"
)

// maxWhy bounds a reason, and maxText all that a person reads, in characters: a reason names at most two
// things of a stranger's, and a desktop shows a few lines.
const maxWhy, maxText = 400, 1000

// notice is an alert as it is told; page is where an approval is decided in a browser.
func notice(a alerts.Alert, page string) Notice {
	d := a.Detail
	n := Notice{Kind: string(a.Kind), ID: a.ID, Alert: a.ID, At: stamp(a.At), Host: x402.Brief(d.Host),
		Agent: x402.Brief(d.Agent), Why: x402.BriefTo(d.Why, maxWhy), Page: page}
	if !d.Expires.IsZero() {
		n.ExpiresAt = stamp(d.Expires)
	}
	switch a.Kind {
	case alerts.Approval:
		id := history.ListOf(a.Subject)
		n.ID, n.Price, n.Command = x402.Brief(id), d.Price.Price(), x402.Command("approve", id)
		what := "Pay " + n.Price + " to"
		if d.SignIn {
			what = "Sign in, for nothing, at"
		}
		return n.saying("%s %s? Asked because %s. Open until %s.", what, x402.Quote(d.Host), n.Why,
			n.ExpiresAt)
	case alerts.Freeze:
		n.Command = x402.Command("unfreeze")
		stopped := history.Freeze{Network: d.Network, Account: d.Account}
		return n.saying("Payments of %s are stopped, by the %s: %s.", stopped.What(), d.By, n.Why)
	case alerts.Budget:
		n.Used, n.Limit, n.Command = d.Used.Price(), d.Limit.Price(), x402.Command("budget")
		return n.saying("Of your %s %s of %s are used.", a.Subject, n.Used, n.Limit)
	case alerts.Payment:
		n.ID, n.Price, n.Command = x402.Brief(a.Subject), d.Price.Price(), x402.Command("reconcile")
		return n.saying("Whether %s were paid to %s is still not known, although what was signed ended at "+
			"%s: the chain did not say. It counts as spent.", n.Price, x402.Quote(d.Host), n.ExpiresAt)
	case alerts.Ledger:
		n.Command = x402.Command("doctor")
		return n.saying("Nothing is paid, because %s.", n.Why)
	case alerts.Home:
		n.Command = x402.Command("doctor")
		return n.saying("Other users of this machine could enter the wallet's home: %s. It is closed again; "+
			"a program that the wallet started may have opened it.", n.Why)
	case alerts.Funds:
		n.Left, n.Command = d.Left.Price(), renewal(d)
		return n.saying("Little is left to pay from: %s of %s, by the %s of %s on %s.", n.Left,
			x402.Brief(d.Symbol), d.Source, x402.Brief(d.Account), x402.NetworkName(d.Network))
	case alerts.Subscription:
		name, _, _ := strings.Cut(a.Subject, ":")
		n.Command = x402.Command("subscriptions", "show", name)
		again := "This run is over; the next one comes in its time."
		if n.ExpiresAt != "" {
			again = "It is tried again from " + n.ExpiresAt + " on."
		}
		return n.saying("The subscription %s was not bought: %s. %s", x402.Brief(name), n.Why, again)
	case alerts.Proposal:
		n.ID, n.Price = x402.Brief(a.Subject), d.Price.Price()
		n.Command = x402.Command("subscriptions", "accept", a.Subject)
		return n.saying("An agent would like something of %s to be bought again and again, for up to %s "+
			"each time. It says why: %s. Nothing is bought until you accept it.", x402.Quote(d.Host), n.Price,
			x402.Quote(n.Why))
	}
	n.Command = x402.Command("alerts")
	return n.saying("%s: %s.", n.Kind, n.Why)
}

// renewal is the command by which the owner renews what the agent may spend of theirs. It makes the
// transaction anew, for the owner to sign: one that was made with the alert would have ended before it is
// read. Nothing is signed by it here.
func renewal(d alerts.Detail) string {
	network, known := x402.Network(d.Network)
	if d.Renew == 0 || !known {
		return x402.Command("balance")
	}
	amount := d.Renew.String()
	if d.Source == "vault" {
		return x402.Command("vault", "deposit", "--network", network, "--amount", amount)
	}
	return x402.Command("delegation", "approve", "--network", network, "--amount", amount, "--unsigned")
}

// Text is an alert in one line, for a person.
func Text(a alerts.Alert) string { return notice(a, "").Text }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// more stands for alerts that are not told one by one. Its id is that of the very same ones.
func more(alerts []alerts.Alert) Notice {
	newest := slices.Max(ids(alerts))
	id := fmt.Sprintf("more_%s_%d", strings.TrimPrefix(newest, "alr_"), len(alerts))
	n := Notice{Kind: kindMore, ID: id, Alert: id, At: stamp(time.Now()), More: len(alerts),
		Command: x402.Command("alerts")}
	return n.saying("And %d more wait.", n.More)
}

func test() Notice {
	n := Notice{Kind: kindTest, ID: "ntc_" + rand.Text(), At: stamp(time.Now())}
	return n.saying("This is a test: you are told here of what waits for you.")
}

// saying sets the text: what there is, and where it is decided.
func (n Notice) saying(format string, args ...any) Notice {
	n.Text = fmt.Sprintf(format, args...)
	if n.Command != "" {
		n.Text += " By: " + n.Command
	}
	if n.Page != "" {
		n.Text += " or " + n.Page
	}
	n.Text = x402.BriefTo(n.Text, maxText)
	return n
}

func (n Notice) line() ([]byte, error) {
	text, err := json.Marshal(n)
	return append(text, '\n'), err
}
