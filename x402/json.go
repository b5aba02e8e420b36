package x402

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits on what a stranger may send (SPEC §10).
const (
	// MaxHeader is one payment header as it is sent. The largest real challenge is 6 KiB of Bazaar schema
	// (x402-protocol.md A.8), and servers themselves stop at 8–16 KiB: 64 KiB refuses nobody honest.
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

// errAmbiguous marks JSON whose meaning depends on who reads it: a key that stands twice in one
// object, or twice but for letter case, or a known key in another case. Go takes the last of them,
// JavaScript the exact one; a document that has both is refused (security.md A11, A12).
var errAmbiguous = errors.New("ambiguous JSON")

// DecodeStrict decodes one strict JSON document of at most limit bytes into v; where v is nil it
// only reports what makes data none: RESPONSE_TOO_LARGE, or RESPONSE_MALFORMED for anything else
// (with errAmbiguous as the cause where a key is ambiguous). Stricter than encoding/json: no
// duplicate keys or case twins, no depth over maxDepth, no invalid UTF-8, no lone surrogates, no
// BOM. It walks over the bytes once and keeps none of them. No error of it repeats what a stranger
// wrote, but a key, quoted and bounded.
//
// Key names are exact: a key that only differs in letter case from one of a struct's is refused,
// where encoding/json would take it. Values whose type decodes itself (json.RawMessage, anything
// with UnmarshalJSON) are checked as if v were nil, and left to their type. Members is for objects that are
// taken apart.
func DecodeStrict(data []byte, limit int, v any) error {
	if err := strict(data, limit, reflect.TypeOf(v), nil); err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return errShape(err)
	}
	return nil
}

func errShape(err error) error {
	return &Error{Code: ResponseMalformed, Message: "the JSON has another shape than expected", Err: err}
}

// strict reads a document of type t, where that is known. Where members is not nil, it gets those of an
// object: parts of data.
func strict(data []byte, limit int, t reflect.Type, members map[string]json.RawMessage) error {
	tooLarge := len(data) > limit
	if tooLarge {
		data = data[:limit] // enough to recognize a bomb of brackets
	}
	r := strictReaders.Get().(*strictReader)
	r.Reset(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	r.data, r.members = data, members
	err := r.document(t)
	r.data, r.members = nil, nil
	if len(data) <= MaxHeader { // a reader keeps what it read until it is used again
		strictReaders.Put(r)
	}
	if tooLarge && !errors.Is(err, errDeep) {
		return Errorf(ResponseTooLarge, "more than %d bytes", limit).WithDetail("limit", limit)
	}
	return err
}

var errDeep = errors.New("too deep")

func malformed(what string) *Error { return &Error{Code: ResponseMalformed, Message: what} }

func ambiguous(what, key string) *Error {
	return (&Error{Code: ResponseMalformed, Message: what, Err: errAmbiguous}).WithDetail("key", quote(key))
}

// quote is Quote for names: a key, a network, a version.
func quote(s string) string {
	const enough = 80
	return Quote(Clip(s, enough))
}

// strictReader walks over a document once, token by token. A nil type means that nothing is known
// of the value that comes next.
type strictReader struct {
	*jsontext.Decoder
	// keys are those of the objects that are open, folded; each object's begin where it found the slice's end
	keys []string
	seen map[place]bool // those behind the first fewKeys of an object
	// as they are written, with their quotes
	names map[string]name
	// what it reads, and where the members of the outermost object are noted; nil: nowhere
	data    []byte
	members map[string]json.RawMessage
}

// strictReaders are kept: making one takes as long as reading a short document. jsontext refuses what is not
// I-JSON (RFC 7493). Duplicate names are found here, together with those that differ in letter case only.
var strictReaders = sync.Pool{New: func() any {
	return &strictReader{seen: map[place]bool{}, names: map[string]name{},
		Decoder: jsontext.NewDecoder(&bytes.Buffer{})}
}}

// name is a key, and what it is folded.
type name struct{ key, folded string }

// place is a key, folded, of the object that is open at a depth.
type place struct {
	depth int
	key   string
}

// fewKeys is how many keys of an object are looked through; those behind them are looked up.
const fewKeys = 16

func (r *strictReader) document(t reflect.Type) error {
	if err := r.value(t); err != nil {
		return err
	}
	if _, err := r.ReadToken(); !errors.Is(err, io.EOF) {
		return malformed("something follows the JSON document")
	}
	return nil
}

// token is ReadToken. Its error names a position only: jsontext's own text quotes the document.
func (r *strictReader) token() (jsontext.Token, error) {
	token, err := r.ReadToken()
	if err != nil {
		return token, r.notJSON(err)
	}
	return token, nil
}

func (r *strictReader) notJSON(err error) error {
	at := r.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at = syntax.ByteOffset
	}
	return malformed("not JSON at byte " + strconv.FormatInt(at, 10))
}

// maxNames and maxName bound the names that a reader keeps: formats have few, and short ones.
const maxNames, maxName = 256, 64

// name is one of an object's, and what it is folded. Those that come again and again are not made again.
func (r *strictReader) name() (key, folded string, err error) {
	raw, err := r.ReadValue()
	if err != nil {
		return "", "", r.notJSON(err)
	}
	if known, ok := r.names[string(raw)]; ok {
		return known.key, known.folded, nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", "", r.notJSON(err)
	}
	key = string(unquoted)
	folded = fold(key)
	if len(raw) <= maxName {
		if len(r.names) >= maxNames {
			clear(r.names)
		}
		r.names[string(raw)] = name{key: key, folded: folded}
	}
	return key, folded, nil
}

func (r *strictReader) value(t reflect.Type) error {
	token, err := r.token()
	if err != nil {
		return err
	}
	if r.StackDepth() > maxDepth {
		return &Error{Code: ResponseMalformed, Message: "JSON nested deeper than " + strconv.Itoa(maxDepth),
			Err: errDeep}
	}
	switch token.Kind() {
	case jsontext.KindBeginArray:
		return r.array(t)
	case jsontext.KindBeginObject:
		return r.object(t)
	default:
		return nil
	}
}

// array reads what follows an opening bracket, the closing one included.
func (r *strictReader) array(t reflect.Type) error {
	element := shapeOf(t).elements
	for r.PeekKind() != jsontext.KindEndArray {
		if err := r.value(element); err != nil {
			return err
		}
	}
	_, err := r.token()
	return err
}

// object reads what follows an opening brace, the closing one included.
func (r *strictReader) object(t reflect.Type) error {
	open, depth, shape := len(r.keys), r.StackDepth(), shapeOf(t)
	defer func() {
		for _, key := range r.keys[min(open+fewKeys, len(r.keys)):] {
			delete(r.seen, place{depth: depth, key: key})
		}
		clear(r.keys[open:])
		r.keys = r.keys[:open]
	}()
	for r.PeekKind() != jsontext.KindEndObject {
		key, folded, err := r.name()
		if err != nil {
			return err
		}
		own := r.keys[open:]
		if slices.Contains(own[:min(fewKeys, len(own))], folded) || r.seen[place{depth, folded}] {
			return ambiguous("duplicate key in a JSON object (case does not tell keys apart)", key)
		}
		if len(own) >= fewKeys {
			r.seen[place{depth, folded}] = true
		}
		r.keys = append(r.keys, folded)
		inner, err := shape.valueType(key, folded)
		if err != nil {
			return err
		}
		begin := r.InputOffset()
		if err := r.value(inner); err != nil {
			return err
		}
		if depth == 1 && r.members != nil {
			r.members[key] = bytes.TrimLeft(r.data[begin:r.InputOffset()], ": \t\r\n")
		}
	}
	_, err := r.token()
	return err
}
