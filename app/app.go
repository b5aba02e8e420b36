// Package app is the composition root: it opens a wallet's home and joins the parts. Nothing else
// opens a ledger or builds a guard (arch_test.go checks that), so what a command, an agent's tool,
// the doctor and the dashboard work on is made in one place and in one way. The commands receive it
// through the interface that package cli declares.
package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/metrics"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/steps"
	"x402-wallet/wallet"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

type app struct {
	version string
	home    string
	noHome  error // why there is no home; nil: there is one
	env     environ.Env
	log     *slog.Logger
	format  *logHandler // of log

	ledger sharedLedger // of the home

	// shared by every guard of this process: opening the wallet again must not forget what was met
	checkpoints *seal.CheckpointCache
	tally       *agent.Tally
	passkeys    *passkey.Checker
	parties     metrics.Parties // how facilitators and nodes answered, for metrics

	also func(parts) []way // ways to pay beside those of the program, for tests; may be nil

	watch func(steps.Report) // counts calls, or sales, for metrics; nil: nobody does

	pages atomic.Pointer[ownersPages] // of the service; nil: it has none

	tlsKey     string    // the file of the service's; "": it has none
	unconfined sync.Once // it is said once that nothing can be confined

	telling sync.WaitGroup // what the owner is still told of wallets that are closed
}

// memoryLimit is the soft memory limit of the process (see debug.SetMemoryLimit): room for six large bodies
// (package seller) and everything else. Without it garbage of about that size would pile up before the next
// collection.
const memoryLimit = 256 << 20

// exitNotStarted is the exit code that shells use for a program that cannot be started.
const exitNotStarted = 126

// Main runs the program with the arguments of the process, until it ends or a signal ends it, and
// returns the exit code.
func Main(version string) int {
	if child.ExecConfined(os.Args[1:], environ.Launcher()) {
		return exitNotStarted // else it would be another program by now
	}
	open := wallet.Harden() // before any secret is read
	child.KeepDescriptors()
	env := environ.Read()
	var level slog.Level
	_ = level.UnmarshalText([]byte(env.LogLevel)) // what is no level stays info
	format := newLogHandler(os.Stderr, level)
	format.write(env, "")
	log := slog.New(format)
	if open != nil {
		log.Warn("this process cannot be closed to other programs of its user: no passphrase is taken",
			"err", open)
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT says nothing else
		debug.SetMemoryLimit(memoryLimit)
	}
	home, noHome := environ.Home(env)
	a := &app{version: version, home: home, noHome: noHome, env: env, log: log, format: format,
		checkpoints: &seal.CheckpointCache{},
		tally:       &agent.Tally{}, passkeys: passkey.NewChecker()}
	ctx, stop := untilSignal(takeHanded(context.Background(), env))
	defer stop()
	program := &cli.Program{
		Version: version, Env: env, Home: home, NoHome: noHome, App: a,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	defer a.telling.Wait()
	return program.Run(ctx, os.Args[1:])
}

// CreateWallet makes everything a wallet consists of, in a home that exists. The keystore comes
// last, because having one is what makes a wallet: after a crash in between, the same call simply
// runs again. The rules are sealed before the keystore gets its name, so that there is never a
// wallet whose rules anybody could have written.
func (a *app) CreateWallet(ctx context.Context, n cli.NewWallet) (*wallet.Wallet, error) {
	if err := a.createLedger(ctx, n.Rules); err != nil {
		return nil, err
	}
	if !n.RulesInPlace {
		if err := ownfile.Write(filepath.Join(a.home, config.FileName), n.Rules.Raw); err != nil {
			return nil, x402.Errorf(x402.SetupFailed, "%w", err)
		}
	}
	sealRules := func(key func(purpose string, data []byte) []byte) error {
		store, err := a.OpenLedger(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		return a.Guard(store, n.Rules, newKey(key)).Seal(ctx, true) // a ledger that was there is nobody's
	}
	opt := owner.Options{KeysOnly: n.KeysOnly, Before: sealRules}
	for _, key := range n.Imports {
		opt.Import = append(opt.Import, key.PrivateKey)
	}
	if n.Phrase != nil {
		defer n.Phrase.Wipe()
		seeds, err := n.Phrase.Seeds()
		if err != nil {
			return nil, err
		}
		opt.Phrase = seeds
	}
	return owner.Create(ctx, a.home, typed(n.Passphrase), opt)
}

// newKey is the key of a wallet that is being made. It implements seal.Key.
type newKey func(purpose string, data []byte) []byte

func (k newKey) Seal(_ context.Context, purpose string, data []byte) ([]byte, error) {
	return k(purpose, data), nil
}

func (newKey) Locked() bool { return false }

// createLedger makes the ledger of a new wallet, where the rules keep it. One that is there is taken over if
// nothing was paid from it.
func (a *app) createLedger(ctx context.Context, rules *config.Config) error {
	if rules.Ledger.URL != "" {
		made, err := ledgers.MakePostgres(ctx, *a.postgres(rules))
		if err == nil && !made {
			err = a.checkUnused(ctx, a.postgres(rules))
		}
		return err
	}
	err := ledgers.Create(ctx, a.home, history.Options{})
	if errors.Is(err, fs.ErrExist) { // also of another init at the same time
		return a.checkUnused(ctx, nil)
	}
	return err
}

// checkUnused refuses a ledger without a keystore that has payments in it.
func (a *app) checkUnused(ctx context.Context, server *postgres.Server) error {
	store, err := openLedgerAt(ctx, a.home, server, history.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	list, err := store.Recent(ctx, 1)
	if err == nil && len(list) > 0 {
		err = x402.Errorf(x402.SetupFailed, "%s has a ledger with payments but no keystore", a.home).
			WithHint("restore keystore.json from a backup, or choose another home with X402_WALLET_HOME; a " +
				"further replica of a service has the keystore.json and config.toml of the first")
	}
	return err
}
