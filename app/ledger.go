package app

import (
	"context"
	"sync"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/x402"
)

// openLedger opens the home's ledger.
func (a *app) openLedger(ctx context.Context, o history.Options) (*history.Store, error) {
	if rules, err := config.Load(a.home); err == nil && rules.Ledger.URL != "" {
		return nil, x402.Errorf(x402.SetupFailed, "this build keeps the ledger in SQLite; ledger.url is not "+
			"supported yet").
			WithHint("take [ledger] out of config.toml")
	}
	return a.ledger.open(ctx, a.home, o)
}

// sharedLedger is the home's ledger as this process has it open. However many accounts pay from it, and
// however often the owner's rules change, SQLite has its files open once.
type sharedLedger struct {
	mu    sync.Mutex
	store *history.Store // the last one that was opened; its user may have closed it
}

func (l *sharedLedger) open(ctx context.Context, home string, o history.Options) (*history.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store != nil && l.store.InPlace() == nil { // else a backup was put in its place
		if shared, open := l.store.Share(o); open {
			return shared, nil
		}
	}
	store, err := history.Open(ctx, home, o)
	if err == nil {
		l.store = store
	}
	return store, err
}
