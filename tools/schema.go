package tools

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"x402-wallet/budget/standing"
	"x402-wallet/pay"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Schemas are inferred from the types, and then made portable: one type each, no bare true, null
// only where it is meant. Hosts hand them to models whose dialects know no more.

// shaped is what narrows its schema beyond its types.
type shaped interface {
	shape(s *jsonschema.Schema)
}

func inputSchema[In any]() *jsonschema.Schema {
	s := schemaOf[In]()
	shape[In](s)
	return s
}

func shape[T any](s *jsonschema.Schema) {
	var of T
	if narrow, ok := any(of).(shaped); ok {
		narrow.shape(s)
	}
}

// written is a schema as JSON: it is in every answer to tools/list, and writing it anew takes milliseconds.
func written(s *jsonschema.Schema) json.RawMessage { return sure(json.Marshal(s)) }

// outputSchema admits errors too, since some clients check those against it as well (typescript-sdk
// #1943). Of their form it says just enough to know it by: every byte here is multiplied by the tools, whose
// definitions have 14 KB together.
func outputSchema[Out any]() *jsonschema.Schema {
	s := schemaOf[Out]()
	shape[Out](s)
	extensible(s)
	s.AnyOf = []*jsonschema.Schema{{Required: s.Required}, {Required: []string{"error", "message"}}}
	s.Required = nil
	return s
}

// brief says which properties have to be there; what they are, another tool's schema says.
func brief(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{Type: s.Type, AnyOf: s.AnyOf}
}

// leaveOut takes properties from a schema: its objects may have more than it names.
func leaveOut(s *jsonschema.Schema, names ...string) {
	isOut := func(name string) bool { return slices.Contains(names, name) }
	maps.DeleteFunc(s.Properties, func(name string, _ *jsonschema.Schema) bool { return isOut(name) })
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, isOut)
}

// schemaOf infers. Amounts and dollars are strings on the wire; raw JSON is always an object. What
// no model needs spelled out is just an object, too.
func schemaOf[T any]() *jsonschema.Schema {
	text := func() *jsonschema.Schema { return &jsonschema.Schema{Type: "string"} }
	schema := sure(jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[money.Amount]():    text(),
		reflect.TypeFor[money.Dollars]():   text(),
		reflect.TypeFor[json.RawMessage](): {Type: "object"},
		reflect.TypeFor[map[string]any]():  {Type: "object"},
		reflect.TypeFor[standing.Line]():   {Type: "object"},
		reflect.TypeFor[pay.Budgets]():     {Type: "object"},
		reflect.TypeFor[pay.Headers]():     {Type: "object"},
		reflect.TypeFor[evidence]():        {Type: "object"},
		reflect.TypeFor[historyRow]():      {Type: "object"},
		reflect.TypeFor[BalanceRow]():      {Type: "object"},
		reflect.TypeFor[channelRow]():      {Type: "object"},
		reflect.TypeFor[x402.Next]():       {Type: "object"},
		reflect.TypeFor[following]():       {AnyOf: []*jsonschema.Schema{text(), {Type: "object"}}},
	}}))
	plain(schema, true)
	return schema
}

// plain takes null from what never is: what is left out instead, and lists, which are empty instead.
func plain(s *jsonschema.Schema, required bool) {
	if i := slices.Index(s.Types, "null"); i >= 0 {
		null, other := "null", s.Types[1-i]
		s.Types, s.Type = nil, other
		if required && other != "array" {
			s.Type, s.AnyOf = "", []*jsonschema.Schema{{Type: null}, {Type: other}}
		}
	}
	for name, property := range s.Properties {
		plain(property, slices.Contains(s.Required, name))
	}
	if s.Items != nil {
		plain(s.Items, true)
	}
}

// extensible lets objects have properties that a later version adds, and, below the top, lack some:
// clients keep schemas longer than we keep versions.
func extensible(s *jsonschema.Schema) {
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	below := func(s *jsonschema.Schema) {
		s.Required = nil
		extensible(s)
	}
	for _, property := range s.Properties {
		below(property)
	}
	if s.Items != nil {
		below(s.Items)
	}
}

func oneOf(names ...string) (list []any) {
	for _, name := range names {
		list = append(list, name)
	}
	return list
}
