package paywall

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/x402"
)

// The extension bazaar, by which services are found: it says how a thing is called, in version 2's
// challenges. Buyers echo it with their payment, and facilitators that keep a list read it there.

const extensionBazaar = "bazaar"

// Discovery says how a tool is called, for those who look for one. Declared is at most maxDeclared of it.
type Discovery struct {
	// URL is where it is bought: what HTTP sells, or the endpoint of the MCP server. It names the tool for
	// buyers where Tool.Resource does not, of MCP with "#" and the tool's name behind it
	URL string
	// Method of HTTP: GET, HEAD, DELETE, POST, PUT or PATCH. "": it is an MCP tool
	Method   string
	BodyType string // of POST, PUT and PATCH: "json", which "" is, "form-data" or "text"
	// Input is an example: the query's parameters or the body over HTTP, the arguments of an MCP tool. nil:
	// none
	Input json.RawMessage
	// InputSchema is the JSON schema of the same, an object without references to elsewhere. nil: anything;
	// of an MCP tool behind Proxy, the tool's own
	InputSchema json.RawMessage
	Output      json.RawMessage // an example of what is bought, an object; nil: none
}

// maxDeclared bounds a declaration, in bytes: over HTTP it is in a header, and common servers refuse
// headers of more than 8 KiB.
const maxDeclared = 6 << 10

// declaration is the extension's wire form.
type declaration struct {
	Info struct {
		Input  map[string]any  `json:"input"`
		Output *declaredOutput `json:"output,omitempty"`
	} `json:"info"`
	Schema map[string]any `json:"schema"`
}

type declaredOutput struct {
	Type    string          `json:"type"`
	Example json.RawMessage `json:"example"`
}

// declare makes the extension as the reference declares it (x402 2.27, @x402/extensions/bazaar), or says
// why it cannot be made.
func (d Discovery) declare(name, description string) (json.RawMessage, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	var made declaration
	var input map[string]any // the schema's properties of info.input
	var required []string
	if d.isMCP() {
		made.Info.Input, input, required = d.ofTool(name, description)
	} else {
		made.Info.Input, input, required = d.ofHTTP()
	}
	properties := map[string]any{"input": map[string]any{"type": "object", "properties": input,
		"required": required, "additionalProperties": false}}
	if d.Output != nil {
		made.Info.Output = &declaredOutput{Type: "json", Example: d.Output}
		properties["output"] = map[string]any{"type": "object", "required": []string{"type"},
			"properties": map[string]any{"type": map[string]any{"type": "string"},
				"example": map[string]any{"type": "object"}}}
	}
	made.Schema = map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"properties": properties, "required": []string{"input"}}
	text := jsonOf(made)
	if len(text) > maxDeclared {
		return nil, fmt.Errorf("what is said for discovery is %d bytes long, and has to fit into %d",
			len(text), maxDeclared)
	}
	return text, nil
}

func (d Discovery) isMCP() bool { return d.Method == "" }

func (d Discovery) ofTool(name, description string) (info, schema map[string]any, required []string) {
	info = map[string]any{"type": "mcp", "toolName": name, "inputSchema": or(d.InputSchema, anyObject)}
	schema = map[string]any{"type": constant("mcp"), "toolName": ofType("string"),
		"inputSchema": ofType("object")}
	if description != "" {
		info["description"], schema["description"] = description, ofType("string")
	}
	if d.Input != nil {
		info["example"], schema["example"] = d.Input, ofType("object")
	}
	return info, schema, []string{"type", "toolName", "inputSchema"}
}

func (d Discovery) ofHTTP() (info, schema map[string]any, required []string) {
	info = map[string]any{"type": "http", "method": d.Method}
	schema = map[string]any{"type": constant("http"),
		"method": map[string]any{"type": "string", "enum": []string{d.Method}}}
	required = []string{"type", "method"}
	given := or(d.Input, "{}")
	if !slices.Contains(bodyMethods, d.Method) {
		info["queryParams"], schema["queryParams"] = given, or(d.InputSchema, anyObject)
		return info, schema, required
	}
	info["bodyType"], info["body"] = cmp.Or(d.BodyType, bodyTypes[0]), given
	schema["bodyType"] = map[string]any{"type": "string", "enum": bodyTypes}
	schema["body"] = or(d.InputSchema, "{}") // a text is no object
	return info, schema, append(required, "bodyType", "body")
}

var (
	bodyMethods  = []string{"POST", "PUT", "PATCH"}
	queryMethods = []string{"GET", "HEAD", "DELETE"}
	bodyTypes    = []string{"json", "form-data", "text"}
)

const anyObject = `{"type":"object"}`

func or(given json.RawMessage, preset string) json.RawMessage {
	if given == nil {
		return json.RawMessage(preset)
	}
	return given
}

func constant(value string) map[string]any { return map[string]any{"type": "string", "const": value} }

func ofType(name string) map[string]any { return map[string]any{"type": name} }

// check says what of it could not be declared.
func (d Discovery) check() error {
	at, err := url.Parse(d.URL)
	isWeb := err == nil && at.Host != "" && (at.Scheme == "https" || at.Scheme == "http") && at.User == nil &&
		at.Fragment == ""
	hasBody := slices.Contains(bodyMethods, d.Method)
	switch {
	case d.URL != "" && !isWeb:
		return errors.New("where it is found is no http or https URL without a fragment")
	case !d.isMCP() && !hasBody && !slices.Contains(queryMethods, d.Method):
		return fmt.Errorf("%q is no method that can be declared; there are %s", d.Method,
			strings.Join(slices.Concat(queryMethods, bodyMethods), ", "))
	case d.BodyType != "" && !hasBody:
		return errors.New("a type of body is for " + strings.Join(bodyMethods, ", "))
	case d.BodyType != "" && !slices.Contains(bodyTypes, d.BodyType):
		return fmt.Errorf("%q is no type of body; there are %s", d.BodyType, strings.Join(bodyTypes, ", "))
	}
	return d.checkParts(hasBody && d.BodyType == "text")
}

// checkParts is check of what is JSON; isText: the body is a text.
func (d Discovery) checkParts(isText bool) error {
	for what, part := range map[string]json.RawMessage{"input": d.Input, "schema": d.InputSchema,
		"output": d.Output} {
		switch {
		case part == nil:
		case x402.DecodeStrict(part, maxDeclared, nil) != nil:
			return fmt.Errorf("the %s for discovery is not JSON, or longer than %d bytes", what, maxDeclared)
		case !bytes.HasPrefix(bytes.TrimSpace(part), []byte("{")) && (what != "input" || !isText):
			return fmt.Errorf("the %s for discovery is no JSON object", what)
		}
	}
	if d.InputSchema != nil && refersElsewhere(d.InputSchema) {
		return errors.New("the schema for discovery refers to another document ($ref, $id)")
	}
	return nil
}

// refersElsewhere reports whether a schema has a reference out of it: who reads it would have to load that.
func refersElsewhere(schema json.RawMessage) bool {
	var any any
	return json.Unmarshal(schema, &any) != nil || hasReference(any)
}

func hasReference(node any) bool {
	switch node := node.(type) {
	case []any:
		return slices.ContainsFunc(node, hasReference)
	case map[string]any:
		for key, value := range node {
			text, isText := value.(string)
			isReference := key == "$ref" || key == "$id"
			if (isReference && (!isText || !strings.HasPrefix(text, "#"))) || hasReference(value) {
				return true
			}
		}
	}
	return false
}

// checkDiscovery declares a tool, and names it where it has no name of its own.
func (w *Paywall) checkDiscovery(t *tool) error {
	if t.Discovery == nil {
		return nil
	}
	d := *t.Discovery
	if w.options.Version == 1 {
		return errors.New("version 1 has no extensions, so it cannot be declared for discovery")
	}
	text, err := d.declare(t.Name, t.Description)
	if err != nil {
		return err
	}
	t.declared.Store(&text)
	if t.Resource == "" && d.URL != "" {
		t.Resource = d.URL
		if d.isMCP() {
			t.Resource += "#" + url.PathEscape(t.Name)
		}
	}
	return nil
}

// describe declares a tool of upstream's by what upstream says of it. What cannot be declared stays as it
// was.
func (w *Paywall) describe(upstreams *mcp.Tool) {
	t := w.priced("", upstreams.Name)
	if t == nil || t.Discovery == nil || !t.Discovery.isMCP() {
		return
	}
	d := *t.Discovery
	if d.InputSchema == nil {
		d.InputSchema = jsonOf(upstreams.InputSchema)
	}
	description := x402.Clip(cmp.Or(t.Description, upstreams.Description), maxDescribed)
	text, err := d.declare(t.Name, description)
	if err != nil {
		w.log.Warn("a tool is declared for discovery without its schema", "tool", t.Name, "err", err)
		d.InputSchema = t.Discovery.InputSchema
		text, err = d.declare(t.Name, description)
	}
	if err == nil {
		t.declared.Store(&text)
	}
}

// maxDescribed bounds what upstream says of a tool in a declaration, in characters.
const maxDescribed = 500
