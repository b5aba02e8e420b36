package tools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Words of an input schema that some host refuses are left out, and the rest of it stays.
func TestShownInput(t *testing.T) {
	const nothing = `{"type":"object","properties":{}}`
	of := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	enum := of(`"a":{"type":"string","enum":["x","y"]}`)
	for given, want := range map[string]string{
		`null`:                       nothing,
		`true`:                       nothing,
		`"object"`:                   nothing,
		`{"properties":[]}`:          nothing,
		`{"properties":null}`:        nothing,
		`{"type":["object","null"]}`: nothing,
		`{"type":"array","items":{"type":"string"}}`:                                   nothing,
		`{"anyOf":[{"type":"object"},{"type":"object"}]}`:                              nothing,
		`{"type":"object","properties":{"a":{}},"oneOf":[{"required":["a"]}]}`:         of(`"a":{}`),
		`{"type":"object","properties":{},"required":"a"}`:                             nothing,
		`{"type":"object","properties":{},"required":null}`:                            nothing,
		`{"type":"object","properties":{"a":{}},"required":["a","a","b",1]}`:           `{"type":"object","properties":{"a":{}},"required":["a"]}`,
		`{"type":"object","patternProperties":{".*":{}},"additionalProperties":false}`: nothing,
		of(`"a":true,"b":false,"c":null,"d":"string","e":1,"f":[]`):                    of(`"a":{},"b":{},"c":{},"d":{},"e":{},"f":{}`),
		of(`"a":{"type":"string","required":true,"format":"hexcolor","minLength":-1}`): of(`"a":{"type":"string"}`),
		of(`"a":{"type":"number","exclusiveMinimum":true},"b":{"type":"any"}`):         of(`"a":{"type":"number"},"b":{}`),
		of(`"a":{"type":"string","pattern":"(?i)x"},"b":{"type":["string","number"]}`): of(`"a":{"type":"string"},"b":{}`),
		of(`"a":{"type":["string","null"]},"b":{"type":["null"]}`):                     of(`"a":{"type":"string"},"b":{"type":"null"}`),
		of(`"a":{"anyOf":[{"type":"integer"},{"type":"null"}],"description":"d"}`):     of(`"a":{"type":"integer","description":"d"}`),
		of(`"a":{"anyOf":[{"type":"integer"},{"type":"string"}],"description":"d"}`):   of(`"a":{"description":"d"}`),
		of(`"a":{"description":5},"b":{"description":"\u202e"}`):                       of(`"a":{},"b":{"description":"\\u202e"}`),
		of(`"$filter":{},"user:id":{},"filter[x]":{},"":{},"é":{},"ok.a-B_1":{}`):      of(`"ok.a-B_1":{}`),
		of(`"` + strings.Repeat("x", 65) + `":{}`):                                     nothing,
		of(`"constructor":{},"__proto__":{},"toString":{},"a":{}`):                     of(`"a":{}`),
		of(`"a":{"enum":["x","y","x"]}`):                                               enum,
		of(`"a":{"type":"string","enum":["x","y"]}`):                                   enum,
		of(`"a":{"enum":null},"b":{"enum":[1,2]},"c":{"enum":["x",null]}`):             of(`"a":{},"b":{},"c":{}`),
		of(`"a":{"type":"string","enum":["","x"]}`):                                    of(`"a":{"type":"string"}`),
		of(`"a":{"type":"number","enum":["x"]}`):                                       of(`"a":{"type":"number"}`),
		of(`"a":{"type":"array"},"b":{"items":{"type":"string"}}`):                     of(`"a":{"type":"array","items":{}},"b":{"type":"array","items":{"type":"string"}}`),
		of(`"a":{"type":"array","items":[{"type":"string"}]}`):                         of(`"a":{"type":"array","items":{}}`),
		of(`"a":{"properties":{"b":{"type":"string"}},"required":["b"]}`):              of(`"a":{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}`),
		of(`"a":{"$ref":"#/$defs/Nope"},"b":{"$ref":5},"c":{"$ref":"#"}`):              of(`"a":{},"b":{},"c":{}`),
		`{"$ref":"#/definitions/A","definitions":{"A":{"type":"object","properties":{"b":{"$ref":"#/definitions/B~1~0"}}},"B/~":{"type":"string"}}}`: of(
			`"b":{"type":"string"}`),
		`{"type":"object","properties":{"p":{"$ref":"#/$defs/P","description":"first"}},"$defs":{"P":{"type":"object","properties":{"child":{"$ref":"#/$defs/P"},"n":{"type":"number"}}}}}`: of(
			`"p":{"type":"object","description":"first","properties":{"child":{},"n":{"type":"number"}}}`),
		`{"type":"object","properties":{"p":{"$ref":"#/$defs/A"}},"$defs":{"A":{"$ref":"#/$defs/B"},"B":{"$ref":"#/$defs/A"}}}`: of(`"p":{}`),
	} {
		text, isPartial, err := shownInput(json.RawMessage(given))
		require.NoError(t, err, given)
		require.JSONEq(t, want, string(text), given)
		requireHostSchema(t, text)
		isAll := given == enum || strings.HasPrefix(given, `{"$ref"`)
		require.False(t, isAll && isPartial, given)
	}
	_, isPartial, err := shownInput(json.RawMessage(of(`"$filter":{}`)))
	require.NoError(t, err)
	require.True(t, isPartial)
}

// A tool that no schema can stand for is not shown.
func TestShownInput_None(t *testing.T) {
	twice := `"a0":{"type":"string","description":"` + strings.Repeat("x", 900) + `"}`
	for i := 1; i < 7; i++ {
		twice += fmt.Sprintf(`,"a%d":{"properties":{"x":{"$ref":"#/$defs/a%d"},"y":{"$ref":"#/$defs/a%[2]d"}}}`, i, i-1)
	}
	for given, why := range map[string]string{
		`{"properties":{"$filter":{}},"required":["$filter"]}`:                          "hosts take no property",
		`{"properties":{"a":{"properties":{"b c":{}},"required":["b c"]}}}`:             "hosts take no property",
		`{"properties":{"a\u200b":{}}}`:                                                 "hides letters",
		`{"properties":{"a":{"enum":["x","\udb40\udc41"]}}}`:                            "hides letters",
		`{"properties":{"a":{"items":{"properties":{"\ufeff":{}}}}}}`:                   "hides letters",
		`{"properties":{"a":{"$ref":"#/$defs/a6"}},"$defs":{` + twice + `}}`:            "too long",
		`{"description":"` + strings.Repeat("x", maxSchema) + `"}`:                      "more than",
		`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`:             "nested",
		`{"properties":{"a":{"type":"string"},"a":{"type":"number"}}}`:                  "duplicate key",
		`{"$defs":{"A":{"properties":{"":{}},"required":[""]}},"$ref":"#/$defs/A"}`:     "hosts take no property",
		`{"allOf":[{"properties":{"é":{"type":"string"}},"required":["é"]}]}`:           "hosts take no property",
		`{"properties":{"a":{"properties":{"b":{"enum":["\u202e"],"type":"string"}}}}}`: "hides letters",
	} {
		_, _, err := shownInput(json.RawMessage(given))
		require.ErrorContains(t, err, why, given)
	}
}

// References that multiply cost no more than others.
func TestShownInput_Bounds(t *testing.T) {
	defs := `"a0":{"type":"string"}`
	for i := 1; i < 40; i++ {
		defs += fmt.Sprintf(`,"a%d":{"properties":{"x":{"$ref":"#/$defs/a%d"},"y":{"$ref":"#/$defs/a%[2]d"}}}`, i, i-1)
	}
	text, isPartial, err := shownInput(json.RawMessage(`{"properties":{"a":{"$ref":"#/$defs/a39"}},"$defs":{` + defs + `}}`))
	require.NoError(t, err)
	require.True(t, isPartial)
	requireHostSchema(t, text)
	require.Less(t, strings.Count(string(text), "{"), 2*maxSchemas)
}

// requireHostSchema requires that a schema consists of what every host takes.
func requireHostSchema(t *testing.T, text []byte) {
	t.Helper()
	top := must.JSON[map[string]any](text)(t)
	require.Equal(t, "object", top["type"])
	require.Contains(t, top, "properties")
	key := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	var check func(schema map[string]any)
	check = func(schema map[string]any) {
		for word, value := range schema {
			switch word {
			case "type":
				require.Contains(t, jsonTypes, value)
			case "description":
				require.IsType(t, "", value)
			case "properties":
				for name, property := range value.(map[string]any) {
					require.Regexp(t, key, name)
					check(property.(map[string]any))
				}
			case "items":
				check(value.(map[string]any))
			case "required", "enum":
				for _, text := range value.([]any) {
					require.IsType(t, "", text)
					if word == "required" {
						require.Contains(t, schema["properties"], text)
					}
				}
			default:
				require.Fail(t, "not of the subset", "%s in %s", word, text)
			}
		}
	}
	check(top)
}
