package history

import (
	"database/sql"
	"errors"
	"io"
	"math"
	"strings"
)

// What reads every row of a long table takes its B-tree apart by itself, because the driver takes many times
// as long to hand over a value as SQLite takes to find it. The pages come from SQLite (sqlite_dbpage, which
// the driver has on every platform), as the transaction sees them; logs, locks and caches stay its own.
// https://www.sqlite.org/fileformat.html §1.6 and §2.1 say what is in them.
//
// Whatever SQLite would not write is refused, and so are rows that are not in the order of their numbers: a
// row that is found here is the one that SQLite finds by its number.

// selectPage reads a page as a text, because the driver hands over a text with one copy less than bytes.
const selectPage = `SELECT CAST(data AS TEXT) FROM sqlite_dbpage WHERE pgno = ?`

const (
	leafPage, interiorPage = 13, 5 // of tables
	maxDepth               = 20    // as SQLite has it
	maxPayload             = 1_000_000_000
	mostAtOnce             = 32 << 20 // of memory, on a row's word alone: the longest content
)

// tree goes through the rows of a table by their numbers, which are their rowids.
type tree struct {
	t       *tx
	table   string
	kinds   string // of its columns: see isOfKind
	isBrief bool   // of values that do not fit into the row's own page there are the lengths only
	after   int64  // rows up to this one are left out
	usable  int    // bytes of a page
	path    []node // from the root to the page in which it is
	last    int64  // all rows to come are behind this one
	row     record // that it stands at
}

// node is a page of a tree.
type node struct {
	page        string
	isLeaf      bool
	cells, next int
	passed      int64 // all that is still to come in it is behind this row
	limit       int64 // and none behind this one
}

// record is a row. Its texts are parts of the page: what is kept for long has to be a copy.
type record struct {
	number int64 // its rowid
	data   string
	values []value
}

type value struct {
	serial uint64 // its type, and of texts and bytes the length: §2.1
	at     int
}

// openTree begins to read the rows of a table behind one.
func (t *tx) openTree(table, kinds string, after int64) (*tree, error) {
	r := &tree{t: t, table: table, kinds: kinds, after: after, last: math.MinInt64,
		row: record{values: make([]value, len(kinds))}}
	header, err := r.page(1)
	if err != nil {
		return nil, err
	}
	const reserved, encoding, utf8 = 20, 56, 1
	if uint32At(header, encoding) != utf8 {
		return nil, r.broken()
	}
	r.usable = len(header) - int(header[reserved])
	var root int64
	err = t.row(`SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = ?`, table).Scan(&root)
	if err != nil {
		return nil, none(err, r.broken())
	}
	return r, r.enter(root, math.MaxInt64)
}

func (r *tree) broken() error {
	return damaged("read the ledger", errors.New("the pages of its table "+r.table+" do not hold together"))
}

func (r *tree) page(number int64) (data string, err error) {
	err = r.t.row(selectPage, number).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) || (err == nil && len(data) < 512) {
		err = r.broken()
	}
	return data, err
}

// enter goes down into a page.
func (r *tree) enter(page, limit int64) error {
	data, err := r.page(page)
	if err != nil {
		return err
	}
	n := node{page: data[:r.usable], isLeaf: data[0] == leafPage, passed: r.last, limit: limit}
	n.cells = int(uint16At(data, 3))
	isEmptyTable := n.isLeaf && len(r.path) == 0
	if (!n.isLeaf && data[0] != interiorPage) || (n.cells == 0 && !isEmptyTable) ||
		n.pointer(n.cells) > r.usable || len(r.path) == maxDepth {
		return r.broken()
	}
	r.path = append(r.path, n)
	return nil
}

// pointer is where in a page it is said where a cell begins: behind a header of 8 bytes, or 12.
func (n *node) pointer(cell int) int {
	if n.isLeaf {
		return 8 + 2*cell
	}
	return 12 + 2*cell
}

// cell is the next one of a page, with what is behind it.
func (n *node) cell() string {
	at := min(int(uint16At(n.page, n.pointer(n.next))), len(n.page))
	n.next++
	return n.page[at:]
}

// next goes to the next row; io.EOF: there is none.
func (r *tree) next() error {
	for len(r.path) > 0 {
		n := &r.path[len(r.path)-1]
		switch {
		case n.isLeaf && n.next < n.cells:
			isWanted, err := r.read(n)
			if err != nil || isWanted {
				return err
			}
		case !n.isLeaf && n.next <= n.cells:
			if err := r.down(n); err != nil {
				return err
			}
		default:
			r.path = r.path[:len(r.path)-1]
		}
	}
	return io.EOF
}

// down goes into the next page below one: that of a cell, or at the end the one that the header names.
func (r *tree) down(n *node) error {
	r.last = n.passed
	if n.next == n.cells {
		n.next++
		return r.enter(int64(uint32At(n.page, 8)), n.limit)
	}
	cell := n.cell()
	if len(cell) < 4 {
		return r.broken()
	}
	key, size := uvarint(cell[4:])
	n.passed = int64(key)
	if size == 0 || n.passed <= r.last || n.passed > n.limit {
		return r.broken()
	}
	if n.passed <= r.after {
		return nil
	}
	return r.enter(int64(uint32At(cell, 0)), n.passed)
}

// read reads the next row of a leaf, and says whether it is one of those that are wanted.
func (r *tree) read(n *node) (isWanted bool, err error) {
	cell := n.cell()
	size, sizeSize := uvarint(cell)
	key, keySize := uvarint(cell[sizeSize:])
	number := int64(key)
	if sizeSize == 0 || keySize == 0 || size > maxPayload || number <= r.last || number > n.limit {
		return false, r.broken()
	}
	r.last = number
	if number <= r.after {
		return false, nil
	}
	r.row.number = number
	r.row.data, err = r.payload(cell[sizeSize+keySize:], int(size))
	if err != nil {
		return false, err
	}
	return true, r.decode(int(size))
}

// payload is a row's, of which the rest of its cell has the beginning: §1.6.
func (r *tree) payload(cell string, size int) (string, error) {
	local := size
	if size > r.usable-35 {
		least := (r.usable-12)*32/255 - 23
		local = least + (size-least)%(r.usable-4)
		if local > r.usable-35 {
			local = least
		}
	}
	switch {
	case local > len(cell) || (local < size && local+4 > len(cell)):
		return "", r.broken()
	case local == size || r.isBrief:
		return cell[:local], nil
	}
	var all strings.Builder
	all.Grow(min(size, mostAtOnce))
	all.WriteString(cell[:local])
	for next := uint32At(cell, local); all.Len() < size; {
		page, err := r.page(int64(next))
		if err != nil {
			return "", err
		}
		all.WriteString(page[4:min(r.usable, 4+size-all.Len())])
		next = uint32At(page, 0)
	}
	return all.String(), nil
}

// decode finds the values of a row whose payload has a size: §2.1.
func (r *tree) decode(size int) error {
	data := r.row.data
	length, at := uvarint(data)
	if at == 0 || length > uint64(len(data)) || int(length) < at {
		return r.broken()
	}
	types, next := data[at:length], int(length)
	for i := range r.row.values {
		serial, n := uvarint(types)
		if n == 0 || serial > 2*maxPayload {
			return r.broken()
		}
		if !isOfKind(serial, r.kinds[i]) {
			return corrupt("a row of %s holds a value of another type", r.table)
		}
		v := value{serial, next}
		r.row.values[i] = v
		types, next = types[n:], next+v.length()
		if next > size {
			return r.broken()
		}
	}
	if types != "" || next != size {
		return r.broken()
	}
	return nil
}

// isOfKind reports whether a value is what its column is for: t(ext), i(nteger), b(ytes), in capitals where
// it may be NULL; # is the row's number, which SQLite keeps elsewhere. Where bytes may be NULL they are never
// empty.
func isOfKind(serial uint64, kind byte) bool {
	switch {
	case serial == 0:
		return kind == 'T' || kind == 'B' || kind == 'I' || kind == '#'
	case serial <= 6, serial == 8, serial == 9:
		return kind == 'i' || kind == 'I'
	case serial < 12: // 7: a floating-point number
		return false
	case serial%2 == 0:
		return kind == 'b' || (kind == 'B' && serial > 12)
	}
	return kind == 't' || kind == 'T'
}

func (v value) length() int {
	switch {
	case v.serial >= 12:
		return int(v.serial-12) / 2
	case v.serial <= 4:
		return int(v.serial)
	case v.serial == 5:
		return 6
	case v.serial <= 7:
		return 8
	}
	return 0 // 8 and 9 are the numbers 0 and 1
}

// text is a text, or bytes; of NULL it is empty.
func (r *record) text(column int) string {
	v := r.values[column]
	return r.data[v.at : v.at+v.length()]
}

// int is a number; of NULL it is 0.
func (r *record) int(column int) (n int64) {
	if r.values[column].serial == 9 {
		return 1
	}
	for i, b := range []byte(r.text(column)) {
		if i == 0 {
			n = int64(int8(b))
		} else {
			n = n<<8 | int64(b)
		}
	}
	return n
}

func (r *record) isNull(column int) bool { return r.values[column].serial == 0 }

// uvarint is the integer at the beginning of a text, and how many bytes it takes; 0: it does not end.
func uvarint(text string) (v uint64, n int) {
	for n < len(text) {
		b := text[n]
		n++
		if n == 9 {
			return v<<8 | uint64(b), n
		}
		v = v<<7 | uint64(b&0x7F)
		if b < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

func uint16At(text string, at int) uint16 { return uint16(text[at])<<8 | uint16(text[at+1]) }

func uint32At(text string, at int) uint32 {
	return uint32(uint16At(text, at))<<16 | uint32(uint16At(text, at+2))
}
