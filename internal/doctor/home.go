package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/internal/install"
	"x402-wallet/wallet"
)

// files are those of the home, and whether a wallet can be without them.
var files = []struct {
	name   string
	needed bool
}{{config.FileName, true}, {"keystore.json", true}, {"ledger.db", true}, {"ledger.db-wal", false},
	{"ledger.db-shm", false}, {"ledger.mark", false}, {"sales.db", false}, {"sales.db-wal", false},
	{"sales.db-shm", false}}

// empty reports whether there is no wallet yet, and nothing of one: no keys, no payments.
func (o Options) empty() bool {
	_, keys := os.Lstat(filepath.Join(o.Home, "keystore.json"))
	_, payments := os.Lstat(filepath.Join(o.Home, "ledger.db"))
	return errors.Is(keys, fs.ErrNotExist) && errors.Is(payments, fs.ErrNotExist)
}

func (o Options) home(context.Context) (list findings) {
	if o.empty() {
		return found(fail, "x402-wallet init creates one; x402-wallet demo needs none",
			"there is no wallet in %s", o.Home)
	}
	info, err := os.Stat(o.Home)
	if err != nil {
		return failed(err, "correct what the message names")
	}
	if !info.IsDir() {
		return found(fail, "move it away", "%s is not a directory", o.Home)
	}
	o.mode(&list, o.Home, info, "700")
	elsewhere := o.ledgerElsewhere()
	for _, f := range files {
		if f.name == "ledger.db" && elsewhere {
			f.needed = false
		}
		path := filepath.Join(o.Home, f.name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !f.needed:
		case errors.Is(err, fs.ErrNotExist):
			list.add(fail, "restore it from a backup; without a wallet yet: x402-wallet init",
				"%s is missing", f.name)
		case err != nil:
			list = append(list, failed(err, "correct what the message names")...)
		case !info.Mode().IsRegular():
			list.add(fail, "put the file itself there", "%s is not a regular file", f.name)
		default:
			o.mode(&list, path, info, "600")
		}
	}
	return list.or("only you can access %s", o.Home)
}

// ledgerElsewhere reports whether the rules keep the ledger in PostgreSQL.
func (o Options) ledgerElsewhere() bool {
	rules, err := config.Load(o.Home)
	return err == nil && rules.Ledger.URL != ""
}

// mode complains of what others may do with a file. Windows has other means.
func (o Options) mode(list *findings, path string, info fs.FileInfo, wanted string) {
	if o.System.OS != "windows" && info.Mode().Perm()&0o077 != 0 {
		list.add(fail, fmt.Sprintf("chmod %s %s", wanted, shell(path)), "others can access %s (mode %04o)",
			path, info.Mode().Perm())
	}
}

func shell(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func (o Options) keystore(context.Context) (list findings) {
	keys, err := wallet.Open(o.Home)
	if err != nil {
		return failed(err, "restore keystore.json from a backup")
	}
	defer func() { _ = keys.Close() }()
	if warnings := keys.Warnings; len(warnings) > 0 {
		list.add(warn, "x402-wallet passphrase rewrites it", "%s", strings.Join(warnings, "; "))
	}
	if rules, err := o.Opener.Rules(); err == nil {
		list = append(list, accounts(keys, rules)...)
	}
	return list.or("keystore.json is valid")
}

// accounts compares those that have keys with those of the rules.
func accounts(keys *wallet.Wallet, rules *config.Config) (list findings) {
	for _, name := range rules.Accounts() {
		if _, err := keys.AccountNamed(name); err != nil {
			list.add(fail, "x402-wallet account add "+name+", or restore the keystore.json that has it",
				"config.toml has the account %s, and keystore.json has no keys of it: nothing is paid "+
					"from it", name)
		}
	}
	for _, a := range keys.Accounts() {
		if !rules.HasAccount(a.Name) {
			list.add(warn, "x402-wallet account add "+a.Name, "keystore.json has the keys of the account "+
				"%s, and config.toml does not name it: nothing is paid from it", a.Name)
		}
	}
	return list
}

func (o Options) rules(context.Context) (list findings) {
	rules, err := o.Opener.Rules()
	if err != nil {
		return failed(err, "correct config.toml, or restore it from a backup; nothing is paid without rules")
	}
	if text, err := config.Parse(rules.Raw); err == nil {
		rules = text // Load also warns of the file's mode, which home looks at
	}
	for _, warning := range rules.Warnings {
		list.add(warn, "edit config.toml, then x402-wallet policy seal", "%s", warning)
	}
	return list.or("every key of config.toml is understood")
}

// clients looks at the wallet's entries in the settings of MCP clients.
func (o Options) clients(context.Context) (list findings) {
	entries := 0
	var without []string
	for _, c := range install.Clients(o.System) {
		status, entry, err := c.Detect(o.Entry)
		switch status {
		case "not found":
		case "unreadable":
			list.add(warn, "correct the file by hand", "%s: %v", c.Title, err)
		case "not installed":
			without = append(without, c.Name)
		default:
			entries++
			list = append(list, o.client(c, entry)...)
		}
	}
	if entries == 0 {
		here, first := "none that is known", "claude-code"
		if len(without) > 0 {
			here, first = strings.Join(without, ", "), without[0]
		}
		list.add(warn, "x402-wallet install "+first,
			"no MCP client has an entry for this wallet (here: %s)", here)
	}
	return list
}

// client looks at one entry: does what it starts exist, and does it hold a secret?
func (o Options) client(c install.Client, entry *install.Plan) (list findings) {
	again := "x402-wallet install " + c.Name
	if len(entry.Secrets) > 0 {
		list.add(fail, again+" takes it out; then change what it protects (x402-wallet passphrase)",
			"%s's entry holds %s in plain text", c.Title, strings.Join(entry.Secrets, ", "))
	}
	switch {
	case !startable(entry.Command):
		list.add(fail, again, "%s's entry starts a program that is not there", c.Title)
	case c.ShutOut(o.Dir) != "":
		list.add(warn, again, "%s has an entry, and does not start it: %s", c.Title, c.ShutOut(o.Dir))
	case len(entry.Secrets) > 0:
	case entry.Change != "nothing":
		list = good("%s has a custom entry (%s --dry-run shows the difference)", c.Title, again)
	default:
		list = good("%s starts this wallet", c.Title)
	}
	return list
}

func startable(command string) bool {
	if filepath.IsAbs(command) {
		info, err := os.Stat(command)
		return err == nil && info.Mode().IsRegular()
	}
	_, err := exec.LookPath(command)
	return err == nil
}
