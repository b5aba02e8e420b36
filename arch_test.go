package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows says which packages of ours each package may import: the architecture, kept true. A new arrow is added here in the
// commit that needs it, with its reason.
var arrows = map[string][]string{
	"money":       {},
	"wallet":      {}, // knows nothing of ours: whoever reads it has seen all that touches a key
	"x402":        {"money"},
	"config":      {"money", "x402"}, // x402: names of networks, and assets
	"budget":      {"money", "x402"},
	"history":     {"budget", "money", "x402"},                      // budget: it answers the windows' questions inside its transaction
	"seal":        {"budget", "config", "history", "money", "x402"}, // config: what changed between two versions of the rules; budget: sessions that the owner began
	"rpc":         {"x402"},
	"evm":         {"money", "rpc", "x402"},
	"svm":         {"money", "rpc", "x402"},
	"transport":   {"x402"},
	"agent":       {"budget", "evm", "history", "money", "svm", "wallet", "x402"}, // evm, svm: it reads what it signs itself; history: and finds it reserved
	"facilitator": {"x402"},
	"paywall":     {"evm", "facilitator", "history", "money", "svm", "x402"}, // evm, svm: it reads itself what it is paid; history: one payment, one run
	"pay":         {"budget", "facilitator", "history", "money", "transport", "x402"},
	"channel":     {"history", "money", "pay", "rpc", "transport", "x402"}, // history: promises are kept in the ledger
	"loopback":    {},
	"ask":         {"loopback"},
	"dashboard":   {"books", "budget", "history", "loopback", "money", "receipt", "tools", "x402"},                                                                                                                     // tools: it shows what a tool answers, as commands do; no arrow to wallet or seal: what is typed on it is handed on
	"buyer":       {"money", "x402"},                                                                                                                                                                                   // a library beside the wallet: it sees the chains as interfaces
	"tools":       {"ask", "budget", "channel", "history", "money", "pay", "transport", "x402"},                                                                                                                        // channel: a call of a service that has one goes through it
	"cli":         {"agent", "ask", "books", "budget", "channel", "config", "dashboard", "doctor", "history", "install", "internal/sandbox", "loopback", "money", "pay", "receipt", "seal", "tools", "wallet", "x402"}, // tools: a command prints its tool's answer; channel: or what it shows of one

	"books":            {"history", "money", "x402"},
	"receipt":          {"evm", "history", "money", "svm", "x402"},                                   // evm, svm: whose signature it is
	"doctor":           {"config", "history", "install", "money", "seal", "tools", "wallet", "x402"}, // it looks at everything, through tools' Wallet where that waits
	"install":          {"config"},                                                                   // it edits files as config edits its own
	"internal/release": {},                                                                           // a program of its own: it packs what was built
	"internal/sandbox": {"evm", "money", "svm", "x402"},                                              // verifies with the chains' own code
}

// only says who may import what from outside, because it is heavy or touches keys.
var only = map[string][]string{
	"github.com/ethereum/go-ethereum":        {"evm", "wallet"},
	"github.com/gagliardetto/solana-go":      {"svm"},
	"github.com/modelcontextprotocol/go-sdk": {"buyer", "channel", "paywall", "tools", "transport"},
	"modernc.org/sqlite":                     {"history"},
	"github.com/spf13/cobra":                 {"cli"},
	"github.com/zalando/go-keyring":          {"wallet"},
}

func TestArrowsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from, inside := strings.CutPrefix(fields[0], "x402-wallet/")
		if !inside || from == "e2e" || strings.HasPrefix(from, "e2e/") { // main joins everything; e2e is a party of its own
			continue
		}
		allowed, known := arrows[from]
		require.True(t, known, "%s is not in the house: add it to arrows, with its reason", from)
		for _, path := range fields[1:] {
			if to, ours := strings.CutPrefix(path, "x402-wallet/"); ours {
				require.Contains(t, allowed, to, "%s → %s", from, to)
			}
			for module, users := range only {
				if path == module || strings.HasPrefix(path, module+"/") {
					require.True(t, slices.Contains(users, from), "%s may not import %s", from, path)
				}
			}
		}
	}
}

// The environment is read in one place, so that what it may change can be seen there.
func TestOnlyConfigReadsTheEnvironment(t *testing.T) {
	out, _ := exec.Command("git", "grep", "-lE", `os\.(Getenv|LookupEnv|Environ)\(`, "--", "*.go", ":!*_test.go", ":!e2e", ":!internal/release").Output()
	for file := range strings.Lines(string(out)) {
		require.True(t, strings.HasPrefix(file, "config/") || strings.HasPrefix(file, "cli/demo"), "%s reads the environment", strings.TrimSpace(file))
	}
}
