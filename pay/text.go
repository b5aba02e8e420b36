package pay

import (
	"bytes"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"x402-wallet/history"
	"x402-wallet/internal/pattern"
)

// inUTF8 is a text in UTF-8, whatever encoding it came in. The encoding is taken from the byte order mark,
// the charset of the Content-Type, the document's own declaration (HTML, XML), in this order, as browsers do;
// else it is UTF-8. A byte that is no character becomes U+FFFD. What is not text is returned as it came.
func inUTF8(c history.Content) history.Content {
	kind, parameters, err := mime.ParseMediaType(c.Type)
	if err != nil {
		kind = ""
	}
	from, mark := byMark(c.Body)
	switch {
	case kind != "" && !isText(kind):
		return c
	case from == nil && parameters["charset"] != "":
		from, _ = htmlindex.Get(parameters["charset"])
	case from == nil:
		from = declared(c.Body)
	}
	decodes := from != nil && from != unicode.UTF8
	switch {
	case decodes:
		text, err := from.NewDecoder().Bytes(c.Body[mark:])
		if err != nil {
			return c
		}
		c.Body = text
	case utf8.Valid(c.Body):
		c.Body = c.Body[mark:]
		return c
	case kind == "", isBinary(c.Body): // whatever its type says
		return c
	default:
		c.Body = c.Body[mark:]
	}
	c.Body = bytes.ToValidUTF8(c.Body, []byte(string(utf8.RuneError)))
	if kind != "" {
		c.Type = mime.FormatMediaType(kind, map[string]string{"charset": "utf-8"})
	}
	return c
}

// isBinary reports whether a body that is not in UTF-8 is no text: it begins as a picture, say, has bytes
// that no text has, or a third of it is no character, so that nobody could read it.
func isBinary(body []byte) bool {
	bad := 0
	for rest := body; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			bad++
		}
		rest = rest[size:]
	}
	return bad*3 > len(body) || !strings.HasPrefix(http.DetectContentType(body), "text/")
}

// isText reports whether a media type is one of text.
func isText(kind string) bool {
	_, sub, _ := strings.Cut(kind, "/")
	if _, suffix, has := strings.Cut(sub, "+"); has {
		sub = suffix
	}
	switch sub {
	case "json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "csv", "sql", "graphql",
		"x-www-form-urlencoded", "x-ndjson", "ndjson", "jsonl":
		return true
	}
	return strings.HasPrefix(kind, "text/")
}

// byMark is the encoding that a byte order mark names, and how long the mark is.
func byMark(body []byte) (encoding.Encoding, int) {
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return unicode.UTF8, 3
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), 2
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), 2
	}
	return nil, 0
}

// declaration is how a document of HTML or XML says its own encoding.
var declaration = pattern.Lazy(
	`(?i)^\s*<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)|<meta[^>]*\scharset\s*=\s*["']?([\w.:-]+)|` +
		`<meta[^>]*\scontent\s*=\s*["'][^"'>]*charset=([\w.:-]+)`)

// declared is the encoding that a document says it is in, nil if it says none. A document that can be read to
// its declaration is in no encoding of two bytes a letter, so that one is taken for UTF-8, as browsers do.
func declared(body []byte) encoding.Encoding {
	const searched = 1024 // HTML: the declaration is in the first 1024 bytes
	match := declaration().FindSubmatch(body[:min(len(body), searched)])
	if match == nil {
		return nil
	}
	name := string(bytes.Join(match[1:], nil))
	from, err := htmlindex.Get(name)
	if err != nil || strings.HasPrefix(strings.ToLower(name), "utf-16") {
		return nil
	}
	return from
}
