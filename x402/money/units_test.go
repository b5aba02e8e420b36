package money

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnits(t *testing.T) {
	for _, row := range []struct {
		atomic   string
		decimals uint8
		want     string
	}{
		{"0", 6, "0"}, {"1", 6, "0.000001"}, {"999999", 6, "0.999999"}, {"1000000", 6, "1"},
		{"1500000", 6, "1.5"}, {"10", 0, "10"}, {"7", 1, "0.7"},
		{"123456789012345678901234567890", 18, "123456789012.34567890123456789"},
	} {
		t.Run(row.atomic, func(t *testing.T) {
			amount, err := ParseAmount(row.atomic)
			require.NoError(t, err)
			require.Equal(t, row.want, amount.Units(row.decimals), row.atomic)
		})
	}
}
