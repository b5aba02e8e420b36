package history

import (
	"strings"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// What sales.go needs of searching, until it is a package of its own: see sqldb.Condition.

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
	pattern := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(lower(text))
	c.and(`lower(`+column+`) LIKE ? ESCAPE '\'`, "%"+pattern+"%")
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

// lower folds ASCII letters.
func lower(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}
