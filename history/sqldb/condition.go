package sqldb

import "strings"

// Condition is a WHERE, with its arguments. The zero one is none.
type Condition struct {
	Text string
	Args []any
}

// And adds a condition that has to be true, too.
func (c *Condition) And(text string, args ...any) {
	if c.Text == "" {
		c.Text = ` WHERE ` + text
	} else {
		c.Text += ` AND ` + text
	}
	c.Args = append(c.Args, args...)
}

// AndOneOf adds that a column is one of some texts.
func (c *Condition) AndOneOf(column string, list []string) {
	if len(list) == 0 {
		c.And(`1 = 0`)
		return
	}
	args := make([]any, len(list))
	for i, text := range list {
		args[i] = text
	}
	c.And(column+` IN (`+strings.Repeat(`, ?`, len(list))[2:]+`)`, args...)
}

// AndContains adds that a column contains a text, whatever the case of ASCII letters.
func (c *Condition) AndContains(column, text string) {
	pattern := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(LowerASCII(text))
	c.And(`lower(`+column+`) LIKE ? ESCAPE '\'`, "%"+pattern+"%")
}

// LowerASCII is a text with its ASCII letters in lower case.
func LowerASCII(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}
