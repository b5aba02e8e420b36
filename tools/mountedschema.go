package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
)

// Hosts refuse a whole list of tools over one schema that they do not take, and each takes another part
// of JSON Schema (typescript-sdk#1175). So no schema of a mounted server is passed on: a new one is
// written, of the few words that all of them take.

const (
	// maxSchemas is how many schemas one may consist of, when its references are written out. A
	// further one takes any value.
	maxSchemas = 256
	maxNesting = 16 // likewise, within each other
	anObject   = "object"
)

var (
	hostKey = pattern.Lazy(`^[A-Za-z0-9_.-]{1,64}$`)
	// everyObjects are the names that every object of JavaScript has. Clients take an object that has
	// one of them as its own for no plain one (zod: constructor).
	everyObjects = []string{"constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
		"toLocaleString", "toString", "valueOf", "__proto__", "__defineGetter__", "__defineSetter__",
		"__lookupGetter__", "__lookupSetter__"}
	jsonTypes = []string{"string", "number", "integer", "boolean", "array", "null", anObject}
)

// hostSchema is a schema that every host takes. The zero value is {}, which takes any value.
type hostSchema struct {
	Type        string                 `json:"type,omitempty"`
	Description string                 `json:"description,omitempty"`
	Properties  map[string]*hostSchema `json:"properties,omitzero"`
	Required    []string               `json:"required,omitempty"`
	Items       *hostSchema            `json:"items,omitempty"`
	Enum        []string               `json:"enum,omitempty"`
}

// schemaWriter writes one schema anew.
type schemaWriter struct {
	of        map[string]any // what its references lead into
	left      int            // schemas that may still be written
	open      []string       // references that are being written out
	isPartial bool           // not all is said that the server's says
}

// shownInput is a server's input schema as hosts get it. isPartial: the server's own says more. Its error
// is why no schema can stand for it.
func shownInput(schema any) (text json.RawMessage, isPartial bool, err error) {
	given, err := json.Marshal(schema)
	if err == nil {
		err = x402.DecodeStrict(given, maxSchema, nil)
	}
	var value any
	if err == nil {
		err = json.Unmarshal(given, &value)
	}
	if err != nil {
		return nil, false, err
	}
	w := schemaWriter{left: maxSchemas}
	w.of, _ = value.(map[string]any)
	top, err := w.schema(value, 0)
	if err != nil {
		return nil, false, err
	}
	if top.Type != anObject {
		w.isPartial = w.isPartial || len(w.of) > 0
		top = &hostSchema{Type: anObject, Description: top.Description}
	}
	if top.Properties == nil {
		top.Properties = map[string]*hostSchema{}
	}
	text, err = json.Marshal(top)
	if err == nil && len(text) > maxSchema {
		err = errors.New("its references make it too long")
	}
	return text, w.isPartial, err
}

func (w *schemaWriter) schema(given any, depth int) (*hostSchema, error) {
	object, isObject := given.(map[string]any)
	w.left--
	if !isObject || w.left < 0 || depth > maxNesting {
		w.isPartial = w.isPartial || given != true // true is {}
		return &hostSchema{}, nil
	}
	if other, open := w.standsFor(object); other != nil {
		if open != "" {
			w.open = append(w.open, open)
			defer func() { w.open = w.open[:len(w.open)-1] }()
		}
		out, err := w.schema(other, depth+1)
		if said := prose(object); said != "" && err == nil {
			out.Description = said
		}
		return out, err
	}
	out := &hostSchema{Type: w.typeOf(object), Description: prose(object)}
	var err error
	switch out.Type {
	case anObject:
		err = w.properties(out, object, depth)
	case "array":
		out.Items = &hostSchema{} // some hosts refuse an array without
		if items, isSaid := object["items"]; isSaid {
			out.Items, err = w.schema(items, depth+1)
		}
	case "string", "":
		out.Enum, err = w.enum(object)
		if len(out.Enum) > 0 {
			out.Type = "string"
		}
	}
	return out, err
}

// standsFor is the schema that an object stands for: the one it refers to, or its only branch besides
// null. open is the reference, if it is one; nil: the object is a schema itself.
func (w *schemaWriter) standsFor(object map[string]any) (other any, open string) {
	if ref, isText := object["$ref"].(string); isText {
		if target := w.target(ref); target != nil && !slices.Contains(w.open, ref) {
			return target, ref
		}
		w.isPartial = true
		return nil, ""
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		branches, isList := object[word].([]any)
		if !isList {
			continue
		}
		branches = slices.DeleteFunc(slices.Clone(branches), func(branch any) bool {
			b, _ := branch.(map[string]any)
			return b["type"] == "null"
		})
		if len(branches) == 1 && object["type"] == nil && object["properties"] == nil {
			return branches[0], ""
		}
		w.isPartial = true
	}
	return nil, ""
}

// target is the object that a reference within the schema leads to; nil where there is none.
func (w *schemaWriter) target(ref string) map[string]any {
	if !strings.HasPrefix(ref, "#/$defs/") && !strings.HasPrefix(ref, "#/definitions/") {
		return nil
	}
	at := w.of
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		at, _ = at[step].(map[string]any)
	}
	return at
}

// typeOf is the one type of a schema besides null, or "".
func (w *schemaWriter) typeOf(object map[string]any) string {
	kinds, isList := object["type"].([]any)
	if !isList && object["type"] != nil {
		kinds = []any{object["type"]}
	}
	if isList && len(kinds) > 1 {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool { return kind == "null" })
	}
	if len(kinds) == 1 {
		if kind, _ := kinds[0].(string); slices.Contains(jsonTypes, kind) {
			return kind
		}
	}
	w.isPartial = w.isPartial || object["type"] != nil
	if _, isMap := object["properties"].(map[string]any); isMap && object["type"] == nil {
		return anObject
	}
	if object["items"] != nil && object["type"] == nil {
		return "array"
	}
	return ""
}

// properties writes those of an object, in the order of the alphabet, so that always the same ones are
// written where there are too many.
func (w *schemaWriter) properties(out *hostSchema, object map[string]any, depth int) error {
	properties, isMap := object["properties"].(map[string]any)
	required, _ := object["required"].([]any)
	w.isPartial = w.isPartial || (!isMap && object["properties"] != nil)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		switch {
		case visible(name) != name:
			return errors.New("it hides letters")
		case hostKey().MatchString(name) && !slices.Contains(everyObjects, name):
		case slices.Contains(required, any(name)):
			return fmt.Errorf("hosts take no property %s, and it is required", x402.Quote(name))
		default:
			w.isPartial = true
			continue
		}
		property, err := w.schema(properties[name], depth+1)
		if err != nil {
			return err
		}
		if out.Properties == nil {
			out.Properties = map[string]*hostSchema{}
		}
		out.Properties[name] = property
	}
	for _, item := range required {
		name, _ := item.(string)
		if out.Properties[name] != nil && !slices.Contains(out.Required, name) {
			out.Required = append(out.Required, name)
		}
	}
	return nil
}

// enum is a list of texts, none of them empty; nil where it is anything else.
func (w *schemaWriter) enum(object map[string]any) (texts []string, err error) {
	values, _ := object["enum"].([]any)
	for _, value := range values {
		text, _ := value.(string)
		switch {
		case visible(text) != text:
			return nil, errors.New("it hides letters")
		case text == "":
			w.isPartial = true
			return nil, nil
		case !slices.Contains(texts, text):
			texts = append(texts, text)
		}
	}
	return texts, nil
}

// prose is a schema's description, its hidden letters visible, bounded.
func prose(object map[string]any) string {
	text, _ := object["description"].(string)
	return x402.Clip(visible(text), maxDescription)
}
