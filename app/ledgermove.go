package app

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"x402-wallet/cli"
	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// ledgerMove is a ledger that moves, on its owner's machine. It implements cli.LedgerMove.
type ledgerMove struct {
	app    *app
	member *member
	rules  *config.Config
	keys   *wallet.Wallet
	fleet  *history.Store
	guard  *seal.Guard // of the fleet's ledger
}

// OpenLedgerMove implements cli.App.
func (a *app) OpenLedgerMove(_ context.Context) (cli.LedgerMove, error) {
	m, err := a.fleetMember()
	if err != nil {
		return nil, err
	}
	rules, err := config.Load(a.home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, config.Missing(a.home)
	case err != nil:
		return nil, err
	case m != nil && !m.isOwner:
		return nil, x402.Errorf(x402.SetupFailed, "this home joined a fleet: its ledger is its owner's to "+
			"move").
			WithHint("run it on the owner's machine")
	case rules.Ledger.URL == "":
		return nil, x402.Errorf(x402.SetupFailed, "config.toml names no ledger of a fleet").
			WithHint("write its address: [ledger] url = \"postgres://…\" (docs/fleet.md)")
	case m == nil:
		return nil, x402.Errorf(x402.SetupFailed, "the owner has signed no rules for that fleet yet").
			WithHint("first x402-wallet policy seal --fleet")
	}
	move := &ledgerMove{app: a, member: m, rules: rules}
	move.keys, err = wallet.Open(a.home)
	if err != nil {
		return nil, err
	}
	f := a.ledgerOf(m.ledger)
	f.Writer = m.writer
	move.fleet, err = history.OpenFleet(f, history.Options{})
	if err != nil {
		return nil, errors.Join(err, move.keys.Close())
	}
	// not with what this process knows of the home's ledger
	move.guard = a.inFleet(&seal.Guard{Home: a.home, Rules: rules, Store: move.fleet, Key: move.keys})
	return move, nil
}

// Close implements cli.LedgerMove.
func (l *ledgerMove) Close() error {
	l.guard.Fleet.Close()
	return errors.Join(l.fleet.Close(), l.keys.Close())
}

// Ledger implements cli.LedgerMove.
func (l *ledgerMove) Ledger() string { return l.member.ledger.ID }

// Unlock implements cli.LedgerMove.
func (l *ledgerMove) Unlock(ctx context.Context, typed wallet.Passphrase) error {
	return l.guard.Fleet.UnlockOwner(ctx, l.keys, typed)
}

// ownHome opens the home's ledger, which has to be as its wallet left it.
func (l *ledgerMove) ownHome(ctx context.Context) (m *history.Mover, close func() error, err error) {
	store, err := history.OpenMoving(ctx, l.app.home, history.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	guard := &seal.Guard{Home: l.app.home, Rules: l.rules, Store: store, Key: l.keys}
	hasMoved, err := history.HasMoved(ctx, store)
	if err == nil && !hasMoved {
		err = guard.Verify(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	m = &history.Mover{Home: store, Fleet: l.fleet,
		Marked: func(ctx context.Context) error { return guard.CheckpointMove(ctx, "") },
		Copied: func(ctx context.Context) error { return l.guard.CheckpointMove(ctx, "") },
		Left:   func(ctx context.Context) error { return guard.CheckpointMove(ctx, l.Ledger()) }}
	m.Keys, err = guard.Keyholder(ctx)
	if err == nil {
		m.Seals, err = l.guard.Seals(ctx)
	}
	return m, store.Close, err
}

// ToFleet implements cli.LedgerMove.
func (l *ledgerMove) ToFleet(ctx context.Context, as string, progress func(done, all int64)) (history.Moved,
	error) {
	m, done, err := l.ownHome(ctx)
	if err != nil {
		return history.Moved{}, err
	}
	m.As, m.Progress = as, progress
	moved, err := m.ToFleet(ctx)
	return moved, errors.Join(err, done())
}

// Abandon implements cli.LedgerMove.
func (l *ledgerMove) Abandon(ctx context.Context) (unreached, err error) {
	m := &history.Mover{Fleet: l.fleet}
	away, err := m.LeavesFleet(ctx)
	if err == nil && away {
		return nil, m.StayInFleet(ctx, l.app.home)
	}
	m, done, err := l.ownHome(ctx)
	if err != nil {
		return nil, err
	}
	unreached, err = m.Abandon(ctx)
	return unreached, errors.Join(err, done())
}

// ToHome implements cli.LedgerMove.
func (l *ledgerMove) ToHome(ctx context.Context, progress func(done, all int64)) (history.Moved, error) {
	text, err := edit.Remove(l.rules.Raw, "ledger")
	if err != nil {
		return history.Moved{}, err
	}
	alone, err := config.Parse(text)
	if err != nil {
		return history.Moved{}, err
	}
	if _, err := l.fleet.Verify(ctx, history.Head{}); err != nil {
		return history.Moved{}, err
	}
	of := func(s *history.Store) *seal.Guard {
		return &seal.Guard{Home: l.app.home, Rules: alone, Store: s, Key: l.keys}
	}
	m := &history.Mover{Fleet: l.fleet, Progress: progress}
	moved, err := m.ToHome(ctx, l.app.home, history.Arrival{
		Adopt: func(ctx context.Context, s *history.Store) (history.Keyholder, history.Seals, error) {
			k, err := of(s).NewKeyholder(ctx)
			if err != nil {
				return k, history.Seals{}, err
			}
			seals, err := of(s).Seals(ctx)
			return k, seals, err
		},
		Seal:    func(ctx context.Context, s *history.Store) error { return of(s).Seal(ctx, true) },
		Arrived: func(ctx context.Context, s *history.Store) error { return of(s).CheckpointMove(ctx, "") },
	})
	if err != nil {
		return moved, err
	}
	err = config.WriteFile(filepath.Join(l.app.home, config.FileName), text)
	if err != nil {
		err = x402.Errorf(x402.SetupFailed, "the ledger has moved, but config.toml still names the "+
			"fleet's: %w", err).
			WithHint("take [ledger] out of it, or run the same command again")
	}
	return moved, err
}
