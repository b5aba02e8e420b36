package cli

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// LedgerMove is a ledger on its way between the home and the fleet's server. Each of its calls may be
// repeated until it succeeds. Whoever has it closes it.
type LedgerMove interface {
	// Ledger is the id of the fleet's.
	Ledger() string
	// Unlock takes the passphrase as the owner types it.
	Unlock(ctx context.Context, typed wallet.Passphrase) error
	// ToFleet moves the home's ledger into the fleet's. as is the agent in whose budgets payments without an
	// agent's name count; "": in none.
	ToFleet(ctx context.Context, as string, progress func(done, all int64)) (history.Moved, error)
	// ToHome moves the fleet's ledger into the home, and takes [ledger] out of config.toml.
	ToHome(ctx context.Context, progress func(done, all int64)) (history.Moved, error)
	// Abandon takes a move back that has not come to its end. unreached says why the fleet's server was not
	// told; nil: it was.
	Abandon(ctx context.Context) (unreached, err error)
	Close() error
}

func (p *Program) ledgerCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ledger", Short: "Where payments are written down", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.backupCommand(ui), p.ledgerMoveCommand(ui), p.verifyCommand(ui, "check"),
		p.pruneCommand(ui))
	return cmd
}

// backedUp is what ledger backup answers.
type backedUp struct {
	File     string `json:"file"`
	Payments int64  `json:"payments"`
	Events   int64  `json:"events"` // rows of the audit chain
	Bytes    int64  `json:"bytes"`
}

// backupCommand copies the ledger. It needs no passphrase: who can run it can read the home.
func (p *Program) backupCommand(ui *ui) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Copy the ledger into a new file, also while wallets pay",
		Args: wants("FILE"),
		RunE: p.onLedger(func(ctx context.Context, store *history.Store, args []string) error {
			made, err := waitFor(ui, "copying the ledger, and checking the copy",
				func() (history.Backup, error) { return store.Backup(ctx, args[0]) })
			if err != nil {
				return err
			}
			out := backedUp{File: args[0], Payments: made.Payments, Events: made.Events, Bytes: made.Bytes}
			return ui.answerLine(out, "%s is a whole, checked copy of the ledger: %d payments, %d bytes",
				safe(out.File), out.Payments, out.Bytes)
		}),
	}
}

// The places that a ledger moves to.
const toFleet, toHome = "fleet", "home"

// movedOut is what ledger move did.
type movedOut struct {
	To       string `json:"to"` // fleet | home
	From     string `json:"from,omitempty"`
	Ledger   string `json:"ledger"` // that pays from now on
	Payments int64  `json:"payments"`
	Events   int64  `json:"events"`
	Again    bool   `json:"again"` // it had moved before
}

func (p *Program) ledgerMoveCommand(ui *ui) *cobra.Command {
	var to, as string
	var abandon bool
	cmd := &cobra.Command{
		Use: "move", Short: "Move the ledger to the fleet's server, or back home", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case abandon && (to != "" || as != ""):
				return usagef("--abandon takes a move back, wherever it was to go: --to and --as are " +
					"nothing to it")
			case !abandon && !slices.Contains([]string{toFleet, toHome}, to):
				return usagef("--to says where to: fleet or home")
			case as != "" && to != toFleet:
				return usagef("--as is for --to fleet")
			}
			return p.moveLedger(cmd.Context(), ui, to, as, abandon)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`WHERE` to: fleet, or home")
	cmd.Flags().StringVar(&as, "as", "", "the agent's `NAME` whose budgets payments without an agent's "+
		"name count in")
	cmd.Flags().BoolVar(&abandon, "abandon", false, "take a move back that has not come to its end")
	return ui.loosens(cmd)
}

// moveLines are what a move is, for whoever types a passphrase for it.
func moveLines(to, as, ledger string) []string {
	const again = "approvals that no payment has used up have to be given again"
	switch to {
	case toFleet:
		lines := []string{
			"this home's ledger.db moves into the fleet's ledger " + ledger + ", with all that is in it",
			"from then on the fleet's budgets count, and ledger.db pays nothing any more", again,
		}
		if as != "" {
			lines = append(lines, "payments without an agent's name count in the budgets of "+as)
		}
		return lines
	case toHome:
		return []string{
			"the fleet's ledger " + ledger + " moves into this home's ledger.db, with all that is in it",
			"from then on no other machine pays; this home does, by config.toml as it is, but for [ledger]",
			again,
		}
	}
	return []string{"the move is taken back: the ledger stays where it was"}
}

func (p *Program) moveLedger(ctx context.Context, ui *ui, to, as string, abandon bool) error {
	if err := p.haveWallet(); err != nil {
		return err
	}
	move, err := p.OpenLedgerMove(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = move.Close() }()
	lines := moveLines(to, as, move.Ledger())
	for _, line := range lines {
		ui.note("  %s", safe(line))
	}
	what := loosening{prompt: "Passphrase, to move the ledger: ", title: "Move the wallet's ledger",
		lines: lines}
	err = ui.asked(ctx, what, func(given wallet.Passphrase) error {
		passphrase, err := given(ctx)
		if err != nil {
			return err
		}
		defer clear(passphrase)
		return move.Unlock(ctx, typed(passphrase))
	})
	if err != nil {
		return err
	}
	if abandon {
		return ui.abandonMove(ctx, move)
	}
	return ui.runMove(ctx, move, to, as)
}

func (u *ui) abandonMove(ctx context.Context, move LedgerMove) error {
	unreached, err := move.Abandon(ctx)
	if err != nil {
		return err
	}
	if unreached != nil {
		u.note("the fleet's server was not told: what it has of this ledger pays nothing, and is written "+
			"over by the next move (%s)", safe(x402.AsError(unreached).Message))
	}
	return u.answerLine(map[string]bool{"abandoned": true}, "done: the ledger stays where it was; while "+
		"config.toml names the fleet's, this home pays by that one")
}

// runMove moves the ledger, and says how far it is.
func (u *ui) runMove(ctx context.Context, move LedgerMove, to, as string) error {
	var percent atomic.Int64
	percent.Store(-1)
	progress := func(done, all int64) { percent.Store(100 * min(done, all) / max(all, 1)) }
	done := u.waitingFor(func() string {
		if p := percent.Load(); p >= 0 {
			return fmt.Sprintf("moving the ledger, %d %% written", p)
		}
		return "moving the ledger"
	})
	defer done()
	var moved history.Moved
	var err error
	if to == toFleet {
		moved, err = move.ToFleet(ctx, as, progress)
	} else {
		moved, err = move.ToHome(ctx, progress)
	}
	if err != nil {
		return err
	}
	out := movedOut{To: to, From: moved.From, Ledger: moved.To, Payments: moved.Payments,
		Events: moved.Events,
		Again:  moved.Again}
	where := "the fleet's ledger " + moved.To + " pays from now on; ledger.db stays, and pays nothing any " +
		"more"
	if to == toHome {
		where = "ledger.db of this home pays from now on, and [ledger] is out of config.toml; the fleet's " +
			"server pays nothing any more"
	}
	return u.answerLine(out, "done: %d payments and %d events; %s", out.Payments, out.Events, where)
}
