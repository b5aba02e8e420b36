package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/alerts"
	"x402-wallet/history/backup"
	"x402-wallet/history/content"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/child"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/ownfile"
	"x402-wallet/paywall/book"
	"x402-wallet/wallet/agent/client"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// openLedger opens the home's ledger: ledger.db, or the one in PostgreSQL that [ledger] names. From that one
// the home also takes the rules that the owner sealed at another replica. What is bought goes to kept, and
// what the owner is told to told.
func (a *app) openLedger(ctx context.Context, kept content.Keeper, told alerts.Writer) (*history.Store,
	error) {
	server := a.ledgerServer()
	store, err := a.ledger.open(ctx, a.home, server, history.Options{Contents: kept, Alerts: told})
	if err != nil || server == nil {
		return store, err
	}
	if err := a.followRules(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// ledgerServer is where the rules keep the ledger, or nil if that is ledger.db. Rules that cannot be read are
// for their own reader to refuse.
func (a *app) ledgerServer() *postgres.Server {
	rules, err := config.Load(a.home)
	if err != nil || rules.Ledger.URL == "" {
		return nil
	}
	return a.postgres(rules)
}

func (a *app) postgres(rules *config.Config) *postgres.Server {
	return &postgres.Server{URL: rules.Ledger.URL,
		Password: func(ctx context.Context) (string, error) { return a.ledgerPassword(ctx, rules) }}
}

// passwordTime bounds the command that tells the password, and maxPassword what it tells.
const passwordTime, maxPassword = 10 * time.Second, 8 << 10

// ledgerPassword is asked before each connection, because tokens expire. An empty one is none.
func (a *app) ledgerPassword(ctx context.Context, rules *config.Config) (string, error) {
	var text []byte
	var err error
	switch {
	case a.env.LedgerPassword.Reveal() != "":
		return a.env.LedgerPassword.Reveal(), nil
	case rules.Ledger.PasswordFile != "":
		text, err = config.ReadTrusted(rules.Ledger.PasswordFile, maxPassword)
	case len(rules.Ledger.PasswordCommand) > 0:
		program := child.Program{Argv: rules.Ledger.PasswordCommand, Env: environ.Child(),
			Sandbox: a.sandbox(rules.Ledger.Sandbox, rules)}
		text, _, err = program.Ask(ctx, nil, child.Limits{Time: passwordTime, Answer: maxPassword})
	}
	if err != nil || len(text) > maxPassword {
		return "", errors.New("the password of the ledger's server could not be had")
	}
	return string(bytes.TrimRight(text, "\r\n")), nil
}

// sharedLedger is the home's ledger as this process has it open. However many accounts pay from it, and
// however often the owner's rules change, SQLite has its files open once.
type sharedLedger struct {
	mu    sync.Mutex
	at    string         // where it is; empty for ledger.db
	store *history.Store // the last one that was opened; its user may have closed it
}

func (l *sharedLedger) open(ctx context.Context, home string, server *postgres.Server,
	o history.Options) (*history.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := ""
	if server != nil {
		at = server.URL
	}
	if l.store != nil && l.at == at && l.store.InPlace() == nil { // else a backup was put in its place
		if shared, open := l.store.Share(o); open {
			return shared, nil
		}
	}
	store, err := openLedgerAt(ctx, home, server, o)
	if err == nil {
		l.store, l.at = store, at
	}
	return store, err
}

func openLedgerAt(ctx context.Context, home string, server *postgres.Server,
	o history.Options) (*history.Store, error) {
	if server == nil {
		return ledgers.Open(ctx, home, o)
	}
	return ledgers.OpenPostgres(ctx, home, *server, o)
}

// followRules puts the rules that the owner sealed last, at whichever replica, into this home's config.toml,
// if they only tighten what is there. A file that the owner edited and did not seal yet stays. Rules that
// loosen anything wait for the wallet's key (seal.Guard.VerifySeals): whoever writes to the database can put
// any text there, and programs that it names would run before a payment checks the seal.
func (a *app) followRules(ctx context.Context, store *history.Store) error {
	here, err := config.Load(a.home)
	if err != nil {
		return err
	}
	newest, err := store.Rules(ctx)
	if err != nil || !isSuperseded(ctx, a.Guard(store, here, nil)) || !tightens(here, newest.Config) {
		return err
	}
	if err := ownfile.Write(filepath.Join(a.home, config.FileName), newest.Config); err != nil {
		return x402.Errorf(x402.SetupFailed, "follow the rules that were sealed at another replica: %w", err)
	}
	return nil
}

// tightens reports whether a text loosens nothing of the rules.
func tightens(rules *config.Config, text []byte) bool {
	next, err := config.Parse(text)
	return err == nil && !config.Loosens(config.Compare(rules, next))
}

func isSuperseded(ctx context.Context, guard *seal.Guard) bool {
	return errors.Is(guard.CheckConfig(ctx), seal.ErrSuperseded)
}

// takesOver has the key look at rules that the owner sealed at another replica. It reports whether they are
// in this home's config.toml now.
func (a *app) takesOver(ctx context.Context, local *seal.Guard, guard client.Guard) bool {
	if !isSuperseded(ctx, local) {
		return false
	}
	err := guard.VerifySeals(ctx)
	if err == nil || errors.Is(err, seal.ErrSuperseded) {
		return true
	}
	a.log.Warn("the rules that were sealed at another replica do not hold here", "why", err)
	return false
}

// followEvery is how often a service looks at a ledger that it shares: what the owner did at another replica
// holds within a second.
const followEvery = 500 * time.Millisecond

// follow keeps a service up to date with the other replicas, until ctx ends: it takes over the rules that
// were sealed, has those sealed that the owner tightened here, and stops all payments, everywhere, if the
// ledger lacks something that this process saw in it.
func (a *app) follow(ctx context.Context, wallet rulesKeeper) {
	if a.ledgerServer() == nil {
		return
	}
	store, err := a.OpenLedger(ctx)
	if err != nil {
		a.log.Error("the ledger is not followed", "why", err)
		return
	}
	defer store.Close()
	f := follower{app: a, store: store, wallet: wallet, witness: witness{store: store}}
	for ctx.Err() == nil {
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("the ledger could not be followed", "why", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followEvery):
		}
	}
}

type follower struct {
	app     *app
	store   *history.Store
	wallet  rulesKeeper
	witness witness
	version int64 // of the sealed rules at the last look
	tried   attempt
}

// attempt is what the key looked at last.
type attempt struct {
	here     string // the rules in the file
	version  int64  // of the sealed rules
	unlocked bool
}

type rulesKeeper interface {
	VerifySeals(ctx context.Context) error // unlocks the wallet if that needs no person
	Unlocked() bool
}

func (f *follower) look(ctx context.Context) error {
	sealed, err := f.store.Rules(ctx)
	if err == nil && sealed.Version != f.version {
		err = f.app.followRules(ctx, f.store)
		f.version = sealed.Version
	}
	if err == nil {
		err = f.witness.look(ctx, sealed.Version)
	}
	if err == nil {
		f.verify(ctx, sealed)
	}
	return err
}

// verify has the key look at rules that differ from the sealed ones: those that were tightened here are
// sealed, older ones make way for the sealed ones. A command does it only if it can open the keys, which a
// service may have alone. It is tried once, and again when somebody has unlocked the wallet.
func (f *follower) verify(ctx context.Context, sealed history.SealedRules) {
	here, err := config.Load(f.app.home)
	if err != nil || bytes.Equal(here.Raw, sealed.Config) {
		return
	}
	now := attempt{string(here.Raw), sealed.Version, f.wallet.Unlocked()}
	if now == f.tried {
		return
	}
	f.tried = now
	isOlder := isSuperseded(ctx, f.app.Guard(f.store, here, nil))
	loosened, _, err := here.LoosenedSince(sealed.Config)
	if !isOlder && (err != nil || len(loosened) > 0) {
		return
	}
	err = f.wallet.VerifySeals(ctx)
	if err != nil && !errors.Is(err, seal.ErrSuperseded) {
		f.app.log.Warn("the rules here are not the sealed ones until the wallet is unlocked", "why", err)
	}
}

// witness remembers how far a ledger had come. A server that was restored, or a standby that was promoted
// behind the others, lacks that. The owner accepts such a ledger by sealing the rules again.
type witness struct {
	store *history.Store
	seen  history.Head
	lost  int64 // the version of the rules when something was missing, or 0
}

// look compares the ledger with the last look. rules is the version of the sealed rules.
func (w *witness) look(ctx context.Context, rules int64) error {
	isAccepted := w.lost > 0 && rules > w.lost
	if w.seen.Seq > 0 && !isAccepted {
		has, err := w.store.Has(ctx, w.seen)
		if err != nil {
			return err
		}
		if !has {
			w.lost = rules
			why := fmt.Sprintf("the ledger's server lost a confirmed event, %d", w.seen.Seq)
			return w.store.Freeze(ctx, history.Freeze{By: "replica", Why: why})
		}
	}
	head, err := w.store.Head(ctx)
	if err == nil {
		w.seen, w.lost = head, 0
	}
	return err
}

func (a *app) CopyLedger(ctx context.Context, to string) (backup.Copy, error) {
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return backup.Copy{}, err
	}
	defer store.Close()
	if to == "home" {
		return backup.ToHome(ctx, store, a.home, a.copyBook(book.Place{Home: a.home}))
	}
	if _, err := config.ParseLedgerURL(to); err != nil {
		return backup.Copy{}, x402.Errorf(x402.InvalidArgument, "copy the ledger: %w", err).
			WithHint("x402-wallet ledger copy postgres://USER@HOST/DATABASE?sslmode=verify-full, or " +
				"x402-wallet ledger copy home")
	}
	rules := &config.Config{}
	if own, err := config.Load(a.home); err == nil {
		rules.Ledger = own.Ledger
	}
	rules.Ledger.URL = to
	server := *a.postgres(rules)
	is, err := postgres.IsMade(ctx, server)
	if err == nil && is {
		err = x402.Errorf(x402.InvalidArgument, "the database has a ledger, and a copy replaces none").
			WithHint("name an empty database")
	}
	if err != nil {
		return backup.Copy{}, err
	}
	return backup.ToPostgres(ctx, store, server, a.copyBook(book.Place{Server: &server}))
}

// copyBook copies the book of sales, if there is one.
func (a *app) copyBook(to book.Place) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		sold, err := a.OpenBook(ctx)
		if errors.Is(err, book.ErrNone) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(sold.CopyTo(ctx, to), sold.Close())
	}
}
