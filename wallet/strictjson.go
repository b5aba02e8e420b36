package wallet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// jsonReader reads JSON by the letter. encoding/json alone lets the last of two equal keys win,
// matches names whatever their case, takes null for anything and replaces what is not UTF-8: each
// of them a way to write one file that two programs read differently. The first error stays in err
// and makes every later call answer a zero value, so it is looked at once, at the end.
type jsonReader struct{ err error }

func (in *jsonReader) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf(format, args...)
	}
}

// document refuses what is not UTF-8 or not one JSON value and nothing more.
func (in *jsonReader) document(data []byte) {
	if !utf8.Valid(data) || !json.Valid(data) {
		in.fail("it is not JSON")
	}
}

// object reads an object with exactly these names, each once.
func (in *jsonReader) object(raw json.RawMessage, names ...string) map[string]json.RawMessage {
	return in.objectWith(raw, nil, names...)
}

// objectWith is object for one that may have the optional names too.
func (in *jsonReader) objectWith(raw json.RawMessage, optional []string,
	names ...string) map[string]json.RawMessage {
	if in.err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		in.fail("an object is missing where %q should be", names[0])
		return nil
	}
	out := make(map[string]json.RawMessage, len(names))
	for dec.More() {
		token, err := dec.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err = errors.Join(err, dec.Decode(&value)); err != nil {
			in.fail("it is not JSON")
			return nil
		}
		if !slices.Contains(names, name) && !slices.Contains(optional, name) {
			in.fail("unknown field %.40q", name)
			return nil
		}
		if _, twice := out[name]; twice {
			in.fail("field %q is there twice", name)
			return nil
		}
		out[name] = value
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			in.fail("field %q is missing", name)
		}
	}
	return out
}

// list reads an array.
func (in *jsonReader) list(raw json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	if in.err == nil && json.Unmarshal(raw, &out) != nil {
		in.fail("an array is missing")
	}
	return out
}

// text reads a string; null is none.
func (in *jsonReader) text(raw json.RawMessage) string {
	if in.err != nil {
		return ""
	}
	var out *string
	if json.Unmarshal(raw, &out) != nil || out == nil {
		in.fail("a string is missing")
		return ""
	}
	return *out
}

// constant reads a string that can only have one value.
func (in *jsonReader) constant(raw json.RawMessage, want string) {
	if got := in.text(raw); in.err == nil && got != want {
		in.fail("%.40q stands where %q should be", got, want)
	}
}

// number reads a whole number from 0 to 2^64-1 in plain digits.
func (in *jsonReader) number(raw json.RawMessage) uint64 {
	if in.err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		in.fail("%.40q is not a whole number in range", raw)
	}
	return n
}
