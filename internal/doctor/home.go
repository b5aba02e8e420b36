package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
)

// files are those of the home (SPEC §2), and whether a wallet can be without them.
var files = []struct {
	name   string
	needed bool
}{
	{config.FileName, true}, {"keystore.json", true}, {"ledger.db", true}, {"ledger.db-wal", false},
	{"ledger.db-shm", false}, {"ledger.mark", false},
}

// empty reports whether there is no wallet yet, and nothing of one: no keys, no payments.
func (o Options) empty() bool {
	_, keys := os.Lstat(filepath.Join(o.Home, "keystore.json"))
	_, payments := os.Lstat(filepath.Join(o.Home, "ledger.db"))
	return errors.Is(keys, fs.ErrNotExist) && errors.Is(payments, fs.ErrNotExist)
}

func (o Options) home(context.Context) (list []Finding) {
	if o.empty() {
		return found(Fail, "x402-wallet init creates one; x402-wallet demo needs none",
			"there is no wallet in %s", o.Home)
	}
	info, err := os.Stat(o.Home)
	if err != nil {
		return failed(err, "correct what the message names")
	}
	if !info.IsDir() {
		return found(Fail, "move it away", "%s is not a directory", o.Home)
	}
	list = o.mode(list, o.Home, info, "700")
	for _, f := range files {
		path := filepath.Join(o.Home, f.name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if f.needed {
				list = append(list,
					found(Fail, "restore it from a backup; without a wallet yet: x402-wallet init",
						"%s is missing", f.name)...)
			}
		case err != nil:
			list = append(list, failed(err, "correct what the message names")...)
		case !info.Mode().IsRegular():
			list = append(list, found(Fail, "put the file itself there", "%s is not a regular file",
				f.name)...)
		default:
			list = o.mode(list, path, info, "600")
		}
	}
	if len(list) == 0 {
		return good("only you can access %s", o.Home)
	}
	return list
}

// mode complains of what others may do with a file. Windows has other means.
func (o Options) mode(list []Finding, path string, info fs.FileInfo, wanted string) []Finding {
	if o.System.OS == "windows" || info.Mode().Perm()&0o077 == 0 {
		return list
	}
	return append(list, found(Fail, fmt.Sprintf("chmod %s %s", wanted, shell(path)),
		"others can access %s (mode %04o)", path, info.Mode().Perm())...)
}

// shell quotes a path for a POSIX shell.
func shell(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func (o Options) keystore(context.Context) []Finding {
	keys, err := wallet.Open(o.Home)
	if err != nil {
		return failed(err, "restore keystore.json from a backup")
	}
	defer func() { _ = keys.Close() }()
	if warnings := keys.Warnings; len(warnings) > 0 {
		return found(Warn, "x402-wallet passphrase rewrites it", "%s", strings.Join(warnings, "; "))
	}
	return good("keystore.json is valid")
}

func (o Options) rules(context.Context) (list []Finding) {
	rules, err := config.Load(o.Home)
	if err != nil {
		return failed(err, "correct config.toml, or restore it from a backup; nothing is paid without rules")
	}
	if text, err := config.Parse(rules.Raw); err == nil {
		// Load also warns of the file's mode, which home looks at
		rules = text
	}
	for _, warning := range rules.Warnings {
		list = append(list, found(Warn, "edit config.toml, then x402-wallet policy seal", "%s", warning)...)
	}
	if len(list) == 0 {
		return good("every key of config.toml is understood")
	}
	return list
}
