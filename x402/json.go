package x402

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits on what a stranger may send (SPEC §10).
const (
	// MaxHeader is one payment header as it stands on the wire. The largest real challenge is 6 KiB
	// of Bazaar schema (x402-protocol.md A.8), and servers themselves stop at 8–16 KiB: 64 KiB
	// refuses nobody honest.
	MaxHeader = 64 << 10
	// MaxBody is a challenge in a body, or a facilitator's answer: no header limit holds there, so
	// four times as much.
	MaxBody = 256 << 10
	// MaxAccepts is how many options are read: each costs a row in an answer and a look at the
	// chain.
	MaxAccepts = 32
	// MaxDepth is how deep JSON may nest: a deep JSON Schema has some 20 levels; encoding/json
	// alone would allow 10,000.
	MaxDepth = 64
)

// ErrAmbiguous marks JSON whose meaning depends on who reads it: a key that stands twice in one
// object, or twice but for letter case, or a known key in another case. Go takes the last of them,
// JavaScript the exact one; a seller who says both is believed in neither (security.md A11, A12).
var ErrAmbiguous = errors.New("ambiguous JSON")

// Strict reports what makes data not one strict JSON document of at most limit bytes:
// RESPONSE_TOO_LARGE, or RESPONSE_MALFORMED for anything else (with ErrAmbiguous as the cause where
// a key is ambiguous). Stricter than encoding/json: no duplicate keys or case twins, no depth over
// MaxDepth, no invalid UTF-8, no lone surrogates, no BOM. It walks the bytes once, in place.
func Strict(data []byte, limit int) error { return strict(data, limit, nil) }

// DecodeStrict decodes what Strict accepts into v. Key names are exact: a key that only differs in
// letter case from one of a struct's is refused, where encoding/json would take it. Values whose
// type decodes itself (json.RawMessage, anything with UnmarshalJSON) are checked as Strict does and
// left to their type.
func DecodeStrict(data []byte, limit int, v any) error {
	if err := strict(data, limit, reflect.TypeOf(v)); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &Error{Code: ResponseMalformed, Message: "the JSON has another shape than expected", Err: err}
	}
	return nil
}

func strict(data []byte, limit int, t reflect.Type) error {
	tooLarge := len(data) > limit
	if tooLarge {
		data = data[:limit] // enough to call a bomb of brackets by its name
	}
	s := scanner{text: string(data)}
	err := s.document(t)
	if tooLarge && !errors.Is(err, errDeep) {
		return Errorf(ResponseTooLarge, "more than %d bytes", limit).WithDetail("limit", limit)
	}
	return err
}

var errDeep = errors.New("too deep")

func malformed(what string) *Error { return &Error{Code: ResponseMalformed, Message: what} }

func ambiguous(what, key string) *Error {
	return (&Error{Code: ResponseMalformed, Message: what, Err: ErrAmbiguous}).WithDetail("key", quote(key))
}

// quote makes a stranger's text safe to show: bounded, in quotes, ASCII only (no bidirectional or
// invisible letters).
func quote(s string) string {
	const enough = 80
	if len(s) > enough {
		return strconv.QuoteToASCII(s[:enough]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// scanner is the one token walk. A nil type means that nothing is known of the value it looks at.
type scanner struct {
	text  string
	pos   int
	depth int
	// of the objects that are open, folded; each object's begin where it found the slice's end
	keys   []string
	fields map[reflect.Type]map[string]field
}

func (s *scanner) document(t reflect.Type) error {
	if strings.HasPrefix(s.text, "\ufeff") {
		return malformed("JSON with a byte order mark")
	}
	if err := s.value(t); err != nil {
		return err
	}
	if s.space(); s.pos < len(s.text) {
		return malformed("something follows the JSON document")
	}
	if !utf8.ValidString(s.text) {
		return malformed("JSON that is not UTF-8")
	}
	return nil
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.space(); s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// took consumes b when it is next.
func (s *scanner) took(b byte) bool {
	if s.peek() == b && s.pos < len(s.text) {
		s.pos++
		return true
	}
	return false
}

// more consumes what stands behind a member: a comma, or the end.
func (s *scanner) more(closing byte) (end bool, err error) {
	switch c := s.peek(); c {
	case ',', closing:
		s.pos++
		return c == closing, nil
	}
	return false, malformed("JSON without " + string(rune(closing)))
}

func (s *scanner) value(t reflect.Type) error {
	switch c := s.peek(); {
	case c == '{' || c == '[':
		if s.depth++; s.depth > MaxDepth {
			return &Error{Code: ResponseMalformed, Message: "JSON nested deeper than " +
				strconv.Itoa(MaxDepth), Err: errDeep}
		}
		s.pos++
		inside := s.array
		if c == '{' {
			inside = s.object
		}
		err := inside(t)
		s.depth--
		return err
	case c == '"':
		_, err := s.quoted()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	default:
		return s.literal()
	}
}

func (s *scanner) array(t reflect.Type) error {
	if s.took(']') {
		return nil
	}
	element := elementOf(t)
	for {
		if err := s.value(element); err != nil {
			return err
		}
		if end, err := s.more(']'); end || err != nil {
			return err
		}
	}
}

func (s *scanner) object(t reflect.Type) error {
	if s.took('}') {
		return nil
	}
	open := len(s.keys)
	defer func() { s.keys = s.keys[:open] }()
	names := keySet{from: open}
	for {
		if s.peek() != '"' {
			return malformed("a JSON object without a key")
		}
		key, err := s.quoted()
		if err != nil {
			return err
		}
		folded := fold(key)
		if names.has(s.keys, folded) {
			return ambiguous("duplicate key in a JSON object (case does not tell keys apart)", key)
		}
		s.keys = append(s.keys, folded)
		inner, err := s.fieldType(t, key, folded)
		if err != nil {
			return err
		}
		if !s.took(':') {
			return malformed("a JSON key without a value")
		}
		if err := s.value(inner); err != nil {
			return err
		}
		if end, err := s.more('}'); end || err != nil {
			return err
		}
	}
}

// keySet finds a key among those of one object: by looking while they are few, by hash from then
// on, so that neither a million small objects nor one large one is slow.
type keySet struct {
	from   int
	hashed map[string]struct{}
	known  int // keys[from:known] are hashed
}

func (k *keySet) has(keys []string, key string) bool {
	const few = 16
	if len(keys)-k.from < few {
		for _, other := range keys[k.from:] {
			if other == key {
				return true
			}
		}
		return false
	}
	if k.hashed == nil {
		k.hashed, k.known = map[string]struct{}{}, k.from
	}
	for ; k.known < len(keys); k.known++ {
		k.hashed[keys[k.known]] = struct{}{}
	}
	_, is := k.hashed[key]
	return is
}

// quoted reads a string; escapes are undone only for keys that have some, by encoding/json itself.
func (s *scanner) quoted() (string, error) {
	start := s.pos
	escaped := false
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			if !escaped {
				return s.text[start+1 : s.pos-1], nil
			}
			var plain string
			if err := json.Unmarshal([]byte(s.text[start:s.pos]), &plain); err != nil {
				return "", malformed("a JSON string with a bad escape")
			}
			return plain, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return "", err
			}
		case c < ' ':
			return "", malformed("a JSON string with a control character")
		}
	}
	return "", malformed("a JSON string that is not closed")
}

// escape checks the escape that begins at pos and leaves pos on its last byte. A surrogate half
// alone is no character: readers disagree about what it becomes.
func (s *scanner) escape() error {
	if s.pos++; s.pos < len(s.text) && strings.IndexByte(`"\/bfnrt`, s.text[s.pos]) >= 0 {
		return nil
	}
	high, ok := s.hex4()
	if !ok {
		return malformed("a JSON string with a bad escape")
	}
	switch {
	case 0xDC00 <= high && high <= 0xDFFF:
		return malformed("a JSON string with a lone surrogate")
	case 0xD800 <= high && high <= 0xDBFF:
		s.pos++
		if s.pos >= len(s.text) || s.text[s.pos] != '\\' {
			return malformed("a JSON string with a lone surrogate")
		}
		s.pos++
		if low, ok := s.hex4(); !ok || low < 0xDC00 || low > 0xDFFF {
			return malformed("a JSON string with a lone surrogate")
		}
	}
	return nil
}

// hex4 reads uXXXX at pos and leaves pos on the last digit.
func (s *scanner) hex4() (uint64, bool) {
	if len(s.text)-s.pos < 5 || s.text[s.pos] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(s.text[s.pos+1:s.pos+5], 16, 16)
	s.pos += 4
	return n, err == nil
}

func (s *scanner) number() error {
	s.either('-', '-')
	whole := s.either('0', '0') || s.digits()
	fraction := !s.either('.', '.') || s.digits()
	exponent := true
	if s.either('e', 'E') {
		s.either('+', '-')
		exponent = s.digits()
	}
	if !whole || !fraction || !exponent {
		return malformed("a bad JSON number")
	}
	return nil
}

// either consumes one byte that is a or b, if it is next.
func (s *scanner) either(a, b byte) bool {
	if s.pos < len(s.text) && (s.text[s.pos] == a || s.text[s.pos] == b) {
		s.pos++
		return true
	}
	return false
}

// digits consumes digits; false when there are none.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if strings.HasPrefix(s.text[s.pos:], word) {
			s.pos += len(word)
			return nil
		}
	}
	return malformed("not JSON")
}
