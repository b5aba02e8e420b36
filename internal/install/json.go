package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Settings files are JSON that people write comments into (VS Code's "jsonc"; Zed's allows trailing
// commas too). They are edited as text: what is not ours stays as it is, to the byte.

// maxDepth bounds recursion; settings are a handful of levels deep.
const maxDepth = 200

// node is a value: text[begin:end].
type node struct {
	begin, end int
	object     bool
	members    []member
}

type member struct {
	name  string
	begin int // of its key
	value node
	comma int // behind it; -1: none
}

func (n *node) member(name string) (found *member, err error) {
	for i := range n.members {
		if n.members[i].name == name {
			if found != nil {
				return nil, fmt.Errorf("%q stands there twice", name)
			}
			found = &n.members[i]
		}
	}
	return found, nil
}

// reader reads JSON with comments and trailing commas, and remembers where those are.
type reader struct {
	text  []byte
	at    int
	noise [][2]int // what strict JSON does not have
}

func parse(text []byte) (node, *reader, error) {
	r := &reader{text: text}
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) { // a byte order mark
		r.at = 3
		r.noise = append(r.noise, [2]int{0, 3})
	}
	if err := r.blank(); err != nil {
		return node{}, r, err
	}
	root, err := r.value(0)
	if err != nil {
		return root, r, err
	}
	if err := r.blank(); err != nil {
		return root, r, err
	}
	if r.at < len(text) {
		return root, r, r.bad("something stands behind the end")
	}
	return root, r, nil
}

// strict is the text as strict JSON of the same length.
func (r *reader) strict() []byte {
	text := bytes.Clone(r.text)
	for _, n := range r.noise {
		for i := n[0]; i < n[1]; i++ {
			text[i] = ' '
		}
	}
	return text
}

func (r *reader) bad(what string) error {
	return fmt.Errorf("line %d: %s", 1+bytes.Count(r.text[:min(r.at, len(r.text))], []byte("\n")), what)
}

func (r *reader) next() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

// blank skips white space and comments.
func (r *reader) blank() error {
	for r.at < len(r.text) {
		rest := r.text[r.at:]
		switch {
		case rest[0] == ' ' || rest[0] == '\t' || rest[0] == '\n' || rest[0] == '\r':
			r.at++
			continue
		case bytes.HasPrefix(rest, []byte("//")):
			end := bytes.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			r.skip(end)
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest[2:], []byte("*/"))
			if end < 0 {
				return r.bad("a comment does not end")
			}
			r.skip(end + 4)
		default:
			return nil
		}
	}
	return nil
}

func (r *reader) skip(n int) {
	r.noise = append(r.noise, [2]int{r.at, r.at + n})
	r.at += n
}

func (r *reader) value(depth int) (node, error) {
	n := node{begin: r.at}
	var err error
	switch c := r.next(); {
	case depth > maxDepth:
		err = r.bad("it is nested too deeply")
	case c == '{':
		n.object = true
		err = r.list('}', func() error {
			return r.member(&n, depth)
		}, func(comma int) { n.members[len(n.members)-1].comma = comma })
	case c == '[':
		err = r.list(']', func() error {
			_, err := r.value(depth + 1)
			return err
		}, func(int) {})
	case c == '"':
		_, err = r.word()
	default:
		end := bytes.IndexAny(r.text[r.at:], ",]} \t\r\n/")
		if end < 0 {
			end = len(r.text) - r.at
		}
		if !json.Valid(r.text[r.at : r.at+end]) {
			return n, r.bad("no JSON")
		}
		r.at += end
	}
	n.end = r.at
	return n, err
}

// list reads items up to the closing bracket.
func (r *reader) list(closing byte, item func() error, followed func(comma int)) error {
	comma := -1
	for r.at++; ; {
		if err := r.blank(); err != nil {
			return err
		}
		if r.next() == closing {
			if comma >= 0 {
				r.noise = append(r.noise, [2]int{comma, comma + 1})
			}
			r.at++
			return nil
		}
		if err := item(); err != nil {
			return err
		}
		if err := r.blank(); err != nil {
			return err
		}
		comma = -1
		switch r.next() {
		case ',':
			comma = r.at
			followed(comma)
			r.at++
		case closing:
		default:
			return r.bad(fmt.Sprintf("no comma and no %q", closing))
		}
	}
}

func (r *reader) member(n *node, depth int) error {
	m := member{begin: r.at, comma: -1}
	var err error
	if m.name, err = r.word(); err != nil {
		return err
	}
	if err = r.blank(); err != nil {
		return err
	}
	if r.next() != ':' {
		return r.bad("no colon")
	}
	r.at++
	if err = r.blank(); err != nil {
		return err
	}
	m.value, err = r.value(depth + 1)
	n.members = append(n.members, m)
	return err
}

func (r *reader) word() (word string, err error) {
	end := r.at + 1
	for ; end < len(r.text) && r.text[end] != '"' && r.text[end] != '\n'; end++ {
		if r.text[end] == '\\' {
			end++
		}
	}
	if end >= len(r.text) || r.next() != '"' || json.Unmarshal(r.text[r.at:end+1], &word) != nil {
		return "", r.bad("no JSON string")
	}
	r.at = end + 1
	return word, nil
}

// decode reads the text's values; numbers stay as they are written.
func decode(text []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return map[string]any{}, nil
	}
	root, r, err := parse(text)
	if err != nil {
		return nil, err
	}
	if !root.object {
		return nil, errors.New("it is no JSON object")
	}
	values := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(r.strict()))
	d.UseNumber()
	err = d.Decode(&values)
	return values, err
}

// set gives the member at a path a value, and makes what is missing on the way.
func set(text []byte, value any, path ...string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	root, _, err := parse(text)
	if err != nil {
		return nil, err
	}
	style := styleOf(text, root)
	at := root
	for i, name := range path {
		if !at.object {
			return nil, fmt.Errorf("%s is no object", strings.Join(path[:i], "."))
		}
		m, err := at.member(name)
		if err != nil {
			return nil, err
		}
		switch {
		case m == nil:
			for j := len(path) - 1; j > i; j-- {
				value = map[string]any{path[j]: value}
			}
			return style.insert(text, at, name, value)
		case i == len(path)-1:
			shown, err := style.render(value, lineIndent(text, m.begin),
				!bytes.ContainsRune(text[at.begin:m.begin], '\n'))
			return splice(text, m.value.begin, m.value.end, shown), err
		}
		at = m.value
	}
	return nil, errors.New("no path")
}

// remove takes the member at a path out; what is not there needs no removing.
func remove(text []byte, path ...string) ([]byte, error) {
	at, _, err := parse(text)
	if err != nil {
		return nil, err
	}
	for _, name := range path[:len(path)-1] {
		m, err := at.member(name)
		if err != nil || m == nil {
			return text, err
		}
		at = m.value
	}
	name := path[len(path)-1]
	m, err := at.member(name)
	if err != nil || m == nil {
		return text, err
	}
	begin, end := m.begin, m.value.end
	if m.comma >= 0 {
		end = m.comma + 1
	}
	if tail := lineTail(text, end); lineStart(text, begin) && tail < len(text) &&
		(text[tail] == '\n' || text[tail] == '\r') {
		// lines of its own
		begin -= len(lineIndent(text, begin))
		end = tail + 1 + bytes.IndexByte(text[tail:], '\n')
	} else if m.comma >= 0 {
		end += len(text[end:]) - len(bytes.TrimLeft(text[end:], " \t"))
	}
	edited := splice(text, begin, end, nil)
	if i := slices.IndexFunc(at.members, func(o member) bool {
		return o.name == name
	}); m.comma < 0 && i > 0 {
		// it was the last one
		comma := at.members[i-1].comma
		gap := comma + 1
		if len(bytes.TrimLeft(text[gap:begin], " \t")) == 0 { // in the same line
			gap = begin
		}
		edited = splice(edited, comma, gap, nil)
	}
	return edited, nil
}

// style is how a file is written.
type style struct{ unit, newline string }

func styleOf(text []byte, root node) style {
	s := style{"  ", "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	if len(root.members) > 0 {
		if indent := lineIndent(text, root.members[0].begin); lineStart(text, root.members[0].begin) &&
			len(indent) > 0 {
			s.unit = indent
		}
	}
	return s
}

// insert puts a member at the end of an object.
func (s style) insert(text []byte, at node, name string, value any) ([]byte, error) {
	inline := len(at.members) > 0 && !bytes.ContainsRune(text[at.begin:at.members[0].begin], '\n')
	indent := lineIndent(text, at.begin) + s.unit
	if len(at.members) > 0 && !inline {
		indent = lineIndent(text, at.members[0].begin)
	}
	shown, err := s.render(value, indent, inline)
	if err != nil {
		return nil, err
	}
	key, err := s.render(name, "", true)
	if err != nil {
		return nil, err
	}
	own := string(key) + ": " + string(shown)
	switch {
	case len(at.members) == 0: // perhaps with comments in it, which stay
		inside := bytes.TrimRight(text[at.begin+1:at.end-1], " \t\r\n")
		return splice(text, at.begin+1, at.end-1,
			[]byte(string(inside)+s.newline+indent+own+s.newline+lineIndent(text, at.begin))), nil
	case inline:
		last := at.members[len(at.members)-1]
		if last.comma >= 0 {
			return splice(text, last.comma+1, last.comma+1, []byte(" "+own+",")), nil
		}
		return splice(text, last.value.end, last.value.end, []byte(", "+own)), nil
	}
	last := at.members[len(at.members)-1]
	if last.comma >= 0 {
		tail := lineTail(text, last.comma+1)
		return splice(text, tail, tail, []byte(s.newline+indent+own+",")), nil
	}
	tail := lineTail(text, last.value.end)
	text = splice(text, tail, tail, []byte(s.newline+indent+own))
	return splice(text, last.value.end, last.value.end, []byte(",")), nil
}

func (s style) render(value any, indent string, inline bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if !inline {
		e.SetIndent(indent, s.unit)
	}
	err := e.Encode(value)
	return bytes.ReplaceAll(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\n"), []byte(s.newline)), err
}

// splice replaces text[begin:end].
func splice(text []byte, begin, end int, by []byte) []byte {
	return slices.Concat(text[:begin], by, text[end:])
}

// lineIndent is the white space that the line of a place begins with.
func lineIndent(text []byte, at int) string {
	line := text[bytes.LastIndexByte(text[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// lineStart says whether only white space stands before a place in its line.
func lineStart(text []byte, at int) bool {
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	return len(bytes.TrimSpace(text[begin:at])) == 0
}

// lineTail is behind the comment that follows a place in its line; without one it is the place.
func lineTail(text []byte, at int) int {
	r := reader{text: text, at: at}
	for r.at < len(text) && (text[r.at] == ' ' || text[r.at] == '\t') {
		r.at++
	}
	rest := text[r.at:]
	switch {
	case bytes.HasPrefix(rest, []byte("//")):
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		return r.at + len(bytes.TrimSuffix(line, []byte("\r")))
	case bytes.HasPrefix(rest, []byte("/*")):
		if end := bytes.Index(rest, []byte("*/")); end >= 0 && !bytes.Contains(rest[:end], []byte("\n")) {
			return r.at + end + 2
		}
	case len(rest) > 0 && (rest[0] == '\n' || rest[0] == '\r'):
		return r.at
	}
	return at
}
