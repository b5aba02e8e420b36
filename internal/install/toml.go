package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"x402-wallet/internal/config"
)

func decodeTOML(text []byte) (map[string]any, error) {
	values := map[string]any{}
	err := toml.Unmarshal(text, &values)
	return values, err
}

// setTOML writes members of our entry, a table of its own.
func setTOML(text []byte, entry map[string]any, at string, changes []field) (_ []byte, err error) {
	for _, f := range changes {
		_, isTable := f.value.(map[string]any)
		_, was := entry[f.name]
		isReplaced := isTable && was // it may be a table below ours, or a key
		if f.value == nil || isReplaced {
			if text, err = withoutKey(text, at, f.name); err != nil {
				return nil, err
			}
		}
		if f.value == nil {
			continue
		}
		if text, err = config.Set(text, tomlValue(f.value), at, entryName, f.name); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// withoutKey takes a key of our entry out, whether it is a table below it or a key in it.
func withoutKey(text []byte, at, name string) ([]byte, error) {
	text, err := config.RemoveTable(text, at, entryName, name)
	if err != nil {
		return nil, err
	}
	return config.RemoveKey(text, at, entryName, name)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// tomlValue writes a value as TOML. Its basic strings are JSON's, but for DEL
// (https://toml.io/en/v1.0.0#string).
func tomlValue(value any) string {
	switch v := plainValue(value).(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			key := name
			if !plainKey.MatchString(key) {
				key = tomlValue(name)
			}
			parts = append(parts, key+" = "+tomlValue(v[name]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, tomlValue(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		text, err := style{}.render(v, "", true)
		if err != nil {
			return `""`
		}
		return strings.ReplaceAll(string(text), "\x7f", `\u007F`)
	default:
		return fmt.Sprint(v)
	}
}

// plainValue is a value as JSON has it, so that two can be compared wherever they come from.
func plainValue(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var plain any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if d.Decode(&plain) != nil {
		return value
	}
	return plain
}
