//go:build unix

package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/history/alerts"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
)

// A home that a program has opened to other users is closed when the wallet is opened, and before it signs.
func TestAHomeIsClosed(t *testing.T) {
	a, _ := newHome(t)
	file := filepath.Join(a.home, config.FileName)
	modes := func() [2]os.FileMode {
		return [2]os.FileMode{must.Get(os.Stat(a.home))(t).Mode().Perm(),
			must.Get(os.Stat(file))(t).Mode().Perm()}
	}
	opens := func() {
		require.NoError(t, os.Chmod(a.home, 0o755)) //nolint:gosec // the fault under test
		require.NoError(t, os.Chmod(file, 0o666))   //nolint:gosec // likewise
	}
	isClosed := [2]os.FileMode{0o700, 0o600}

	opens()
	w := must.Get(a.OpenWallet(t.Context(), nil, nil))(t)
	defer func() { require.NoError(t, w.Close()) }()
	require.Equal(t, isClosed, modes())
	list := must.Get(alerts.List(t.Context(), w.Store, 10))(t)
	require.Len(t, list, 1)
	require.Equal(t, alerts.Home, list[0].Kind)
	require.Equal(t, "its mode was 0755", list[0].Detail.Why)

	opens()
	require.NoError(t, w.Engine.Guard.CheckConfig(t.Context()))
	require.Equal(t, isClosed, modes())
	opens()
	h := must.Get(a.open(t.Context()))(t)
	defer func() { require.NoError(t, h.Close()) }()
	opens()
	_, err := a.sealedRules(t.Context(), h.rules, h.store, h.keys) // of the unlock agent
	require.Error(t, err, "the wallet is locked")
	require.Equal(t, isClosed, modes())
}

// A directory that is no wallet's home stays as it is, whatever X402_WALLET_HOME says.
func TestADirectoryOfNoWallet_StaysOpen(t *testing.T) {
	a := &app{home: t.TempDir()}
	require.NoError(t, os.Chmod(a.home, 0o755)) //nolint:gosec // the point
	a.closeHome(t.Context())
	require.Equal(t, os.FileMode(0o755), must.Get(os.Stat(a.home))(t).Mode().Perm())
}

// Another user who could write in the home may have put links there. What they lead to keeps its mode, also
// where a link takes a file's place at that very moment.
func TestClosingAHome_FollowsNoLink(t *testing.T) {
	home, target := t.TempDir(), filepath.Join(t.TempDir(), "id_ed25519")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	name := filepath.Join(home, socketName)
	link, file := filepath.Join(home, "link"), filepath.Join(home, "file")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3_000 {
			_ = os.WriteFile(file, nil, 0o600)
			_ = os.Rename(file, name)
			_ = os.Symlink(target, link)
			_ = os.Rename(link, name)
		}
	}()
	for isOver := false; !isOver; {
		select {
		case <-done:
			isOver = true
		default:
			_ = closeTo(home, socketName, 0o666)
		}
	}
	require.Equal(t, os.FileMode(0o600), must.Get(os.Stat(target))(t).Mode().Perm())
}
