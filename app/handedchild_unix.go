//go:build unix

package app

import (
	"context"
	"io"
	"os"

	"x402-wallet/internal/child"
	"x402-wallet/internal/config/environ"
	"x402-wallet/wallet/terminal"
)

// takeHanded is the side of a command that the service runs for an owner: the context ends when the service
// says so, or is gone, and passphrases are asked for at the terminal that came with it.
func takeHanded(parent context.Context, env environ.Env) context.Context {
	if env.Handed == "" {
		return parent
	}
	ctx, end := context.WithCancel(parent)
	control := os.NewFile(child.HandedControl, "service")
	answers := make(chan byte)
	go func() {
		defer end()
		for said := make([]byte, 1); ; {
			if _, err := io.ReadFull(control, said); err != nil {
				return
			}
			select {
			case answers <- said[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	h := &terminal.Handed{Typed: func() { _, _ = control.Write([]byte{handedTyped}) }}
	h.Ask = func() error {
		if _, err := control.Write([]byte{handedAsks}); err != nil {
			return refusedToAsk(0)
		}
		select {
		case answer := <-answers:
			if answer == handedYes {
				return nil
			}
			return refusedToAsk(answer)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if env.Handed == environ.HandedTerminal {
		h.Terminal = os.NewFile(child.HandedTerminal, "terminal")
	}
	h.Use()
	return ctx
}
