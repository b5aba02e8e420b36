package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"x402-wallet/x402"
)

// Called is what a challenge says of the request that it sells. All of Input is a stranger's.
type Called struct {
	Method    string // of HTTP; "": it says nothing, or more than one thing
	NeedsBody bool
	Input     json.RawMessage // how it is called, in the seller's words
}

const extensionBazaar = "bazaar"

var (
	httpMethods = []string{"GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"}
	bodyMethods = []string{"POST", "PUT", "PATCH"}
)

// Called reads V2's extension bazaar (info.input) and what options say in V1's outputSchema.input.
func (c *Challenge) Called() (is Called) {
	var bazaar struct {
		Info   struct{ Input json.RawMessage }
		Schema struct {
			Properties struct{ Input inputSchema }
		}
	}
	said := []Called{}
	if json.Unmarshal(c.Extensions[extensionBazaar], &bazaar) == nil {
		said = append(said, called(bazaar.Info.Input, bazaar.Schema.Properties.Input))
	}
	for _, r := range c.Accepts {
		var option struct {
			OutputSchema struct{ Input json.RawMessage }
		}
		if json.Unmarshal(r.Raw, &option) == nil {
			said = append(said, called(option.OutputSchema.Input, inputSchema{}))
		}
	}
	for _, one := range said {
		switch {
		case one.Method == "":
		case is.Method == "":
			is = one
		case is.Method != one.Method:
			return Called{}
		default:
			is.NeedsBody = is.NeedsBody && one.NeedsBody
		}
	}
	return is
}

// inputSchema is the schema that bazaar gives beside info.input.
type inputSchema struct {
	Properties struct{ Body json.RawMessage }
	Required   json.RawMessage
}

// called reads one description of a request.
func called(input json.RawMessage, schema inputSchema) Called {
	var says struct {
		Type, Method string
		Body         json.RawMessage
		BodyType     json.RawMessage
		BodyFields   map[string]json.RawMessage
	}
	if json.Unmarshal(input, &says) != nil {
		return Called{}
	}
	method := strings.ToUpper(strings.TrimSpace(says.Method))
	isHTTP := says.Type == "" || strings.EqualFold(says.Type, "http")
	if !isHTTP || !slices.Contains(httpMethods, method) {
		return Called{}
	}
	is := Called{Method: method, Input: input}
	if !slices.Contains(bodyMethods, method) {
		return is
	}
	isEmpty := slices.Contains([]string{"", "null", "{}", "[]", `""`}, string(says.Body))
	isNamed := slices.Contains(names(schema.Required), "body")
	hasSchema := !x402.IsNull(schema.Properties.Body)
	is.NeedsBody = len(requiredOf(schema.Properties.Body)) > 0 || (!isEmpty && (isNamed || !hasSchema)) ||
		slices.ContainsFunc(fields(says.BodyFields), isRequired)
	return is
}

func fields(of map[string]json.RawMessage) (list []json.RawMessage) {
	for _, field := range of {
		list = append(list, field)
	}
	return list
}

// isRequired reports whether a field of V1's bodyFields has to be there.
func isRequired(field json.RawMessage) bool {
	var is struct{ Required any }
	return json.Unmarshal(field, &is) == nil && is.Required == true
}

// requiredOf are the members that a schema of an object requires.
func requiredOf(schema json.RawMessage) []string {
	var of struct{ Required json.RawMessage }
	_ = json.Unmarshal(schema, &of) // what is no schema requires nothing
	return names(of.Required)
}

func names(list json.RawMessage) (names []string) {
	_ = json.Unmarshal(list, &names) // what is no list of names is none
	return names
}
