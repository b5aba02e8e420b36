package install

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"x402-wallet/internal/config/edit"
	"x402-wallet/internal/pattern"
)

// write makes changes to our entry in a text; a nil value is a member to be taken out. Without an
// entry it writes all of one.
func (c Client) write(text []byte, entry map[string]any, changes []field) (_ []byte, err error) {
	if body, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		body, err = c.write(body, entry, changes)
		return slices.Concat([]byte(byteOrderMark), body), err
	}
	text, err = c.writeEntry(text, entry, changes)
	if err != nil || !c.gated {
		return text, err
	}
	return allow(text)
}

func (c Client) writeEntry(text []byte, entry map[string]any, changes []field) (_ []byte, err error) {
	if entry == nil && !c.toml {
		return set(text, ordered(changes), c.at, entryName)
	}
	for _, f := range changes {
		old, isTable := entry[f.name].(map[string]any)
		switch {
		case f.value == nil:
			text, err = c.without(text, f.name)
		case isTable:
			text, err = c.writeTable(text, f.name, old, f.value)
		default:
			text, err = c.put(text, f.value, f.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return text, nil
}

// writeTable changes those members of a table in our entry that are other ones, so that the rest of it
// stays as it is written.
func (c Client) writeTable(text []byte, name string, old map[string]any, value any) (_ []byte, err error) {
	wanted, _ := plainValue(value).(map[string]any)
	edited := text
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, stays := wanted[key]; !stays && err == nil {
			edited, err = c.without(edited, name, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if !reflect.DeepEqual(plainValue(old[key]), wanted[key]) && err == nil {
			edited, err = c.put(edited, wanted[key], name, key)
		}
	}
	if err != nil || !c.toml {
		return edited, err
	}
	values, err := Decode(".toml", edited)
	entry, _ := entryIn(values, c.at)
	if isSame := reflect.DeepEqual(plainValue(entry[name]), any(wanted)); err == nil && isSame {
		return edited, nil
	}
	// it is written in one line, which has no lines of its members
	if text, err = c.without(text, name); err != nil {
		return nil, err
	}
	return c.put(text, value, name)
}

func (c Client) put(text []byte, value any, member ...string) ([]byte, error) {
	path := append([]string{c.at, entryName}, member...)
	if c.toml {
		return edit.Set(text, tomlValue(value), path...)
	}
	return set(text, value, path...)
}

func (c Client) without(text []byte, member ...string) (_ []byte, err error) {
	if body, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		body, err = c.without(body, member...)
		return slices.Concat([]byte(byteOrderMark), body), err
	}
	path := append([]string{c.at, entryName}, member...)
	if c.toml {
		return edit.Remove(text, path...)
	}
	return remove(text, path...)
}

var plainKey = pattern.Lazy(`^[A-Za-z0-9_-]+$`)

// tomlValue writes a value as TOML. Its basic strings are JSON's, but for DEL
// (https://toml.io/en/v1.0.0#string).
func tomlValue(value any) string {
	switch v := plainValue(value).(type) {
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			key := name
			if !plainKey().MatchString(key) {
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
		text, _ := style{}.render(v, "", true) // a string can be written
		return strings.ReplaceAll(string(text), "\x7f", `\u007F`)
	default:
		return fmt.Sprint(v)
	}
}
