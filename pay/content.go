package pay

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"x402-wallet/history"
	"x402-wallet/seller"
)

// Readable is content as an answer shows it. What an MCP server gave is in the ledger as it came, a
// whole result; where it is nothing but text, the text is what its reader wants. Structured content
// that says the same as the text is nothing more.
func Readable(c history.Content) history.Content {
	if c.Type != seller.ContentType {
		return c
	}
	c.Type = "application/json"
	var result map[string]json.RawMessage
	if c.Truncated || json.Unmarshal(c.Body, &result) != nil {
		return c
	}
	var items []map[string]json.RawMessage // exact names, where a struct would take them in any case
	if json.Unmarshal(result["content"], &items) != nil || len(items) == 0 {
		return c
	}
	var texts []string
	for _, item := range items {
		var text string
		if string(item["type"]) != `"text"` || json.Unmarshal(item["text"], &text) != nil {
			return c
		}
		texts = append(texts, text)
	}
	text := strings.Join(texts, "\n")
	structured := result["structuredContent"]
	if len(structured) > 0 && string(structured) != "null" && !sameJSON(structured, []byte(text)) {
		return c
	}
	c.Body = []byte(text)
	if !isDocument(c.Body) {
		c.Type = "text/plain; charset=utf-8"
	}
	return c
}

// isDocument reports whether a text is a JSON object or array.
func isDocument(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || !json.Valid(text) {
		return false
	}
	return text[0] == '{' || text[0] == '['
}

func sameJSON(a, b []byte) bool {
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // to a float, numbers beyond 53 bits that differ are the same
		if !json.Valid(text) || d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
