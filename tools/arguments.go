package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"x402-wallet/internal/pattern"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Arguments are read as hosts send them, and strictly all the same: what could be read in two ways is
// refused.

// ReadArguments decodes strictly, after what hosts are known to do is undone: unknown names, wrong types and
// what could be read in two ways are the agent's to mend.
func ReadArguments(raw json.RawMessage, into any) error {
	raw, err := meantArguments(raw, reflect.TypeOf(into).Elem())
	if err != nil || len(raw) == 0 || string(raw) == "null" {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err = d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err == nil {
		err = x402.DecodeStrict(raw, wire.MaxMCPMessage, into)
	}
	var wrongType *json.UnmarshalTypeError
	var ambiguous *x402.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		where := wrongType.Field
		if where == "" {
			where = "arguments"
		}
		return x402.Errorf(x402.InvalidArgument, "%s must be %s, not %s", x402.Brief(where),
			jsonName(wrongType.Type), x402.Brief(wrongType.Value)).
			WithHint("see the tool's input schema; amounts are strings: \"10000\" or \"$0.01\"")
	case errors.As(err, &ambiguous):
		e := x402.Errorf(x402.InvalidArgument, "the arguments cannot be read: %s", ambiguous.Message).
			WithHint("use only the arguments of the tool's input schema, each once")
		e.Details = ambiguous.Details
		return e
	default:
		return x402.Errorf(x402.InvalidArgument, "the arguments cannot be read: %s",
			x402.Brief(strings.TrimPrefix(err.Error(), "json: "))).
			WithHint("use only the arguments of the tool's input schema")
	}
}

func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Bool:
		return "a boolean"
	default:
		return "a " + t.Kind().String()
	}
}

// hostKeys are arguments that hosts add to those of a model, each with the issue that tells of it. Where a
// tool has an argument of that name, it is the tool's.
var hostKeys = []string{
	"wait_for_previous",   // gemini-cli#27403
	"toolCallId",          // n8n#21500
	"sessionId",           // n8n#37308
	"action", "chatInput", // n8n#22787
	"task_progress", // cline#10426
	"random_string", // Cursor, of tools that take no arguments
}

// notTaken are arguments that wallets of other makers take, and why this one does not.
var notTaken = map[string]string{
	"passphrase": "a passphrase never goes through a model: the person types it on a terminal, or on a " +
		"page that the wallet opens; x402_setup_agent says how",
	"tokenAccount": "the account that delegates is the owner's choice: config.toml names it as " +
		"token_account of its network",
	"force":      "nothing that is there is replaced by a tool: the person does that by x402-wallet init",
	"outputPath": "where the wallet keeps its files is the owner's choice; a tool writes none",
}

// meantArguments undoes what hosts do to arguments of a type: JSON text stands for the object, list, number
// or boolean that is declared (claude-code#59227, #93179), hosts' own keys are dropped, and an empty text is
// an argument that is not given. What is no strict JSON stays as it is, and is refused by whoever decodes it.
func meantArguments(raw json.RawMessage, of reflect.Type) (json.RawMessage, error) {
	raw = unquoted(raw, "object")
	if x402.DecodeStrict(raw, wire.MaxMCPMessage, nil) != nil {
		return raw, nil //nolint:nilerr // whoever decodes it refuses it
	}
	return meant("", raw, of)
}

// meant is what an argument stands for. Its name is "" for all of them together.
func meant(name string, raw json.RawMessage, of reflect.Type) (json.RawMessage, error) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case name == "maxAmount" || name == "maxPrice":
		return meantMoney(name, raw)
	case name == "body" && isJSON(raw, '{', '['):
		return json.Marshal(string(raw)) // as it is given: some sellers sign what they got
	case of == reflect.TypeFor[json.RawMessage](), of.Kind() == reflect.Map:
		return unquoted(raw, "object"), nil
	case of.Kind() == reflect.Struct:
		return meantMembers(unquoted(raw, "object"), of)
	case of.Kind() == reflect.Slice:
		return meantItems(name, unquoted(raw, "array"), of.Elem())
	case of.Kind() == reflect.Int:
		return unquoted(raw, "integer"), nil
	case of.Kind() == reflect.Bool:
		return unquoted(raw, "boolean"), nil
	}
	return raw, nil
}

func meantMembers(raw json.RawMessage, of reflect.Type) (json.RawMessage, error) {
	var given map[string]json.RawMessage
	isStrict := x402.DecodeStrict(raw, wire.MaxMCPMessage, nil) == nil // JSON text was not looked into before
	if !isStrict || json.Unmarshal(raw, &given) != nil || given == nil {
		return raw, nil //nolint:nilerr // likewise
	}
	known := map[string]reflect.Type{}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if name != "-" {
			known[name] = of.Field(i).Type
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		declared, isKnown := known[name]
		switch {
		case isKnown:
			read, err := meant(name, value, declared)
			if err != nil {
				return nil, err
			}
			given[name] = read
		case slices.Contains(hostKeys, name):
			delete(given, name)
		default:
			return nil, unknownArgument(name, known)
		}
	}
	return json.Marshal(given)
}

// fit does for a mounted tool, by the schema that it is shown with, what meantArguments does for ours.
func fit(given map[string]json.RawMessage, schema any) {
	var declared struct {
		Properties map[string]json.RawMessage
	}
	text, _ := schema.(json.RawMessage)
	if json.Unmarshal(text, &declared) != nil {
		return
	}
	for name, value := range given {
		property, isKnown := declared.Properties[name]
		var of struct{ Type any }
		_ = json.Unmarshal(property, &of) // true declares no type
		kind, _ := of.Type.(string)
		switch {
		case !isKnown && slices.Contains(hostKeys, name):
			delete(given, name)
		case slices.Contains([]string{"object", "array", "integer", "number", "boolean"}, kind):
			given[name] = unquoted(value, kind)
			if x402.IsNull(given[name]) && isJSON(value, '"') {
				delete(given, name)
			}
		}
	}
}

// meantItems reads a list. One of requests may be its URL alone, as on the command line.
func meantItems(name string, raw json.RawMessage, of reflect.Type) (json.RawMessage, error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return raw, nil //nolint:nilerr // likewise
	}
	for i, item := range items {
		item = unquoted(item, "object")
		if name == "requests" && isJSON(item, '"') {
			item = slices.Concat([]byte(`{"url":`), item, []byte("}"))
		}
		read, err := meant("", item, of)
		if err != nil {
			return nil, err
		}
		items[i] = read
	}
	return json.Marshal(items)
}

// unknownArgument refuses a name that no argument has, with the nearest that one has.
func unknownArgument(name string, known map[string]reflect.Type) *x402.Error {
	e := x402.Errorf(x402.InvalidArgument, "the arguments cannot be read: unknown field %s", x402.Quote(name))
	if why := notTaken[name]; why != "" {
		e.Message += ": " + why
		return e.WithHint("leave %s out", name)
	}
	var names []string
	for right := range known {
		names = append(names, right)
	}
	slices.Sort(names)
	if nearest := seller.Closest(name, names, 1); len(nearest) > 0 {
		return e.WithHint("did you mean %s?", nearest[0])
	}
	return e.WithHint("use only the arguments of the tool's input schema")
}

func isJSON(raw json.RawMessage, begin ...byte) bool {
	return len(raw) > 0 && slices.Contains(begin, raw[0])
}

var (
	wholeNumber = pattern.Lazy(`^-?[0-9]+(\.0+)?$`)
	pointed     = pattern.Lazy(`^[0-9]+\.[0-9]+$`)
	jsonNumber  = pattern.Lazy(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
)

// unquoted is the JSON value of a kind that a JSON string holds, null for an empty one. What holds none stays
// as it is.
func unquoted(raw json.RawMessage, kind string) json.RawMessage {
	var text string
	isText := isJSON(raw, '"') && json.Unmarshal(raw, &text) == nil
	text = strings.TrimSpace(text)
	if isText && text == "" {
		return json.RawMessage("null")
	}
	if !isText {
		text = string(raw)
	}
	held := json.RawMessage(text)
	var is bool
	switch kind {
	case "object":
		is = isJSON(held, '{') && json.Valid(held)
	case "array":
		is = isJSON(held, '[') && json.Valid(held)
	case "integer": // 3.0 is one (JSON Schema)
		is = wholeNumber().MatchString(text) && json.Valid(held)
		if is {
			text, _, _ = strings.Cut(text, ".")
			held = json.RawMessage(text)
		}
	case "number":
		is = jsonNumber().MatchString(text)
	case "boolean":
		held = bytes.ToLower(held) // Python writes True
		is = slices.Contains([]string{"true", "false"}, string(held))
	}
	if is {
		return held
	}
	return raw
}

// meantMoney reads maxAmount and maxPrice: a number with a point is dollars. A whole maxAmount that is no
// text may be meant in either unit, which are a million apart.
func meantMoney(name string, raw json.RawMessage) (json.RawMessage, error) {
	text, isNumber := string(raw), jsonNumber().Match(raw)
	if !isNumber && json.Unmarshal(raw, &text) != nil {
		return raw, nil //nolint:nilerr // likewise
	}
	text = strings.TrimSpace(text)
	if isNumber && wholeNumber().MatchString(text) { // a host that has floats alone writes 50000.0
		text, _, _ = strings.Cut(text, ".")
	}
	switch {
	case pointed().MatchString(text):
		return json.Marshal("$" + text)
	case !isNumber:
		return raw, nil
	case text == "0", name == "maxPrice" && wholeNumber().MatchString(text):
		return json.Marshal(text)
	case name == "maxAmount" && strings.Trim(text, "0123456789") == "":
		return nil, x402.Errorf(x402.InvalidArgument, "maxAmount must be a string, not number %s: that may "+
			"be %s atomic units or $%s", x402.Brief(text), x402.Brief(text), x402.Brief(text)).
			WithHint("write %q for atomic units, or %q for dollars", x402.Brief(text), "$"+x402.Brief(text))
	}
	return raw, nil
}
