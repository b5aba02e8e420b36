package scheme

import (
	"x402-wallet/history"
	"x402-wallet/x402"
)

// Source is an account of the owner's that pays in place of the agent's own, by signatures of the agent's
// key.
type Source interface {
	// Name is how alerts and metrics name it.
	Name() string
	// Account is its address on a network; "": there is none.
	Account(network string) string
	// Pays reports whether an option can be paid from it.
	Pays(r x402.Requirement) bool
	// Lack explains that it does not cover an option.
	Lack(o Option, f x402.Funds, lack *history.ShortOfFunds) error
	// Explain says what a person does about an error of reading it.
	Explain(err error, network string) error
}

// TooMuchAtOnce reports whether a price is above what one payment may be.
func TooMuchAtOnce(o Option, f x402.Funds) bool {
	return f.MaxPayment != nil && o.Amount.Cmp(*f.MaxPayment) > 0
}
