package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402"
)

// An error of the database is classified once, and what means nothing to it is trouble of the moment.
func TestClassify(t *testing.T) {
	e := &engine{}
	require.NoError(t, e.Classify("x", nil))
	known := x402.Errorf(x402.BudgetExceeded, "no")
	require.Equal(t, known, e.Classify("x", known))
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errors.New("EIO")} {
		classified := e.Classify("x", err)
		require.True(t, x402.HasCode(classified, x402.LedgerUnavailable), "%v", classified)
		require.ErrorIs(t, classified, err)
	}
}
