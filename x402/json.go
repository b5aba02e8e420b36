package x402

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/x402/money"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Limits on what a stranger may send.
const (
	// MaxHeader is one payment header as it is sent. The largest real challenge is 6 KiB of Bazaar schema,
	// and servers themselves stop at 8–16 KiB: 64 KiB refuses nobody honest.
	MaxHeader = 64 << 10
	// MaxBody is a challenge in a body, or a facilitator's answer: no header limit holds there, so
	// four times as much.
	MaxBody = 256 << 10
	// MaxAccepts is how many options are read: each costs a row in an answer and a look at the chain.
	MaxAccepts = 32
	// maxDepth is how deep JSON may nest: a deep JSON Schema has some 20 levels; jsontext
	// and encoding/json alone would allow 10,000.
	maxDepth = 64
)

// ErrAmbiguous marks JSON that two programs may read differently: a key that stands twice in one object, or
// twice but for letter case, or a known key in another letter case. encoding/json takes the last of such
// keys, JavaScript the exact one. A document with such a key is refused.
var ErrAmbiguous = errors.New("ambiguous JSON")

var errDeep = errors.New("too deep")

// DecodeStrict decodes one JSON document of at most limit bytes into v, a pointer, whose former value is
// lost. If v is nil, the document is only checked.
//
// A document is refused for a duplicate key, for keys of one object that differ in letter case only, for
// more than maxDepth levels, for invalid UTF-8, a lone surrogate or a byte order mark, and for anything
// behind it. A key that differs from a field's name in letter case only is refused where encoding/json
// would take it for that field. Values whose type decodes itself (json.RawMessage, anything with
// UnmarshalJSON) are left to their type.
//
// An error is an *Error with code RESPONSE_TOO_LARGE or RESPONSE_MALFORMED. Its text repeats nothing of the
// document but a key, quoted and bounded.
func DecodeStrict(data []byte, limit int, v any) error {
	if err := checkStrict(data, limit); err != nil || v == nil {
		return err
	}
	into := reflect.ValueOf(v).Elem()
	exact, inAnyCase := reflect.New(into.Type()), reflect.New(into.Type())
	if err := jsonv2.Unmarshal(data, exact.Interface()); err != nil {
		return errShape(err)
	}
	err := json.Unmarshal(data, inAnyCase.Interface())
	if err != nil || !reflect.DeepEqual(exact.Interface(), inAnyCase.Interface()) {
		return &Error{Code: ResponseMalformed, Err: ErrAmbiguous,
			Message: "a JSON key in another letter case than the known one"}
	}
	into.Set(exact.Elem())
	return nil
}

func errShape(err error) error {
	return &Error{Code: ResponseMalformed, Message: "the JSON has another shape than expected", Err: err}
}

func Malformed(what string) *Error { return &Error{Code: ResponseMalformed, Message: what} }

func ambiguous(key string) *Error {
	e := &Error{Code: ResponseMalformed, Err: ErrAmbiguous,
		Message: "duplicate key in a JSON object (case does not tell keys apart)"}
	return e.WithDetail("key", QuoteName(key))
}

// QuoteName is Quote for names: a key, a network, a version.
func QuoteName(s string) string {
	const enough = 80
	return Quote(Clip(s, enough))
}

// checkStrict checks everything that does not depend on the type that is decoded into.
func checkStrict(data []byte, limit int) error {
	if len(data) <= limit {
		return checkDocument(data)
	}
	if err := checkDocument(data[:limit]); errors.Is(err, errDeep) {
		return err // the reason says more than the size
	}
	return Errorf(ResponseTooLarge, "more than %d bytes", limit).WithDetail("limit", limit)
}

// checkDocument refuses what jsontext refuses (duplicate keys and all else that is not I-JSON, RFC 7493),
// more than maxDepth levels, and keys of one object that differ in letter case only.
func checkDocument(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	var open openObjects
	for isOpen := true; isOpen; {
		token, err := dec.ReadToken()
		if err != nil {
			return notStrict(dec, err)
		}
		depth := dec.StackDepth()
		if depth > maxDepth {
			return &Error{Code: ResponseMalformed, Err: errDeep,
				Message: "JSON nested deeper than " + strconv.Itoa(maxDepth)}
		}
		parent, length := dec.StackIndex(depth)
		isName := parent == jsontext.KindBeginObject && length%2 == 1
		if twin := open.add(token, isName); twin != "" {
			return ambiguous(twin)
		}
		isOpen = depth > 0
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return Malformed("something follows the JSON document")
	}
	return nil
}

// notStrict gives the position of a token that jsontext refuses. jsontext's own text quotes the document.
func notStrict(dec *jsontext.Decoder, err error) error {
	at := dec.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return ambiguous(syntax.JSONPointer.LastToken())
		}
		at = syntax.ByteOffset
	}
	return Malformed("not JSON at byte " + strconv.FormatInt(at, 10))
}

// openObjects holds the names of the objects whose closing brace is not yet read, with letter case folded.
type openObjects struct {
	names  []string
	begins []int // for each object, where its names begin
}

// add takes the next token. At an object's end it returns a name that the object has in two letter cases,
// or "".
func (o *openObjects) add(token jsontext.Token, isName bool) (twin string) {
	switch {
	case isName:
		o.names = append(o.names, foldCase(token.String()))
	case token.Kind() == jsontext.KindBeginObject:
		o.begins = append(o.begins, len(o.names))
	case token.Kind() == jsontext.KindEndObject:
		last := len(o.begins) - 1
		own := o.names[o.begins[last]:]
		slices.Sort(own)
		for i := 1; i < len(own); i++ {
			if own[i] == own[i-1] {
				twin = own[i]
			}
		}
		o.names, o.begins = o.names[:o.begins[last]], o.begins[:last]
	}
	return twin
}

// foldCase makes names equal that encoding/json matches with the same field.
func foldCase(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// MaxIdentifier bounds scheme, network, asset, payTo and a settlement's transaction, which are
// shown as they are: the longest real one, a signature on Solana, has 88 characters.
const MaxIdentifier = maxQuoted

// Object is a JSON object that DecodeStrict has accepted: its keys are exact and single. A member
// that is null counts as absent.
type Object map[string]json.RawMessage

func IsNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Text reads a JSON string; absent, and null, are "". ok is false for anything else.
func Text(raw json.RawMessage) (s string, ok bool) {
	if IsNull(raw) {
		return "", true
	}
	ok = json.Unmarshal(raw, &s) == nil
	return s, ok
}

func (o Object) Has(key string) bool { return !IsNull(o[key]) }

// Text is an optional string.
func (o Object) Text(key string) (s string, err error) {
	s, ok := Text(o[key])
	if !ok {
		return "", fmt.Errorf("%s is not a JSON string", key)
	}
	return s, nil
}

// Identifier is a required name or address: visible ASCII, so that it can be compared, stored and
// shown as it is.
func (o Object) Identifier(key string) (string, error) {
	if !o.Has(key) {
		return "", fmt.Errorf("%s is missing", key)
	}
	s, err := o.Text(key)
	if err != nil {
		return "", err
	}
	isVisible := strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
	if s == "" || len(s) > MaxIdentifier || !isVisible {
		return "", fmt.Errorf("%s is not 1 to %d visible ASCII characters: %s", key, MaxIdentifier,
			QuoteName(s))
	}
	return s, nil
}

// Object is an optional object, its members as they came.
func (o Object) Object(key string) (members map[string]json.RawMessage, err error) {
	if o.Has(key) && json.Unmarshal(o[key], &members) != nil {
		return nil, fmt.Errorf("%s is not a JSON object", key)
	}
	return members, nil
}

// OptionalAmount is a number of atomic units in a JSON string, 0 too; nil: it is absent.
func (o Object) OptionalAmount(key string) (*money.Amount, error) {
	if !o.Has(key) {
		return nil, nil
	}
	text, err := o.Text(key)
	if err != nil {
		return nil, err
	}
	a, err := money.ParseAmount(text)
	if err != nil {
		return nil, fmt.Errorf("%s is not an amount", key)
	}
	return &a, nil
}
