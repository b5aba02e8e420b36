// Package rows copies the rows of a table from one database to another, whatever their engines.
//
// What must stay true: all rows of the table are copied, or there is an error.
package rows

import (
	"strings"

	"x402-wallet/history/sqldb"
)

// rowsAtOnce and bytesAtOnce are how many rows and bytes one statement inserts.
const rowsAtOnce, bytesAtOnce = 50, 4 << 20

// Copy inserts all rows of a table into the table of the same name in another database.
func Copy(table string, t, into *sqldb.Tx) error {
	rows, err := t.Query(`SELECT * FROM `+table, nil)
	if err != nil {
		return t.Classify("read the ledger", err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return t.Classify("read the ledger", err)
	}
	one := `(?` + strings.Repeat(`, ?`, len(columns)-1) + `)`
	insert := func(values []any) error {
		n := len(values) / len(columns)
		if n == 0 {
			return nil
		}
		_, err := into.Exec(`INSERT INTO `+table+` (`+strings.Join(columns, ", ")+`) VALUES `+one+
			strings.Repeat(`, `+one, n-1), values...)
		return err
	}
	var values []any
	size := 0
	for rows.Next() {
		row := make([]any, len(columns))
		places := make([]any, len(columns))
		for i := range row {
			places[i] = &row[i]
		}
		if err := rows.Scan(places...); err != nil {
			return t.Classify("read the ledger", err)
		}
		values = append(values, row...)
		for _, value := range row {
			if data, is := value.([]byte); is {
				size += len(data)
			}
		}
		if len(values) == rowsAtOnce*len(columns) || size > bytesAtOnce {
			if err := insert(values); err != nil {
				return err
			}
			values, size = values[:0], 0
		}
	}
	if err := rows.Err(); err != nil {
		return t.Classify("read the ledger", err)
	}
	return insert(values)
}
