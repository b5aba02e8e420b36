package x402

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// An object that is taken apart member by member: what DecodeStrict does for it, by one walk for three.

// Members reads one strict JSON object of at most limit bytes, as DecodeStrict does, into its members as they
// came: parts of data, which nobody may change any more. Keys that like, a struct, has are refused in another
// letter case; nil has none. null has no members. Errors are DecodeStrict's.
func Members(data []byte, limit int, like any) (map[string]json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := strict(data, limit, reflect.TypeOf(like), members); err != nil {
		return nil, err
	}
	if begin := bytes.TrimLeft(data, " \t\r\n"); begin[0] != '{' && begin[0] != 'n' {
		return nil, errShape(nil)
	}
	return members, nil
}

// Text reads a JSON string; absent, and null, are "". ok is false for anything else.
func Text(raw json.RawMessage) (s string, ok bool) {
	if isNull(raw) {
		return "", true
	}
	if isPlain(raw) {
		return string(raw[1 : len(raw)-1]), true
	}
	ok = json.Unmarshal(raw, &s) == nil
	return s, ok
}

// isPlain reports whether a JSON string says what stands in it: ASCII, and nothing escaped.
func isPlain(raw []byte) bool {
	last := len(raw) - 1
	if last < 1 || raw[0] != '"' || raw[last] != '"' {
		return false
	}
	for _, c := range raw[1:last] {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
