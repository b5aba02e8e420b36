package tools

import (
	"context"
	"slices"

	"x402-wallet/history"
	"x402-wallet/x402"
)

// setupOut is the answer of x402_setup_agent.
type setupOut struct {
	Ready     bool      `json:"ready"` // nothing but locked and the funds stands in the way of a payment
	Locked    bool      `json:"locked"`
	Addresses addresses `json:"addresses"`
	NextSteps []string  `json:"nextSteps"`
}

// addresses are where the agent's money arrives.
type addresses struct {
	Solana string `json:"solana"`
	EVM    string `json:"evm"`
}

const setupDescription = `What is set up: the wallet's addresses to fund, whether it is locked, and what the person has to do next. ` +
	`It creates nothing and takes no passphrase; a person does that in a terminal.`

// setup looks at the wallet from outside, so that it works before there is one.
func (s *Server) setup(ctx context.Context) (setupOut, error) {
	w, done, err := s.wallet(ctx)
	if err == nil {
		defer done()
	}
	if x402.HasCode(err, x402.WalletNotFound) {
		return setupOut{Locked: true, NextSteps: []string{
			"ask the person to run `x402-wallet init` in a terminal: it creates the wallet and asks for a passphrase",
			"never ask for the passphrase yourself and never pass one to a tool",
		}}, nil
	}
	if err != nil {
		return setupOut{}, err
	}
	out := setupOut{Ready: true, Locked: w.Keys.Locked(), NextSteps: []string{}}
	out.Addresses.Solana, out.Addresses.EVM = w.Keys.Addresses()
	freezes, err := w.Store.Freezes(ctx)
	if err != nil {
		return setupOut{}, withCode(x402.CheckFailed, "whether the wallet is frozen could not be read", err)
	}
	if slices.ContainsFunc(freezes, func(f history.Freeze) bool { return f.Account == "" }) {
		out.Ready = false
		out.NextSteps = append(out.NextSteps,
			"the wallet is frozen: nothing is paid until the person has looked at it and runs `x402-wallet unfreeze` in a terminal")
	}
	if err := w.Engine.Guard.CheckConfig(ctx); err != nil {
		out.Ready = false
		e := x402.AsError(err)
		out.NextSteps = append(out.NextSteps, e.Message+"; "+e.Hint)
	}
	if out.Locked {
		out.NextSteps = append(out.NextSteps,
			"the first payment unlocks the wallet by the owner's passphrase file, command or keyring; "+
				"if that fails with WALLET_LOCKED, ask the person to run `x402-wallet unlock` in a terminal")
	}
	out.NextSteps = append(out.NextSteps,
		"x402_check_balance tells what can be spent; the person funds the addresses above, or delegates "+
			"from their own Solana token account")
	if out.Ready {
		out.NextSteps = append(out.NextSteps, "x402_pay gets a URL and pays for it")
	}
	return out, nil
}
