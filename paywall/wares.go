package paywall

import (
	"cmp"
	"encoding/hex"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/pattern"
)

// What an MCP server sells besides tools, for Tool.Kind.
const (
	OfResource = "resource" // Name is its URI, or the beginning of URIs and a "*"
	OfPrompt   = "prompt"
	OfEntry    = "entry" // initialize: a session. Name is empty
)

// label is what a price is for, in logs and figures: a tool by its name, anything else with its kind.
func (t Tool) label() string { return strings.TrimSpace(t.Kind + " " + t.Name) }

// url is what a buyer is told that is bought; name is what was asked for.
func (t *tool) url(name string) string {
	switch t.Kind {
	case "":
		return cmp.Or(t.Resource, "mcp://tool/"+name)
	case OfEntry:
		return cmp.Or(t.Resource, "mcp://entry")
	default:
		return cmp.Or(t.Resource, "mcp://"+t.Kind+"/"+url.PathEscape(name))
	}
}

// priced is the price of a tool, prompt or entry; nil: it is free.
func (w *Paywall) priced(kind, name string) *tool {
	t := w.tools[Tool{Kind: kind, Name: name}.label()]
	if t == nil || t.Kind != kind || t.Free {
		return nil
	}
	return t
}

// pricedResource is the price of a resource: by its URI, else by the longest beginning; nil: it is free. A
// server may take other spellings of a URI for the same resource, so all of them cost the same.
func (w *Paywall) pricedResource(uri string) *tool {
	return cmp.Or(w.soldAs(folded(uri)), w.soldAs(foldedAtHost(uri)))
}

// soldAs is the price of a folded URI.
func (w *Paywall) soldAs(asked string) (found *tool) {
	longest := -1
	for _, t := range w.tools {
		if t.Kind != OfResource {
			continue
		}
		begin, isPattern := strings.CutSuffix(t.Name, "*")
		of := folded(begin)
		length := len(of)
		switch {
		case isPattern && !strings.HasPrefix(asked+"/", of):
			continue
		case !isPattern && !isSpelling(asked, of):
			continue
		case !isPattern:
			length = maxURI
		}
		if length > longest {
			found, longest = t, length
		}
	}
	if found != nil && found.Free {
		return nil
	}
	return found
}

// isSpelling reports whether a folded URI means a resource; what its query has besides the resource's makes
// it no other one.
func isSpelling(asked, of string) bool {
	asked, query, _ := strings.Cut(asked, "?")
	of, wanted, _ := strings.Cut(of, "?")
	has := strings.Split(query, "&")
	isMissing := func(part string) bool { return !slices.Contains(has, part) }
	return strings.TrimRight(asked, "/") == strings.TrimRight(of, "/") &&
		(wanted == "" || !slices.ContainsFunc(strings.Split(wanted, "&"), isMissing))
}

// isUnclear reports whether a URI goes up a folder, and how far depends on who reads it: on whether escapes,
// backslashes, blanks, empty folders, a query or a fragment count before that.
func isUnclear(uri string) bool {
	segments := strings.FieldsFunc(shown(unescaped(uri)), func(r rune) bool {
		return strings.ContainsRune("/?#:", r)
	})
	_, where, _ := strings.Cut(uri, ":")
	where = strings.TrimLeft(where, "/")
	isPlain := !strings.ContainsAny(where, `%\?#`) && !strings.Contains(where, "//") && shown(where) == where
	return slices.Contains(segments, "..") && !isPlain
}

// refuseUnclear refuses a URI that one reader takes for what costs, and another does not, or for what costs
// something else.
func (w *Paywall) refuseUnclear(uri string) error {
	sells := false
	for _, t := range w.tools {
		sells = sells || t.Kind == OfResource
	}
	one, other := w.soldAs(folded(uri)), w.soldAs(foldedAtHost(uri))
	isOther := one != nil && other != nil && one != other &&
		(one.price() == "" || one.price() != other.price())
	if sells && (isUnclear(uri) || isOther) {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
			Message: "this URI can be read in more than one way: write it without .."}
	}
	return nil
}

// escape is a percent-encoded byte.
var escape = pattern.Lazy(`%[0-9A-Fa-f]{2}`)

// unescaped is a URI without escapes, and escapes of escapes. What is none stays, as with lenient servers.
func unescaped(uri string) string {
	const most = 8
	for range most {
		plain := escape().ReplaceAllStringFunc(uri, func(one string) string {
			b, _ := hex.DecodeString(one[1:])
			return string(b)
		})
		if plain == uri {
			break
		}
		uri = plain
	}
	return uri
}

// shown is a URI without blanks and control characters, with slashes of one kind.
func shown(uri string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r <= ' ' || r == 0x7f:
			return -1
		case r == '\\':
			return '/'
		}
		return r
	}, uri)
}

// folded is one spelling of all those of a URI that some server may take for the same: without escapes,
// letter case, fragment, dots in its path and doubled or turned slashes.
func folded(uri string) string {
	return foldedBy(uri, func(where string) string { return path.Clean("/" + where) })
}

// foldedAtHost is folded where what follows "//" is a host, from which no dots lead up.
func foldedAtHost(uri string) string {
	return foldedBy(uri, func(where string) string {
		host, rest, _ := strings.Cut(strings.TrimPrefix(where, "//"), "/")
		if !strings.HasPrefix(where, "//") || host == "" {
			return path.Clean("/" + where)
		}
		return "/" + host + path.Clean("/"+rest)
	})
}

func foldedBy(uri string, clean func(where string) string) string {
	uri = shown(strings.ToLower(unescaped(uri)))
	uri, _, _ = strings.Cut(uri, "#")
	scheme, rest, hasScheme := strings.Cut(uri, ":")
	if !hasScheme {
		scheme, rest = "", uri
	}
	where, query, hasQuery := strings.Cut(rest, "?")
	isFolder := strings.HasSuffix(where, "/")
	where = strings.TrimSuffix(strings.TrimPrefix(clean(where), "/"), "/")
	if scheme == "file" { // whose host is this machine, named or not
		where = strings.TrimPrefix(where, "localhost/")
	}
	if isFolder && where != "" {
		where += "/"
	}
	if hasQuery && query != "" {
		where += "?" + query
	}
	return scheme + ":" + where
}

// leaked is the label of a resource that costs and lies in an answer for which it was not paid; "": none
// does. bought is what was paid for; nil: nothing.
func (w *Paywall) leaked(given mcp.Result, bought *tool) string {
	var held []*mcp.ResourceContents
	embedded := func(c mcp.Content) {
		if e, is := c.(*mcp.EmbeddedResource); is && bought == nil && e.Resource != nil {
			held = append(held, e.Resource)
		}
	}
	switch r := given.(type) {
	case *mcp.ReadResourceResult:
		held = r.Contents
	case *mcp.GetPromptResult:
		for _, m := range r.Messages {
			if m != nil {
				embedded(m.Content)
			}
		}
	case *mcp.CallToolResult:
		for _, c := range r.Content {
			embedded(c)
		}
	}
	for _, c := range held {
		if c == nil { // null in a server's list
			continue
		}
		if t := w.pricedResource(c.URI); t != nil && t != bought {
			return t.label()
		}
		if bought == nil && w.refuseUnclear(c.URI) != nil {
			return OfResource
		}
	}
	return ""
}

func leakError(label string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
		Message: "the answer holds a " + label + ", which costs: ask for it by its own URI"}
}

// withWarePrices adds to a list of resources, templates or prompts what they cost; false: it is none.
func (w *Paywall) withWarePrices(answered mcp.Result) (mcp.Result, bool) {
	switch list := answered.(type) {
	case *mcp.ListResourcesResult:
		out := *list
		out.Resources = priceAll(w, list.Resources, func(r *mcp.Resource) (*tool, *mcp.Resource, *mcp.Meta) {
			shown := *r
			return w.pricedResource(r.URI), &shown, &shown.Meta
		})
		return &out, true
	case *mcp.ListResourceTemplatesResult:
		out := *list
		out.ResourceTemplates = priceAll(w, list.ResourceTemplates,
			func(r *mcp.ResourceTemplate) (*tool, *mcp.ResourceTemplate, *mcp.Meta) {
				shown := *r
				begin, _, _ := strings.Cut(r.URITemplate, "{")
				return w.pricedResource(begin), &shown, &shown.Meta
			})
		return &out, true
	case *mcp.ListPromptsResult:
		out := *list
		out.Prompts = priceAll(w, list.Prompts, func(p *mcp.Prompt) (*tool, *mcp.Prompt, *mcp.Meta) {
			shown := *p
			return w.priced(OfPrompt, p.Name), &shown, &shown.Meta
		})
		return &out, true
	}
	return answered, false
}

// priceAll gives those of a list that cost something their price; of returns an item's price and a copy of
// it, with its _meta.
func priceAll[T any](w *Paywall, list []*T, of func(*T) (*tool, *T, *mcp.Meta)) []*T {
	out := slices.Clone(list)
	for i, item := range list {
		if item == nil {
			continue
		}
		if t, shown, meta := of(item); t != nil {
			*meta = w.priceMeta(t, *meta)
			out[i] = shown
		}
	}
	return out
}

// emptyResult is a result of the kind that a price is for.
func emptyResult(kind string) mcp.Result {
	switch kind {
	case OfResource:
		return &mcp.ReadResourceResult{}
	case OfPrompt:
		return &mcp.GetPromptResult{}
	case OfEntry:
		return &mcp.InitializeResult{}
	}
	return &mcp.CallToolResult{}
}

// copied is a copy of a result that can get another _meta.
func copied(given mcp.Result) mcp.Result {
	switch r := given.(type) {
	case *mcp.CallToolResult:
		out := *r
		return &out
	case *mcp.ReadResourceResult:
		out := *r
		return &out
	case *mcp.GetPromptResult:
		out := *r
		return &out
	case *mcp.InitializeResult:
		out := *r
		return &out
	}
	return given
}

// isNone reports whether a handler answered with nothing.
func isNone(given mcp.Result) bool {
	switch r := given.(type) {
	case *mcp.CallToolResult:
		return r == nil
	case *mcp.ReadResourceResult:
		return r == nil
	case *mcp.GetPromptResult:
		return r == nil
	case *mcp.InitializeResult:
		return r == nil
	}
	return true
}

// asksFirst reports whether a result is questions to the client.
func asksFirst(given mcp.Result) bool {
	switch r := given.(type) {
	case *mcp.CallToolResult:
		return r.NeedsInput() || len(r.InputRequests) > 0
	case *mcp.ReadResourceResult:
		return r.NeedsInput() || len(r.InputRequests) > 0
	case *mcp.GetPromptResult:
		return r.NeedsInput() || len(r.InputRequests) > 0
	}
	return false
}

// withoutContent takes out of a result of questions what lies beside them.
func withoutContent(given mcp.Result) {
	given.SetMeta(nil)
	switch r := given.(type) {
	case *mcp.CallToolResult:
		r.Content, r.StructuredContent = nil, nil
	case *mcp.ReadResourceResult:
		r.Contents = nil
	case *mcp.GetPromptResult:
		r.Messages, r.Description = nil, ""
	}
}

// acknowledgement is an answer of ours in the form of what a price is for.
func acknowledgement(kind string, said map[string]any) mcp.Result {
	text := string(jsonOf(said))
	switch kind {
	case OfResource:
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mcp://payment",
			MIMEType: "application/json", Text: text}}}
	case OfPrompt:
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user",
			Content: &mcp.TextContent{Text: text}}}}
	case OfEntry:
		return &mcp.InitializeResult{Instructions: text}
	}
	return &mcp.CallToolResult{StructuredContent: said, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
