package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/history/sqldb"
	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/pgtest"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

// service is the wallet of a replica's service, as far as the follower knows it.
type service struct {
	t        *testing.T
	a        *app
	h        openHome
	unlocked bool
	asked    int
}

func (s *service) Unlocked() bool { return s.unlocked }

func (s *service) VerifySeals(ctx context.Context) error {
	s.asked++
	if !s.unlocked {
		return x402.Errorf(x402.WalletLocked, "the wallet is locked")
	}
	return s.a.guard(s.t, s.h).VerifySeals(ctx)
}

// guard is that of the rules in the file as they are now.
func (a *app) guard(t *testing.T, h openHome) *seal.Guard {
	rules := must.Get(config.Load(a.home))(t)
	return a.Guard(h.store, rules, h.keys)
}

// Rules that only tighten hold at another replica at once. Rules that loosen wait there for the key, which
// checks their seal: a row that somebody wrote into the database is never put into a home, and no program
// that it names is started.
func TestRulesOfAnotherReplica(t *testing.T) {
	ctx, server := t.Context(), pgtest.Start(t)
	_, database, _ := strings.Cut(strings.SplitN(server.Database(t), "?", 2)[0], "///")
	ledger := "[ledger]\nurl = 'postgres://postgres@/" + database + "?host=" + server.Dir() + "'\n"
	day := func(dollars string) string { return ledger + "[budget]\nday = '" + dollars + "'\n" }
	first := at(t, t.TempDir(), filepath.Join(t.TempDir(), "first"))
	_, _, err := testworld.MakeHome(first.home, day("5"), testworld.Passphrase)
	require.NoError(t, err)
	second := at(t, t.TempDir(), filepath.Join(t.TempDir(), "second"))
	require.NoError(t, os.Mkdir(second.home, 0o700))
	for _, name := range []string{config.FileName, "keystore.json"} {
		text := must.Get(os.ReadFile(filepath.Join(first.home, name)))(t)
		require.NoError(t, os.WriteFile(filepath.Join(second.home, name), text, 0o600))
	}
	open := func(a *app) openHome {
		h := must.Get(a.open(ctx))(t)
		t.Cleanup(func() { _ = h.Close() })
		require.NoError(t, h.keys.Unlock(ctx, wallet.FromValue(testworld.Passphrase)))
		return h
	}
	firstHome, secondHome := open(first), open(second)
	says := func(a *app, text string) {
		t.Helper()
		require.Equal(t, text, string(must.Get(os.ReadFile(filepath.Join(a.home, config.FileName)))(t)))
	}
	seals := func(text string) {
		require.NoError(t, ownfile.Write(filepath.Join(first.home, config.FileName), []byte(text)))
		require.NoError(t, first.guard(t, firstHome).Seal(ctx, false))
	}
	keeper := &service{t: t, a: second, h: secondHome}
	f := follower{app: second, store: secondHome.store, wallet: keeper,
		witness: witness{store: secondHome.store}}
	look := func() { require.NoError(t, f.look(ctx)) }

	seals(day("4"))
	look()
	says(second, day("4"))
	require.Zero(t, keeper.asked, "tighter rules need no key")

	seals(day("6"))
	look()
	look()
	says(second, day("4"))
	require.Equal(t, 1, keeper.asked, "a locked wallet is asked once")
	err = second.guard(t, secondHome).CheckConfig(ctx)
	require.ErrorIs(t, err, seal.ErrSuperseded, "the older rules pay nothing, though they are tighter")
	require.True(t, x402.HasCode(err, x402.PolicyUnsealed))
	keeper.unlocked = true
	look()
	says(second, day("6"))
	require.NoError(t, second.guard(t, secondHome).VerifySeals(ctx))

	marker := filepath.Join(t.TempDir(), "ran")
	forged := strings.Replace(day("7"), "[budget]",
		"password_command = ['/bin/sh', '-c', 'touch "+marker+"']\n[budget]", 1)
	writes := func(query string, args ...any) {
		t.Helper()
		require.NoError(t, firstHome.store.Write(ctx, func(d *sqldb.Tx) error {
			return must.Err(d.Exec(query, args...))
		}))
	}
	const row = `INSERT INTO rules VALUES (?, 1, ?, ?)`
	writes(row, 4, []byte(forged), []byte("seal"))
	look()
	look()
	says(second, day("6"))
	requireCode(t, second.guard(t, secondHome).VerifySeals(ctx), x402.PolicyUnsealed)
	says(second, day("6"))
	for range 2 {
		require.NoError(t, must.Get(second.OpenLedger(ctx))(t).Close())
	}
	require.NoFileExists(t, marker)

	writes(`DELETE FROM rules WHERE version = 4`)
	require.NoError(t, ownfile.Write(filepath.Join(second.home, config.FileName), []byte(day("3"))))
	writes(`UPDATE rules SET config = ? WHERE version = 1`, []byte(day("3")))
	requireCode(t, second.guard(t, secondHome).VerifySeals(ctx), x402.PolicyUnsealed)
	says(second, day("3")) // what the owner edited is not taken for an older version
	writes(`DELETE FROM rules WHERE version = 1`)

	old := second.guard(t, secondHome)
	require.NoError(t, old.VerifySeals(ctx))
	seals(day("2"))
	require.NoError(t, ownfile.Write(filepath.Join(second.home, config.FileName), []byte(day("3.5"))))
	require.Error(t, old.VerifySeals(ctx))
	says(second, day("3.5")) // nor is what was edited since it read the file replaced
	require.NoError(t, ownfile.Write(filepath.Join(second.home, config.FileName), []byte(day("2"))))
	now := second.guard(t, secondHome)
	require.NoError(t, now.VerifySeals(ctx))
	require.NoError(t, now.Checkpoint(ctx))
	newest := must.Get(secondHome.store.Rules(ctx))(t)
	writes(`UPDATE rules SET version = 1 WHERE version = ?`, newest.Version)
	for range 2 {
		requireCode(t, second.guard(t, secondHome).VerifySeals(ctx), x402.LedgerCorrupt)
		says(second, day("2")) // older rules come back by no rollback
	}
}
