package notify

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// Notice is what is told: enough to decide whether to look, and where. It is ASCII throughout; what a
// stranger wrote in it is bounded, and what would not be seen is escaped.
type Notice struct {
	Kind      string `json:"kind"` // "approval", "freeze", "more" or "test"
	ID        string `json:"id"`   // of the approval; of what is none, the notice's own
	At        string `json:"at"`   // RFC 3339, as ExpiresAt
	Text      string `json:"text"` // all of it in one line, for a person
	Price     string `json:"price,omitempty"`
	Host      string `json:"host,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Why       string `json:"why,omitempty"`
	ExpiresAt string `json:"expiresAt,omitempty"`
	More      int    `json:"more,omitempty"` // how many others are told of by this notice
	Command   string `json:"command,omitempty"`
	Page      string `json:"page,omitempty"` // where the owner decides in a browser
}

// The kinds of notices.
const (
	kindApproval = "approval"
	kindFreeze   = "freeze"
	kindMore     = "more"
	kindTest     = "test"
)

// maxWhy bounds a reason, and maxText all that a person reads, in characters: a reason names at most two
// things of a stranger's, and a desktop shows a few lines.
const maxWhy, maxText = 400, 1000

// approval is a question to the owner.
func approval(a history.Approval, page string) Notice {
	n := Notice{Kind: kindApproval, ID: a.ID, At: a.Created.UTC().Format(time.RFC3339),
		Host:  x402.Brief(a.Host),
		Price: a.Price.Price(), Agent: x402.Brief(a.Agent), Why: x402.BriefTo(a.Why, maxWhy),
		ExpiresAt: a.Expires.UTC().Format(time.RFC3339), Command: x402.Command("approve", a.ID), Page: page}
	what := "Pay " + n.Price + " to"
	if a.IsSignIn() {
		what = "Sign in, for nothing, at"
	}
	return n.saying("%s %s? Asked because %s. Open until %s.", what, x402.Quote(a.Host), n.Why, n.ExpiresAt)
}

// freeze is a stop of payments that only the owner lifts.
func freeze(f history.Freeze) Notice {
	n := Notice{Kind: kindFreeze, ID: newID(), At: f.At.UTC().Format(time.RFC3339),
		Why: x402.BriefTo(f.Why, maxWhy), Command: x402.Command("unfreeze")}
	return n.saying("Payments of %s are stopped, by the %s: %s.", f.What(), f.By, n.Why)
}

// more stands for so many notices that are not told one by one.
func more(count int) Notice {
	n := Notice{Kind: kindMore, ID: newID(), At: now(), More: count, Command: x402.Command("approvals")}
	return n.saying("And %d more wait.", count)
}

func test() Notice {
	n := Notice{Kind: kindTest, ID: newID(), At: now()}
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

// line is the notice as one line of JSON.
func (n Notice) line() ([]byte, error) {
	text, err := json.Marshal(n)
	return append(text, '\n'), err
}

func newID() string { return "ntc_" + rand.Text() }

func now() string { return time.Now().UTC().Format(time.RFC3339) }
