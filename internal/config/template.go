package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Template is the config.toml that init writes: every key, explained, at its default, with the
// seed's environment taken in (SPEC §4). It fails where that environment holds a value that the
// file could not.
func Template(env Env) ([]byte, error) {
	s, err := env.seed()
	if err != nil {
		return nil, err
	}
	prefer := []string{solanaMainnet, base}
	if s.prefer != nil {
		prefer = s.prefer
	}
	nodes := maps.Clone(publicNodes)
	if s.rpc != "" {
		nodes[s.network] = s.rpc
	}
	var b strings.Builder
	fmt.Fprintf(&b, templateRules, strings.Join(quoted(prefer), ", "))
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		note := "public, rate-limited: better your own"
		if nodes[id] != publicNodes[id] {
			note = "from SOLANA_RPC_URL"
		}
		fmt.Fprintf(&b, "[networks.%q]\nrpc = %s   # %s\n", id, Quote(nodes[id]), note)
	}
	b.WriteString(templateAssets)
	for _, f := range s.facilitators {
		fmt.Fprintf(&b, "[[facilitators]]   # from the environment\nname = %s\nurl = %s\nauth = %q\n",
			Quote(f.Name), Quote(f.URL), f.Auth)
	}
	b.WriteString(templateRest)
	return []byte(b.String()), nil
}

// Quote writes a basic string. strconv's \x escapes are not TOML's, so everything but printable
// ASCII becomes \u.
func Quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r > '~':
			b.WriteString(`\U` + fmt.Sprintf("%08X", r))
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

const templateRules = `# The rules of this wallet. The agent cannot change them: the file is sealed, and after editing it the owner runs
#   x402-wallet policy seal
# which shows the difference and asks for the passphrase. Money is dollars, written as text: "0.05".
# A key that is misspelt is an error; a key that is absent has the value shown here.

[budget]                        # what the agent may spend, counted over every process on this wallet
per_call      = "1.00"
# session     = "5.00"          # a session ends after 8 idle hours; without this, what you delegated on chain is the cap
day           = "10.00"
month         = "100.00"
approve_above = "0.10"          # above this you are asked
rate          = 60              # payments per minute

# [budget.hosts."api.example.com"]   # narrower, for one seller
# day = "1.00"

[policy]
allow_hosts  = []               # empty: any https host; else only these: "api.example.com", "*.example.com", "host:8443"
deny_hosts   = []               # never these
new_payee    = "allow"          # allow | ask | refuse: an address never paid before
payee_change = "ask"            # allow | ask | refuse: not the address paid before for this host, network and asset
price_jump   = 3.0              # ask when the price is this many times the last one
max_failures = 20               # 0: never; stop all after so many payments in a row that were signed and came to nothing
loopback     = []               # exact "127.0.0.1:4021" entries that http:// and private addresses are allowed for
max_timeout_seconds = 300       # 10 to 3600: the longest validity that is ever signed
deadline     = "90s"            # 5s to 10m: for one call
prefer       = [%s]   # networks, best first
schemes      = ["exact"]

# The nodes that tell what lies on chain and what became of a payment. Whoever runs them could lie about it.
`

const templateAssets = `# token_account = "…"           # Solana: your token account that delegates to the agent; absent: it is looked up
# Also by name: [networks.base], [networks.polygon], …

# [[assets]]                    # tokens besides the well-known dollars that are built in
# network  = "eip155:84532"
# address  = "0x…"
# symbol   = "USDX"
# decimals = 6
# usd      = "1.00"             # what one is worth, by which every limit counts it: keep it true
# name     = "USD X"            # EVM: its EIP-712 domain; taken from here, never from the seller
# version  = "2"
# token2022 = false             # Solana: a mint of the Token-2022 program

# Who brings a payment to the chain when the wallet settles; asked in this order, and for discovery. With none here: CDP (if
# CDP_API_KEY_ID and CDP_API_KEY_SECRET are set) then PayAI for real money, x402.org then PayAI for test networks.
# [[facilitators]]
# name = "cdp"
# url  = "https://api.cdp.coinbase.com/platform/v2/x402"
# auth = "cdp"                  # none | cdp | payai (keys from the environment) | header
# header_file = "/path"         # for header: an owner-only file with one line "Name: value"
# networks = []                 # "eip155:8453", …, "mainnets", "testnets"; empty: whatever it says it supports
`

const templateRest = `
# [hosts."api.example.com"]
# settle = "seller"             # seller | wallet: who brings the payment to the chain

# [servers.weather]             # paid MCP servers
# command = ["npx", "weather-mcp"]   # or url = "https://…/mcp"
# mount   = true                # its tools appear as weather__<tool>
# channel = true                # it is paid through a payment channel; false: never; absent: if it says so at its origin
# service = "did:rooch:…"       # with channel = true: who it has to be

[ledger]
url = ""                        # empty: ledger.db beside this file. There is no other in this version

[keystore]
# passphrase_file = "/path"     # owner-only
# passphrase_command = ["secret-tool", "lookup", "wallet", "x402"]   # no shell; prints the passphrase
keyring = false                 # ask the system's keyring
idle    = "15m"                 # lock after this long without a payment, 8h at most

# [channel]                     # payment channels (Nuwa); needs [networks."rooch:main"] with rpc
# did = "did:rooch:…"
# deposit_cap = "1.00"

# env = true                    # let SOLANA_RPC_URL, SOLANA_NETWORK and X402_FACILITATOR_URL override this file
`
