package history

import (
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// What sales.go needs of searching, until it is a package of its own.

// condition is a WHERE.
type condition struct {
	text string
	args []any
}

func (c *condition) and(text string, args ...any) {
	if c.text == "" {
		c.text = ` WHERE ` + text
	} else {
		c.text += ` AND ` + text
	}
	c.args = append(c.args, args...)
}

// andContains adds that a column contains a text, whatever the case of ASCII letters.
func (c *condition) andContains(column, text string) {
	c.and(`lower(`+column+`) LIKE ? ESCAPE '\'`, sqldb.Containing(text))
}

// addSums adds up the rows of a query by its first column.
func (t *tx) addSums(into map[string]money.Dollars, query string, args ...any) error {
	return t.Each(func(row sqldb.Row) error {
		var key string
		var sum money.Dollars
		err := row.Scan(&key, &sum)
		if sum != 0 {
			into[key] = into[key].Add(sum)
		}
		return err
	}, query, args...)
}
