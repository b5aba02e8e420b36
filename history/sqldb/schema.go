package sqldb

import (
	"regexp"
	"strings"
)

// ExecAll runs the statements of a text, each of which ends with a semicolon at a line's end.
func (t *Tx) ExecAll(text string) error {
	for statement := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := t.Exec(statement); err != nil {
			return err
		}
	}
	return nil
}

// HasTable reports whether the database has a table.
func (t *Tx) HasTable(name string) (bool, error) { return t.Is(t.engine.HasTable(), name) }

// WithoutComments is a text of SQL without its comments: SQLite keeps the text of each table.
func WithoutComments(text string) string {
	return regexp.MustCompile(`[ \t]*--.*`).ReplaceAllString(text, "")
}
