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

// step is what the details of a payment's events hold.
type step struct {
	reservedDetail
	Unique    string
	Submitted bool
	Why       string // of a hold that was released
	Charged   string // what was less than was signed for
	Returned  int64  // of its price
	outcomeDetail
	contentDetail
}

// readStep is what json.Unmarshal makes of a detail.
func readStep(text string) (d step, err error) {
	known := true
	all := scanDetail(text, func(name, value string, isText bool) {
		if into := d.text(name); into != nil {
			*into, known = value, known && isText
			return
		}
		isBool := !isText && (value == "true" || value == "false")
		switch into, whole := d.flag(name), d.whole(name); {
		case into != nil:
			*into, known = value == "true", known && isBool
		case whole != nil && !isText && isNumber(value):
			*whole = number(value)
		case !signatureNames[name]:
			known = false
		}
	})
	if all && known {
		return d, nil
	}
	var other step // not d, which then would be allocated for every detail
	err = json.Unmarshal([]byte(text), &other)
	return other, err
}

// text is where a name's text belongs; nil: nowhere.
func (d *step) text(name string) *string {
	switch name {
	case "row":
		return &d.Row
	case "key":
		return &d.Key
	case "stored":
		return &d.Stored
	case "unique":
		return &d.Unique
	case "why":
		return &d.Why
	case "charged":
		return &d.Charged
	case "proof":
		return (*string)(&d.Proof)
	case "transaction":
		return &d.Transaction
	case "facilitator":
		return &d.Facilitator
	case "receipt":
		return &d.Receipt
	case "chain":
		return &d.Chain
	case "note":
		return &d.Note
	case "contentDigest":
		return &d.SHA256
	case "type":
		return &d.Type
	}
	return nil
}

// flag is where a name's yes or no belongs; nil: nowhere.
func (d *step) flag(name string) *bool {
	switch name {
	case "submitted":
		return &d.Submitted
	case "falseReceipt":
		return &d.FalseReceipt
	case "delivered":
		return &d.Delivered
	case "truncated":
		return &d.Truncated
	}
	return nil
}

// whole is where a name's number belongs; nil: nowhere.
func (d *step) whole(name string) *int64 {
	switch name {
	case "bytes":
		return &d.Bytes
	case "returned":
		return &d.Returned
	case "httpStatus":
		return &d.Status
	}
	return nil
}

// signatureNames are the others that payments' events have: encoding/json matches names in any case, so
// that one which is not known here may be one of ours.
var signatureNames = map[string]bool{"created": true, "sessionCap": true, "evidence": true, "sha256": true,
	"sums": true}

// readSignature is what json.Unmarshal makes of a detail.
func readSignature(text string) (g signature, err error) {
	known := true
	all := scanDetail(text, func(name, value string, isText bool) {
		into := g.text(name)
		switch {
		case into != nil && isText:
			*into = value
		case name == "created" && !isText && isNumber(value):
			g.Created = number(value)
		case name == "submitted" && !isText && (value == "true" || value == "false"):
			g.Submitted = value == "true"
		case name == "sessionCap" && isText:
			g.SessionCap = new(money.Dollars)
			known = known && g.SessionCap.UnmarshalText([]byte(value)) == nil
		case name != "sums":
			known = false
		}
	})
	if all && known {
		return g, nil
	}
	var other signature
	err = json.Unmarshal([]byte(text), &other)
	return other, err
}

// text is where a name's text belongs; nil: nowhere.
func (g *signature) text(name string) *string {
	switch name {
	case "row":
		return &g.Row
	case "key":
		return &g.Key
	case "unique":
		return &g.Unique
	case "evidence":
		return &g.Evidence
	case "sha256":
		return &g.SignedBytes
	case "stored":
		return &g.Stored
	}
	return nil
}

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
