package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Settings files are JSON that people write comments into (VS Code's "jsonc"; Zed's allows trailing
// commas too). hujson reads them into a tree that writes itself back byte for byte, so an edit
// changes its own member and nothing else.

// maxDepth bounds how deeply a file may be nested, because it is parsed by recursion. Settings are
// a handful of levels deep.
const maxDepth = 200

const byteOrderMark = "\ufeff"

// document is a settings file as a tree.
type document struct {
	mark string // a byte order mark, or nothing
	text []byte // what follows the mark; the offsets of the tree's values are into it
	root hujson.Value
}

func parse(text []byte) (*document, error) {
	d := &document{text: text}
	if rest, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		d.mark, d.text = byteOrderMark, rest
	}
	if err := checkDepth(d.text); err != nil {
		return nil, err
	}
	// hujson wants a line end behind every line comment, and a file's last line may have none.
	root, err := hujson.Parse(append(bytes.Clone(d.text), '\n'))
	if err != nil {
		return nil, err
	}
	root.AfterExtra = root.AfterExtra[:len(root.AfterExtra)-1]
	d.root = root
	return d, nil
}

// checkDepth refuses a text that is nested more deeply than maxDepth. Brackets in comments count as
// well, which no file in use comes near to.
func checkDepth(text []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n': // no string goes on behind it, but a comment may have held a quote
			inString = false
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			if depth > maxDepth {
				return fmt.Errorf("line %d: it is nested too deeply", 1+bytes.Count(text[:i], []byte("\n")))
			}
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		}
	}
	return nil
}

// bytes is the file as the tree stands.
func (d *document) bytes() []byte { return append([]byte(d.mark), d.root.Pack()...) }

// decode reads the text's values; numbers stay as they are written.
func decode(text []byte) (map[string]any, error) {
	values := map[string]any{}
	if len(bytes.TrimSpace(text)) == 0 {
		return values, nil
	}
	d, err := parse(text)
	if err != nil {
		return nil, err
	}
	if d.root.Value.Kind() != '{' {
		return nil, errors.New("it is no JSON object")
	}
	d.root.Standardize()
	decoder := json.NewDecoder(bytes.NewReader(d.root.Pack()))
	decoder.UseNumber()
	err = decoder.Decode(&values)
	return values, err
}

// indexOf finds a member by its name; -1: there is none.
func indexOf(o *hujson.Object, name string) (int, error) {
	found := -1
	for i, m := range o.Members {
		if literal, ok := m.Name.Value.(hujson.Literal); !ok || literal.String() != name {
			continue
		}
		if found >= 0 {
			return -1, fmt.Errorf("%q stands there twice", name)
		}
		found = i
	}
	return found, nil
}

// set gives the member at a path a value, and makes what is missing on the way.
func set(text []byte, value any, path ...string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	d, err := parse(text)
	if err != nil {
		return nil, err
	}
	at := &d.root
	for i, name := range path {
		o, ok := at.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is no object", strings.Join(path[:i], "."))
		}
		found, err := indexOf(o, name)
		if err != nil {
			return nil, err
		}
		if found < 0 {
			for _, missing := range slices.Backward(path[i+1:]) {
				value = map[string]any{missing: value}
			}
			err := d.insert(at.StartOffset, o, name, value)
			return d.bytes(), err
		}
		m := &o.Members[found]
		if i == len(path)-1 {
			begin := m.Name.StartOffset
			oneLine := !bytes.ContainsRune(d.text[at.StartOffset:begin], '\n')
			shown, err := d.style().render(value, lineIndent(d.text, begin), oneLine)
			m.Value.Value = hujson.Literal(shown)
			return d.bytes(), err
		}
		at = &m.Value
	}
	return nil, errors.New("no path")
}

// insert puts a member at the end of an object that begins at an offset.
func (d *document) insert(begin int, o *hujson.Object, name string, value any) error {
	s, outer := d.style(), lineIndent(d.text, begin)
	indent, oneLine := outer+s.unit, false
	if len(o.Members) > 0 {
		first := o.Members[0].Name.StartOffset
		oneLine = !bytes.ContainsRune(d.text[begin:first], '\n')
		if !oneLine {
			indent = lineIndent(d.text, first)
		}
	}
	shown, err := s.render(value, indent, oneLine)
	if err != nil {
		return err
	}
	var m hujson.ObjectMember
	m.Name.Value = hujson.String(name)
	m.Value.BeforeExtra, m.Value.Value = hujson.Extra(" "), hujson.Literal(shown)
	switch {
	case len(o.Members) == 0: // perhaps with comments in it, which stay
		m.Name.BeforeExtra = slices.Concat(bytes.TrimRight(o.AfterExtra, " \t\r\n"), []byte(s.newline+indent))
		o.AfterExtra = hujson.Extra(s.newline + outer)
	case oneLine:
		m.Name.BeforeExtra = hujson.Extra(" ")
	default:
		line, below := cutLine(o.AfterExtra)
		m.Name.BeforeExtra = slices.Concat(line, []byte(s.newline+indent))
		o.AfterExtra = below
	}
	if len(o.Members) > 0 && o.Members[len(o.Members)-1].Value.AfterExtra != nil { // a trailing comma
		m.Value.AfterExtra = hujson.Extra{}
	}
	o.Members = append(o.Members, m)
	return nil
}

// remove takes the member at a path out; what is not there needs no removing.
func remove(text []byte, path ...string) ([]byte, error) {
	d, err := parse(text)
	if err != nil {
		return nil, err
	}
	at := &d.root
	for i, name := range path {
		o, ok := at.Value.(*hujson.Object)
		if !ok {
			return text, nil
		}
		found, err := indexOf(o, name)
		if err != nil || found < 0 {
			return text, err
		}
		if i == len(path)-1 {
			takeOut(o, found)
			break
		}
		at = &o.Members[found].Value
	}
	return d.bytes(), nil
}

// takeOut removes a member, with the line where that is its own and the comment behind it. Comments
// above it stay.
func takeOut(o *hujson.Object, i int) {
	m := o.Members[i]
	isLast := i == len(o.Members)-1
	above, behind := m.Name.BeforeExtra, &o.AfterExtra
	if !isLast {
		behind = &o.Members[i+1].Name.BeforeExtra
	}
	hasComma := !isLast || m.Value.AfterExtra != nil
	line := bytes.LastIndexByte(above, '\n') + 1
	_, below := cutLine(*behind)
	_, nextLine, ends := bytes.Cut(below, []byte("\n"))
	startsLine := line > 0 && len(bytes.TrimSpace(above[line:])) == 0
	endsLine := ends && len(bytes.TrimSpace(below[:len(below)-len(nextLine)])) == 0
	switch {
	case startsLine && endsLine:
		*behind = slices.Concat(above[:line], nextLine)
	case hasComma:
		*behind = slices.Concat(above, bytes.TrimLeft(*behind, " \t"))
	case i > 0 && len(bytes.TrimLeft(above, " \t")) == 0: // its space goes with the comma before it
	default:
		*behind = slices.Concat(above, *behind)
	}
	o.Members = slices.Delete(o.Members, i, i+1)
	if !isLast || i == 0 {
		return
	}
	// Whether there is a trailing comma stays as it was: hujson writes one where AfterExtra is not
	// nil.
	before := &o.Members[i-1].Value
	switch {
	case hasComma && before.AfterExtra == nil:
		before.AfterExtra = hujson.Extra{}
	case !hasComma:
		o.AfterExtra = slices.Concat(before.AfterExtra, o.AfterExtra)
		before.AfterExtra = nil
	}
}

type style struct{ unit, newline string }

func (d *document) style() style {
	s := style{unit: "  ", newline: "\n"}
	if bytes.Contains(d.text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if o, ok := d.root.Value.(*hujson.Object); ok && len(o.Members) > 0 {
		begin := o.Members[0].Name.StartOffset
		indent := lineIndent(d.text, begin)
		if startsLine := bytes.HasSuffix(d.text[:begin], []byte("\n"+indent)); startsLine && indent != "" {
			s.unit = indent
		}
	}
	return s
}

func (s style) render(value any, indent string, oneLine bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if !oneLine {
		e.SetIndent(indent, s.unit)
	}
	err := e.Encode(value)
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\n"), []byte(s.newline)), err
}

// lineIndent is the white space that the line of an offset begins with.
func lineIndent(text []byte, at int) string {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// cutLine parts what follows a value: the comment in the value's own line, and what is below it.
func cutLine(extra hujson.Extra) (line, below hujson.Extra) {
	blank := len(extra) - len(bytes.TrimLeft(extra, " \t"))
	rest, end := extra[blank:], 0
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		comment, _, _ := bytes.Cut(rest, []byte("\n"))
		end = blank + len(bytes.TrimSuffix(comment, []byte("\r")))
	case bytes.HasPrefix(rest, []byte("/*")):
		comment, _, _ := bytes.Cut(rest, []byte("*/"))
		if !bytes.Contains(comment, []byte("\n")) {
			end = blank + len(comment) + len("*/")
		}
	case bytes.HasPrefix(rest, []byte("\n")), bytes.HasPrefix(rest, []byte("\r")):
		end = blank
	}
	return extra[:end], extra[end:]
}

// plainValue is a value as JSON has it, so that two can be compared wherever they come from.
func plainValue(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		return value
	}
	var plain any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if d.Decode(&plain) != nil {
		return value
	}
	return plain
}
