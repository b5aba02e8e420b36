// Package strictjson reads JSON that no two programs can read differently.
package strictjson

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Reader reads JSON that no two programs can read differently. The library refuses duplicate keys and
// invalid UTF-8. jsonReader refuses missing and unknown fields, names in another letter case, and null. It
// keeps the first error; every later call then returns a zero value, so that err is looked at once, at the
// end.
type Reader struct{ Err error }

func (in *Reader) Fail(format string, args ...any) {
	if in.Err == nil {
		in.Err = fmt.Errorf(format, args...)
	}
}

// Document refuses anything but one JSON value.
func (in *Reader) Document(data []byte) {
	if !jsontext.Value(data).IsValid() {
		in.Fail("it is not JSON, or a field is there twice")
	}
}

// Object reads an object with exactly these names.
func (in *Reader) Object(raw json.RawMessage, names ...string) map[string]json.RawMessage {
	return in.ObjectWith(raw, nil, names...)
}

// ObjectWith reads an object that must have names and may have the optional ones.
func (in *Reader) ObjectWith(raw json.RawMessage, optional []string,
	names ...string) map[string]json.RawMessage {
	if in.Err != nil {
		return nil
	}
	var out map[string]json.RawMessage
	if jsonv2.Unmarshal(raw, &out) != nil || out == nil {
		in.Fail("an object is missing where %q should be", names[0])
		return nil
	}
	for name := range out {
		if !slices.Contains(names, name) && !slices.Contains(optional, name) {
			in.Fail("unknown field %.40q", name)
			return nil
		}
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			in.Fail("field %q is missing", name)
		}
	}
	return out
}

func (in *Reader) List(raw json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	if in.Err == nil && jsonv2.Unmarshal(raw, &out) != nil {
		in.Fail("an array is missing")
	}
	return out
}

func (in *Reader) Text(raw json.RawMessage) string {
	var out *string
	if in.Err == nil && (jsonv2.Unmarshal(raw, &out) != nil || out == nil) {
		in.Fail("a string is missing")
	}
	if in.Err != nil {
		return ""
	}
	return *out
}

// Constant reads a string that can only have one value.
func (in *Reader) Constant(raw json.RawMessage, want string) {
	if got := in.Text(raw); in.Err == nil && got != want {
		in.Fail("%.40q stands where %q should be", got, want)
	}
}

// Number reads a whole number from 0 to 2^64-1 in plain digits.
func (in *Reader) Number(raw json.RawMessage) uint64 {
	if in.Err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		in.Fail("%.40q is not a whole number in range", raw)
	}
	return n
}

// Binary reads base64 of exactly size bytes.
func (in *Reader) Binary(raw json.RawMessage, size int) []byte {
	out := in.Base64(raw)
	if in.Err == nil && len(out) != size {
		in.Fail("a value is not base64 of %d bytes", size)
	}
	return out
}

// Base64 reads bytes in the one right spelling.
func (in *Reader) Base64(raw json.RawMessage) []byte {
	text := in.Text(raw)
	if in.Err != nil {
		return nil
	}
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(out) != text {
		in.Fail("a value is not base64")
	}
	return out
}
