package postgres

import (
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"strings"
)

// Record is a row whose columns came as one value, so without their types: all of them are text or nil.
type Record []driver.Value

var errRecord = fmt.Errorf("the server's text of a row is cut off")

// parseRecord reads a row as PostgreSQL writes it: (1,"a ""b""",,"") is 1, a "b", nil and nothing.
func parseRecord(text string) (r Record, err error) {
	if !strings.HasPrefix(text, "(") {
		return nil, errRecord
	}
	for rest := text[1:]; ; rest = rest[1:] {
		var value driver.Value
		switch {
		case strings.HasPrefix(rest, `"`):
			value, rest, err = quoted(rest[1:])
		default:
			end := strings.IndexAny(rest, ",)")
			if end > 0 {
				value = rest[:end]
			}
			rest = rest[max(end, 0):]
		}
		r = append(r, value)
		switch {
		case err != nil:
			return nil, err
		case rest == ")":
			return r, nil
		case !strings.HasPrefix(rest, ","):
			return nil, errRecord
		}
	}
}

// quoted reads a value up to the quote that ends it: a quote and a backslash in it are there twice.
func quoted(text string) (value, rest string, err error) {
	end := strings.IndexAny(text, `"\\`)
	if end >= 0 && text[end] == '"' && !strings.HasPrefix(text[end+1:], `"`) { // as most are
		return text[:end], text[end+1:], nil
	}
	var out strings.Builder
	for end >= 0 {
		out.WriteString(text[:end])
		c := text[end]
		text = text[end+1:]
		if len(text) == 0 || text[0] != c {
			if c == '"' {
				return out.String(), text, nil
			}
			break
		}
		out.WriteByte(c)
		text = text[1:]
		end = strings.IndexAny(text, `"\\`)
	}
	return "", "", errRecord
}

// Bytes are the value of a column of bytes; nil: there is none.
func (r Record) Bytes(column int) ([]byte, error) {
	text, isThere := r[column].(string)
	if !isThere {
		return nil, nil
	}
	return bytesOf(text)
}

// bytesOf reads PostgreSQL's text of bytes.
func bytesOf(text string) ([]byte, error) {
	digits, isHex := strings.CutPrefix(text, `\x`)
	if !isHex {
		return nil, fmt.Errorf("bytes in another format than hex")
	}
	return hex.DecodeString(digits)
}
