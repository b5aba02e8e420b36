package history

import (
	"encoding/json"
	"strings"

	"x402-wallet/x402/money"
)

// A detail of the audit chain is one flat object, as toJSON writes it. Reading it so, without a map of
// its names or a copy of its texts, takes a tenth of what encoding/json takes; what is written in any other
// way is left to that.

// scanDetail calls set with each name of an object and its value: of a string its text, of anything else
// what is written there. It reports whether it could read all of it.
func scanDetail(text string, set func(name, value string, isText bool)) bool {
	rest, ok := strings.CutPrefix(text, "{")
	if !ok {
		return false
	}
	if rest == "}" {
		return true
	}
	for {
		name, isText, behind, ok := scanValue(rest)
		if !ok || !isText || !strings.HasPrefix(behind, ":") {
			return false
		}
		value, isText, behind, ok := scanValue(behind[1:])
		if !ok || behind == "" {
			return false
		}
		set(name, value, isText)
		if behind == "}" {
			return true
		}
		if behind[0] != ',' {
			return false
		}
		rest = behind[1:]
	}
}

// scanValue takes the first value off a text: a string without escapes and beyond, a number or a word;
// nothing that is nested.
func scanValue(text string) (value string, isText bool, behind string, ok bool) {
	if strings.HasPrefix(text, `"`) {
		for i := 1; i < len(text); i++ {
			switch c := text[i]; {
			case c == '"':
				return text[1:i], true, text[i+1:], true
			case c == '\\' || c < ' ' || c > '~':
				return "", false, "", false
			}
		}
		return "", false, "", false
	}
	end := strings.IndexAny(text, ",}")
	if end < 0 {
		return "", false, "", false
	}
	value = text[:end]
	switch value {
	case "true", "false", "null":
		return value, false, text[end:], true
	}
	return value, false, text[end:], isNumber(value)
}

// isNumber is about whole numbers of at most 18 digits, as our details have them.
func isNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(digits) > 0 && len(digits) <= 18 && (digits[0] != '0' || text == "0")
}

// readStep is what json.Unmarshal makes of a detail.
func readStep(text string) (d step, err error) {
	known := true
	all := scanDetail(text, func(name, value string, isText bool) {
		into := d.text(name)
		switch {
		case into != nil && isText:
			*into = value
		case name == "n" && !isText && isNumber(value):
			d.N = number(value)
		case name == "falseReceipt" && value != "null" && !isText && !isNumber(value):
			d.FalseReceipt = value == "true"
		case into != nil || name == "n" || name == "chain" || name == "falseReceipt" || !plainNames[name]:
			known = false
		}
	})
	if all && known {
		return d, nil
	}
	d = step{}
	err = json.Unmarshal([]byte(text), &d)
	return d, err
}

// text is where a name's text belongs; nil: nowhere.
func (d *step) text(name string) *string {
	switch name {
	case "row":
		return &d.Row
	case "requirement":
		return &d.Requirement
	case "key":
		return &d.Key
	case "unique":
		return &d.Unique
	case "evidence":
		return &d.Evidence
	case "payload":
		return &d.Payload
	case "proof":
		return &d.Proof
	case "transaction":
		return &d.Transaction
	case "note":
		return &d.Note
	case "why":
		return &d.Why
	case "facilitator":
		return &d.Facilitator
	case "receipt":
		return &d.Receipt
	}
	return nil
}

// plainNames are the others that payments' events have: encoding/json matches names in any case, so that
// one which is not known here may be one of ours.
var plainNames = map[string]bool{"amount": true, "microdollars": true, "asset": true, "network": true,
	"payTo": true, "url": true, "delivered": true, "sha256": true, "bytes": true, "httpStatus": true,
	"type": true, "truncated": true, "session": true, "sessionCap": true, "created": true, "host": true,
	"resource": true, "sums": true}

// readSignature is what json.Unmarshal makes of a detail.
func readSignature(text string) (g signature, err error) {
	known := true
	all := scanDetail(text, func(name, value string, isText bool) {
		into, whole := g.text(name), g.whole(name)
		switch {
		case into != nil && isText:
			*into = value
		case whole != nil && !isText && isNumber(value):
			*whole = number(value)
		case name == "sessionCap" && value == "null" && !isText:
			g.SessionCap = nil
		case isText && name != "sums":
			known = known && g.setMoney(name, value)
		case name != "sums":
			known = false
		}
	})
	if all && known {
		return g, nil
	}
	g = signature{}
	err = json.Unmarshal([]byte(text), &g)
	return g, err
}

// whole is where a name's number belongs; nil: nowhere.
func (g *signature) whole(name string) *int64 {
	switch name {
	case "n":
		return &g.Number
	case "created":
		return &g.Created
	}
	return nil
}

// setMoney reports whether a name is that of a sum of money, and the text is one.
func (g *signature) setMoney(name, text string) bool {
	switch name {
	case "amount":
		return g.Amount.UnmarshalText([]byte(text)) == nil
	case "microdollars":
		return g.Price.UnmarshalText([]byte(text)) == nil
	case "sessionCap":
		g.SessionCap = new(money.Dollars)
		return g.SessionCap.UnmarshalText([]byte(text)) == nil
	}
	return false
}

// text is where a name's text belongs; nil: nowhere.
func (g *signature) text(name string) *string {
	switch name {
	case "session":
		return &g.Session
	case "host":
		return &g.Host
	case "network":
		return &g.Network
	case "asset":
		return &g.Asset
	case "payTo":
		return &g.PayTo
	case "resource":
		return &g.Resource
	case "key":
		return &g.Key
	case "unique":
		return &g.Unique
	case "evidence":
		return &g.Evidence
	case "sha256":
		return &g.SignedBytes
	}
	return nil
}

// numbered is what an event says of which payment: its number, whether a client has its answer, and
// whether the chain proved it.
type numbered struct {
	Number    int64           `json:"n"`
	Chain     json.RawMessage `json:"chain"`
	Delivered bool            `json:"delivered"`
}

// readNumbered is what json.Unmarshal makes of a detail.
func readNumbered(text string) (d numbered, err error) {
	known := true
	all := scanDetail(text, func(name, value string, isText bool) {
		switch {
		case name == "n" && !isText && isNumber(value):
			d.Number = number(value)
		case name == "delivered" && !isText && (value == "true" || value == "false"):
			d.Delivered = value == "true"
		case numberedNames[name] || (plainNames[name] && name != "delivered"):
		default:
			known = false
		}
	})
	if all && known {
		return d, nil
	}
	d = numbered{}
	err = json.Unmarshal([]byte(text), &d)
	return d, err
}

// numberedNames are the others that such events have, beside plainNames.
var numberedNames = map[string]bool{"proof": true, "transaction": true, "note": true, "facilitator": true,
	"receipt": true, "falseReceipt": true, "why": true}

// number is what isNumber said of.
func number(text string) (n int64) {
	for _, c := range []byte(strings.TrimPrefix(text, "-")) {
		n = 10*n + int64(c-'0')
	}
	if text[0] == '-' {
		return -n
	}
	return n
}
