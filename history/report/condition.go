package report

import (
	"strings"

	"x402-wallet/history/sqldb"
)

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

// andOneOf adds that a column is one of some texts.
func (c *condition) andOneOf(column string, list []string) {
	if len(list) == 0 {
		c.and(`1 = 0`)
		return
	}
	args := make([]any, len(list))
	for i, text := range list {
		args[i] = text
	}
	c.and(column+` IN (`+strings.Repeat(`, ?`, len(list))[2:]+`)`, args...)
}

// andContains adds that a column contains a text, whatever the case of ASCII letters.
func (c *condition) andContains(column, text string) {
	c.and(`lower(`+column+`) LIKE ? ESCAPE '\'`, sqldb.Containing(text))
}
