package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	ledger "x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
)

const (
	buildWait = 10 * time.Minute // a cold build cache on a busy machine
	cliWait   = time.Minute      // scrypt takes most of it
)

// Passphrase is that of every wallet that NewHome makes.
const Passphrase = "correct horse battery staple"

var build struct {
	once sync.Once
	dir  string
	bin  string
	err  error
	log  []byte
}

// BuildWallet gives the path of the real wallet binary, built once per test process, or that of
// X402_WALLET_BIN.
func BuildWallet(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("X402_WALLET_BIN"); bin != "" {
		return bin
	}
	build.once.Do(func() {
		root, err := moduleRoot()
		if err != nil {
			build.err = err
			return
		}
		if build.dir, build.err = os.MkdirTemp("", "x402-wallet-e2e-"); build.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), buildWait)
		defer cancel()
		build.bin = filepath.Join(build.dir, "x402-wallet")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", build.bin, ".")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.log, build.err = cmd.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build the wallet: %v\n%s", build.err, build.log)
	}
	return build.bin
}

func removeBuild() {
	if build.dir != "" {
		_ = os.RemoveAll(build.dir)
	}
}

// Home is a fresh wallet: its home directory, the file with its passphrase (outside the home,
// owner-only), its addresses.
type Home struct {
	Dir            string
	PassphraseFile string
	EVM, Solana    string

	user string // stands in for the person's home directory, so that no test reads or writes the real one
}

// NewHome makes a wallet with MakeHome in a fresh directory, with the files that belong to a person
// around it.
func NewHome(t testing.TB, rules string) Home {
	t.Helper()
	dir := t.TempDir()
	home := Home{Dir: filepath.Join(dir, "wallet"), PassphraseFile: filepath.Join(dir, "passphrase"),
		user: filepath.Join(dir, "user")}
	if err := os.Mkdir(home.user, 0o700); err != nil {
		t.Fatal(err)
	}
	writePrivate(t, home.PassphraseFile, Passphrase+"\n")
	var err error
	if home.EVM, home.Solana, err = MakeHome(home.Dir, rules, Passphrase); err != nil {
		t.Fatal(err)
	}
	return home
}

// MakeHome makes what init makes, sealed with this config.toml, but with keys that open quickly:
// init itself has tests of its own, and the key's derivation would be most of the others' time.
func MakeHome(dir, rules, passphrase string, imported ...wallet.Imported) (evm, solana string, err error) {
	ctx := context.Background()
	keys, err := wallet.Create(ctx, dir, wallet.FromValue(passphrase),
		wallet.Options{N: 1 << 14, Import: imported})
	if err != nil {
		return "", "", err
	}
	defer keys.Close()
	err = errors.Join(ledger.Create(ctx, dir, ledger.Options{}),
		config.WriteFile(filepath.Join(dir, config.FileName), []byte(rules)))
	if err == nil {
		err = SealHome(dir, keys)
	}
	return keys.EVM().Address(), keys.Solana().Address(), err
}

// SealHome seals the rules of a home as they are.
func SealHome(dir string, keys *wallet.Wallet) error {
	rules, err := config.Load(dir)
	if err != nil {
		return err
	}
	store, err := ledger.Open(context.Background(), dir, ledger.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	guard := seal.Guard{Home: dir, Rules: rules, Store: store, Key: keys}
	return guard.Seal(context.Background())
}

// WithConfig puts another config.toml into the home, as its owner would with an editor, and seals
// it with `policy seal` at a terminal.
func (h Home) WithConfig(t testing.TB, bin, config string) Home {
	t.Helper()
	writePrivate(t, filepath.Join(h.Dir, "config.toml"), config)
	ctx, cancel := context.WithTimeout(context.Background(), cliWait)
	defer cancel()
	cmd := h.Command(ctx, bin, "policy", "seal")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatalf("x402-wallet policy seal: %v", err)
	}
	defer terminal.Close()
	var seen []byte
	buffer := make([]byte, 4096)
	for typed := false; ; {
		n, err := terminal.Read(buffer)
		seen = append(seen, buffer[:n]...)
		if !typed && bytes.Contains(seen, []byte("Passphrase")) {
			typed = true
			_, _ = terminal.WriteString(Passphrase + "\n")
		}
		if err != nil { // EIO: the program has ended
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("x402-wallet policy seal: %v: %s", err, seen)
	}
	return h
}

// Env is the whole environment of a wallet process at this home. Nothing of the machine's reaches
// it but what a program needs to run.
func (h Home) Env(extra ...string) []string {
	env := []string{
		"X402_WALLET_HOME=" + h.Dir,
		"X402_WALLET_PASSPHRASE_FILE=" + h.PassphraseFile,
		"HOME=" + h.user,
		"NO_COLOR=1",
	}
	for _, name := range []string{"PATH", "TMPDIR", "SYSTEMROOT", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, extra...)
}

// Command is a command of the wallet at this home.
func (h Home) Command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = h.Env()
	cmd.WaitDelay = stopWait
	return cmd
}

// run runs a command that must succeed, and decodes what it prints into out unless that is nil.
func (h Home) run(t testing.TB, bin string, out any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cliWait)
	defer cancel()
	cmd := h.Command(ctx, bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("x402-wallet %s: %v\n%s%s", args[0], err, &stdout, &stderr)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		t.Fatalf("x402-wallet %s: %v in %q", args[0], err, &stdout)
	}
}

func writePrivate(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
