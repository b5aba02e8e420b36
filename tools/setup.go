package tools

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"x402-wallet/history"
	"x402-wallet/pay"
	"x402-wallet/x402"
)

// setupOut is the answer of x402_setup_agent.
type setupOut struct {
	Ready     bool      `json:"ready"` // a payment within the budgets would pass
	Locked    bool      `json:"locked"`
	Addresses addresses `json:"addresses"`
	NextSteps []string  `json:"nextSteps"` // the whole path, with what is done of it
	Next      x402.Next `json:"next"`
}

// addresses are where the agent's money arrives.
type addresses struct {
	Solana string `json:"solana"`
	EVM    string `json:"evm"`
}

const setupDescription = `What is set up, and what the person does next. Creates nothing, takes no passphrase.`

// setupStep is a step of the way to a first payment. Its command is a person's, in a terminal.
type setupStep struct {
	done          bool
	what, command string
	say           string // to the person; "": what it is
}

func (s setupStep) String() string {
	text := s.what
	if s.command != "" {
		text += ": `" + s.command + "` in a terminal"
	}
	if s.done {
		return "done: " + s.what
	}
	return "to do: " + text
}

var createStep = setupStep{what: "create the wallet, which asks the person for a passphrase",
	command: "x402-wallet init"}

// setup looks at the wallet from outside, so that it works before there is one. Funds are read from the
// chains, where they are asked for.
func (s *Server) setup(ctx context.Context, withFunds bool) (out setupOut, err error) {
	w, done, err := s.Wallet(ctx)
	if err == nil {
		defer done()
	}
	steps := []setupStep{createStep}
	out.Locked = true
	switch {
	case x402.HasCode(err, x402.WalletNotFound):
		steps = append(steps, setupStep{what: "unlock it", command: "x402-wallet unlock"},
			setupStep{what: "send money to its addresses", command: "x402-wallet address --qr"})
	case err != nil:
		return setupOut{}, err
	default:
		steps[0].done = true
		out.Locked = w.Keys.Locked()
		out.Addresses.Solana, out.Addresses.EVM = w.Keys.Addresses()
		owner, err := w.ownersSteps(ctx, out.Locked)
		if err != nil {
			return setupOut{}, err
		}
		steps = append(steps, owner...)
		if withFunds {
			steps = append(steps, w.fundStep(ctx))
		}
	}
	out.path(steps)
	return out, nil
}

// path makes the answer of the steps.
func (out *setupOut) path(steps []setupStep) {
	out.Ready, out.Next = true, x402.Next{Do: x402.Done}
	for _, s := range steps {
		out.NextSteps = append(out.NextSteps, s.String())
		if s.done || !out.Ready {
			continue
		}
		say := "Please " + s.what + "."
		if s.say != "" {
			say = s.say
		}
		out.Ready, out.Next = false, x402.Next{Do: x402.AskPerson, Command: s.command, Say: say}
	}
	check := "check: x402_check_balance tells what can be spent, `x402-wallet doctor` in a terminal what is wrong"
	if out.Ready {
		check += "; x402_pay gets a URL and pays for it"
	}
	out.NextSteps = append(out.NextSteps, check)
	if !out.Ready {
		out.NextSteps = append(out.NextSteps,
			"never ask the person for the passphrase, and pass none to a tool")
	}
}

// ownersSteps are what the owner has to do or undo before anything is paid, whatever it costs.
func (w *Wallet) ownersSteps(ctx context.Context, locked bool) (steps []setupStep, err error) {
	freezes, err := w.Store.Freezes(ctx)
	if err != nil {
		return nil, withCode(x402.CheckFailed, "whether the wallet is frozen could not be read", err)
	}
	if slices.ContainsFunc(freezes, func(f history.Freeze) bool { return f.Account == "" }) {
		steps = append(steps, setupStep{command: "x402-wallet unfreeze",
			what: "the wallet is frozen, and nothing is paid: look at it, and unfreeze it",
			say:  "The wallet is frozen. If you have looked at it, please unfreeze it."})
	}
	unlock := setupStep{what: "unlock it", command: "x402-wallet unlock", done: !locked}
	if locked && w.UnlocksItself {
		unlock = setupStep{what: "the first payment unlocks it by what the owner left it", done: true}
	}
	err = w.Engine.Guard.CheckConfig(ctx)
	if err == nil && !locked {
		err = w.Engine.Guard.VerifySeals(ctx)
	}
	if err != nil {
		e := x402.AsError(err)
		next := e.NextStep()
		steps = append(steps, setupStep{what: e.Message, command: next.Command,
			say: cmp.Or(next.Say, "The wallet pays nothing yet: "+e.Message+".")})
	}
	return append(steps, unlock), nil
}

// fundStep is done where there is money on some network.
func (w *Wallet) fundStep(ctx context.Context) setupStep {
	step := setupStep{what: "money is there", done: true}
	rows, _, err := w.OnChain(ctx, "", "")
	if err != nil {
		return setupStep{what: "whether there is money could not be read: " + x402.AsError(err).Message,
			command: "x402-wallet doctor",
			say:     "It could not be read whether the wallet has money: please look what is wrong."}
	}
	var places, silent []string
	for _, row := range rows {
		switch {
		case row.Available != nil && !row.Available.IsZero():
			return step
		case row.Available == nil:
			silent = append(silent, x402.Title(row.Network))
		}
		places = append(places, row.Symbol+" on "+x402.Title(row.Network)+" to "+row.Address)
	}
	if len(places) == 0 {
		return setupStep{what: "name the node of a network in config.toml", command: "x402-wallet doctor"}
	}
	step = setupStep{what: "send money: " + strings.Join(places, "; or ") + "; or delegate from your own " +
		"Solana token account (`x402-wallet help delegation`)",
		command: pay.AddressCommand(w.Engine.Rules.Account),
		say:     "Please send " + strings.Join(places, ", or ") + "."}
	if len(silent) == len(rows) {
		step.what = "no node says what is there (" + strings.Join(silent, ", ") + "): look what is wrong"
		step.command = "x402-wallet doctor"
		step.say = "No node of the wallet's networks answers: please look what is wrong."
	}
	return step
}
