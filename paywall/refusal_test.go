package paywall

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a hook says with a Refusal the buyer reads, bounded and on one line.
func TestAHooksRefusalIsToldToTheBuyer(t *testing.T) {
	no := func(context.Context, *Sale) error {
		return Refusal("not on\na Sunday" + strings.Repeat("x", 1000))
	}
	for name, hooks := range map[string]Hooks{"before verify": {BeforeVerify: no},
		"before run": {BeforeRun: no}, "before settle": {BeforeSettle: no}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(_ *lab, o *Options) { o.Hooks = hooks })
			g := l.buy(t, nil)
			require.True(t, g.isError)
			require.Contains(t, g.text, "not on a Sundayxxx")
			require.NotContains(t, g.text, strings.Repeat("x", 200))
			l.nothingMoved(t, g)
		})
	}
}
