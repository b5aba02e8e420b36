package edits

import (
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
)

// table is one of the ledger's, as the schema has it.
type table struct {
	name    string
	columns []column
}

type column struct {
	name, kind string
	notNull    bool
}

// cell is a column of a table.
type cell struct{ table, column string }

// plan is what of the ledger is still to be edited, over all rounds, and how often each column was.
type plan struct {
	tables []table
	left   []cell // the next ones, so that every column has its turn
	hot    []cell // columns of tables that signatures write
	edited map[cell]int
}

// newPlan reads the schema.
func newPlan(w *world) *plan {
	db := w.database()
	defer db.Close()
	p := &plan{edited: map[cell]int{}}
	for _, name := range texts(w, db, `SELECT name FROM sqlite_master WHERE type = 'table'
		AND name NOT LIKE 'sqlite_%' ORDER BY name`) {
		t := table{name: name}
		rows := must.Get(db.Query(`SELECT name, type, "notnull" FROM pragma_table_xinfo(?)`, name))(w.t)
		for rows.Next() {
			var c column
			require.NoError(w.t, rows.Scan(&c.name, &c.kind, &c.notNull))
			t.columns = append(t.columns, c)
			p.edited[cell{name, c.name}] = 0
		}
		require.NoError(w.t, rows.Err())
		p.tables = append(p.tables, t)
	}
	return p
}

// contents are what is in each table.
func (p *plan) contents(w *world) (all map[string]string) {
	db := w.database()
	defer db.Close()
	all = map[string]string{}
	for _, t := range p.tables {
		var names []string
		for _, c := range t.columns {
			names = append(names, "quote("+c.name+")")
		}
		rows := texts(w, db, "SELECT "+strings.Join(names, " || ',' || ")+" FROM "+t.name)
		all[t.name] = strings.Join(rows, "\n")
	}
	return all
}

// learn finds the tables that change when something is signed.
func (p *plan) learn(w *world, sign func()) {
	before := p.contents(w)
	sign()
	after := p.contents(w)
	for _, t := range p.tables {
		for _, c := range t.columns {
			if before[t.name] != after[t.name] {
				p.hot = append(p.hot, cell{t.name, c.name})
			}
		}
	}
}

// never are the columns that were never edited.
func (p *plan) never() (cells []string) {
	for c, n := range p.edited {
		if n == 0 {
			cells = append(cells, c.table+"."+c.column)
		}
	}
	slices.Sort(cells)
	return cells
}

// database is the ledger by another program's hand.
func (w *world) database() *sql.DB {
	db := must.Get(sql.Open("sqlite", filepath.Join(w.home, history.FileName)+
		"?_pragma=busy_timeout(5000)&_pragma=ignore_check_constraints(1)"))(w.t)
	db.SetMaxOpenConns(1)
	return db
}

func texts(w *world, db *sql.DB, query string, args ...any) (list []string) {
	rows := must.Get(db.Query(query, args...))(w.t)
	defer rows.Close()
	for rows.Next() {
		var text string
		require.NoError(w.t, rows.Scan(&text))
		list = append(list, text)
	}
	require.NoError(w.t, rows.Err())
	return list
}

// shell is who runs as the same user in one round: it edits rows of the ledger, has an older copy of it, and
// knows how it is made.
type shell struct {
	*plan
	w       *world
	rand    *rand.Rand
	db      *sql.DB
	older   string // a copy of the ledger
	log     []string
	changed int // rows
}

func (s *shell) open() {
	s.db = s.w.database()
	must.Get(s.db.Exec(`ATTACH ? AS older`, s.older))(s.w.t)
}

func (s *shell) close() {
	if s.db != nil {
		require.NoError(s.w.t, s.db.Close())
		s.db = nil
	}
}

// edit makes one edit, after some that the database itself refuses: of the column whose turn it is, or of one
// that belongs to signatures.
func (s *shell) edit(isHot bool) {
	for range 30 {
		at := s.next()
		if isHot {
			s.left = append(s.left, at)
			at = s.hot[s.rand.IntN(len(s.hot))]
		}
		t := s.tables[slices.IndexFunc(s.tables, func(t table) bool { return t.name == at.table })]
		c := t.columns[slices.IndexFunc(t.columns, func(c column) bool { return c.name == at.column })]
		n, of, err := int64(0), []string(nil), error(nil)
		for range 10 {
			var statements []string
			statements, of = s.statements(t, c)
			n, err = s.run(statements...)
			if err == nil && n > 0 {
				break
			}
		}
		if err != nil || n == 0 {
			s.left = append(s.left, at)
			continue
		}
		for _, c := range of {
			s.edited[cell{t.name, c}]++
		}
		return
	}
}

// next is the column whose turn it is.
func (s *shell) next() (turn cell) {
	if len(s.left) == 0 {
		s.left = slices.SortedFunc(maps.Keys(s.edited), func(a, b cell) int {
			return strings.Compare(a.table+"."+a.column, b.table+"."+b.column)
		})
		s.rand.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	turn, s.left = s.left[0], s.left[1:]
	return turn
}

// run runs statements in one transaction, and returns how many rows they changed.
func (s *shell) run(statements ...string) (changed int64, err error) {
	tx := must.Get(s.db.Begin())(s.w.t)
	defer func() { _ = tx.Rollback() }()
	for _, statement := range statements {
		done, err := tx.Exec(statement)
		if err != nil {
			return 0, err
		}
		n := must.Get(done.RowsAffected())(s.w.t)
		changed += n
	}
	if changed > 0 {
		err = tx.Commit()
		s.log = append(s.log, statements...)
		s.changed += int(changed)
	}
	return changed, err
}

// statements are an edit of a column, and which columns it changes: now and then of a whole row.
func (s *shell) statements(t table, c column) (statements []string, of []string) {
	row, found := s.row(t)
	if !found {
		return nil, nil
	}
	where := fmt.Sprintf(" WHERE rowid = %d", row)
	set := func(c column, value, where string) string { // nothing where it is so already
		return fmt.Sprintf("UPDATE %s SET %s = %s%s %s IS NOT %[3]s", t.name, c.name, value,
			map[bool]string{true: where + " AND", false: " WHERE"}[where != ""], c.name)
	}
	var all []string
	for _, c := range t.columns {
		all = append(all, c.name)
	}
	switch s.rand.IntN(18) {
	case 16, 17:
		return s.olderTables(), nil
	case 0:
		return []string{"DELETE FROM " + t.name + where}, all
	case 1:
		return s.copied(t, c, row), all
	case 2, 3: // swapped with another row's
		other, _ := s.row(t)
		return []string{set(c, s.literalOf(t, c, row), fmt.Sprintf(" WHERE rowid = %d", other)),
			set(c, s.literalOf(t, c, other), where)}, []string{c.name}
	case 4: // as it was
		return []string{fmt.Sprintf("INSERT OR REPLACE INTO main.%[1]s SELECT * FROM older.%[1]s "+
			"WHERE rowid = %[2]d", t.name, row)}, all
	case 5: // of all rows
		return []string{set(c, s.value(t, c, row), "")}, []string{c.name}
	case 6: // two at once
		d := t.columns[s.rand.IntN(len(t.columns))]
		return []string{set(c, s.value(t, c, row), where), set(d, s.value(t, d, row), where)},
			[]string{c.name, d.name}
	}
	return []string{set(c, s.value(t, c, row), where)}, []string{c.name}
}

// olderTables puts whole tables back to what they were: some of those that signatures write.
func (s *shell) olderTables() (statements []string) {
	for _, t := range s.tables {
		isHot := slices.ContainsFunc(s.hot, func(c cell) bool { return c.table == t.name })
		if isHot && s.rand.IntN(3) > 0 {
			statements = append(statements, "DELETE FROM main."+t.name,
				fmt.Sprintf("INSERT INTO main.%[1]s SELECT * FROM older.%[1]s", t.name))
		}
	}
	return statements
}

// copied is a copy of a row behind all others, with another value in a column, and with others in what may be
// in the table but once.
func (s *shell) copied(t table, c column, row int64) []string {
	var values []string
	unique := s.unique(t)
	for _, each := range t.columns {
		switch {
		case each.name == c.name:
			values = append(values, s.value(t, each, row))
		case slices.Contains(unique, each.name) && each.kind == "INTEGER":
			values = append(values, "(SELECT max("+each.name+") + 1 FROM "+t.name+")")
		case slices.Contains(unique, each.name) && !each.notNull && each.name != "id":
			values = append(values, "NULL")
		case slices.Contains(unique, each.name) && s.rand.IntN(2) == 0:
			values = append(values, s.value(t, each, row))
		default:
			values = append(values, each.name)
		}
	}
	return []string{fmt.Sprintf("INSERT INTO %[1]s SELECT %[2]s FROM %[1]s WHERE rowid = %[3]d", t.name,
		strings.Join(values, ", "), row)}
}

// unique are the columns in a table's indexes of which there is but one.
func (s *shell) unique(t table) []string {
	return texts(s.w, s.db, `SELECT DISTINCT i.name FROM pragma_index_list(?1) l, pragma_index_info(l.name) i
		WHERE l."unique" UNION SELECT name FROM pragma_table_xinfo(?1) WHERE pk > 0`, t.name)
}

// row is one of a table, more often one of the newest.
func (s *shell) row(t table) (row int64, found bool) {
	var n int
	require.NoError(s.w.t, s.db.QueryRow(`SELECT count(*) FROM main.`+t.name).Scan(&n))
	if n == 0 {
		return 0, false
	}
	at := s.rand.IntN(n)
	if s.rand.IntN(3) > 0 {
		at = min(pick(s.rand, 0, 1, 2), n-1)
	}
	require.NoError(s.w.t, s.db.QueryRow(`SELECT rowid FROM main.`+t.name+
		` ORDER BY rowid DESC LIMIT 1 OFFSET `+strconv.Itoa(at)).Scan(&row))
	return row, true
}

// literalOf is what a row has in a column, as SQL has it.
func (s *shell) literalOf(t table, c column, row int64) string {
	return literal(s.valueOf(t, c, row))
}

func (s *shell) valueOf(t table, c column, row int64) (value any) {
	require.NoError(s.w.t, s.db.QueryRow(`SELECT `+c.name+` FROM main.`+t.name+` WHERE rowid = ?`, row).
		Scan(&value))
	return value
}

func literal(value any) string {
	switch v := value.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case []byte:
		return "x'" + hex.EncodeToString(v) + "'"
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	return "NULL"
}

// value is another value for a row's column, by its type and by what other rows have.
func (s *shell) value(t table, c column, row int64) string {
	now := s.valueOf(t, c, row)
	switch s.rand.IntN(8) {
	case 0:
		if !c.notNull {
			return "NULL"
		}
	case 1, 2, 3:
		other, _ := s.row(t)
		return s.literalOf(t, c, other)
	case 4:
		other := t.columns[s.rand.IntN(len(t.columns))]
		if other.kind == c.kind {
			return s.literalOf(t, other, row)
		}
	}
	switch v := now.(type) {
	case int64:
		return literal(s.number(v))
	case string:
		return literal(s.text(v))
	case []byte:
		return literal(s.bytes(v))
	}
	return []string{"0", "1", "''", "'x'", "x'00'", "9000000000000000"}[s.rand.IntN(6)]
}

// number is another number, or another time.
func (s *shell) number(v int64) int64 {
	list := []int64{0, 1, -1, -v, v + 1, v - 1, v * 10, v / 10, 1 << 40, 1 << 62, -1 << 62}
	if v > 1e15 { // microseconds
		for _, by := range []time.Duration{time.Microsecond, time.Second, time.Minute, 10 * time.Minute,
			time.Hour, 9 * time.Hour, 24 * time.Hour, 31 * 24 * time.Hour} {
			list = append(list, v+by.Microseconds(), v-by.Microseconds())
		}
	}
	return list[s.rand.IntN(len(list))]
}

// text is another text: of JSON, with one member changed; of digits, another number.
func (s *shell) text(v string) string {
	if changed, is := s.json([]byte(v)); is && s.rand.IntN(3) > 0 {
		return string(changed)
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return strconv.FormatInt(s.number(n), 10)
	}
	list := []string{"", "x", v + "x", strings.ToUpper(v), strings.ToLower(v), string(s.bytes([]byte(v)))}
	return strings.ToValidUTF8(strings.ReplaceAll(list[s.rand.IntN(len(list))], "\x00", "?"), "?")
}

// bytes are others: none, fewer, or with one of them changed.
func (s *shell) bytes(v []byte) []byte {
	if changed, is := s.json(v); is && s.rand.IntN(2) == 0 {
		return changed
	}
	if len(v) == 0 {
		return []byte{1}
	}
	v = slices.Clone(v)
	at := s.rand.IntN(len(v))
	switch s.rand.IntN(5) {
	case 0:
		return v[:at]
	case 1:
		return make([]byte, len(v))
	case 2:
		v[at] += byte(1 + s.rand.IntN(255))
	default:
		v[at] ^= 1 << s.rand.IntN(8)
	}
	return v
}

// json is an object with one of its members, at any depth, changed or taken out.
func (s *shell) json(text []byte) (changed []byte, is bool) {
	var object map[string]any
	if json.Unmarshal(text, &object) != nil || len(object) == 0 {
		return nil, false
	}
	at := object
	for {
		names := slices.Sorted(maps.Keys(at))
		name := names[s.rand.IntN(len(names))]
		switch v := at[name].(type) {
		case map[string]any:
			if len(v) > 0 {
				at = v
				continue
			}
			delete(at, name)
		case string:
			at[name] = s.text(v)
		case float64:
			at[name] = s.number(int64(v))
		default:
			delete(at, name)
		}
		if s.rand.IntN(6) == 0 {
			delete(at, name)
		}
		changed, _ = json.Marshal(object)
		return changed, true
	}
}

// tidy has what was edited fit together again, as somebody does who knows how the ledger is made: the sums of
// the budgets, the audit chain's hashes, and what the chain says of a payment's reservation.
func (s *shell) tidy(payment string) {
	forger := must.Get(historytest.Forge(s.w.home))(s.w.t)
	defer forger.Close()
	if payment != "" && s.rand.IntN(3) > 0 && forger.Reserve(payment) == nil {
		s.log = append(s.log, "-- and the chain says that "+payment+" was reserved so")
	}
	if s.rand.IntN(2) == 0 && forger.Recount() == nil {
		s.log = append(s.log, "-- and the sums of the budgets were added up")
	}
	var from int64
	err := forger.Get(&from, `SELECT coalesce(max(seq), 0) + 1 FROM audit WHERE seal IS NOT NULL`)
	if err == nil && s.rand.IntN(2) == 0 && forger.Relink(from) == nil {
		s.log = append(s.log, "-- and the chain was linked anew behind its last sealed row")
	}
}
