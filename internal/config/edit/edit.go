// Package edit changes TOML files of the owner's, and nothing else in them: comments, order and spacing stay.
package edit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"x402-wallet/internal/config"
	"x402-wallet/internal/pattern"
)

// Set changes one key of a TOML file and nothing else of it: comments, order and spacing stay. The
// key is given by its parts, the value as TOML. A key that is absent is added to its table, a
// table at the end. Whoever calls it reads the result: a file may say the same in ways that Set
// does not see through.
func Set(text []byte, value string, path ...string) ([]byte, error) {
	table, key := path[:len(path)-1], path[len(path)-1]
	place, err := find(text, table, key)
	if err != nil {
		return nil, err
	}
	end := "\n"
	if bytes.Contains(text, []byte("\r\n")) { // the file's own line ends stay the only ones in it
		end = "\r\n"
	}
	line := config.Dotted(key) + " = " + value + end
	switch {
	case place.value >= 0:
		return slices.Concat(text[:place.value], []byte(value), text[place.valueEnd:]), nil
	case place.tableEnd >= 0:
		before := text[:place.tableEnd]
		if len(before) > 0 && before[len(before)-1] != '\n' { // the file's last line may have no end
			line = end + line
		}
		return slices.Concat(before, []byte(line), text[place.tableEnd:]), nil
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) > 0 {
		text = slices.Concat(text, []byte(end+end))
	}
	return slices.Concat(text, []byte("["+config.Dotted(table...)+"]"+end+line)), nil
}

// Remove takes a table of a TOML file out, with the tables below it, or a key with its line. The
// comments above the next table stay. What is not there needs no removing.
func Remove(text []byte, path ...string) ([]byte, error) {
	text, err := removeTable(text, path)
	if err != nil {
		return nil, err
	}
	return removeKey(text, path)
}

func removeKey(text []byte, path []string) ([]byte, error) {
	place, err := find(text, path[:len(path)-1], path[len(path)-1])
	if err != nil || place.value < 0 {
		return text, err
	}
	begin := bytes.LastIndexByte(text[:place.value], '\n') + 1
	return slices.Concat(text[:begin], text[lineEnd(text, place.valueEnd):]), nil
}

func removeTable(text []byte, path []string) ([]byte, error) {
	var kept []byte
	var inside bool
	from := 0 // where the part begins that is kept or dropped as a whole
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		node := p.Expression()
		if node.Kind != unstable.Table && node.Kind != unstable.ArrayTable {
			continue
		}
		name := config.FirstKey(node)
		begin := bytes.LastIndexByte(text[:name.Offset], '\n') + 1
		if inside { // what stands above a table belongs to it
			begin = aboveComments(text, from, begin)
			if len(kept) == 0 || endsEmpty(kept) { // one empty line is enough
				begin = len(text) - len(bytes.TrimLeft(text[begin:], "\r\n"))
			}
		} else {
			kept = append(kept, text[from:begin]...)
		}
		parts := config.KeyParts(node)
		inside = len(parts) >= len(path) && slices.Equal(parts[:len(path)], path)
		from = begin
	}
	switch {
	case !inside:
		kept = append(kept, text[from:]...)
	case endsEmpty(kept): // the line that parted it from what was last before
		kept = append(bytes.TrimRight(kept, "\r\n"), lastLineEnd(kept)...)
	}
	return kept, p.Error()
}

func endsEmpty(text []byte) bool {
	return bytes.HasSuffix(text, []byte("\n\n")) || bytes.HasSuffix(text, []byte("\n\r\n"))
}

func lastLineEnd(text []byte) []byte {
	if bytes.HasSuffix(text, []byte("\r\n")) {
		return []byte("\r\n")
	}
	return []byte("\n")
}

// aboveComments is where the comments and empty lines begin that stand above a line.
func aboveComments(text []byte, least, line int) int {
	for line > least {
		above := bytes.LastIndexByte(text[:line-1], '\n') + 1
		l := bytes.TrimSpace(text[above:line])
		isOther := len(l) > 0 && l[0] != '#'
		if above < least || isOther {
			break
		}
		line = above
	}
	return line
}

// place is where a key's value begins and ends, and where its table's header or last key ends; -1:
// there is none.
type place struct{ value, valueEnd, tableEnd int }

func find(text []byte, table []string, key string) (place, error) {
	at := place{value: -1, valueEnd: -1, tableEnd: -1}
	p := unstable.Parser{}
	p.Reset(text)
	var current []string
	for p.NextExpression() {
		node := p.Expression()
		name := config.FirstKey(node)
		begin := int(name.Offset)
		switch node.Kind {
		case unstable.Table:
			current = config.KeyParts(node)
			if slices.Equal(current, table) {
				at.tableEnd = lineEnd(text, begin)
			}
		case unstable.ArrayTable:
			current = []string{""} // never one that is looked for
		case unstable.KeyValue:
			if !slices.Equal(current, table) {
				continue
			}
			equals := begin + bytes.IndexByte(text[begin:], '=') + 1
			value := equals + len(text[equals:]) - len(bytes.TrimLeft(text[equals:], " \t"))
			end, err := valueEnd(text, value)
			if err != nil {
				return at, err
			}
			if slices.Equal(config.KeyParts(node), []string{key}) {
				at.value, at.valueEnd = value, end
			}
			at.tableEnd = lineEnd(text, end)
		}
	}
	return at, p.Error()
}

func lineEnd(text []byte, from int) int {
	if n := bytes.IndexByte(text[from:], '\n'); n >= 0 {
		return from + n + 1
	}
	return len(text)
}

// restOfLine is what may follow a value.
var restOfLine = pattern.Lazy(`^[ \t]*(#[^\n]*)?\r?(\n|$)`)

// valueEnd finds where a value ends: the first place from where only a comment follows and up to
// which it is TOML.
func valueEnd(text []byte, begin int) (int, error) {
	for end := begin + 1; end <= len(text); end++ {
		if restOfLine().Match(text[end:]) && toml.Unmarshal(slices.Concat([]byte("v = "), text[begin:end]),
			&map[string]any{}) == nil {
			return end, nil
		}
	}
	return 0, fmt.Errorf("the value at byte %d of %s does not end", begin, config.FileName)
}

// Quote writes a basic string. strconv's \x escapes are not TOML's, so everything but printable
// ASCII becomes \u.
func Quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r > '~':
			b.WriteString(`\U` + fmt.Sprintf("%08X", r))
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}
