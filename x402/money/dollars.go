package money

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holiman/uint256"
)

// errDollars says that a text is not a plain decimal number of dollars with at most six decimals.
var errDollars = errors.New(`not dollars like "0.05" (at most 12 digits and at most 6 decimals)`)

// Dollars is an exact number of micro-dollars, never negative. int64 because SQL sums it: $9.2
// trillion.
type Dollars int64

// MaxDollars is what a sum or price saturates at; no budget is that large, so it is always refused.
const MaxDollars Dollars = math.MaxInt64

const microPerDollar = 1_000_000

// ParseDollars reads "5", "5.00", "0.001": digits, optionally a point and one to six decimals. No
// sign, no exponent.
func ParseDollars(s string) (Dollars, error) {
	whole, decimals, hasPoint := strings.Cut(s, ".")
	badWhole := !isDigits(whole) || len(whole) > 12 || (len(whole) > 1 && whole[0] == '0')
	badDecimals := hasPoint && (!isDigits(decimals) || len(decimals) > 6)
	if badWhole || badDecimals {
		return 0, fmt.Errorf("%s: %w", clip(s), errDollars)
	}
	micros, err := strconv.ParseInt(whole+(decimals + "000000")[:6], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", clip(s), errDollars)
	}
	return Dollars(micros), nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// String has at least two decimals and no noise after them: "5.00", "0.001".
func (d Dollars) String() string {
	text := fmt.Sprintf("%d.%06d", int64(d)/microPerDollar, int64(d)%microPerDollar)
	for strings.HasSuffix(text, "0") && len(text)-strings.IndexByte(text, '.') > 3 {
		text = text[:len(text)-1]
	}
	return text
}

// Price is String with the dollar sign: "$0.001".
func (d Dollars) Price() string { return "$" + d.String() }

// Add returns the sum, saturating at MaxDollars.
func (d Dollars) Add(e Dollars) Dollars {
	if e > MaxDollars-d {
		return MaxDollars
	}
	return d + e
}

// SubFloor returns d-e, and 0 where e is larger.
func (d Dollars) SubFloor(e Dollars) Dollars { return max(d-e, 0) }

// MarshalText makes Dollars a decimal string in JSON and TOML.
func (d Dollars) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what ParseDollars reads.
func (d *Dollars) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDollars(string(text))
	return err
}

// DollarsOf values an amount at unit dollars per whole token of 10^decimals atomic units. It rounds
// up, so that a budget never counts less than what was paid, and saturates at MaxDollars. An amount of
// something whose price is not known (unit 0) is more than any limit allows.
func DollarsOf(a Amount, decimals uint8, unit Dollars) Dollars {
	if unit == 0 {
		return MaxDollars
	}
	product, over := new(uint256.Int).MulOverflow(&a.n, uint256.NewInt(uint64(unit)))
	if over {
		return MaxDollars
	}
	scale := new(uint256.Int).Exp(uint256.NewInt(10), uint256.NewInt(uint64(decimals)))
	micros, rest := new(uint256.Int).DivMod(product, scale, new(uint256.Int))
	if !rest.IsZero() {
		if _, over := micros.AddOverflow(micros, uint256.NewInt(1)); over {
			return MaxDollars
		}
	}
	if !micros.IsUint64() || micros.Uint64() > uint64(MaxDollars) {
		return MaxDollars
	}
	return Dollars(micros.Uint64())
}

// AmountFor is the largest amount worth at most d, at unit dollars per whole token of 10^decimals
// atomic units. It is the inverse of DollarsOf for caps: DollarsOf(AmountFor(d)) ≤ d.
func AmountFor(d Dollars, decimals uint8, unit Dollars) Amount {
	if unit == 0 {
		return Amount{}
	}
	var a Amount
	scale := new(uint256.Int).Exp(uint256.NewInt(10), uint256.NewInt(uint64(decimals)))
	product, over := new(uint256.Int).MulOverflow(uint256.NewInt(uint64(d)), scale)
	if over {
		a.n.SetAllOne()
		return a
	}
	a.n.Div(product, uint256.NewInt(uint64(unit)))
	return a
}
