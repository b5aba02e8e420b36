// Package pattern has regular expressions that are compiled at their first use: those of the whole program
// take as long as all else that it does before main, and hosts wait for our start.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy is an expression that is right: where it is not, its first use panics.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
