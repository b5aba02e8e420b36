package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// FormIs refuses a database whose tables, indexes and triggers are not those that a text of SQL makes, and
// one with values that are not of their column's type.
func (t *Tx) FormIs(schema string) error { return t.engine.formIs(t, schema) }

const listSchema = `SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
	WHERE name NOT LIKE 'sqlite_stat%' ORDER BY 1`

func (e *sqliteEngine) formIs(t *Tx, schema string) error {
	want, err := e.madeBy(t.ctx, schema)
	if err != nil {
		return err
	}
	want = maps.Clone(want)
	err = t.Each(func(row Row) error {
		var name, text string
		if err := row.Scan(&name, &text); err != nil {
			return err
		}
		if is, known := want[name]; !known || is != text {
			return fmt.Errorf("the %s is not one of this wallet's", name)
		}
		delete(want, name)
		return nil
	}, listSchema)
	if err != nil {
		return err
	}
	for name := range want {
		return fmt.Errorf("the %s is gone", name)
	}
	return typesAgree(t)
}

var made sync.Map // what SQLite makes of a text: its objects by their kind and name

func (e *sqliteEngine) madeBy(ctx context.Context, schema string) (map[string]string, error) {
	if known, is := made.Load(schema); is {
		return known.(map[string]string), nil
	}
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, e.classify("make a ledger's tables", err)
	}
	defer fresh.Close()
	fresh.SetMaxOpenConns(1)
	if _, err := fresh.ExecContext(ctx, schema); err != nil {
		return nil, e.classify("make a ledger's tables", err)
	}
	rows, err := fresh.QueryContext(ctx, listSchema)
	if err != nil {
		return nil, e.classify("make a ledger's tables", err)
	}
	defer rows.Close()
	list := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		list[name] = text
	}
	made.Store(schema, list)
	return list, rows.Err()
}

// typesAgree finds values that are not of their column's type: SQLite takes any, and compares a text and the
// same bytes as two. Where a value may be missing it is NULL, and never empty.
func typesAgree(t *Tx) error {
	type column struct {
		table, name, kind string
		required, isKey   bool
	}
	columns, err := Collect(t, func(row Row) (c column, err error) {
		err = row.Scan(&c.table, &c.name, &c.kind, &c.required, &c.isKey)
		return c, err
	}, `SELECT m.name, c.name, lower(c.type), c."notnull", c.pk <> 0
		FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY 1, c.cid`)
	if err != nil {
		return err
	}
	wrong := map[string][]string{}
	for _, c := range columns {
		allowed := `'` + c.kind + `'`
		if !c.required && !c.isKey {
			allowed += `, 'null'`
		}
		wrong[c.table] = append(wrong[c.table], fmt.Sprintf(`typeof("%s") NOT IN (%s)`, c.name, allowed))
		if c.kind != "integer" && !c.required && !c.isKey {
			wrong[c.table] = append(wrong[c.table], fmt.Sprintf(`length("%s") = 0`, c.name))
		}
	}
	for _, table := range slices.Sorted(maps.Keys(wrong)) {
		var n int
		err := t.Row(`SELECT count(*) FROM "` + table + `" WHERE ` + strings.Join(wrong[table], " OR ")).Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d rows of %s hold values of another type", n, table)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
