package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"x402-wallet/history/alerts"
	"x402-wallet/internal/config"
	"x402-wallet/internal/socket"
	"x402-wallet/wallet/agent"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
)

// Programs that the wallet confines have its user, and no system call filter can tell a chmod of the home
// from one of their own files. It gives them nothing that they cannot open already, but another user of this
// machine could look into a home that they opened, and the wallet refuses files that others can write. So the
// modes are put back when a wallet is opened, before each signature, and once a second by a service. What
// another user read until then stays read.

// homeModes are what the wallet makes in its home, and with which mode.
var homeModes = map[string]fs.FileMode{config.FileName: 0o600, "keystore.json": 0o600, "ledger.db": 0o600,
	"ledger.db-wal": 0o600, "ledger.db-shm": 0o600, "ledger.mark": 0o600, "sales.db": 0o600,
	"sales.db-wal": 0o600, "sales.db-shm": 0o600, agent.SocketName: 0o600, socketName: 0o666}

// closeHome puts the modes back. If others could enter the home, its sockets get another secret, and the
// owner is told. What they may have written there the seals find.
func (a *app) closeHome(ctx context.Context) {
	if runtime.GOOS == "windows" || !owner.Exists(a.home) { // any directory can be named as the home
		return
	}
	home, err := filepath.EvalSymlinks(a.home)
	if err != nil {
		return // whoever opens it says so
	}
	was := fs.FileMode(0o700)
	info, err := os.Stat(home)
	if err == nil && info.Mode().Perm() != was {
		was = info.Mode().Perm()
		err = os.Chmod(home, 0o700) //nolint:gosec // a directory
	}
	for name, mode := range homeModes {
		if err == nil {
			err = closeTo(home, name, mode)
		}
	}
	if err == nil && was&0o077 != 0 {
		err = errors.Join(socket.NewSecret(home), a.tellOfHome(ctx, was))
	}
	if err != nil {
		a.log.Warn("the wallet's home is open, or was", "err", err)
	}
}

// closeTo gives a file of a directory a mode. A symbolic link, and what one leads to out of the directory, it
// leaves alone: other users may have put it there while they could.
func closeTo(dir, name string, mode fs.FileMode) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink != 0 || info.Mode().Perm() == mode {
		return nil //nolint:nilerr // whoever opens it says what is wrong
	}
	return root.Chmod(name, mode)
}

func (a *app) tellOfHome(ctx context.Context, was fs.FileMode) error {
	why := fmt.Sprintf("its mode was %04o", was)
	a.log.Warn("other users of this machine could enter the wallet's home, which is closed again", "why", why)
	store, err := a.OpenLedger(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return alerts.Writer{}.HomeOpened(ctx, store, why)
}

// keepHomeClosed is for a process that waits for others, who could not reach it.
func (a *app) keepHomeClosed(ctx context.Context) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			a.closeHome(ctx)
			// The socket may lie elsewhere.
			_ = closeTo(filepath.Dir(a.env.Service), filepath.Base(a.env.Service), 0o666)
		}
	}
}

// closingGuard is a seal.Guard that closes the home first.
type closingGuard struct {
	*seal.Guard
	app *app
}

// CheckConfig implements agent.Sealer.
func (g closingGuard) CheckConfig(ctx context.Context) error {
	g.app.closeHome(ctx)
	return g.Guard.CheckConfig(ctx)
}
