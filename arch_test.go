package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// arrows says which packages of ours each package may import: the architecture, kept true. A new
// arrow is added here in the commit that needs it, with its reason.
var arrows = map[string][]string{
	"x402/money":       {},
	"internal/pattern": {},
	// it reads what package svm has built, and imports nothing that builds
	"chain/svm/decode": {"x402", "x402/money"},
	// wallet and what is below it know nothing else of ours but how files are read, and expressions: whoever
	// reads keyPackages has seen all that touches a key. Nobody else imports wallet/internal, through which
	// keys pass from one to another
	"wallet": {"internal/pattern", "wallet/internal/coded", "wallet/internal/curve",
		"wallet/internal/guarded", "wallet/internal/keystore", "wallet/internal/piece"},
	"internal/ownfile":      {},
	"wallet/internal/coded": {"internal/ownfile"},
	"wallet/internal/piece": {},
	// it reads the file; owner writes it
	"wallet/internal/keystore": {"internal/ownfile", "internal/pattern", "wallet/internal/coded",
		"wallet/internal/curve", "wallet/internal/guarded", "wallet/internal/record",
		"wallet/internal/strictjson"},
	"wallet/owner": {"internal/ownfile", "wallet", "wallet/internal/coded", "wallet/internal/guarded",
		"wallet/internal/keystore", "wallet/internal/record"},
	"wallet/nuwa": {"wallet", "wallet/internal/coded", "wallet/internal/curve", "wallet/internal/guarded",
		"wallet/internal/piece"},
	"wallet/internal/guarded":    {},
	"wallet/internal/record":     {},
	"wallet/internal/strictjson": {},
	"wallet/internal/curve":      {"wallet/internal/guarded"},
	// for the tests of these packages
	"wallet/internal/keystore/keytest": {"wallet/internal/coded", "wallet/internal/curve",
		"wallet/internal/guarded", "wallet/internal/keystore"},
	"wallet/internal/wallettest": {"wallet", "wallet/internal/keystore/keytest", "wallet/owner"},
	// owner: which new passphrase is good
	"wallet/terminal": {"wallet", "wallet/internal/coded", "wallet/internal/guarded", "wallet/owner"},
	"wallet/unlock": {"internal/ownfile", "wallet", "wallet/internal/coded",
		"wallet/internal/guarded"},
	"wallet/imported": {"internal/ownfile", "wallet", "wallet/internal/coded", "wallet/internal/curve",
		"wallet/internal/guarded", "wallet/internal/strictjson"},
	// terminal: a phrase is typed and shown there
	"wallet/recovery": {"wallet", "wallet/internal/coded", "wallet/internal/curve",
		"wallet/internal/guarded", "wallet/internal/record", "wallet/owner", "wallet/terminal"},
	"x402": {"x402/money"},
	// how sellers and buyers write its words; who signs does not import it
	"x402/wire":       {"x402", "x402/money", "x402/foreign", "x402/signatures"},
	"x402/signatures": {"x402"},
	"x402/weburl":     {"x402"},
	// words that no signature needs: who signs imports none of these
	"x402/channelterms": {"x402", "x402/money"},
	"x402/observe":      {},
	"x402/foreign":      {"x402"},
	"x402/onchain":      {"x402", "x402/money"},
	"x402/publicnode":   {"x402"},
	"x402/explain":      {"x402"},
	// the lines for a network name its public node
	"x402/remedy": {"x402", "x402/money", "x402/publicnode"},
	// x402: names of networks, and assets
	// budget: what to do about a new payee is said in its words
	"internal/config": {"budget", "budget/schedule", "x402/money", "x402", "x402/channelterms",
		"x402/publicnode"},
	// what of the owner's files who signs does not need: they read, or change, by config's own rules
	"internal/config/callers":     {"internal/config"},
	"internal/config/edit":        {"internal/config"},
	"internal/config/environ":     {"internal/config", "internal/config/edit", "x402"},
	"internal/config/paywallfile": {"internal/config", "x402/channelterms"},
	"budget":                      {"x402/money", "x402"},
	// what people and callers are shown of the limits, and when a subscription is due: who signs imports
	// neither
	"budget/schedule": {"budget", "x402"},
	"budget/standing": {"budget", "x402/money", "x402"},
	// budget: it reads the facts that a decision needs, and applies the decision in one transaction
	"history": {"budget", "history/internal/audit", "history/internal/memory", "history/internal/schema",
		"history/internal/seals", "history/sqldb", "x402/money", "x402"},
	"history/sqldb": {"x402"}, // knows nothing of payments
	// who opens a database chooses its engine: the ledger itself knows neither
	"history/sqldb/sqlite":   {"history/sqldb", "internal/ownfile", "x402"},
	"history/sqldb/postgres": {"history/sqldb", "x402"},
	"history/ledgers": {"history", "history/internal/schema", "history/processes", "history/sqldb",
		"history/sqldb/postgres", "history/sqldb/sqlite", "x402"},
	// which processes live: by locks on one computer, by rows of a server
	"history/processes": {"history", "history/sqldb", "x402"},
	// one call at a time in a channel: who signs reads what is sealed of it
	// turns: among replicas a lock is a turn
	"history/turns":      {"history/sqldb"},
	"history/sqldb/rows": {"history/sqldb"},
	"history/locks":      {"history/turns", "history", "history/sqldb", "x402"},
	// questions to a person, which who signs does not open
	"history/asking": {"history", "history/internal/audit", "history/sqldb"},
	// what history and history/verify both read and make
	"history/internal/audit":  {"history/sqldb", "x402"},
	"history/internal/notes":  {"history/internal/audit", "history/sqldb"},
	"history/internal/memory": {"history/internal/audit", "history/sqldb"},
	"history/internal/schema": {"history/sqldb"},
	"history/internal/seals": {"budget", "history/internal/audit", "history/internal/memory", "history/sqldb",
		"x402/money"},
	// the whole ledger against its audit chain, which no signature needs
	"history/verify": {"budget", "history", "history/asking", "history/internal/audit",
		"history/internal/memory", "history/internal/notes",
		"history/internal/schema", "history/internal/seals", "history/sqldb", "x402", "x402/money"},
	// what people and agents read of the ledger: it writes nothing but notes for the books
	"history/report": {"budget", "history", "history/internal/audit", "history/internal/notes",
		"history/internal/seals",
		"history/sqldb", "x402/money"},
	// copies of a ledger, which are compared before they count
	"history/backup": {"history", "history/internal/schema", "history/sqldb", "history/sqldb/postgres",
		"history/sqldb/rows",
		"history/sqldb/sqlite", "history/verify", "x402"},
	// what was bought: stored in the transaction of its payment's outcome
	"history/content": {"history", "history/internal/audit", "history/sqldb", "x402"},
	// what the owner is told of: beside its cause, in the transaction of that
	"history/alerts": {"history/turns", "budget", "history", "history/sqldb", "x402", "x402/money"},
	// alerts: the owner is told of a run that failed, and of a proposal
	"history/subscriptions": {"budget", "history", "history/alerts", "history/internal/notes",
		"history/sqldb", "x402", "x402/money"},
	// for the tests of packages that hold money
	"history/historytest": {"budget", "history", "history/content", "history/ledgers", "history/sqldb",
		"history/sqldb/postgres", "internal/pgtest", "x402", "x402/money"},
	// budget: sessions that the owner began
	"wallet/seal": {"budget", "history", "x402/money", "x402"},
	// child: a signer may be a program of the owner's; config: the rules that name it; imported: the keychain
	// curve: the addresses of the keys that signers say they have
	"wallet/signer": {"internal/child", "internal/config", "internal/config/environ", "wallet",
		"wallet/imported", "wallet/internal/curve", "x402"},
	// steps: a question is one, of a payment or a sale
	"chain/rpc": {"internal/steps", "x402", "x402/observe"},
	// what is signed, and what is sent: they import nothing that builds it, and ask no node
	"chain/evm/message": {"x402/money", "x402"},
	"chain/evm/payload": {"chain/evm/message", "x402/money", "x402"},
	// the check: a message is given to who signs in the form that they read
	"chain/evm": {"chain/evm/message", "chain/evm/payload", "x402/money", "chain/rpc",
		"scheme/allowance/check", "x402", "x402/observe", "x402/foreign", "x402/onchain", "x402/remedy"},
	"chain/evm/evmtest": {"chain/evm/message", "internal/must", "x402/money", "x402", "x402/onchain"},
	// it reads what package tempo has built, and imports nothing that builds
	"chain/tempo/decode": {"x402", "x402/money", "x402/signatures"},
	// evm/message: words, addresses and signatures of Ethereum, of which Tempo is one
	"chain/tempo": {"chain/evm/message", "x402", "x402/money"},
	"chain/svm": {"x402/money", "chain/rpc", "chain/svm/decode", "scheme/exact/check", "x402",
		"x402/observe", "x402/onchain", "x402/remedy"},
	// child: servers that are commands; steps: which trace a call belongs to, where they may hear of it
	"seller": {"internal/child", "internal/mcpconn", "internal/steps", "x402", "x402/wire", "x402/weburl"},
	// history: it finds what it signs reserved; passkey: it believes the owner's passkeys, and nobody's word
	// that they said yes. It knows no scheme: each has a check, which package app registers
	"wallet/agent": {"budget", "history", "internal/passkey", "scheme/signing", "x402/money", "wallet",
		"x402", "wallet/seal"},
	// the half of a process that pays: it asks the agent, at its socket, or signs by the agent's own code;
	// socket: who may ask the agent
	"wallet/agent/client": {"history", "internal/socket", "scheme/siwx/check", "wallet/agent", "x402",
		"x402/onchain", "x402/signatures"},
	"scheme/signing": {"history", "x402/money", "wallet", "x402"},
	// what the engine asks about a way to pay: history, wire: what became of a payment, and its receipt;
	// onchain: what is ordered of a channel
	"scheme":           {"history", "x402", "x402/money", "x402/onchain", "x402/wire"},
	"scheme/allowance": {"history", "scheme", "x402", "x402/money", "x402/remedy"},
	// permit2: a deposit may be one by Permit2, with that one's approval; seller: it is asked for money back;
	// channelterms: what it asks of a channel
	// evm, message, payload, check: what is built and signed, in the form that who signs reads
	"scheme/batch": {"chain/evm", "chain/evm/message", "chain/evm/payload", "history", "scheme",
		"scheme/batch/check", "scheme/permit2", "seller", "x402", "x402/channelterms", "x402/money",
		"x402/onchain", "x402/wire"},
	"scheme/exact": {"scheme", "x402"},
	"scheme/mpp":   {"scheme", "x402"},
	"scheme/tempo": {"chain/evm", "chain/evm/message", "chain/rpc", "chain/tempo", "chain/tempo/decode",
		"history", "scheme", "scheme/mpp", "scheme/tempo/check", "x402", "x402/money", "x402/onchain",
		"x402/remedy", "x402/wire"},
	"scheme/permit2": {"chain/evm", "chain/evm/message", "chain/evm/payload", "chain/rpc", "history",
		"scheme", "scheme/permit2/check", "x402", "x402/money", "x402/onchain", "x402/wire"},
	"scheme/vault": {"history", "scheme", "x402", "x402/money"},
	// a check reads what it lets pass by code that builds nothing
	"scheme/allowance/check": {"budget", "chain/evm/message", "history", "scheme/signing", "x402/money",
		"wallet", "x402"},
	"scheme/batch/check": {"chain/evm/message", "history", "scheme/permit2/check", "scheme/signing",
		"x402/money", "wallet", "x402"},
	"scheme/exact/check": {"chain/evm/message", "chain/svm/decode", "history", "scheme/signing", "wallet",
		"x402"},
	"scheme/tempo/check": {"chain/evm/message", "history", "scheme/signing", "x402/money", "wallet", "x402"},
	"scheme/permit2/check": {"chain/evm/message", "history", "scheme/signing", "x402/money", "wallet",
		"x402"},
	"scheme/siwx/check": {"history", "scheme/signing", "wallet", "x402"},
	// a way of tests alone
	"scheme/schemetest": {"chain/evm/message", "chain/evm/payload", "scheme", "x402", "x402/money",
		"x402/onchain"},
	"scheme/schemetest/testcheck": {"chain/evm/message", "history", "scheme/signing", "wallet", "x402"},
	// child: facilitators that are programs; steps: likewise; ownfile: a directory may be a file
	"facilitator": {"internal/child", "internal/ownfile", "internal/steps", "x402/money", "x402",
		"x402/wire", "x402/observe"},
	// what the paywall asks about a way to be paid; facilitator: who settles it; book: channels are counted
	// there
	"scheme/selling": {"facilitator", "paywall/book", "x402", "x402/money", "x402/wire"},
	// message, payload, decode: a seller reads itself what it is paid
	"scheme/batch/sell": {"chain/evm/message", "facilitator", "paywall/book", "scheme/selling", "x402",
		"x402/channelterms", "x402/money", "x402/wire"},
	"scheme/exact/sell": {"chain/evm/message", "chain/evm/payload", "chain/svm/decode", "facilitator",
		"scheme/selling", "x402", "x402/money"},
	"scheme/mpp/sell":     {"scheme/selling", "x402", "x402/signatures", "x402/wire"},
	"scheme/permit2/sell": {"chain/evm/message", "facilitator", "scheme/selling", "x402"},
	// rpc: it settles itself, by the owner's node
	"scheme/tempo/sell": {"chain/evm/message", "chain/rpc", "chain/tempo/decode", "facilitator",
		"scheme/selling", "x402", "x402/money", "x402/wire"},
	// message, decode: it spells payees' addresses; steps: what a sale is made of
	"paywall": {"chain/evm/message", "chain/svm/decode", "facilitator", "internal/child", "internal/loopback",
		"internal/mcpconn", "internal/steps", "paywall/book", "scheme/batch/sell", "scheme/exact/sell",
		"scheme/mpp/sell", "scheme/permit2/sell", "scheme/selling", "scheme/tempo/sell", "x402/money",
		"x402", "x402/wire", "x402/channelterms", "x402/remedy"},
	// sqldb: one payment, one run, on the two engines that the ledger is on
	"paywall/book": {"history/sqldb", "history/sqldb/postgres", "history/sqldb/rows", "history/sqldb/sqlite",
		"x402/money", "x402"},
	// steps: what a payment is made of; weburl: one request has one URL
	"pay": {"budget", "budget/standing", "facilitator", "history", "history/asking", "internal/steps",
		"scheme", "x402/money", "seller", "x402", "x402/weburl", "x402/wire", "x402/foreign", "x402/onchain",
		"x402/remedy"},
	// chain/rpc: it asks Rooch, which nobody else does; history: promises are kept in the ledger
	"scheme/nuwa": {"chain/rpc", "history", "pay", "seller", "x402", "x402/wire", "x402/money",
		"x402/observe"},
	"internal/must":     {},                   // for tests
	"internal/formtest": {"internal/pattern"}, // likewise
	"internal/loopback": {},                   // who serves HTTP: it says which requests are answered
	// x402: the code that a step ended with
	"internal/steps": {"x402", "x402/money"},
	"internal/otlp":  {"internal/steps", "x402"},
	// for the tests of what sends spans
	"internal/otlp/otlptest": {},
	"internal/socket":        {},
	"internal/relay":         {"internal/socket", "x402"},
	// x402: how parties answered is said in its words
	"internal/metrics": {"internal/ownfile", "x402/money", "x402/observe"}, // a file for a collector
	// which passkeys there are it is told
	"internal/passkey": {"internal/passkey/internal/answers"},
	// what is refused of an answer, of a new passkey and of one that is asked
	"internal/passkey/internal/answers": {},
	// socket: the terminal that a passkey is made for
	"internal/passkey/invitation": {"internal/passkey", "internal/passkey/internal/answers",
		"internal/socket"},
	"internal/passkey/passkeytest": {},
	"internal/ask":                 {"internal/loopback"},
	// tools: it shows what a tool answers, as commands do; no arrow to wallet or seal: what is
	// typed on it is handed on. passkey: who signs in at a service's pages
	"internal/dashboard": {"internal/books", "budget", "budget/standing", "history", "history/alerts",
		"history/report", "history/subscriptions", "internal/loopback", "internal/passkey", "x402/money",
		"internal/receipt", "internal/passkey/invitation", "tools", "x402", "x402/wire"},
	// nuwa: a call of a service that has a channel goes through it; batch: what lies in channels with a
	// deposit; facilitator: what it lists for sale;
	// passkey: the open wallet says which there are; steps: the trace that an agent's host names; metrics:
	// how a wallet stands, as they say it
	"tools": {"internal/ask", "budget", "budget/schedule", "budget/standing", "scheme/batch", "scheme/nuwa",
		"facilitator",
		"history", "history/alerts", "history/content", "history/report", "history/subscriptions",
		"internal/mcpconn", "internal/metrics", "internal/passkey", "internal/steps", "x402/money", "pay",
		"seller", "x402", "x402/wire", "x402/weburl", "x402/onchain"},
	// tools: a command prints its tool's answer; batch, nuwa: or what they show of a channel
	// relay: service status asks the service as an agent's host does; notify: what
	// came of notify test; passkey: the terminal waits for one; steps: how a call is made
	// signer: it is tried before it is sealed
	"cli": {"scheme/batch", "scheme/batch/check", "wallet/agent", "wallet/agent/client", "wallet/signer",
		"wallet/imported", "wallet/nuwa",
		"wallet/owner", "wallet/recovery", "wallet/terminal", "wallet/unlock", "internal/ask",
		"internal/books", "budget", "budget/schedule", "budget/standing", "scheme/nuwa", "internal/child",
		"internal/config", "internal/config/callers", "internal/config/edit", "internal/config/environ",
		"internal/dashboard", "internal/doctor", "history", "history/alerts", "history/backup",
		"history/content", "history/report", "history/subscriptions", "history/verify", "internal/install",
		"internal/notify", "internal/ownuser", "internal/passkey", "internal/passkey/invitation",
		"internal/relay", "internal/sandbox", "internal/loopback", "internal/steps", "x402/money", "pay",
		"paywall/book", "internal/receipt", "wallet/seal", "tools", "wallet", "x402", "x402/wire",
		"x402/weburl", "x402/onchain", "x402/remedy", "x402/explain"},

	// child: the owner's own command; history: it hears of what waits there
	"internal/notify": {"history/turns", "internal/child", "history", "history/alerts", "x402"},
	// child: the owner's programs; history: what came of a payment
	"internal/hooks": {"history", "history/turns", "internal/child", "internal/pattern", "x402/money",
		"x402"},
	"internal/books": {"history", "history/report", "x402/money", "x402"},
	// evm, svm: whose signature it is
	"internal/receipt": {"chain/evm/message", "chain/evm/payload", "chain/svm/decode", "chain/tempo",
		"chain/tempo/decode", "history", "x402/money", "x402", "x402/wire"},
	// it looks at everything, through tools' Wallet where that waits
	"internal/doctor": {"facilitator", "internal/child", "internal/config", "history", "history/alerts",
		"history/content", "history/report", "history/verify", "internal/install", "x402/money",
		"wallet/seal", "tools", "wallet", "wallet/unlock", "x402", "x402/publicnode"},
	// it edits files as config edits its own
	"internal/install": {"internal/config/edit"},
	"internal/ownuser": {"internal/config/environ"},
	"docs":             {}, // tests of the pages alone
	// strict JSON is read in one place
	"internal/oauth": {"x402"},
	// for the tests of what takes access tokens
	"internal/oauth/oauthtest": {},
	// for the tests of what keeps the ledger in PostgreSQL, and the demo of a fleet
	"internal/pgtest": {},
	// it plays a fleet's parties: the wallet is a program to it
	"examples/fleet": {"internal/loopback", "internal/pgtest", "internal/sandbox"},
	// how we speak MCP, below the SDK: tools, seller and paywall stand on it
	"internal/mcpconn": {"internal/child", "x402", "x402/wire"},
	// knows nothing of ours: what other programs get of us can be seen there
	"internal/child": {},
	// for the tests of what starts programs
	"internal/child/childtest": {},
	// the test kit for others: it signs by the wallet's own code, in a sandbox
	"x402test": {"chain/evm", "chain/svm", "internal/sandbox",
		"x402", "x402/wire", "x402/money", "x402/onchain"},
	// verifies what EVM buyers sign with the chain's own code
	"internal/sandbox": {"chain/evm/message", "chain/evm/payload", "chain/tempo/decode",
		"internal/loopback", "x402/money", "x402", "x402/wire", "x402test/fault"},
	"x402test/fault": {},
}

// keyPackages are those that touch a private key, and how files are read. Nothing else of ours is in them.
var keyPackages = []string{"wallet", "wallet/imported", "wallet/nuwa", "wallet/owner", "wallet/recovery",
	"wallet/terminal", "wallet/unlock", "wallet/internal/coded", "wallet/internal/curve",
	"wallet/internal/guarded", "wallet/internal/keystore", "wallet/internal/piece",
	"wallet/internal/record", "wallet/internal/strictjson", "internal/ownfile", "internal/pattern"}

// leaves know nothing of ours. Anybody may import them but keyPackages.
var leaves = []string{"internal/pattern", "internal/ownfile"}

// only says who may import what from outside, because it is heavy or touches keys.
var only = map[string][]string{
	"github.com/ethereum/go-ethereum": {"chain/evm", "chain/evm/evmtest", "chain/evm/message",
		"chain/evm/payload", "chain/tempo", "scheme/batch", "scheme/permit2", "scheme/tempo", "wallet"},
	// and not chain/svm/decode, which checks it
	"github.com/gagliardetto/solana-go": {"chain/svm", "internal/sandbox"},
	"github.com/mr-tron/base58": {"chain/svm/decode", "paywall", "scheme/exact/check",
		"scheme/siwx/check", "x402"},
	"filippo.io/edwards25519": {"chain/svm/decode"},
	"github.com/go-webauthn/webauthn": {"internal/passkey", "internal/passkey/internal/answers",
		"internal/passkey/invitation", "internal/passkey/passkeytest"},
	// strict JSON is read in one place, and in wallet, which may import nothing of ours
	"github.com/go-json-experiment/json": {"wallet/internal/strictjson", "x402", "x402/wire"},
	// cli, examples/fleet: the demos play an agent's host
	"github.com/modelcontextprotocol/go-sdk": {"cli", "examples/fleet", "internal/mcpconn", "paywall",
		"seller", "tools"},
	"modernc.org/sqlite":                 {"history/sqldb/sqlite"},
	"github.com/jackc/pgx":               {"history/sqldb/postgres"},
	"go.opentelemetry.io":                {"internal/otlp/otlptest"}, // the other opinion of what is sent
	"google.golang.org/protobuf":         {"internal/otlp/otlptest"},
	"github.com/godbus/dbus":             {"internal/notify"},
	"github.com/spf13/cobra":             {"cli"},
	"github.com/tailscale/hujson":        {"internal/install"},
	"github.com/zalando/go-keyring":      {"wallet/imported", "wallet/unlock"},
	"github.com/VictoriaMetrics/metrics": {"internal/metrics"},
	"github.com/MicahParks/jwkset":       {"internal/oauth"},
	// wallet/signer: how Google and Coinbase know who asks
	"github.com/golang-jwt/jwt": {"facilitator", "internal/oauth", "internal/oauth/oauthtest",
		"wallet/signer"},
}

func TestArrowsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from, inside := strings.CutPrefix(fields[0], "x402-wallet/")
		if !inside || from == "e2e" || strings.HasPrefix(from, "e2e/") {
			continue // a party of its own
		}
		for _, path := range fields[1:] { // and helpers of tests, which are in no program
			require.False(t, strings.HasPrefix(path, "x402-wallet/e2e"), "%s → %s", from, path)
		}
		if from == "app" {
			continue // it joins everything
		}
		allowed, known := arrows[from]
		require.True(t, known, "%s is not in the house: add it to arrows, with its reason", from)
		for _, path := range fields[1:] {
			to, ours := strings.CutPrefix(path, "x402-wallet/")
			if ours && (slices.Contains(keyPackages, from) || !slices.Contains(leaves, to)) {
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
func TestOnlyEnvironReadsTheEnvironment(t *testing.T) {
	out, _ := exec.Command("git", "grep", "-lE", `os\.(Getenv|LookupEnv|Environ)\(`, "--", "*.go",
		":!*_test.go", ":!e2e").Output()
	for file := range strings.Lines(string(out)) {
		isAllowed := strings.HasPrefix(file, "internal/config/environ/") ||
			strings.HasPrefix(file, "cli/demo") ||
			strings.HasPrefix(file, "wallet/internal/wallettest/") ||
			strings.HasPrefix(file, "wallet/internal/keystore/keytest/")
		require.True(t, isAllowed, "%s reads the environment", strings.TrimSpace(file))
	}
}

// Hosts wait for our start, so an expression is compiled at its first use: internal/pattern.
func TestNoPatternIsCompiledBeforeMain(t *testing.T) {
	declared := `^(var )?[[:space:]]*[A-Za-z0-9_"]+ *[=:] *regexp\.MustCompile`
	out, _ := exec.Command("git", "grep", "-nE", declared, "--", "*.go", ":!*_test.go", ":!e2e").Output()
	require.Empty(t, string(out))
}

// Nothing but package app opens a ledger or a book of sales, or builds a guard, so that each is made in one
// way. Tests and the parties of e2e do, too.
func TestOnlyAppOpensLedgersAndBuildsGuards(t *testing.T) {
	out, _ := exec.Command("git", "grep", "-nE",
		`(ledgers|book)\.(Open|Create|Make)[A-Za-z]*\(|history\.New\(|seal\.Guard\{`, "--", "*.go",
		":!*_test.go", ":!e2e", ":!history/historytest", ":!history/ledgers").Output()
	for line := range strings.Lines(string(out)) {
		require.True(t, strings.HasPrefix(line, "app/"), "%s", line)
	}
	require.NotEmpty(t, out, "nothing is looked at")
}

// Every HTTP server of ours is a loopback.Door's, so that none answers any name or page.
func TestOnlyDoorsServeHTTP(t *testing.T) {
	out, _ := exec.Command("git", "grep", "-nE", `http\.Server\{|ListenAndServe|http\.Serve(TLS)?\(`,
		"--", "*.go", ":!*_test.go").Output()
	for line := range strings.Lines(string(out)) {
		require.True(t, strings.HasPrefix(line, "internal/loopback/door.go:"), "%s", line)
	}
	require.NotEmpty(t, out, "nothing is looked at")
}

// mostSignerLines is how many lines the process that signs may be made of. It only ever gets lower.
const mostSignerLines = 20_000

// What has to be believed before one signature: all packages of ours that wallet/agent and the schemes'
// checks are made of.
func TestClosureOfWhoSigns(t *testing.T) {
	out := must.Get(exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}",
		"./wallet/agent", "./scheme/.../check").Output())(t)
	sum := 0
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, ours := strings.CutPrefix(path, "x402-wallet/")
		if !ours {
			continue
		}
		files := must.Get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		lines := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text := must.Get(os.ReadFile(file))(t)
			lines += strings.Count(string(text), "\n")
		}
		t.Logf("%6d %s", lines, name)
		sum += lines
	}
	t.Logf("%6d in all", sum)
	require.Positive(t, sum)
	require.LessOrEqual(t, sum, mostSignerLines)
}
