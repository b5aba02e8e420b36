package recovery

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/wallettest"
	"x402-wallet/wallet/terminal"
)

// The phrase of anvil's, hardhat's and the golden keystores' accounts, and its Solana address in other
// wallets.
const (
	knownPhrase = "test test test test test test test test test test test junk"
	knownSolana = "oeYf6KAJkLYhBuR8CiGc6L4D4Xtfepr85fuDgA9kq96"
)

// TestMain is also the other process in tests that need one.
func TestMain(m *testing.M) {
	wallettest.Main(m, func(ctx context.Context, name string) error {
		if name == "show-phrase" {
			return shownPhrase(ctx)
		}
		p, err := FromTerminal()(ctx)
		fmt.Printf("%x", p)
		return err
	})
}

// shownPhrase shows the phrase of a wallet; Ctrl-C is the program's to see, as in the real one.
func shownPhrase(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	w, err := wallet.Open(os.Getenv("PHRASE_HOME"))
	if err != nil {
		return err
	}
	words, err := Show(ctx, w, terminal.Ask("Passphrase: "))
	if err == nil {
		fmt.Print(words)
	}
	return err
}
