package money

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
)

// Only the canonical decimal is an amount.
func TestParseAmountRefusesEverythingButTheCanonicalDecimal(t *testing.T) {
	twoTo256 := new(big.Int).Lsh(big.NewInt(1), 256)
	for _, bad := range []string{
		"", "-1", "-0", "+10", "010", "00", " 10", "10 ", "10\n", "10\x00", "1.5", "1e3", "1E3", "NaN",
		"Infinity",
		"0x10", "0b1", "0o7", "1_000", "1,000", "١٢", "１０", twoTo256.String(), strings.Repeat("9", 10_000),
	} {
		t.Run(bad, func(t *testing.T) {
			_, err := ParseAmount(bad)
			require.ErrorIs(t, err, errAmount, "%q", bad)
			require.Less(t, len(err.Error()), 120, "an error never repeats an endless input")
		})
	}
	largest := new(big.Int).Sub(twoTo256, big.NewInt(1)).String()
	for _, good := range []string{"0", "1", "10000", "18446744073709551615", "18446744073709551616",
		largest} {
		t.Run(good, func(t *testing.T) {
			require.Equal(t, good, must.Get(ParseAmount(good))(t).String())
		})
	}
}

func TestAmountArithmeticNeverWraps(t *testing.T) {
	largest := must.Get(ParseAmount(new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256),
		big.NewInt(1)).String()))(t)
	sum, ok := largest.Add(NewAmount(1))
	require.False(t, ok)
	require.Equal(t, largest, sum, "saturates")
	require.Equal(t, Amount{}, NewAmount(3).SubFloor(NewAmount(4)))
	require.Equal(t, NewAmount(1), NewAmount(4).SubFloor(NewAmount(3)))
	_, ok = largest.Uint64()
	require.False(t, ok)
}

func TestAmountIsAStringInJSON(t *testing.T) {
	text := must.Get(json.Marshal(map[string]Amount{"amount": NewAmount(10)}))(t)
	require.JSONEq(t, `{"amount":"10"}`, string(text))
	var back struct{ Amount Amount }
	require.Error(t, json.Unmarshal([]byte(`{"amount":10}`), &back), "a JSON number is not an amount")
}

func TestDollars(t *testing.T) {
	for text, want := range map[string]string{"5": "5.00", "5.00": "5.00", "0.001": "0.001",
		"0.100000": "0.10", "0": "0.00", "0.000001": "0.000001", "1234.5": "1234.50"} {
		t.Run(text, func(t *testing.T) {
			d, err := ParseDollars(text)
			require.NoError(t, err, text)
			require.Equal(t, want, d.String(), text)
		})
	}
	for _, bad := range []string{"", ".5", "5.", "-1", "+1", "1e3", "0.0000001", "05", "1,000", "$5", "5 ",
		"0x5", "9999999999999"} {
		t.Run(bad, func(t *testing.T) {
			require.ErrorIs(t, must.Err(ParseDollars(bad)), errDollars, "%q", bad)
		})
	}
	require.Equal(t, MaxDollars, MaxDollars.Add(1))
	require.Equal(t, "$0.01", Dollars(10_000).Price())
}

func TestDollarsOfRoundsUpAndSaturates(t *testing.T) {
	require.Equal(t, Dollars(10_000), DollarsOf(NewAmount(10_000), 6, 1_000_000))
	require.Equal(t, Dollars(1), DollarsOf(NewAmount(1), 18, 1_000_000),
		"one wei of an 18-decimals dollar still counts")
	largest, _ := AmountFromBytes([]byte(strings.Repeat("\xff", 32)))
	require.Equal(t, MaxDollars, DollarsOf(largest, 6, 1_000_000))
	require.Equal(t, MaxDollars, DollarsOf(largest, 0, 1))
	require.Equal(t, MaxDollars, DollarsOf(NewAmount(1), 6, 0), "what has no price is above every limit")
}

func TestAmountForNeverExceedsItsDollars(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Dollars(rapid.Int64Range(0, 1<<50).Draw(t, "dollars"))
		decimals := rapid.Uint8Range(0, 18).Draw(t, "decimals")
		unit := Dollars(rapid.Int64Range(1, 1<<30).Draw(t, "unit"))
		a := AmountFor(d, decimals, unit)
		require.LessOrEqual(t, DollarsOf(a, decimals, unit), d)
		more, _ := a.Add(NewAmount(1))
		require.Greater(t, DollarsOf(more, decimals, unit), d)
	})
}

func TestAssetFoldsOnlyEVMCase(t *testing.T) {
	require.Equal(t, NewAsset("eip155:1", "0xAb"), NewAsset("eip155:1", "0xaB"))
	require.NotEqual(t, NewAsset("solana:x", "Ab"), NewAsset("solana:x", "aB"))
}

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
			amount := must.Get(ParseAmount(row.atomic))(t)
			require.Equal(t, row.want, amount.Units(row.decimals), row.atomic)
		})
	}
}

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
		require.Equal(t, d, must.Get(ParseDollars(d.String()))(t))
	})
}
