package history_test

import (
	"testing"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/verify"
)

func init() {
	history.Verification.Sealed = verify.Sealed
}

// BenchmarkMillionVerify is what compares a ledger as a whole.
func BenchmarkMillionVerify(b *testing.B) {
	s, k := history.Million(b), historytest.Keyholder()
	for name, f := range map[string]func() error{
		"Ledger":  func() error { _, err := verify.Ledger(b.Context(), s, history.Head{}); return err },
		"Sealed":  func() error { _, err := verify.Sealed(b.Context(), s, k); return err },
		"Content": func() error { _, err := verify.Content(b.Context(), s); return err },
		"Sample":  func() error { _, err := verify.Sample(b.Context(), s); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
