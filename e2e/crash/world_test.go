// Package crash proves what the wallet promises when things break: wire_test.go cuts, resets and
// stalls the paid request and its answer at every byte; sweep_test.go (build tag crash) kills the
// real binary at every call that leaves a trace on the disk or on the wire, restarts it twice, and
// does the same with failing disks.
//
// What must stay true: the judge is never the wallet. What was settled, and which signatures ever
// left, is read from the books of the sandbox's seller, facilitator and chains; the wallet's ledger
// is only held against them.
package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/history"
	"x402-wallet/history/ledgers"
	"x402-wallet/internal/config"
	"x402-wallet/internal/ownfile"
	"x402-wallet/internal/sandbox"
	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
)

const keystore = "keystore.json"

const passphrase = "correct horse battery staple"

// template is a new wallet's home, made once: deriving a key takes a while even at the smallest
// cost that the format allows.
var template struct {
	once        sync.Once
	dir         string
	keys        *wallet.Wallet // unlocked
	evm, solana string
	err         error
}

func makeTemplate() {
	template.once.Do(func() {
		template.dir, template.err = os.MkdirTemp(scratch(), "x402-crash-home-")
		if template.err != nil {
			return
		}
		ctx := context.Background()
		keys, err := owner.Create(ctx, template.dir, wallet.FromValue(passphrase),
			owner.Options{N: 1 << 14})
		if err != nil {
			template.err = err
			return
		}
		template.keys = keys
		template.solana, template.evm = keys.Addresses()
		template.err = ledgers.Create(ctx, template.dir, history.Options{})
	})
}

// scratch is where homes are made: in memory if there is such a place. A killed process loses
// nothing of what it wrote to the page cache, so a slow disk would only cost time.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if template.keys != nil {
		_ = template.keys.Close()
	}
	if template.dir != "" {
		_ = os.RemoveAll(template.dir)
	}
	os.Exit(code)
}

// world is a sandbox, and a wallet's home in it with enough play money on both chains.
type world struct {
	*schemes.World
	dir      string // everything of this world
	home     string
	database *database // with the ledger, unless that is in the home
}

// newWorld makes one. Its ledger is in one of the databases, or in the home if in is nil. It is for
// goroutines too, hence the error. Close it.
func newWorld(rules schemes.Rules, in *databases) (_ *world, err error) {
	if makeTemplate(); template.err != nil {
		return nil, fmt.Errorf("make the template of a home: %w", template.err)
	}
	w := &world{}
	w.World, err = schemes.Start(sandbox.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.dir, err = os.MkdirTemp(scratch(), "x402-crash-")
	if err != nil {
		return nil, err
	}
	w.home = filepath.Join(w.dir, "wallet")
	if err = os.Mkdir(w.home, 0o700); err != nil {
		return nil, err
	}
	rules.Extra, err = w.ledgerIn(in)
	err = errors.Join(err, copyFile(filepath.Join(template.dir, keystore), filepath.Join(w.home, keystore)))
	if err != nil {
		return nil, err
	}
	w.Fund(template.evm, sandbox.USDC)
	rules.TokenAccount = w.Delegate(template.solana, sandbox.USDC)
	text := w.Config(rules)
	text = strings.Replace(text, "[policy]\n", "[policy]\ndeadline = \"30s\"\n", 1)
	err = errors.Join(
		w.rule(text),
		os.WriteFile(w.passphraseFile(), []byte(passphrase+"\n"), 0o600),
		os.Mkdir(filepath.Join(w.dir, "user"), 0o700))
	return w, err
}

// ledgerIn makes the ledger, and gives the table of the rules that names it.
func (w *world) ledgerIn(in *databases) (table string, err error) {
	if in == nil {
		return "", w.newLedger()
	}
	w.database, err = in.take()
	return fmt.Sprintf("[ledger]\nurl = %q\n", w.url()), err
}

// newLedger makes the ledger a new one.
func (w *world) newLedger() (err error) {
	for _, name := range []string{history.FileName + "-wal", history.FileName + "-shm", "ledger.mark"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(w.home, name)))
	}
	if w.database != nil {
		_, failed := w.database.Exec(putRowsBack)
		return errors.Join(err, failed)
	}
	return errors.Join(err, copyFile(filepath.Join(template.dir, history.FileName),
		filepath.Join(w.home, history.FileName)))
}

// rule makes a config.toml the sealed rules of the wallet.
func (w *world) rule(text string) error {
	return errors.Join(ownfile.Write(filepath.Join(w.home, config.FileName), []byte(text)),
		testworld.SealHome(w.home, template.keys))
}

func (w *world) passphraseFile() string { return filepath.Join(w.dir, "passphrase") }

// Close ends the sandbox and removes the home.
func (w *world) Close() {
	w.Sandbox.Close()
	if w.database != nil {
		w.database.back <- w.database
	}
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
