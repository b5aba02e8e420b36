package x402

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"
)

// Members reads one strict JSON object of at most limit bytes, as DecodeStrict does, into its members as they
// came. null has no members. Errors are DecodeStrict's.
func Members(data []byte, limit int) (map[string]json.RawMessage, error) {
	if err := checkStrict(data, limit); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := jsonv2.Unmarshal(data, &members); err != nil {
		return nil, errShape(err)
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
