package verify

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/schema"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402"
)

// form compares the tables, indexes and triggers with those of a new ledger, because a trigger could change
// what this wallet writes, and finds values that are not of their column's type, or empty instead of NULL.
func form(t *sqldb.Tx) error {
	if t.IsServer() { // types are the server's to keep
		n, err := sqldb.ScanNumber(t.Row(`SELECT
			(SELECT count(*) FROM information_schema.triggers WHERE trigger_schema = current_schema()) +
			(SELECT count(*) FROM pg_rules WHERE schemaname = current_schema())`))
		if err == nil && n > 0 {
			err = audit.Corrupt("%d triggers or rules are none of this wallet's", n)
		}
		if err != nil {
			return err
		}
		return emptyInPostgres(t)
	}
	made, err := newForm()
	if err != nil {
		return err
	}
	want := maps.Clone(made)
	err = t.Each(func(row sqldb.Row) error {
		var name, text string
		if err := row.Scan(&name, &text); err != nil {
			return err
		}
		if is, known := want[name]; !known || is != text {
			return audit.Corrupt("the %s is not one of this wallet's", name)
		}
		delete(want, name)
		return nil
	}, listForm)
	if err != nil {
		return err
	}
	for name := range want {
		return audit.Corrupt("the %s is gone", name)
	}
	return types(t)
}

const listForm = `SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema
	WHERE type || name NOT IN ('tablesqlite_stat1', 'tablesqlite_stat4') ORDER BY 1`

// newForm is the SQL of each table, index and trigger of a new ledger, by its kind and name.
var newForm = sync.OnceValues(func() (map[string]string, error) {
	fail := func(err error) (map[string]string, error) {
		return nil, x402.Errorf(x402.LedgerUnavailable, "make a ledger's tables: %w", err)
	}
	ctx := context.Background()
	fresh, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return fail(err)
	}
	defer fresh.Close()
	fresh.SetMaxOpenConns(1)
	if _, err := fresh.ExecContext(ctx, schema.SQLite()); err != nil {
		return fail(err)
	}
	rows, err := fresh.QueryContext(ctx, listForm)
	if err != nil {
		return fail(err)
	}
	defer rows.Close()
	list := map[string]string{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return fail(err)
		}
		list[name] = text
	}
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	return list, nil
})

// types finds values that are not of their column's type: SQLite takes any, and compares a text and the same
// bytes as two. Where a value may be missing it is NULL, and never empty.
func types(t *sqldb.Tx) error {
	wrong := map[string][]string{} // conditions, by table
	err := t.Each(func(row sqldb.Row) error {
		var table, name, kind string
		var required, isKey bool
		err := row.Scan(&table, &name, &kind, &required, &isKey)
		allowed, mayBeNull := `'`+kind+`'`, !required && !isKey
		if mayBeNull {
			allowed += `, 'null'`
		}
		wrong[table] = append(wrong[table], fmt.Sprintf(`typeof("%s") NOT IN (%s)`, name, allowed))
		if mayBeNull && kind != "integer" {
			wrong[table] = append(wrong[table], fmt.Sprintf(`length("%s") = 0`, name))
		}
		return err
	}, `SELECT m.name, c.name, lower(c.type), c."notnull", c.pk <> 0
		FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY 1, c.cid`)
	if err != nil {
		return err
	}
	return noRows(t, wrong, "values of another type")
}

// emptyInPostgres finds empty values where a value may be missing: a missing one is NULL.
func emptyInPostgres(t *sqldb.Tx) error {
	empty := map[string][]string{} // conditions, by table
	err := t.Each(func(row sqldb.Row) error {
		var table, name string
		err := row.Scan(&table, &name)
		empty[table] = append(empty[table], fmt.Sprintf(`octet_length("%s") = 0`, name))
		return err
	}, `SELECT relname, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
		WHERE relnamespace = to_regnamespace(current_schema()) AND relkind = 'r' AND attnum > 0
			AND NOT attnotnull AND atttypid IN (to_regtype('text'), to_regtype('bytea'))
		ORDER BY 1, attnum`)
	if err != nil {
		return err
	}
	return noRows(t, empty, "empty values")
}

// noRows refuses rows that meet one of their table's conditions.
func noRows(t *sqldb.Tx, conditions map[string][]string, hold string) error {
	for _, table := range slices.Sorted(maps.Keys(conditions)) {
		n, err := sqldb.ScanNumber(t.Row(`SELECT count(*) FROM "` + table + `" WHERE ` +
			strings.Join(conditions[table], " OR ")))
		if err == nil && n > 0 {
			err = audit.Corrupt("%d rows of %s hold %s", n, table, hold)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
