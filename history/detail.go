package history

import (
	"encoding/json"
	"strings"
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
