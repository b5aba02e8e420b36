// Package testworld is what the tests of several packages need around a wallet: a home with sealed
// rules, an open ledger, signers whose keys lie open, the built program. Only tests import it, and
// arch_test.go holds that.
//
// It imports no package that makes payments, so that the tests inside those can use it.
package testworld

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/history"
	"x402-wallet/history/historytest"
	"x402-wallet/history/ledgers"
	"x402-wallet/history/sqldb/postgres"
	"x402-wallet/internal/config"
	"x402-wallet/internal/ownfile"
	"x402-wallet/paywall/book"
	"x402-wallet/wallet"
	"x402-wallet/wallet/imported"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/seal"
)

// Passphrase is that of every wallet that NewHome makes.
const Passphrase = "correct horse battery staple"

// Home is a fresh wallet: its home directory, the file with its passphrase (outside the home,
// owner-only), its addresses.
type Home struct {
	Dir            string
	PassphraseFile string
	EVM, Solana    string
	User           string // stands in for the person's home directory, so that no test touches the real one
}

// NewHome makes a wallet with MakeHome in a fresh directory, with the files of a person around it;
// without rules it makes no wallet, only those.
func NewHome(t testing.TB, rules string) Home {
	t.Helper()
	dir := t.TempDir()
	home := Home{
		Dir:            filepath.Join(dir, "wallet"),
		PassphraseFile: filepath.Join(dir, "passphrase"),
		User:           filepath.Join(dir, "user"),
	}
	require.NoError(t, os.Mkdir(home.User, 0o700))
	require.NoError(t, os.WriteFile(home.PassphraseFile, []byte(Passphrase+"\n"), 0o600))
	if rules != "" {
		var err error
		home.EVM, home.Solana, err = MakeHome(home.Dir, rules, Passphrase)
		require.NoError(t, err)
	}
	return home
}

// MakeHome makes what init makes, sealed with this config.toml, but with keys that open quickly:
// init itself has tests of its own, and the key's derivation would be most of the others' time.
func MakeHome(dir, rules, passphrase string, imported ...imported.Key) (evm, solana string, err error) {
	ctx := context.Background()
	opt := owner.Options{N: 1 << 14}
	for _, key := range imported {
		opt.Import = append(opt.Import, key.PrivateKey)
	}
	keys, err := owner.Create(ctx, dir, wallet.FromValue(passphrase), opt)
	if err != nil {
		return "", "", err
	}
	defer keys.Close()
	err = ownfile.Write(filepath.Join(dir, config.FileName), []byte(rules))
	if err == nil {
		err = makeLedger(ctx, dir)
	}
	if err == nil {
		err = SealHome(dir, keys)
	}
	solana, evm = keys.Addresses()
	return evm, solana, err
}

// makeLedger makes the ledger that the rules of a home name, unless it is one in PostgreSQL that is there.
func makeLedger(ctx context.Context, dir string) error {
	rules, err := config.Load(dir)
	if err != nil || rules.Ledger.URL == "" {
		return errors.Join(err, ledgers.Create(ctx, dir, history.Options{}))
	}
	_, err = ledgers.MakePostgres(ctx, postgres.Server{URL: rules.Ledger.URL})
	return err
}

func SealHome(dir string, keys *wallet.Wallet) error {
	rules, err := config.Load(dir)
	if err != nil {
		return err
	}
	var store *history.Store
	if rules.Ledger.URL == "" {
		store, err = ledgers.Open(context.Background(), dir, historytest.Options())
	} else {
		store, err = ledgers.OpenPostgres(context.Background(), dir, postgres.Server{URL: rules.Ledger.URL},
			historytest.Options())
	}
	if err != nil {
		return err
	}
	defer store.Close()
	guard := seal.Guard{Home: dir, Rules: rules, Store: store, Key: keys}
	return guard.Seal(context.Background(), false)
}

// Env is the whole environment of a wallet process at this home. Nothing of the machine's reaches
// it but what a program needs to run.
func (h Home) Env(extra ...string) []string {
	env := []string{
		"X402_WALLET_HOME=" + h.Dir,
		"X402_WALLET_PASSPHRASE_FILE=" + h.PassphraseFile,
		"HOME=" + h.User,
		"NO_COLOR=1",
	}
	for _, name := range []string{"PATH", "TMPDIR", "SYSTEMROOT", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, extra...)
}

func (h Home) Command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = h.Env()
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// NewBook makes and opens a paywall's book of sales in a home; it is closed when the test ends.
func NewBook(t testing.TB, home string) *book.Book {
	t.Helper()
	sold, err := book.Make(t.Context(), book.Place{Home: home})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sold.Close() })
	return sold
}

// NewStore makes and opens a ledger in a home ("": a fresh directory); it is closed when the test ends.
func NewStore(t testing.TB, home string) *history.Store {
	t.Helper()
	if home == "" {
		home = t.TempDir()
	}
	require.NoError(t, ledgers.Create(t.Context(), home, history.Options{}))
	store, err := ledgers.Open(t.Context(), home, historytest.Options())
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}
