package x402

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Exact key names: what encoding/json would match although it is spelt otherwise.

// fold makes keys equal that encoding/json would match: its own folding (the smallest rune of the
// case orbit), in lower case, so that most keys need no copy.
func fold(key string) string {
	for i := range len(key) {
		if c := key[i]; c >= utf8.RuneSelf || ('A' <= c && c <= 'Z') {
			return strings.Map(foldRune, key)
		}
	}
	return key
}

func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			if 'A' <= next && next <= 'Z' {
				next += 'a' - 'A'
			}
			return next
		}
		r = next
	}
}

// field is a struct's field as encoding/json names it.
type field struct {
	name string
	of   reflect.Type
}

// fieldType is the type behind a key of t, nil where nothing is known; a key of a struct must have
// its exact name.
func (r *strictReader) fieldType(t reflect.Type, key, folded string) (reflect.Type, error) {
	switch t = known(t); {
	case t == nil:
		return nil, nil
	case t.Kind() == reflect.Map:
		return t.Elem(), nil
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	f, ok := r.fieldsOf(t)[folded]
	if ok && f.name != key {
		return nil, ambiguous("a JSON key in another letter case than "+strconv.Quote(f.name), key)
	}
	return f.of, nil
}

func (r *strictReader) fieldsOf(t reflect.Type) map[string]field {
	if fields, ok := r.fields[t]; ok {
		return fields
	}
	fields := map[string]field{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if f.IsExported() && !f.Anonymous {
			fields[fold(name)] = field{name: name, of: f.Type}
		}
	}
	r.fields[t] = fields
	return fields
}

func elementOf(t reflect.Type) reflect.Type {
	t = known(t)
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return t.Elem()
	default:
		return nil
	}
}

var decodesItself = reflect.TypeFor[json.Unmarshaler]()

// known follows pointers to the type that encoding/json fills; nil when the type decodes itself.
func known(t reflect.Type) reflect.Type {
	for t != nil {
		if t.Implements(decodesItself) || reflect.PointerTo(t).Implements(decodesItself) {
			return nil
		}
		if t.Kind() != reflect.Pointer {
			return t
		}
		t = t.Elem()
	}
	return nil
}
