package doctor

import (
	"testing"

	"x402-wallet/history/verify"

	"github.com/stretchr/testify/require"
)

// A sample says that it was one, and what checks everything.
func TestASampleSaysThatItIsOne(t *testing.T) {
	whole := checked(verify.Sampled{Rows: 7, AllRows: 7, Payments: 2, AllPayments: 2})
	require.Equal(t, good("the audit chain is intact (7 rows)"), whole)
	part := checked(verify.Sampled{Rows: 7, AllRows: 900, Payments: 2, AllPayments: 300})
	require.Contains(t, part[0].Message, "7 of the audit chain's 900 rows")
	require.Contains(t, part[0].Message, "2 of 300 payments")
	require.Contains(t, part[0].Message, "doctor --full")
	require.Equal(t, ok, part[0].Status)
}
