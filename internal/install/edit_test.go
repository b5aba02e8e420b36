package install

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

func TestSetAndRemove(t *testing.T) {
	for _, line := range []struct{ name, before, after, removed string }{
		{"nothing", "", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n", "{\n  \"a\": {\n  }\n}\n"},
		{"one line", `{"x": 1}`, `{"x": 1, "a": {"b":1}}`, `{"x": 1, "a": {}}`},
		{"one line, trailing comma", `{"x": 1,}`, `{"x": 1, "a": {"b":1},}`, `{"x": 1, "a": {},}`},
		{"the last one in a line", `{"a": {"x": 1, "b": 2}}`, `{"a": {"x": 1, "b": 1}}`, `{"a": {"x": 1}}`},
		{"a comment behind the last", "{\n  \"x\": 1 // one\n}",
			"{\n  \"x\": 1, // one\n  \"a\": {\n    \"b\": 1\n  }\n}",
			"{\n  \"x\": 1, // one\n  \"a\": {\n  }\n}"},
		{"a comment in an empty one", "{\"a\": { /* none */ }}", "{\"a\": { /* none */\n  \"b\": 1\n}}",
			"{\"a\": { /* none */\n}}"},
		{"tabs", "{\n\t\"a\": {\n\t\t\"x\": []\n\t}\n}\n",
			"{\n\t\"a\": {\n\t\t\"x\": [],\n\t\t\"b\": 1\n\t}\n}\n",
			"{\n\t\"a\": {\n\t\t\"x\": []\n\t}\n}\n"},
		{"in the middle", `{"a": {"b": 0, "c": 2}}`, `{"a": {"b": 1, "c": 2}}`, `{"a": {"c": 2}}`},
		{"a string that looks like one", `{"a": {"//": "/* } */", "x": "\""}}`,
			`{"a": {"//": "/* } */", "x": "\"", "b": 1}}`, `{"a": {"//": "/* } */", "x": "\""}}`},
		{"byte order mark", "\ufeff{\"a\": {\"b\": 2}}", "\ufeff{\"a\": {\"b\": 1}}", "\ufeff{\"a\": {}}"},
	} {
		t.Run(line.name, func(t *testing.T) {
			after := must.Get(set([]byte(line.before), 1, "a", "b"))(t)
			require.Equal(t, line.after, string(after))
			removed := must.Get(remove(after, "a", "b"))(t)
			require.Equal(t, line.removed, string(removed))
		})
	}
}

func TestSetRefusesInvalidJSON(t *testing.T) {
	for _, text := range []string{"{", `{"a"}`, `{"a": }`, `{"a": 1 "b": 2}`, `{a: 1}`, `{"a": 01}`, `{} {}`,
		`{"a": "`, `/*`, `{"a": 1,, }`, `{,}`, "{\"a\": \"\n\"}", `{"a": 'x'}`} {
		t.Run(text, func(t *testing.T) {
			_, err := set([]byte(text), 1, "b")
			require.Error(t, err, text)
		})
	}
}

// Whatever the file, what comes out has the member and everything else that was there; and a plan
// that did not would not be applied.
func FuzzSet(f *testing.F) {
	f.Add(`{"a": {"x": 1, /* c */ }, // d` + "\n}")
	f.Add("{\r\n\t\"a\": {}\r\n}")
	f.Add(`{"a":{"b":[1,{"c":"}"}]},"d":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		before, err := decode([]byte(text))
		if err != nil {
			return
		}
		after, err := set([]byte(text), map[string]any{"v": "w"}, "a", "b")
		if err != nil {
			return
		}
		got, err := decode(after)
		require.NoError(t, err, "%q", after)
		if before["a"] == nil {
			before["a"] = map[string]any{}
		}
		before["a"].(map[string]any)["b"] = map[string]any{"v": "w"}
		require.True(t, reflect.DeepEqual(before, got), "%q\n%q", text, after)
		removed := must.Get(remove(after, "a", "b"))(t)
		delete(before["a"].(map[string]any), "b")
		got, err = decode(removed)
		require.NoError(t, err, "%q", removed)
		want, _ := json.Marshal(before)
		have, _ := json.Marshal(got)
		require.JSONEq(t, string(want), string(have), "%q", removed)
	})
}
