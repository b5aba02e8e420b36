package terminal

import (
	"context"
	"fmt"
	"testing"

	"x402-wallet/wallet/internal/wallettest"
)

// TestMain is also the other process in tests that need one.
func TestMain(m *testing.M) {
	wallettest.Main(m, func(ctx context.Context, name string) error {
		ask := Ask("Passphrase: ")
		if name == "terminal-twice" {
			ask = AskTwice()
		}
		p, err := ask(ctx)
		if err == nil {
			fmt.Printf("%x", p)
		}
		return err
	})
}
