package pay

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"

	"x402-wallet/history"
	"x402-wallet/seller"
)

// Readable is content as an answer shows it: text in UTF-8. What an MCP server gave is in the ledger as it
// came, a whole result; where it is nothing but text, the text is what its reader wants. Structured content
// that says the same as the text is nothing more.
func Readable(c history.Content) history.Content {
	if c.Type != seller.ContentType {
		return inUTF8(c)
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

// Bytes are content as a file gets it: as it came. Of an MCP server it is what Readable makes of it, for
// nobody keeps the envelope of a text.
func Bytes(c history.Content) []byte {
	if c.Type == seller.ContentType {
		c = Readable(c)
	}
	return c.Body
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

// Piece is a part of a content's text.
type Piece struct {
	Text   string
	Offset int // of its first byte
	Next   int // of what follows it; 0: nothing does
}

// Beginning is as much of a content as an answer carries itself: all of it up to MaxPiece, of a longer
// one the beginning, which is short where the rest can be asked for. isText is false where it is not
// text, and none of it is carried.
func Beginning(c history.Content, stored bool) (p Piece, isText bool) {
	length := MaxPiece
	if stored && len(c.Body) > length {
		length = firstPiece
	}
	p = Part(c, 0, length)
	end := len(c.Body)
	if p.Next > 0 {
		end = p.Next
	}
	if !utf8.Valid(c.Body[:end]) {
		return Piece{}, false
	}
	return p, true
}

// Part is a piece of a content from a byte on. It never cuts a character in two: it begins with the
// one that offset is in, and ends before one that would be longer than length. What is no character in
// it is written as U+FFFD.
func Part(c history.Content, offset, length int) Piece {
	start, end := border(c.Body, offset), len(c.Body)
	if length < end-start {
		end = border(c.Body, start+length)
	}
	if end <= start { // the character is longer than length
		_, size := utf8.DecodeRune(c.Body[start:])
		end = start + size
	}
	p := Piece{Text: string(c.Body[start:end]), Offset: start}
	if end < len(c.Body) {
		p.Next = end
	}
	p.Text = strings.ToValidUTF8(p.Text, string(utf8.RuneError))
	return p
}

// border is where the character begins that a byte is in.
func border(text []byte, at int) int {
	for i := at; i > max(0, at-utf8.UTFMax) && i < len(text); i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return at
}
