package doctor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"x402-wallet/internal/install"
)

// clients looks at the wallet's entries in the settings of MCP clients.
func (o Options) clients(context.Context) (list []Finding) {
	entries := 0
	var without []string
	for _, c := range install.Clients(o.System) {
		status, entry, err := c.Detect(o.Entry)
		switch status {
		case "not found":
		case "unreadable":
			list = append(list, found(Warn, "correct the file by hand", "%s: %v", c.Title, err)...)
		case "not installed":
			without = append(without, c.Name)
		default:
			entries++
			list = append(list, o.client(c, entry)...)
		}
	}
	if entries == 0 {
		names := "claude-code"
		if len(without) > 0 {
			names = strings.Join(without, ", ")
		}
		list = append(list, found(Warn, "x402-wallet install "+firstOf(names),
			"no MCP client has an entry for this wallet (here: %s)", orNone(without))...)
	}
	return list
}

func firstOf(names string) string {
	first, _, _ := strings.Cut(names, ",")
	return first
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none that is known"
	}
	return strings.Join(names, ", ")
}

// client looks at one entry: does what it starts exist, and does it hold a secret?
func (o Options) client(c install.Client, entry *install.Plan) (list []Finding) {
	again := "x402-wallet install " + c.Name
	if len(entry.Secrets) > 0 {
		list = append(list,
			found(Fail, again+" takes it out; then change what it protects (x402-wallet passphrase)",
				"%s's entry holds %s in plain text", c.Title, strings.Join(entry.Secrets, ", "))...)
	}
	switch {
	case !startable(entry.Command):
		list = append(list, found(Fail, again, "%s's entry starts a program that is not there", c.Title)...)
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
