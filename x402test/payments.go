package x402test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402/money"
)

// Payment is one that moved play money on a chain: what somebody signed, and a facilitator brought there.
type Payment = sandbox.Settlement

// Payments lists what really moved, oldest first, as the chains know it: whatever a seller or a facilitator
// was told to claim.
func (s *Sandbox) Payments() []Payment { return s.PaymentsLike(Payment{}) }

// PaymentsLike lists the payments that are as like says; what is "" or 0 there is not looked at, and At never
// is. A Solana address stands for its token account.
func (s *Sandbox) PaymentsLike(like Payment) []Payment {
	return slices.DeleteFunc(s.world.Settlements(), func(p Payment) bool { return !s.world.Like(p, like) })
}

// AssertPaid asserts that so many payments are as like says, and returns them. It reports whether that is so.
func (s *Sandbox) AssertPaid(t testing.TB, times int, like Payment) (payments []Payment, ok bool) {
	t.Helper()
	payments = s.PaymentsLike(like)
	if len(payments) != times {
		t.Errorf("x402test: %d payments like {%s} were expected, and there are %d. %s", times, asked(like),
			len(payments), s.all())
	}
	return payments, len(payments) == times
}

// AssertPaidOnce asserts that one payment, and no more, is as like says, and returns it.
func (s *Sandbox) AssertPaidOnce(t testing.TB, like Payment) (payment Payment, ok bool) {
	t.Helper()
	payments, ok := s.AssertPaid(t, 1, like)
	if ok {
		payment = payments[0]
	}
	return payment, ok
}

// AssertNothingPaid asserts that no money moved.
func (s *Sandbox) AssertNothingPaid(t testing.TB) (ok bool) {
	t.Helper()
	_, ok = s.AssertPaid(t, 0, Payment{})
	return ok
}

// Signatures is how many different signed payments were ever presented to the seller or the facilitator.
func (s *Sandbox) Signatures() int { return s.world.Signatures() }

// AssertSignedOnce asserts of a buyer that whatever it presented, and presented again, were so many different
// signed payments: who signs anew instead of presenting the same bytes could pay twice.
func (s *Sandbox) AssertSignedOnce(t testing.TB, payments int) (ok bool) {
	t.Helper()
	if got := s.Signatures(); got != payments {
		t.Errorf("x402test: %d signed payments were expected, and %d different ones were presented, "+
			"%d times. %s", payments, got, s.world.Presentations(), s.all())
		return false
	}
	return true
}

// AssertBalance asserts what an address has, in dollars, as in "9.95".
func (s *Sandbox) AssertBalance(t testing.TB, address, dollars string) (ok bool) {
	t.Helper()
	want, err := money.ParseDollars(dollars)
	if err != nil {
		t.Fatalf("x402test: %v", err)
	}
	if got := s.Balance(address); got != uint64(want) {
		t.Errorf("x402test: %s should have $%s, and has $%s. %s", address, dollars, money.Dollars(got),
			s.all())
		return false
	}
	return true
}

// Requests is how many requests the seller got for a path, with or without payment, and how many times it
// delivered what it sells there.
func (s *Sandbox) Requests(path string) (asked, served int) { return s.world.Requests(path) }

func (s *Sandbox) all() string {
	payments := s.Payments()
	if len(payments) == 0 {
		return "Nothing was paid."
	}
	text := "What was paid:"
	for _, p := range payments {
		text += "\n\t" + p.String()
	}
	return text
}

// asked are the fields of a payment that are looked at.
func asked(p Payment) string {
	var fields []string
	for _, f := range []struct{ name, value string }{{"Network", p.Network}, {"Transaction", p.Transaction},
		{"Payer", p.Payer}, {"Signer", p.Signer}, {"PayTo", p.PayTo}, {"Nonce", p.Nonce}, {"Path", p.Path}} {
		if f.value != "" {
			fields = append(fields, f.name+": "+f.value)
		}
	}
	if p.Amount != 0 {
		fields = append(fields, fmt.Sprintf("Amount: %d", p.Amount))
	}
	return strings.Join(fields, ", ")
}
