package x402

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"sync"
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

// shape is what a strictReader needs to know of a type.
type shape struct {
	fields   map[string]field // a struct's, by their folded names
	values   reflect.Type     // a map's
	elements reflect.Type     // a slice's or array's
}

// shapes are by reflect.Type: working one out takes longer than reading most documents. A program decodes
// into a fixed number of types.
var shapes sync.Map

// unknownShape is that of a type of which nothing is known.
var unknownShape = &shape{}

// shapeOf is empty where nothing is known of a type: t is nil, or decodes itself.
func shapeOf(t reflect.Type) *shape {
	if t == nil {
		return unknownShape
	}
	if found, ok := shapes.Load(t); ok {
		return found.(*shape)
	}
	s := &shape{}
	switch t := known(t); {
	case t == nil:
	case t.Kind() == reflect.Struct:
		s.fields = map[string]field{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			if f.IsExported() && !f.Anonymous {
				s.fields[fold(name)] = field{name: name, of: f.Type}
			}
		}
	case t.Kind() == reflect.Map:
		s.values = t.Elem()
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		s.elements = t.Elem()
	}
	shapes.Store(t, s)
	return s
}

// valueType is the type behind a key, nil where nothing is known; a key of a struct must have its exact name.
func (s *shape) valueType(key, folded string) (reflect.Type, error) {
	if s.fields == nil {
		return s.values, nil
	}
	f, ok := s.fields[folded]
	if ok && f.name != key {
		return nil, ambiguous("a JSON key in another letter case than "+strconv.Quote(f.name), key)
	}
	return f.of, nil
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
