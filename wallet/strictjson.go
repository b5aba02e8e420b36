package wallet

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonReader reads JSON that no two programs can read differently. The library refuses duplicate keys and
// invalid UTF-8. jsonReader refuses missing and unknown fields, names in another letter case, and null. It
// keeps the first error; every later call then returns a zero value, so that err is looked at once, at the
// end.
type jsonReader struct{ err error }

func (in *jsonReader) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf(format, args...)
	}
}

// document refuses anything but one JSON value.
func (in *jsonReader) document(data []byte) {
	if !jsontext.Value(data).IsValid() {
		in.fail("it is not JSON, or a field is there twice")
	}
}

// object reads an object with exactly these names.
func (in *jsonReader) object(raw json.RawMessage, names ...string) map[string]json.RawMessage {
	return in.objectWith(raw, nil, names...)
}

// objectWith reads an object that must have names and may have the optional ones.
func (in *jsonReader) objectWith(raw json.RawMessage, optional []string,
	names ...string) map[string]json.RawMessage {
	if in.err != nil {
		return nil
	}
	var out map[string]json.RawMessage
	if jsonv2.Unmarshal(raw, &out) != nil || out == nil {
		in.fail("an object is missing where %q should be", names[0])
		return nil
	}
	for name := range out {
		if !slices.Contains(names, name) && !slices.Contains(optional, name) {
			in.fail("unknown field %.40q", name)
			return nil
		}
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
	if in.err == nil && jsonv2.Unmarshal(raw, &out) != nil {
		in.fail("an array is missing")
	}
	return out
}

// text reads a string.
func (in *jsonReader) text(raw json.RawMessage) string {
	var out *string
	if in.err == nil && (jsonv2.Unmarshal(raw, &out) != nil || out == nil) {
		in.fail("a string is missing")
	}
	if in.err != nil {
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

// binary reads base64 of exactly size bytes.
func (in *jsonReader) binary(raw json.RawMessage, size int) []byte {
	out := in.base64(raw)
	if in.err == nil && len(out) != size {
		in.fail("a value is not base64 of %d bytes", size)
	}
	return out
}

// base64 reads bytes in the one right spelling.
func (in *jsonReader) base64(raw json.RawMessage) []byte {
	text := in.text(raw)
	if in.err != nil {
		return nil
	}
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(out) != text {
		in.fail("a value is not base64")
	}
	return out
}

// hex reads from least to most bytes in hexadecimal digits.
func (in *jsonReader) hex(raw json.RawMessage, least, most int) []byte {
	text := in.text(raw)
	if in.err != nil {
		return nil
	}
	out, err := hex.DecodeString(text)
	if err != nil || len(out) < least || len(out) > most {
		in.fail("a value is not hexadecimal of %d to %d bytes", least, most)
	}
	return out
}
