// Package cli is the person's side: the commands, a file for each or for a few that belong together;
// help.txt is what help says of them. They print what the tool of the same name answers, as JSON or for
// people.
//
// What must stay true: secrets come from a terminal, a file or a descriptor, never from an
// argument, and none is printed.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"x402-wallet/history"
	"x402-wallet/history/backup"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/notify"
	"x402-wallet/paywall/book"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/recovery"
	"x402-wallet/wallet/seal"
	"x402-wallet/wallet/signer"
	"x402-wallet/wallet/terminal"
	"x402-wallet/x402"
)

// Program is the command line of one process. Package app makes it.
type Program struct {
	Version string
	Env     environ.Env
	Home    string // the directory of the wallet
	NoHome  error  // why there is no Home; nil: there is one
	App
	Stdin  *os.File
	Stdout *os.File
	Stderr io.Writer

	args []string // of the command line
}

// App is what package app does with the home. What it opens, it opens each time again: who
// gets it closes it.
type App interface {
	// OpenWallet joins a whole wallet, to pay from the account of the context's agent. first and last are
	// asked for the passphrase before and after the sources that need no person; nil: there are none.
	OpenWallet(ctx context.Context, first, last wallet.Passphrase) (*tools.Wallet, error)
	// OpenLedger opens the ledger alone.
	OpenLedger(ctx context.Context) (*history.Store, error)
	// OpenBook opens the paywall's book of sales; book.ErrNone if nothing was sold yet.
	OpenBook(ctx context.Context) (*book.Book, error)
	// CopyLedger copies the ledger into an empty database of PostgreSQL, by its URL, or into ledger.db in the
	// home ("home"), and freezes the one that was copied. The book of sales is copied with it.
	CopyLedger(ctx context.Context, to string) (backup.Copy, error)
	// OpenKeys opens the keystore, locked; only what needs no person unlocks it.
	OpenKeys(rules *config.Config) (*wallet.Wallet, error)
	// Rules are the owner's, as config.toml has them.
	Rules() (*config.Config, error)
	// Signer is one that keeps a key itself; said hears what its command writes to its standard error.
	Signer(name string, s config.Signer, rules *config.Config, said func(text string)) *signer.Signer
	// SignersByChain are those of the rules.
	SignersByChain(rules *config.Config) map[string]wallet.Signer
	// Guard makes what seals a ledger's rows and rules, and checks those seals. rules and key may
	// be nil where no rules are compared and nothing is sealed.
	Guard(store *history.Store, rules seal.Rules, key seal.Key) *seal.Guard

	// CreateWallet makes a wallet in a home that exists. An error leaves no keystore behind.
	CreateWallet(ctx context.Context, n NewWallet) (*wallet.Wallet, error)
	// ApproveTyped approves a payment exactly as it was shown, with a passphrase that its owner typed.
	ApproveTyped(ctx context.Context, store *history.Store, shown history.Approval, passphrase []byte) error

	// TestNotify tells the owner, as a test, by every way that config.toml names.
	TestNotify(ctx context.Context) ([]notify.Outcome, error)

	// What follows runs until its context ends, or what it serves goes away.

	// ServeMCP serves an agent on stdin and stdout. account is the one that it pays from; "": the wallet's
	// own.
	ServeMCP(ctx context.Context, account string) error
	// Serve serves every agent that comes in by one of the doors; ready is called with where they are once
	// agents can.
	Serve(ctx context.Context, doors Doors, ready func(Doors)) error
	// ServePaywall charges for the tools of another MCP server, as file says. Its metrics are at a place, as
	// Doors has one; "": nowhere.
	ServePaywall(ctx context.Context, file, metrics string) error
	// ServeMetrics serves the figures of a wallet's ledger at a place, as Doors has one, until ctx ends, and
	// says where that is ("": nowhere). wait waits for the end.
	ServeMetrics(ctx context.Context, place string,
		wallet func(context.Context) (*tools.Wallet, func(), error)) (at string, wait func(), err error)
	// ClaimPaywall claims what it charged by batch-settlement; with an error, what of it is done.
	ClaimPaywall(ctx context.Context, file string) ([]Claimed, error)
	// HoldKeys is the unlock agent; ready is called when it can be asked.
	HoldKeys(ctx context.Context, passphrase wallet.Passphrase,
		ready func(until time.Time, idle time.Duration)) error
}

// NewWallet is what a wallet is made of.
type NewWallet struct {
	Rules        *config.Config
	RulesInPlace bool   // Rules are the config.toml that the home has already
	Passphrase   []byte // stays the caller's, to be wiped
	Imports      []imported.Key
	Phrase       *recovery.Phrase // in place of Imports; wiped, as they are
	KeysOnly     bool             // the keystore does not keep it
}

// Exit codes of the program.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3 // by a rule
	exitPerson  = 4 // needs one: locked, approval, funds
	exitUnknown = 5 // the outcome of a payment
)

// exitCode is the one table from codes to exit codes; what is not in it is exitFailed. An error
// which holds money has an unknown outcome whatever it is called.
func exitCode(e *x402.Error) int {
	if e.Spent != "" && e.Spent != "0" {
		return exitUnknown
	}
	switch e.Code {
	case x402.InvalidArgument:
		return exitUsage
	case x402.AmountExceedsMax, x402.BudgetExceeded, x402.PolicyDenied, x402.PayeeChanged, x402.RateLimited,
		x402.WalletFrozen, x402.UntrustedAsset, x402.URLBlocked, x402.RedirectRefused, x402.ApprovalDeclined:
		return exitRefused
	case x402.WalletNotFound, x402.WalletLocked, x402.InvalidPassphrase, x402.ApprovalRequired,
		x402.InsufficientFunds, x402.NoDelegation, x402.DelegationExhausted, x402.DelegateMismatch,
		x402.PolicyUnsealed, x402.KeystoreCorrupt, x402.KeystorePermissions, x402.LedgerCorrupt:
		return exitPerson
	case x402.OutcomeUnknown:
		return exitUnknown
	}
	return exitFailed
}

// Run runs one command and returns its exit code. With no command it serves MCP when stdin is not a
// terminal, and prints help when it is.
func (p *Program) Run(ctx context.Context, args []string) int {
	if len(args) == 0 && !isTerminal(p.Stdin) {
		args = []string{"mcp"}
	}
	ui := newUI(p.Stdout, p.Stderr, p.Env.NoColor)
	ui.line = x402.Command(args...)
	p.args = args
	root := p.root(ui)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && ui.out.bad == nil {
		return exitDone
	}
	if ui.out.bad != nil {
		if errors.Is(ui.out.bad, syscall.EPIPE) && !buys(cmd) { // as of `history | head`: it had enough
			return exitFailed
		}
		err = fmt.Errorf("the answer could not be written: %w", ui.out.bad)
	}
	if _, wrong := asUsage(cmd, err); wrong {
		ui.json = wantsJSON(args, ui.json && !buys(cmd))
	}
	if slices.Contains([]string{"mcp", "paywall", "serve"}, cmd.Name()) { // its stdout carries JSON-RPC only
		ui.json = false
	}
	return fail(ctx, ui, cmd, err)
}

func (p *Program) root(ui *ui) *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use: "x402-wallet COMMAND", Short: "The wallet an AI agent can be trusted with", SilenceErrors: true,
		SilenceUsage: true, DisableSuggestions: true, // unknownCommand makes them
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if buys(cmd) && !cmd.Flags().Changed("json") {
				ui.json = false // stdout is for the content
			}
			if err := given(cmd); err != nil {
				return err
			}
			if err := p.atItsPlace(cmd.Context(), ui, cmd); err != nil {
				return err
			}
			return p.requireHome(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintln(ui.out, p.build())
				return err
			}
			return cmd.Help()
		},
	}
	// cobra's own --version takes text/template into the program
	root.Flags().BoolVarP(&version, "version", "v", false, "version for x402-wallet")
	root.SetIn(p.Stdin)
	root.SetOut(ui.out)
	root.SetErr(p.Stderr)
	root.PersistentFlags().BoolVar(&ui.json, "json", false,
		"print JSON (also when the output is not a terminal; --json=false: never)")
	ui.json = !ui.terminal
	setHelp(root, ui.columns)
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Start", []*cobra.Command{demoCommand(), p.initCommand(ui), p.addressCommand(ui),
			p.installCommand(ui), p.mcpCommand(ui), p.serveCommand(ui), p.serviceCommand(ui),
			p.unlockCommand(ui), p.lockCommand(ui), p.passphraseCommand(ui), p.exportPhraseCommand(ui)}},
		{"Pay", []*cobra.Command{p.discoverCommand(ui), p.estimateCommand(ui), p.payCommand(ui),
			p.callCommand(ui), p.subscribeCommand(ui), p.subscriptionsCommand(ui), p.runCommand(ui)}},
		{"Inspect", []*cobra.Command{p.balanceCommand(ui), p.sessionCommand(ui), p.historyCommand(ui),
			p.showCommand(ui), p.exportCommand(ui), p.verifyReceiptCommand(ui), p.reconcileCommand(ui),
			p.dashboardCommand(ui), p.doctorCommand(ui)}},
		{"Rules", []*cobra.Command{p.policyCommand(ui), p.budgetCommand(ui), p.agentsCommand(ui),
			p.accountCommand(ui),
			p.passkeysCommand(ui), p.signerCommand(ui), p.ledgerCommand(ui)}},
		{"Sell", []*cobra.Command{p.paywallCommand(ui), p.sandboxCommand(ui)}},
		{"Decide", []*cobra.Command{p.approvalsCommand(ui), p.approveCommand(ui), p.denyCommand(ui),
			p.delegationCommand(ui), p.vaultCommand(ui), p.channelCommand(ui), p.freezeCommand(ui),
			p.unfreezeCommand(ui), p.alertsCommand(ui), p.notifyCommand(ui)}},
		{"More", []*cobra.Command{p.versionCommand(ui), p.manCommand(), helpCommand(root)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	completionCommand(root).GroupID = "More"
	return root
}

// given refuses an option that is there and empty, as of a shell's variable that is not set:
// without its value --max is no limit.
func given(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = usageError{text: "--" + f.Name + " is empty", hint: "leave it out, or give it a value"}
		}
	})
	return err
}

// noHomeCommands are the commands to which the place of the wallet is nothing.
var noHomeCommands = []string{"version", "help", "completion", cobra.ShellCompRequestCmd,
	cobra.ShellCompNoDescRequestCmd, "man", "demo", "sandbox", "verify-receipt", "service"}

// requireHome refuses a command that needs the home where there is none.
func (p *Program) requireHome(cmd *cobra.Command) error {
	below := strings.Fields(cmd.CommandPath())[1:]
	// mcp tells the agent
	if len(below) == 0 || below[0] == "mcp" || slices.Contains(noHomeCommands, below[0]) {
		return nil
	}
	return p.NoHome
}

// fail prints an error where it belongs and picks the exit code.
func fail(ctx context.Context, ui *ui, cmd *cobra.Command, err error) int {
	if exit, ok := errors.AsType[exitError](err); ok { // it has been said
		return int(exit)
	}
	if wrong, ok := asUsage(cmd, err); ok {
		ui.problem(x402.Errorf(x402.InvalidArgument, "%s", wrong.text).WithHint("%s", wrong.remedy(cmd)))
		return exitUsage
	}
	coded := *x402.AsError(err)
	var several interface{ Unwrap() []error }
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled) && exitCode(&coded) != exitUnknown:
		// Ctrl-C, whatever it hit
		coded = *x402.Errorf(x402.Internal, "interrupted")
		if buys(cmd) {
			coded.Message += "; nothing was paid"
		}
	case coded.Code == x402.Internal, // to the person who owns the wallet the cause is not a secret
		errors.As(err, &several): // every fault of a config, not only the first
		coded.Message = strings.TrimPrefix(err.Error(), string(coded.Code)+": ")
	}
	if name, rest, _ := strings.Cut(coded.Message, " "); coded.Code == x402.InvalidArgument &&
		flagOf[name] != "" && cmd.Flag(flagOf[name]) != nil {
		coded.Message = "--" + flagOf[name] + " " + rest
	}
	if coded.Code == x402.InvalidArgument && coded.Hint == "" {
		coded.Hint = usageError{}.remedy(cmd)
	}
	ui.problem(&coded)
	return exitCode(&coded)
}

// buys says of a command that it may pay.
func buys(cmd *cobra.Command) bool { return cmd.Name() == "pay" || cmd.Name() == "call" }

// flagOf are the flags of what the tools, which these commands share, call by the names of their arguments.
var flagOf = map[string]string{"afterDate": "after", "before": "before", "limit": "limit", "status": "status",
	"maxPrice": "max-price", "idempotencyKey": "idempotency-key", "tokenAccount": "token-account"}

// exitError ends a command that has already said what is wrong.
type exitError int

func (exitError) Error() string { return "exit" }

type runs = func(cmd *cobra.Command, args []string) error

// onWallet is a command that works on the open wallet.
func (p *Program) onWallet(ui *ui, f func(ctx context.Context, w *tools.Wallet, args []string) error) runs {
	return func(cmd *cobra.Command, args []string) error {
		return p.with(cmd, ui, nil, func(ctx context.Context, w *tools.Wallet) error {
			return f(ctx, w, args)
		})
	}
}

// with opens the wallet, runs f and closes it. first, which may be nil, is asked for the passphrase
// before all other sources, and the terminal is the last of them.
func (p *Program) with(cmd *cobra.Command, ui *ui, first wallet.Passphrase,
	f func(ctx context.Context, w *tools.Wallet) error) error {
	last := ui.asking(terminal.Ask("Passphrase: "))
	if p.Env.Handed != "" { // there it is asked for what only the owner may, and a wrong one always fails
		last = nil
	}
	ctx, err := p.asAccount(cmd)
	if err != nil {
		return err
	}
	w, err := p.OpenWallet(ctx, first, last)
	if err != nil {
		return err
	}
	ui.warn(w.Warnings)
	return cmp.Or(f(ctx, w), w.Close())
}

// onLedger is a command that works on the ledger alone: what a person decides, and what stops
// payments, needs neither rules nor keys.
func (p *Program) onLedger(f func(ctx context.Context, store *history.Store, args []string) error) runs {
	return func(cmd *cobra.Command, args []string) error {
		store, err := p.OpenLedger(cmd.Context())
		if err != nil { // that there is no wallet says more than that there is no ledger
			return cmp.Or(p.haveWallet(), err)
		}
		return cmp.Or(f(cmd.Context(), store, args), store.Close())
	}
}

// askWallet asks the wallet for something that may take long, and prints the answer: as JSON, or by show.
func askWallet[T any](ui *ui, what string, ask func() (T, error), show func(T)) error {
	out, err := waitFor(ui, what, ask)
	if err != nil {
		return err
	}
	return ui.answer(out, func() { show(out) })
}

// waitFor asks for something that may take long, and then says on stderr what it waits for.
func waitFor[T any](ui *ui, what string, ask func() (T, error)) (T, error) {
	defer ui.waiting(what)()
	return ask()
}
