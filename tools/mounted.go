package tools

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// What an agent sees of a mounted server: everything here was written by a stranger, and stands
// where a model believes what it reads.

const (
	// maxMounted is how many of a server's tools are shown. Models choose badly among more, and
	// some hosts take 128 in all; the others can be called by x402_call_tool.
	maxMounted = 64
	// maxMountedBytes bounds the definitions of one server: about 30,000 tokens, which is more than
	// anybody wants in every prompt.
	maxMountedBytes = 128 << 10
	// maxMountedName is what the APIs of models take (64); with a host's own prefix,
	// mcp__x402-wallet__, it is within MCP's 128.
	maxMountedName = 64
	// maxWord bounds what is a name or a line to a person: titles, messages of progress. With the "…"
	// that tells of the rest it is what x402.Quote gives a stranger.
	maxWord = 119
	// maxMirrored bounds the result that is passed on. A picture fits; what is larger stays behind its URI.
	maxMirrored = 4 << 20
	// receiptKey is where a mounted tool's result says what was paid.
	receiptKey = "x402-wallet/payment"
)

// mountedTool is a tool of a mounted server.
type mountedTool struct {
	name       string    // as the server calls it
	shown      *mcp.Tool // as the agent sees it
	definition string    // the same in JSON
}

// mountedTools are the tools that are shown, always the same ones of the same list: those whose
// names stay as they are come first, then the alphabet.
func (w *Wallet) mountedTools(server string, list []*mcp.Tool, log *slog.Logger) (shown []mountedTool) {
	isFolded := func(t *mcp.Tool) int {
		if mountedName(server, t.Name) == server+"__"+t.Name {
			return 0
		}
		return 1
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *mcp.Tool) int {
		return cmp.Or(cmp.Compare(isFolded(a), isFolded(b)), strings.Compare(a.Name, b.Name))
	})
	taken, size := map[string]bool{}, 0
	for _, t := range list {
		m, err := w.mountedTool(server, t)
		switch {
		case err == nil && taken[m.shown.Name]:
			err = errors.New("another one has its name")
		case err == nil && (len(shown) == maxMounted || size+len(m.definition) > maxMountedBytes):
			err = fmt.Errorf("the server shows %d tools, %d bytes already", len(shown), size)
		}
		if err != nil {
			log.Warn("a tool is not mounted; x402_call_tool can call it", "tool", x402.Quote(t.Name), "why",
				err)
			continue
		}
		taken[m.shown.Name] = true
		size += len(m.definition)
		shown = append(shown, m)
	}
	return shown
}

// mountedName is <server>__<tool>. A name that hosts would not take is folded and cut, and then
// ends in a sum of what it was: so it depends on nothing else the server lists, and never changes
// under a model's hands. It never begins with x402_: servers' names that would are not mounted
// (config), and no other begins one of ours.
func mountedName(server, tool string) string {
	name := server + "__" + tool
	folded := strings.Map(func(r rune) rune {
		isLetter := (r >= 'A' && r <= 'Z') || (r >= 'a' && r <= 'z')
		isDigit := r >= '0' && r <= '9'
		if isLetter || isDigit || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if folded == name && len(name) <= maxMountedName {
		return name
	}
	sum := fmt.Sprintf("_%x", sha256.Sum256([]byte(name)))[:9]
	return folded[:min(len(folded), maxMountedName-len(sum))] + sum
}

// mountedTool is one tool as it is shown, or why it is not. Of its annotations nothing is left: a
// call may cost money, and what else it does is known from a stranger only, so hosts are to ask
// whenever they ask at all.
func (w *Wallet) mountedTool(server string, t *mcp.Tool) (m mountedTool, err error) {
	yes := true
	terms := "may ask for payment"
	if price := w.toldPrice(t); price != "" {
		terms = "says that a call costs " + price
	}
	m.name, m.shown = t.Name, &mcp.Tool{
		Meta: longAnswers(),
		Name: mountedName(server, t.Name),
		Description: fmt.Sprintf("[MCP server %s, paid through the wallet; %s] %s", server, terms,
			x402.Clip(visible(t.Description), maxDescription)),
		Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &yes},
	}
	title := t.Title
	if title == "" && t.Annotations != nil {
		title = t.Annotations.Title
	}
	if title != "" {
		m.shown.Title = server + ": " + x402.Clip(visible(title), maxWord)
	}
	if strings.HasPrefix(strings.ToLower(m.shown.Name), "x402_") {
		return m, errors.New("names beginning with x402_ are the wallet's own")
	}
	input, err := sanitizedSchema(t.InputSchema)
	if err != nil {
		return m, fmt.Errorf("input schema: %w", err)
	}
	m.shown.InputSchema = input
	if t.OutputSchema != nil { // without it the answer is the same
		if output, err := sanitizedSchema(t.OutputSchema); err == nil {
			m.shown.OutputSchema = output
		}
	}
	text, err := json.Marshal(m.shown)
	m.definition = string(text)
	return m, err
}

// sanitizedSchema is a server's schema with its prose made visible and bounded. One that hosts
// could stumble over, or that hides letters where they have a meaning, is refused.
func sanitizedSchema(schema any) (json.RawMessage, error) {
	text, err := json.Marshal(schema)
	if err == nil {
		err = x402.DecodeStrict(text, maxSchema, nil)
	}
	if err != nil {
		return nil, err
	}
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, errors.New("it is no object")
	}
	if object["type"] == nil {
		object["type"] = "object"
	}
	if object["type"] != "object" {
		return nil, errors.New("its type is not object")
	}
	if err := sanitizeSchema(object); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// sanitizeSchema makes the prose of a schema visible and bounded, and refuses what hides letters.
func sanitizeSchema(schema any) error {
	switch v := schema.(type) {
	case string:
		if visible(v) != v {
			return errors.New("it hides letters")
		}
	case []any:
		for _, item := range v {
			if err := sanitizeSchema(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, value := range v {
			if visible(name) != name {
				return errors.New("it hides letters")
			}
			if err := sanitizeMember(v, name, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// sanitizeMember is sanitizeSchema for one member of an object. Some keywords have a text with a
// meaning of its own.
func sanitizeMember(object map[string]any, name string, value any) error {
	text, isText := value.(string)
	if !isText {
		return sanitizeSchema(value)
	}
	switch name {
	case "description", "title", "$comment":
		object[name] = x402.Clip(visible(text), maxDescription)
		return nil
	case "$id", "x-mcp-header": // two of the same confuse a validator; headers are HTTP's
		delete(object, name)
		return nil
	case "$ref", "$dynamicRef":
		if !strings.HasPrefix(text, "#") {
			return errors.New("it refers to a schema elsewhere")
		}
	}
	return sanitizeSchema(text)
}

// paymentNote is what a mounted tool's result says of its payment.
type paymentNote struct {
	Status               string        `json:"status"`
	PaymentID            string        `json:"paymentId,omitempty"`
	AmountPaid           *money.Amount `json:"amountPaid,omitempty"`
	Price                string        `json:"price,omitempty"`
	Symbol               string        `json:"symbol,omitempty"`
	Network              string        `json:"network,omitempty"`
	PayTo                string        `json:"payTo,omitempty"`
	TransactionSignature string        `json:"transactionSignature,omitempty"`
	ContentURI           string        `json:"contentUri,omitempty"`
}

// mountedResult is what was bought as the server gave it, with our receipt.
func mountedResult(r pay.Result) *mcp.CallToolResult {
	result := &mcp.CallToolResult{}
	switch {
	case r.Whole.Type != seller.ContentType: // the endpoint answered for the tool
		result.IsError = true
		result.Content = []mcp.Content{&mcp.TextContent{Text: visible(r.Content)}}
	case r.Whole.Truncated || len(r.Whole.Body) > maxMirrored:
		text := fmt.Sprintf("the server's answer, %d bytes, is too long to be passed on", len(r.Whole.Body))
		if r.ContentURI != "" {
			text += fmt.Sprintf("; it is bought and kept: x402_history with paymentId %q and an offset "+
				"reads it, as does %s", r.PaymentID, r.ContentURI)
		}
		result.IsError = true
		result.Content = []mcp.Content{&mcp.TextContent{Text: text}}
	default:
		result = serverResult(r)
	}
	if result.Meta == nil {
		result.Meta = mcp.Meta{}
	}
	result.Meta[receiptKey] = paymentNote{Status: r.Status, PaymentID: r.PaymentID, AmountPaid: r.AmountPaid,
		Price: r.Price, Symbol: r.Symbol, Network: r.Network, PayTo: r.PayTo,
		TransactionSignature: r.TransactionSignature, ContentURI: r.ContentURI}
	return result
}

// serverResult is the server's own result, its hidden letters visible.
func serverResult(r pay.Result) *mcp.CallToolResult {
	var raw struct {
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	came := &mcp.CallToolResult{}
	if err := errors.Join(json.Unmarshal(r.Whole.Body, &raw),
		json.Unmarshal(r.Whole.Body, came)); err != nil {
		// of a kind that is newer than we are
		came = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: visible(r.Content)}}}
	}
	result := &mcp.CallToolResult{IsError: raw.IsError || r.Whole.Status >= 400, Content: came.Content,
		Meta: mcp.Meta{}}
	if len(raw.StructuredContent) > 0 && string(raw.StructuredContent) != "null" {
		result.StructuredContent = json.RawMessage(Visible(raw.StructuredContent))
	}
	for _, block := range result.Content {
		switch b := block.(type) {
		case *mcp.TextContent:
			b.Text = visible(b.Text)
		case *mcp.ResourceLink:
			b.Name, b.Title, b.Description = visible(b.Name), visible(b.Title), visible(b.Description)
		case *mcp.EmbeddedResource:
			if b.Resource != nil {
				b.Resource.Text = visible(b.Resource.Text)
			}
		}
	}
	for key, value := range came.Meta { // the server's own words: not as the protocol's, and not as ours
		low := strings.ToLower(key)
		if !strings.HasPrefix(low, "io.modelcontextprotocol/") && !strings.HasPrefix(low, "x402-wallet/") {
			if text, err := json.Marshal(value); err == nil {
				result.Meta[key] = json.RawMessage(Visible(text))
			}
		}
	}
	return result
}
