package money

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	canonicalAmount = regexp.MustCompile(`^(0|[1-9][0-9]{0,77})$`)
	dollars         = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?$`)
)

// What is read as an amount is written as it was read, so no text has two meanings and no amount
// two texts.
func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "1", "01", "-5", "+5", "0x10", "1e6", "1.0", "", " 1", "١",
		strings.Repeat("9", 78),
		"115792089237316195423570985008687907853269984665640564039457584007913129639936"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err != nil {
			require.Equal(t, Amount{}, a)
			return
		}
		require.Regexp(t, canonicalAmount, s)
		require.Equal(t, s, a.String())
	})
}

// What is read as dollars is a plain decimal of at most six places, and means the same when it is
// written and read again.
func FuzzParseDollars(f *testing.F) {
	for _, s := range []string{"0", "5.00", "0.001", "00.5", "-1", "1.", ".5", "1e3", "$5", "0.0000001",
		"999999999999.999999", "1000000000000", "1.１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDollars(s)
		if err != nil {
			require.Zero(t, d)
			return
		}
		require.Regexp(t, dollars, s)
		require.GreaterOrEqual(t, d, Dollars(0))
		again, err := ParseDollars(d.String())
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}
