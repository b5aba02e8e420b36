package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"x402-wallet/x402"
)

// maxAuthChallenges is how many challenges of one answer's WWW-Authenticate are read.
const maxAuthChallenges = 8

// authChallenge is one challenge of WWW-Authenticate (RFC 9110 §11.6.1).
type authChallenge struct {
	scheme     string            // as it was written
	parameters map[string]string // by lower-case name; nil where the challenge has none
	err        error             // the parameters cannot be read, or one comes twice
}

// authChallenges reads WWW-Authenticate, in which commas part challenges and parameters alike: what is not
// name=value begins a challenge. What cannot be read of one challenge spoils no other.
func authChallenges(values []string) (all []authChallenge) {
	for _, value := range values {
		if !utf8.ValidString(value) { // Node writes a header's characters as Latin-1
			value = fromLatin1(value)
		}
		r := authReader{rest: value[:min(len(value), x402.MaxHeader)]}
		for {
			c, ok := r.challenge()
			if !ok || len(all) == maxAuthChallenges {
				break
			}
			all = append(all, c)
		}
	}
	return all
}

func fromLatin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

type authReader struct{ rest string }

// challenge reads the next one: a scheme, and the parameters up to the next scheme.
func (r *authReader) challenge() (c authChallenge, ok bool) {
	for isStray := true; isStray; { // a parameter of no challenge
		r.skip(", \t")
		name, _, _ := r.parameter()
		isStray = name != ""
	}
	c.scheme = r.token()
	if c.scheme == "" {
		return c, false // the end, or what is no scheme: nothing can be told of the rest
	}
	r.skip(" \t")
	if r.takeToken68() {
		return c, true
	}
	for {
		r.skip(", \t")
		name, value, err := r.parameter()
		if name == "" {
			return c, true
		}
		name = strings.ToLower(name)
		if _, twice := c.parameters[name]; twice && err == nil {
			err = fmt.Errorf("the parameter %s comes twice", x402.QuoteName(name))
		}
		if c.parameters == nil {
			c.parameters = map[string]string{}
		}
		c.parameters[name] = value
		c.err = errors.Join(c.err, err)
	}
}

// takeToken68 takes what stands in the place of parameters: characters of base64, and nothing but = after.
func (r *authReader) takeToken68() bool {
	length := 0
	for length < len(r.rest) && (isTokenByte(r.rest[length]) || r.rest[length] == '/') {
		length++
	}
	after := strings.TrimLeft(r.rest[length:], "=")
	isEnd := after == "" || after[0] == ',' || after[0] == ' '
	isPadded := len(after) < len(r.rest)-length
	if length == 0 || !isEnd || (!isPadded && after != "" && after[0] == ' ') {
		return false
	}
	r.rest = after
	return true
}

// parameter reads name=value; name is "" where none follows, and then nothing is taken.
func (r *authReader) parameter() (name, value string, err error) {
	before := r.rest
	name = r.token()
	r.skip(" \t")
	if name == "" || !strings.HasPrefix(r.rest, "=") {
		r.rest = before
		return "", "", nil
	}
	r.rest = r.rest[1:]
	r.skip(" \t")
	if !strings.HasPrefix(r.rest, `"`) {
		return name, r.token(), nil
	}
	value, err = r.quoted()
	return name, value, err
}

// quoted reads a quoted string. \" and \\ are RFC 9110's; mppx writes what Latin-1 has not as \uXXXX.
func (r *authReader) quoted() (string, error) {
	var out strings.Builder
	text := r.rest[1:]
	for text != "" {
		switch c := text[0]; {
		case c == '"':
			r.rest = text[1:]
			return out.String(), nil
		case c == '\\' && len(text) >= 6 && text[1] == 'u':
			unit, err := strconv.ParseUint(text[2:6], 16, 16)
			if err == nil {
				out.WriteRune(rune(unit)) // half of a surrogate pair becomes U+FFFD: for people only
				text = text[6:]
				continue
			}
			out.WriteByte('u')
			text = text[2:]
		case c == '\\' && len(text) >= 2:
			out.WriteByte(text[1])
			text = text[2:]
		default:
			out.WriteByte(c)
			text = text[1:]
		}
	}
	r.rest = ""
	return "", errors.New("a quoted parameter that does not end")
}

func (r *authReader) skip(characters string) { r.rest = strings.TrimLeft(r.rest, characters) }

func (r *authReader) token() (token string) {
	length := 0
	for length < len(r.rest) && isTokenByte(r.rest[length]) {
		length++
	}
	token, r.rest = r.rest[:length], r.rest[length:]
	return token
}

// isTokenByte reports whether a byte may stand in a token (RFC 9110 §5.6.2).
func isTokenByte(c byte) bool {
	isAlphanumeric := (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
	return isAlphanumeric || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
