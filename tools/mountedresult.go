package tools

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/pay"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// A client that does not take one word of an answer drops all of it, and its model buys again. So a
// server's result is not passed on: a new one is written, of the forms that the client's protocol has,
// and a block of another form is told in a text.

const (
	// maxMirrored bounds the result that is passed on. A larger one stays behind its URI.
	maxMirrored = 4 << 20
	// maxMedia bounds a picture, a sound or a file in it, decoded: models refuse larger ones.
	maxMedia = 1 << 20
	// receiptKey is where a mounted tool's result says what was paid.
	receiptKey = "x402-wallet/payment"

	// The first protocols with sound, and with structured content.
	hearing, structuring = "2025-03-26", "2025-06-18"
)

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

// mountedResult is a purchase in the forms of a protocol version, with our receipt.
func mountedResult(r pay.Result, version string) *mcp.CallToolResult {
	result := &mcp.CallToolResult{}
	switch {
	case r.Whole.Type != seller.ContentType: // the endpoint answered for the tool
		result.IsError = true
		result.Content = texts(visible(r.Content))
	case r.Whole.Truncated || len(r.Whole.Body) > maxMirrored:
		result.IsError = true
		result.Content = texts(fmt.Sprintf("the server's answer, %d bytes, is too long to be passed on%s",
			len(r.Whole.Body), wayTo(r)))
	default:
		result = serverResult(r, version)
	}
	if result.Meta == nil {
		result.Meta = mcp.Meta{}
	}
	result.Meta[receiptKey] = paymentNote{Status: r.Status, PaymentID: r.PaymentID, AmountPaid: r.AmountPaid,
		Price: r.Price, Symbol: r.Symbol, Network: r.Network, PayTo: r.PayTo,
		TransactionSignature: r.TransactionSignature, ContentURI: r.ContentURI}
	return result
}

func texts(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }

// wayTo says how the bought content can be read; "" where it is not kept.
func wayTo(r pay.Result) string {
	switch {
	case r.Status != pay.StatusPaid && r.Status != pay.StatusReplayed && r.ContentURI == "":
		return ""
	case r.ContentURI == "":
		return fmt.Sprintf("; it is bought and kept: x402_history with paymentId %q reads it", r.PaymentID)
	}
	return fmt.Sprintf("; it is bought and kept: x402_history with paymentId %q and an offset reads it, as "+
		"does %s", r.PaymentID, r.ContentURI)
}

// protocolOf is the version of a client's protocol.
func protocolOf(request *mcp.CallToolRequest) string {
	if p := request.Session.InitializeParams(); p != nil {
		return p.ProtocolVersion
	}
	return stateless
}

// serverResult is the server's own result, its hidden letters visible.
func serverResult(r pay.Result, version string) *mcp.CallToolResult {
	result := &mcp.CallToolResult{IsError: r.Whole.Status >= http.StatusBadRequest}
	// some clients end the session over a letter that is not UTF-8
	body := bytes.ToValidUTF8(r.Whole.Body, []byte("\ufffd"))
	var top x402.Object
	if json.Unmarshal(body, &top) != nil {
		result.Content = texts(visible(r.Content))
		return result
	}
	result.IsError = result.IsError || string(top["isError"]) == "true"
	result.Meta = serverMeta(top["_meta"])
	hasText := false
	for _, block := range blocksOf(top["content"]) {
		content := hostBlock(block, r, version)
		_, isText := content.(*mcp.TextContent)
		hasText = hasText || isText
		result.Content = append(result.Content, content)
	}
	structured := top["structuredContent"]
	if version >= structuring && isPlain(structured) {
		result.StructuredContent = json.RawMessage(Visible(structured))
	}
	isTold := x402.IsNull(structured) || result.StructuredContent != nil || says(result.Content, structured)
	if hasText && isTold {
		return result
	}
	text := "the server's answer has no text"
	if !x402.IsNull(structured) {
		text = visible(string(structured))
	}
	at := 0 // in front of pictures
	if hasText {
		at = len(result.Content)
	}
	result.Content = slices.Insert(result.Content, at, texts(text)...)
	return result
}

// isPlain reports whether clients take a structured content for an object.
func isPlain(structured json.RawMessage) bool {
	var object x402.Object
	isObject := json.Unmarshal(structured, &object) == nil && object != nil
	return isObject && !slices.ContainsFunc(everyObjects, func(name string) bool {
		_, isThere := object[name] // null is, too
		return isThere
	})
}

func says(content []mcp.Content, structured json.RawMessage) bool {
	var want any
	_ = json.Unmarshal(structured, &want) // was read before
	return slices.ContainsFunc(content, func(block mcp.Content) bool {
		text, isText := block.(*mcp.TextContent)
		var said any
		return isText && json.Unmarshal([]byte(text.Text), &said) == nil && reflect.DeepEqual(said, want)
	})
}

// serverMeta are the server's own words: not as the protocol's, whose form some clients check, and not
// as ours.
func serverMeta(raw json.RawMessage) mcp.Meta {
	var came x402.Object
	_ = json.Unmarshal(raw, &came) // none is none
	meta := mcp.Meta{}
	for key, value := range came {
		low := strings.ToLower(key)
		isOurs := strings.HasPrefix(low, "io.modelcontextprotocol/") || strings.HasPrefix(low, "x402-wallet/")
		if strings.Contains(key, "/") && !isOurs && visible(key) == key {
			meta[key] = json.RawMessage(Visible(value))
		}
	}
	return meta
}

// blocksOf are the blocks of a content, which should be a list.
func blocksOf(content json.RawMessage) (blocks []json.RawMessage) {
	if !x402.IsNull(content) && json.Unmarshal(content, &blocks) != nil {
		blocks = []json.RawMessage{content}
	}
	return blocks
}

// hostBlock is a block of a server's result as every client of a protocol version takes it. Its
// annotations are left out: they are hints of a stranger's, and clients check their form.
func hostBlock(raw json.RawMessage, r pay.Result, version string) mcp.Content {
	var block x402.Object
	text, isText := x402.Text(raw)
	if isText || json.Unmarshal(raw, &block) != nil {
		return &mcp.TextContent{Text: visible(cmp.Or(text, string(raw)))}
	}
	kind, _ := x402.Text(block["type"])
	var content mcp.Content
	switch kind {
	case "text":
		if text, isText := x402.Text(block["text"]); isText && block.Has("text") {
			content = &mcp.TextContent{Text: visible(text)}
		}
	case "image", "audio":
		content = mediaBlock(kind, block, r, version)
	case "resource":
		content = resourceBlock(block, r)
	case "resource_link": // Codex drops the whole answer over one (codex#33404)
		content = linkText(block)
	}
	if content == nil {
		content = &mcp.TextContent{Text: visible(string(raw))}
	}
	return content
}

// mediaBlock is a picture or a sound; nil where the block is none.
func mediaBlock(kind string, block x402.Object, r pay.Result, version string) mcp.Content {
	data, mimeType := media(block["data"], block["mimeType"])
	switch {
	case len(data) == 0 || !strings.HasPrefix(mimeType, kind+"/"):
		return nil
	case len(data) > maxMedia:
		return tooLarge(mimeType, data, r)
	case kind == "image" && !isPicture(data, mimeType):
		return &mcp.TextContent{Text: fmt.Sprintf("%s, %d bytes: not a picture that models take%s", mimeType,
			len(data), wayTo(r))}
	case kind == "image":
		return &mcp.ImageContent{Data: data, MIMEType: mimeType}
	case version < hearing:
		return &mcp.TextContent{Text: fmt.Sprintf("%s, %d bytes: this client's protocol has no sound%s",
			mimeType, len(data), wayTo(r))}
	default:
		return &mcp.AudioContent{Data: data, MIMEType: mimeType}
	}
}

func tooLarge(mimeType string, data []byte, r pay.Result) *mcp.TextContent {
	return &mcp.TextContent{Text: fmt.Sprintf("%s, %d bytes, is too large to be passed on%s",
		cmp.Or(mimeType, "a file"), len(data), wayTo(r))}
}

// media decodes base64, and reads its media type, "" where that is none.
func media(data, kind json.RawMessage) (decoded []byte, mimeType string) {
	encoded, _ := x402.Text(data)
	decoded, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, ""
	}
	said, _ := x402.Text(kind)
	mimeType, _, err = mime.ParseMediaType(said)
	if err != nil || !strings.Contains(mimeType, "/") {
		mimeType = ""
	}
	return decoded, mimeType
}

// resourceBlock is an embedded resource; nil where the block is none.
func resourceBlock(block x402.Object, r pay.Result) mcp.Content {
	var given x402.Object
	if json.Unmarshal(block["resource"], &given) != nil {
		return nil
	}
	uri, _ := x402.Text(given["uri"])
	if at, err := url.Parse(uri); err != nil || !at.IsAbs() || visible(uri) != uri {
		return nil // Python's client wants a URL
	}
	text, _ := x402.Text(given["text"])
	data, mimeType := media(given["blob"], given["mimeType"])
	resource := &mcp.ResourceContents{URI: uri, MIMEType: mimeType}
	switch {
	case text != "":
		resource.Text = visible(text)
	case len(data) > maxMedia:
		return tooLarge(mimeType, data, r)
	case len(data) > 0:
		resource.Blob = data
	default:
		return nil
	}
	return &mcp.EmbeddedResource{Resource: resource}
}

// linkText is a link to a resource as a text; nil where the block is none.
func linkText(block x402.Object) mcp.Content {
	uri, _ := x402.Text(block["uri"])
	if uri == "" {
		return nil
	}
	text := "link to " + uri
	for _, key := range []string{"name", "title", "mimeType", "description"} {
		if said, _ := x402.Text(block[key]); said != "" {
			text += "; " + key + ": " + said
		}
	}
	return &mcp.TextContent{Text: visible(text)}
}

// isPicture reports whether models take a picture: by the type that the seller says, and by its first bytes.
// Some hosts lose the whole talk over a picture that is none.
func isPicture(data []byte, kind string) bool {
	return slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, kind) &&
		kind == http.DetectContentType(data)
}

// pictures are those in an answer of x402_pay or x402_call_tool.
func pictures(r pay.Result) (all []mcp.Content) {
	if r.Whole.Truncated || r.Whole.Status >= http.StatusMultipleChoices {
		return nil
	}
	size := 0
	add := func(data []byte, kind string) {
		if isPicture(data, kind) && size+len(data) <= maxMedia {
			size += len(data)
			all = append(all, &mcp.ImageContent{Data: data, MIMEType: kind})
		}
	}
	if r.Whole.Type != seller.ContentType {
		kind, _, _ := mime.ParseMediaType(r.Whole.Type)
		add(r.Whole.Body, kind)
		return all
	}
	var result x402.Object
	_ = json.Unmarshal(r.Whole.Body, &result) // none has no pictures
	for _, raw := range blocksOf(result["content"]) {
		var block x402.Object
		_ = json.Unmarshal(raw, &block)
		if string(block["type"]) == `"image"` {
			add(media(block["data"], block["mimeType"]))
		}
	}
	return all
}
