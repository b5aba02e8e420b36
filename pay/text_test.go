package pay

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"x402-wallet/history"
)

// Text is read in each encoding that sellers send, and what is not text stays as it is.
func TestReadable_Encodings(t *testing.T) {
	const html, utf8Type = "text/html", "text/plain; charset=utf-8"
	for _, row := range []struct{ name, kind, body, want, wantType string }{
		{"Latin-1", "text/plain; charset=iso-8859-1", "caf\xe9", "café", utf8Type},
		{"windows-1251", "text/plain; charset=windows-1251", "\xcf\xf0\xe8\xe2\xe5\xf2", "Привет", utf8Type},
		{"Shift_JIS", "text/plain; charset=Shift_JIS", "\x93\xfa\x96\x7b", "日本", utf8Type},
		{"GBK", "text/plain; charset=gbk", "\xd6\xd0\xce\xc4", "中文", utf8Type},
		{"UTF-16 by its mark", "text/plain", "\xff\xfeh\x00i\x00", "hi", utf8Type},
		{"UTF-16, the other order", "text/plain", "\xfe\xff\x00h\x00i", "hi", utf8Type},
		{"UTF-16 by its charset", "text/plain; charset=utf-16le", "h\x00i\x00", "hi", utf8Type},
		{"the mark before the charset", "text/plain; charset=iso-8859-1", "\xef\xbb\xbf\xc3\xa9", "é",
			"text/plain; charset=iso-8859-1"},
		{"JSON with a mark", "application/json", "\xef\xbb\xbf{}", "{}", "application/json"},
		{"a bad byte in JSON", "application/json", "{\"a\":\"\xe9\"}", "{\"a\":\"\ufffd\"}",
			"application/json; charset=utf-8"},
		{"a charset that nobody knows", "text/plain; charset=klingon", "na\xefve", "na\ufffdve", utf8Type},
		{"a page mostly in letters that nobody can tell", "text/plain", "\xcf\xf0\xe8 ok", "\xcf\xf0\xe8 ok",
			"text/plain"},
		{"a page's own word", html, `<meta charset="windows-1252">` + "\x80", `<meta charset="windows-1252">€`,
			"text/html; charset=utf-8"},
		{"in the old form", html, `<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">` + "\xf0",
			`<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">П`, "text/html; charset=utf-8"},
		{"XML's own word", "application/rss+xml", `<?xml version="1.0" encoding="ISO-8859-1"?>` + "\xe9",
			`<?xml version="1.0" encoding="ISO-8859-1"?>é`, "application/rss+xml; charset=utf-8"},
		{"a page that says UTF-16 in single bytes", html, `<meta charset="utf-16">é`, `<meta charset="utf-16">é`,
			html},
		{"UTF-8", "text/plain", "é", "é", "text/plain"},
		{"no type, one bad byte", "", "\xe9", "\xe9", ""},
		{"no type, UTF-16", "", "\xff\xfeh\x00", "h", ""},
		{"a picture", "image/png", "\x89PNG\xff\xfe", "\x89PNG\xff\xfe", "image/png"},
		{"a picture that is called text", "text/plain", "\x89PNG\x00", "\x89PNG\x00", "text/plain"},
		{"a program", "application/octet-stream", "\xff\xfeh\x00", "\xff\xfeh\x00",
			"application/octet-stream"},
		{"nothing", "text/plain; charset=gbk", "", "", utf8Type},
	} {
		got := Readable(history.Content{Type: row.kind, Body: []byte(row.body)})
		assert.Equal(t, row.want, string(got.Body), row.name)
		assert.Equal(t, row.wantType, got.Type, row.name)
	}
}
