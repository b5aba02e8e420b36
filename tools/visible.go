package tools

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden are the letters that a reader does not see: controls, those that turn the direction of
// writing, and everything that is not drawn: tags and variation selectors, in which whole sentences
// have been hidden from people and shown to models.
var hidden = []*unicode.RangeTable{
	unicode.C, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
}

// Visible writes hidden letters of a text as \uXXXX, so that whoever reads it as it stands, as a
// model does, sees that they are there (security.md E2). Tabs and ends of lines are meant; a JSON
// text, in which they are white space, means the same as before.
func Visible(text []byte) []byte {
	plain := func(r rune) bool {
		printable := r >= ' ' && r < 0x7f
		return printable || r == '\n' || r == '\r' || r == '\t'
	}
	at := bytes.IndexFunc(text, func(r rune) bool { return !plain(r) })
	if at < 0 {
		return text
	}
	out := append(make([]byte, 0, len(text)+64), text[:at]...)
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		switch high, low := utf16.EncodeRune(r); {
		case plain(r) || !unicode.In(r, hidden...):
			out = append(out, text[at:at+size]...)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		at += size
	}
	return out
}

func visible(text string) string { return string(Visible([]byte(text))) }
