// Package money counts: token amounts in atomic units, dollars in exact
// micro-dollars, and the asset they belong to.
//
// What must stay true: nothing here is ever negative, wrapped or parsed
// leniently; a price is rounded up and a cap down, so that a budget never
// counts less than what was paid. A float never touches money.
package money

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/holiman/uint256"
)

// errAmount says that a text is not a canonical unsigned decimal of 256 bits.
var errAmount = errors.New("not a canonical decimal amount")

// Amount is a number of atomic units of some asset, 0 … 2^256-1. The zero value is 0; values
// compare with ==.
type Amount struct{ n uint256.Int }

// NewAmount returns n atomic units.
func NewAmount(n uint64) Amount { return Amount{n: *uint256.NewInt(n)} }

// ParseAmount reads the wire form of x402 amounts: ^(0|[1-9][0-9]{0,77})$, at most 2^256-1.
// Signs, leading zeros, exponents, other bases, blanks and other digits are refused.
func ParseAmount(s string) (Amount, error) {
	if !isDigits(s) || len(s) > 78 || (s[0] == '0' && len(s) > 1) {
		return Amount{}, fmt.Errorf("%w: %s", errAmount, clip(s))
	}
	var a Amount
	if err := a.n.SetFromDecimal(s); err != nil {
		return Amount{}, fmt.Errorf("%w: more than 256 bits", errAmount)
	}
	return a, nil
}

func clip(s string) string {
	if len(s) > 24 {
		return fmt.Sprintf("%q…", s[:24])
	}
	return fmt.Sprintf("%q", s)
}

// String is the canonical decimal form.
func (a Amount) String() string { return a.n.Dec() }

// IsZero reports whether a is 0.
func (a Amount) IsZero() bool { return a.n.IsZero() }

// Cmp compares: -1, 0 or 1.
func (a Amount) Cmp(b Amount) int { return a.n.Cmp(&b.n) }

// Uint64 returns the value and whether it fits (Solana's token amounts).
func (a Amount) Uint64() (uint64, bool) { return a.n.Uint64(), a.n.IsUint64() }

// Bytes32 is the big-endian form of EIP-712's uint256.
func (a Amount) Bytes32() [32]byte { return a.n.Bytes32() }

// AmountFromBytes reads a big-endian number of at most 32 bytes; ok is false when it is longer.
func AmountFromBytes(b []byte) (a Amount, ok bool) {
	if len(b) > 32 {
		return Amount{}, false
	}
	a.n.SetBytes(b)
	return a, true
}

// Add returns a+b; ok is false (and the sum the largest amount) where it does not fit 256 bits.
func (a Amount) Add(b Amount) (sum Amount, ok bool) {
	if _, over := sum.n.AddOverflow(&a.n, &b.n); over {
		sum.n.SetAllOne()
		return sum, false
	}
	return sum, true
}

// SubFloor returns a-b, and 0 where b is larger: what is left of a after b.
func (a Amount) SubFloor(b Amount) Amount {
	if a.n.Lt(&b.n) {
		return Amount{}
	}
	var d Amount
	d.n.Sub(&a.n, &b.n)
	return d
}

// Times returns a·n, or the largest amount where that does not fit.
func (a Amount) Times(n uint64) (product Amount) {
	if _, over := product.n.MulOverflow(&a.n, uint256.NewInt(n)); over {
		product.n.SetAllOne()
	}
	return product
}

// MarshalText and UnmarshalText make an Amount a decimal string in JSON and TOML.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseAmount reads.
func (a *Amount) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAmount(string(text))
	return err
}

// Value and Scan keep an Amount as TEXT in SQL: no engine has an integer of 256 bits.
func (a Amount) Value() (driver.Value, error) { return a.String(), nil }

// Scan reads a TEXT column.
func (a *Amount) Scan(column any) error {
	text, ok := column.(string)
	if !ok {
		return fmt.Errorf("%w: a %T column", errAmount, column)
	}
	return a.UnmarshalText([]byte(text))
}

// Units writes atomic units as whole tokens, exactly.
func (a Amount) Units(decimals uint8) string {
	digits := a.String()
	if pad := int(decimals) + 1 - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	whole, rest := digits[:len(digits)-int(decimals)], strings.TrimRight(digits[len(digits)-int(decimals):],
		"0")
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}

// ParseUnits reads whole tokens like "25" or "2.50", exactly, into atomic units: no sign, blank or exponent,
// and no more decimals than the token has.
func ParseUnits(text string, decimals uint8) (Amount, error) {
	whole, rest, _ := strings.Cut(text, ".")
	if whole == "" || strings.HasSuffix(text, ".") || len(rest) > int(decimals) {
		return Amount{}, fmt.Errorf("%w: %s, of at most %d decimals", errAmount, clip(text), decimals)
	}
	digits := strings.TrimLeft(whole+rest+strings.Repeat("0", int(decimals)-len(rest)), "0")
	if digits == "" {
		digits = "0"
	}
	return ParseAmount(digits)
}

// Asset names a token: a CAIP-2 network and the token's address there. It is a map key, so build it
// with NewAsset.
type Asset struct{ Network, Address string }

// NewAsset folds the letter case of EVM addresses, which mean the same in any case; base58 is kept
// as it is.
func NewAsset(network, address string) Asset {
	if strings.HasPrefix(network, "eip155:") {
		address = strings.ToLower(address)
	}
	return Asset{Network: network, Address: address}
}
