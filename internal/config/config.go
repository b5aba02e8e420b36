// Package config reads the owner's rules: config.toml in the wallet's home.
//
// What must stay true: a file that says anything this package does not understand is refused. A limit that
// was misspelt must never be a limit that is not there. And a change loosens, unless it provably does not.
//
// The files: parse.go, check.go, assets.go, agents.go, teams.go, passkeys.go, service.go, notify.go,
// signers.go, facilitators.go, hooks.go, observe.go, subscriptions.go and ledger.go (from text to Config;
// values.go checks single values), compare.go and teamscompare.go (what loosens), home.go (files of the
// home), secret.go. Around it: package environ (the environment), edit (changing a file), callers (whose a
// call is), paywallfile (the paywall's own file).
package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/publicnode"
)

// Config is config.toml, checked, with every absent key at its documented default.
type Config struct {
	Budget       limits
	Policy       policy
	Network      reach
	Networks     map[string]network // by CAIP-2, those that the file names; Nodes knows the others
	Assets       []x402.AssetInfo   // added to the built-in registry
	Facilitators []Facilitator      // as the file has them; FacilitatorList knows the defaults
	Discovery    discovery
	Hosts        map[string]host
	Servers      map[string]server
	Agents       map[string]Agent // that share the wallet, by name
	Service      service
	Notify       notify
	Hooks        hooks
	Log          logging
	Traces       traces
	Metrics      figures
	Passkeys     map[string]Passkey // the owner's, by name
	Signers      map[string]Signer  // that keep the keys themselves, by name
	// Subscriptions are the owner's standing orders, by name.
	Subscriptions map[string]Subscription
	Ledger        ledger
	Keystore      keystore
	Channel       channel
	Env           bool     // the ozskr wallet's environment variables override this file
	Raw           []byte   // the bytes this was read from: what the seal covers
	Warnings      []string // what the owner should hear of, though it is no reason to stop
}

// discovery says where else than at facilitators services are looked for.
type discovery struct {
	Directories []string // lists of services of MPP: URLs, or file:// and a full path
}

// reach says how everything is reached.
type reach struct {
	Proxy string // "http://…", "https://…" or "socks5://…"; "": directly
}

// limits are what the agent may spend, counted over every process on the wallet.
type limits struct {
	PerCall money.Dollars
	// nil: no cap set, so the delegation found at the session's start is the cap
	Session      *money.Dollars
	Day          money.Dollars
	Month        money.Dollars
	ApproveAbove money.Dollars            // above this a person is asked
	Rate         int                      // payments per minute
	HostDay      map[string]money.Dollars // a day's cap for one host; without a port it covers every port
	Teams        map[string]Team          // by name
	Agents       map[string]eachAgent     // by pattern: what each agent whose name matches may do
}

// policy is everything the owner rules besides amounts.
type policy struct {
	// "host", "host:port" or "*.example.com", or one of them " until " a time; empty: any https host
	AllowHosts []string
	DenyHosts  []string
	// who may be paid: an address, or network and address, as budget.Rules has it; empty: anybody
	Payees      []string
	NewPayee    budget.Rule
	PayeeChange budget.Rule
	PriceJump   float64 // ask when the price is this many times the last one: a ratio, never an amount
	SignIn      budget.Rule
	// payments in a row that come to nothing before the circuit breaker stops all; 0: there is none
	MaxFailures int
	Loopback    []string      // exact host:port that http:// and private addresses are allowed for
	MaxTimeout  time.Duration // the longest validity that is ever signed
	Deadline    time.Duration // for one call, before it is paid
	MaxWait     time.Duration // for the answer to a payment
	// networks that the file does not name are reached through the public nodes that are built in
	PublicNodes bool
	// upto: the addresses of CDP and PayAI that are built in are settled by without asking a person
	KnownFacilitators bool
	// how much content is stored, but for what nobody got yet
	ContentQuota Size
	Prefer       []string // CAIP-2, best first
	Schemes      []string // ways to pay; nil for all that there are
	// of batch-settlement: what may lie in the channels of one seller, and how long it may take to come
	// back from a seller that does not help
	ChannelDeposit money.Dollars
	ChannelDelay   time.Duration
	// NetworkFee is the most that a network's fee of one payment may be, where the seller does not pay it
	// (MPP tempo/charge). With 0 no such seller is paid.
	NetworkFee money.Dollars
}

// Has reports whether the owner lets the wallet pay by a way.
func (p policy) Has(way string) bool { return p.Schemes == nil || slices.Contains(p.Schemes, way) }

// network is the owner's node for one network.
type network struct {
	RPC          string // "": nothing is paid on this network
	TokenAccount string // Solana: the owner's token account that delegates to the agent; "" looks it up
	Vault        string // EVM: the owner's vault that the agent spends from; "": none
	// EVM: the owner's account that the agent takes a float from, as far as it is approved there; "": none
	AllowanceFrom string
	Float         money.Dollars // how much at a time
	MaxGas        money.Amount  // the most that taking it may cost, in wei
	// EVM: the most that an approval of Permit2 may cost that a seller sends with a payment, in wei; 0: none
	// is signed
	ApprovalGas money.Amount
	Until       time.Time // nothing is paid there from then on; zero: there is no end
}

// host is how to treat one seller.
type host struct {
	Settle string // "wallet" or "seller"
	Credit bool   // a payment is good for more calls, until it is used up
}

// server is a paid MCP server: either a command or a URL.
type server struct {
	Command []string `toml:"command"`
	URL     string   `toml:"url"`
	Mount   bool     `toml:"mount"`   // its tools appear as <server>__<tool>
	Channel *bool    `toml:"channel"` // it speaks Nuwa payment channels, or does not; nil: it is looked at
	Service string   `toml:"service"` // the DID that it has to have, "did:rooch:…"; "": what it says itself
	Env     []string `toml:"env"`     // the variables of ours that a command gets besides ChildEnv's own
	Sandbox *bool    `toml:"sandbox"` // a command is confined, or not; nil: where the system can
}

// keystore says how the wallet is unlocked without a person.
type keystore struct {
	PassphraseFile    string
	PassphraseCommand []string
	Sandbox           *bool // of the command, as of a server that is one
	Keyring           bool
	Idle              time.Duration
}

// channel configures payment channels.
type channel struct {
	DID        string
	DepositCap money.Dollars
}

// Names of the networks the defaults speak of, and of the two classes a facilitator's networks may name.
const (
	SolanaMainnet = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	Base          = "eip155:8453"

	Mainnets = "mainnets"
	Testnets = "testnets"
)

// Nodes are the nodes by network: the owner's, and the public ones that are built in for networks the file
// does not name, if the owner lets them count. Public ones are rate-limited, and whoever chooses the node
// chooses the evidence: the template and doctor say that an own one is better.
func (c *Config) Nodes() map[string]string {
	nodes := map[string]string{}
	if c.Policy.PublicNodes {
		for _, id := range publicnode.Networks() {
			nodes[id] = publicnode.Of(id)
		}
	}
	for id, n := range c.Networks {
		nodes[id] = n.RPC
	}
	maps.DeleteFunc(nodes, func(_, url string) bool { return url == "" })
	return nodes
}

// WalletSettles reports whether the owner wrote `settle = "wallet"` for a URL's host.
func (c *Config) WalletSettles(urlHost string) bool { return c.hostOf(urlHost).Settle == "wallet" }

// TakesCredit reports whether the owner wrote `credit = true` for a URL's host.
func (c *Config) TakesCredit(urlHost string) bool { return c.hostOf(urlHost).Credit }

// hostOf is the table of a URL's host. The entry with a port is asked first.
func (c *Config) hostOf(urlHost string) host {
	urlHost = strings.ToLower(urlHost)
	if seller, found := c.Hosts[urlHost]; found {
		return seller
	}
	name, _ := splitHost(urlHost)
	return c.Hosts[name]
}
