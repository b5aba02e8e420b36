package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"x402-wallet/history"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/config"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
)

// openLedger opens the home's ledger: ledger.db, or the one in PostgreSQL that [ledger] names. From that one
// the home also takes the rules that the owner sealed at another replica.
func (a *app) openLedger(ctx context.Context, o history.Options) (*history.Store, error) {
	server := a.ledgerServer()
	store, err := a.ledger.open(ctx, a.home, server, o)
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
func (a *app) ledgerServer() *sqldb.Postgres {
	rules, err := config.Load(a.home)
	if err != nil || rules.Ledger.URL == "" {
		return nil
	}
	return a.postgres(rules)
}

func (a *app) postgres(rules *config.Config) *sqldb.Postgres {
	return &sqldb.Postgres{URL: rules.Ledger.URL,
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
		ctx, cancel := context.WithTimeout(ctx, passwordTime)
		defer cancel()
		//nolint:gosec // the owner's own command, from sealed rules
		cmd := exec.CommandContext(ctx, rules.Ledger.PasswordCommand[0], rules.Ledger.PasswordCommand[1:]...)
		cmd.WaitDelay = time.Second
		text, err = cmd.Output()
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

func (l *sharedLedger) open(ctx context.Context, home string, server *sqldb.Postgres,
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

func openLedgerAt(ctx context.Context, home string, server *sqldb.Postgres,
	o history.Options) (*history.Store, error) {
	if server == nil {
		return history.Open(ctx, home, o)
	}
	return history.OpenPostgres(ctx, home, *server, o)
}

// followRules puts the rules that the owner sealed last, at whichever replica, into this home's config.toml.
// A file that the owner edited and did not seal yet stays. Whether the rules are sealed by this wallet is
// looked at before each payment.
func (a *app) followRules(ctx context.Context, store *history.Store) error {
	rules, err := config.Load(a.home)
	if err != nil {
		return err
	}
	here := rules.Raw
	sealed, err := store.EveryRules(ctx)
	if err != nil || len(sealed) == 0 {
		return err
	}
	newest := sealed[len(sealed)-1].Config
	isOld := slices.ContainsFunc(sealed, func(r history.SealedRules) bool {
		return bytes.Equal(r.Config, here)
	})
	if !isOld || bytes.Equal(here, newest) {
		return nil
	}
	if err := config.WriteFile(filepath.Join(a.home, config.FileName), newest); err != nil {
		return x402.Errorf(x402.SetupFailed, "follow the rules that were sealed at another replica: %w", err)
	}
	return nil
}

// followEvery is how often a service looks at a ledger that it shares: what the owner did at another replica
// holds within a second.
const followEvery = 500 * time.Millisecond

// follow keeps a service up to date with the other replicas, until ctx ends: it takes over the rules that
// were sealed, and stops all payments, everywhere, if the ledger lacks something that this process saw in it.
func (a *app) follow(ctx context.Context) {
	if a.ledgerServer() == nil {
		return
	}
	store, err := a.OpenLedger(ctx)
	if err != nil {
		a.log.Error("the ledger is not followed", "why", err)
		return
	}
	defer store.Close()
	w := witness{store: store}
	version := int64(0)
	for ctx.Err() == nil {
		rules, err := store.Rules(ctx)
		if err == nil && rules.Version != version {
			err = a.followRules(ctx, store)
			version = rules.Version
		}
		if err == nil {
			err = w.look(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("the ledger could not be followed", "why", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followEvery):
		}
	}
}

// witness remembers how far a ledger had come. A server that was restored, or a standby that was promoted
// behind the others, lacks that.
type witness struct {
	store *history.Store
	seen  history.Head
}

func (w *witness) look(ctx context.Context) error {
	if w.seen.Seq > 0 {
		has, err := w.store.Has(ctx, w.seen)
		if err != nil {
			return err
		}
		if !has {
			return w.store.Freeze(ctx, history.Freeze{By: "replica", Why: fmt.Sprintf(
				"the ledger's server lost something that it had confirmed: event %d", w.seen.Seq)})
		}
	}
	head, err := w.store.Head(ctx)
	if err == nil {
		w.seen = head
	}
	return err
}

// CopyLedger implements cli.App.
func (a *app) CopyLedger(ctx context.Context, to string) (history.Backup, error) {
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return history.Backup{}, err
	}
	defer store.Close()
	if to == "home" {
		return store.CopyToFile(ctx, a.home, a.copyBook(book.Place{Home: a.home}))
	}
	if _, err := config.ParseLedgerURL(to); err != nil {
		return history.Backup{}, x402.Errorf(x402.InvalidArgument, "copy the ledger: %w", err).
			WithHint("x402-wallet ledger copy postgres://USER@HOST/DATABASE?sslmode=verify-full, or " +
				"x402-wallet ledger copy home")
	}
	rules := &config.Config{}
	if own, err := config.Load(a.home); err == nil {
		rules.Ledger = own.Ledger
	}
	rules.Ledger.URL = to
	server := a.postgres(rules)
	return store.CopyToPostgres(ctx, *server, a.copyBook(book.Place{Server: server}))
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
