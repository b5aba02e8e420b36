package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The reference seller's challenge says that it is called by POST with a body. A call without one is not
// paid; a body that came as an object is.
func TestCallIsHeldAgainstTheReferencesBazaar(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	at := lab.Seller + "/search"
	p := payFor(t, w, at, "method", "POST")
	require.Equal(t, []string{"INVALID_ARGUMENT", "agent"}, []string{p.Error, p.FixedBy}, "%+v", p)
	require.Equal(t, "POST", p.Details["method"])
	require.Contains(t, p.Details["input"], `"q":"weather"`)
	require.Contains(t, p.Next.Why, "call it by POST with a body")
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
	require.Empty(t, history(t, w))

	p = payFor(t, w, at, "method", "POST", "body", map[string]any{"q": "rain"}, "wait_for_previous", true)
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.JSONEq(t, `{"found":"rain"}`, p.Content)
}
