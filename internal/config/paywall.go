package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"x402-wallet/x402"
)

// Paywall is the file of `x402-wallet paywall`. It is not sealed: nothing in it can spend.
type Paywall struct {
	Command      []string // of the MCP server behind it, or URL
	Env          []string // the variables of ours that the command gets besides ChildEnv's own
	Sandbox      *bool    // the command is confined, or not; nil: where the system can
	URL          string
	Listen       string // "": stdio
	Version      int
	Dialect      string
	VerifyOnly   bool
	Tools        []paywallTool
	Facilitators []Facilitator // empty: those of config.toml
	MaxSessions  int           // over HTTP, at once
	MaxRequest   int           // bytes of a request of a session that bought nothing
	BehindProxy  bool          // the last of X-Forwarded-For is the visitor's address
	SharedPayTo  bool          // others are paid to the same address, with books of their own
	SignOffers   bool          // offers and receipts are signed, by a key in the home
	// signed receipts name the transaction
	ReceiptTransaction bool
	Origin             string // where buyers find it: what they sign in for; "": nobody signs in
	// of batch-settlement: the age at which a charge is claimed, 0 is the default; the sum, "": however much
	ClaimAfter time.Duration
	ClaimAbove string
	// over HTTP, what can be found here is listed
	DiscoveryList bool
}

// NeedsWallet reports whether it is paid to the wallet's own addresses.
func (p *Paywall) NeedsWallet() bool {
	return slices.ContainsFunc(p.Tools, func(t paywallTool) bool {
		return slices.ContainsFunc(t.Accepts, func(o paywallOption) bool { return o.PayTo == "" })
	})
}

// paywallTool is what a tool of that server costs.
type paywallTool struct {
	Name        string
	Description string
	Accepts     []paywallOption
	Upfront     bool
	MaxTimeout  time.Duration // 0: the default
	PerKilobyte string        // by the scheme upto: what a begun kilobyte of the answer costs; "": nothing
	// a payment without a payment-identifier is refused
	RequireIdentifier bool
	Access            time.Duration // how long who bought a call gets it again by signing in; 0: not at all
	// it is declared for discovery, with these examples of its arguments and of what it answers (JSON; "":
	// none)
	Discoverable                bool
	ExampleInput, ExampleOutput string
}

// paywallOption is one way to pay it. Whether its network, asset and addresses are any is for the
// paywall to say.
type paywallOption struct {
	Network string `toml:"network"`
	PayTo   string `toml:"pay_to"` // "": the wallet's own address there
	Price   string `toml:"price"`
	Amount  string `toml:"amount"`
	Asset   string `toml:"asset"`
	Scheme  string `toml:"scheme"`
	Permit2 bool   `toml:"permit2"`
	// of batch-settlement: the least deposit in dollars, and how long its buyer's money stays
	MinDeposit    string        `toml:"min_deposit"`
	WithdrawDelay time.Duration `toml:"-"`
}

// writtenOption is one as it is written.
type writtenOption struct {
	paywallOption
	WithdrawDelay *string `toml:"withdraw_delay"`
}

type filePaywall struct {
	Command    []string `toml:"command"`
	Env        []string `toml:"env"`
	Sandbox    *bool    `toml:"sandbox"`
	URL        string   `toml:"url"`
	Listen     string   `toml:"listen"`
	Network    string   `toml:"network"`
	PayTo      string   `toml:"pay_to"`
	Version    *int     `toml:"version"`
	Dialect    *string  `toml:"dialect"`
	VerifyOnly bool     `toml:"verify_only"`
	MaxTimeout *int     `toml:"max_timeout_seconds"`
	Tools      map[string]struct {
		Description string          `toml:"description"`
		Accepts     []writtenOption `toml:"accepts"`
		Flow        *string         `toml:"payment_flow"`
		MaxTimeout  *int            `toml:"max_timeout_seconds"`
		PerKilobyte string          `toml:"per_kilobyte"`
		Identifier  *string         `toml:"payment_identifier"`
		Access      *string         `toml:"access"`

		Discoverable  bool   `toml:"discoverable"`
		ExampleInput  string `toml:"example_input"`
		ExampleOutput string `toml:"example_output"`
		writtenOption
	} `toml:"tools"`
	Facilitators []fileFacilitator `toml:"facilitators"`
	MaxSessions  *int              `toml:"max_sessions"`
	MaxRequest   *int              `toml:"max_request_bytes"`
	BehindProxy  bool              `toml:"behind_proxy"`
	SharedPayTo  bool              `toml:"shared_pay_to"`
	SignOffers   bool              `toml:"sign_offers"`
	WithTx       bool              `toml:"receipt_transaction"`
	Origin       string            `toml:"origin"`
	ClaimAfter   *string           `toml:"claim_after"`
	ClaimAbove   string            `toml:"claim_above"`
	List         bool              `toml:"discovery_list"`
}

// LoadPaywall reads the file of a paywall; only its owner may be able to write it. Errors come
// joined, each an *Error.
func LoadPaywall(path string) (*Paywall, error) {
	data, err := ReadFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	var f filePaywall
	c, err := read(path, data, &f)
	if err != nil {
		return nil, err
	}
	p := c.paywall(&f)
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return p, nil
}

func (c *checker) paywall(f *filePaywall) *Paywall {
	p := &Paywall{Command: f.Command, Env: f.Env, Sandbox: f.Sandbox, URL: f.URL, Listen: f.Listen,
		VerifyOnly:   f.VerifyOnly,
		Dialect:      c.oneOf("dialect", f.Dialect, "result", "error", "x402-mcp", "cloudflare"),
		Facilitators: c.facilitators(f.Facilitators), BehindProxy: f.BehindProxy, SharedPayTo: f.SharedPayTo,
		SignOffers: f.SignOffers, ReceiptTransaction: f.WithTx, Origin: f.Origin,
		ClaimAfter: c.duration("claim_after", f.ClaimAfter, 0, time.Minute, x402.MaxWithdrawDelay/2),
		ClaimAbove: f.ClaimAbove, DiscoveryList: f.List,
		MaxSessions: c.whole("max_sessions", f.MaxSessions, 1000, 10, 100_000),
		MaxRequest:  c.whole("max_request_bytes", f.MaxRequest, 64<<10, 4<<10, 16<<20)}
	preset := 2
	if p.Dialect == "x402-mcp" {
		preset = 1
	}
	p.Version = c.whole("version", f.Version, preset, 1, 2)
	switch {
	case (len(f.Command) > 0) == (f.URL != ""):
		c.fail("command", `either command = ["…"] or url = "https://…/mcp" says which server is behind it`)
	case len(f.Command) > 0 && f.Command[0] == "":
		c.fail("command", "has no program")
	case f.URL != "":
		c.ownerURL("url", f.URL, "https://…/mcp")
		isForCommand := f.Env != nil || f.Sandbox != nil
		c.refuse(isForCommand, "url", "env and sandbox are for a server with a command")
	}
	c.childEnv("env", f.Env)
	c.refuse(f.WithTx && !f.SignOffers, "receipt_transaction", "is for sign_offers = true")
	if f.Listen != "" {
		host, port, err := net.SplitHostPort(f.Listen)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || !isLoopback(host) {
			c.fail("listen",
				`must be empty (stdio) or an address of this machine like "127.0.0.1:4040"; `+
					`put a web server with TLS in front for others`)
		}
	}
	for _, name := range sorted(f.Tools) {
		p.Tools = append(p.Tools, c.sold(f, name))
	}
	isDiscoverable := slices.ContainsFunc(p.Tools, func(t paywallTool) bool { return t.Discoverable })
	c.refuse(f.List && (f.Listen == "" || !isDiscoverable), "discovery_list",
		"needs listen, and a tool with discoverable = true: else there is nothing to list, or nowhere")
	c.refuse(len(p.Tools) == 0, "tools",
		`nothing is charged for: give a tool a price, as in [tools.search] price = "0.01"`)
	return p
}

func (c *checker) sold(f *filePaywall, name string) paywallTool {
	key, written := dotted([]string{"tools", name}), f.Tools[name]
	t := paywallTool{Name: name, Description: written.Description,
		Upfront:     c.oneOf(key+".payment_flow", written.Flow, "authorization", "upfront") == "upfront",
		PerKilobyte: written.PerKilobyte,
		RequireIdentifier: c.oneOf(key+".payment_identifier", written.Identifier, "optional",
			"required") == "required",
		Access: c.duration(key+".access", written.Access, 0, time.Minute, 365*24*time.Hour)}
	t.Discoverable, t.ExampleInput = written.Discoverable, written.ExampleInput
	t.ExampleOutput = written.ExampleOutput
	c.refuse(t.Discoverable && f.Origin == "", key+".discoverable",
		`needs an origin: at the top of the file, origin = "https://shop.example", where buyers find you`)
	c.refuse(!t.Discoverable && (t.ExampleInput != "" || t.ExampleOutput != ""), key,
		"has examples for discovery, which need discoverable = true")
	c.exampleJSON(key+".example_input", t.ExampleInput)
	c.exampleJSON(key+".example_output", t.ExampleOutput)
	c.refuse(t.Access > 0 && f.Origin == "", key+".access",
		`needs an origin: at the top of the file, origin = "https://shop.example", where buyers find it`)
	if timeout := cmp.Or(written.MaxTimeout, f.MaxTimeout); timeout != nil {
		t.MaxTimeout = time.Duration(c.whole(key+".max_timeout_seconds", timeout, 0, 15, 3600)) * time.Second
	}
	options := written.Accepts
	if written.writtenOption != (writtenOption{}) {
		c.refuse(len(options) > 0, key, "either accepts = [ … ] or one price says what it costs")
		options = []writtenOption{written.writtenOption}
	}
	c.refuse(len(options) == 0, key, `needs a price: price = "0.01"`)
	for _, o := range options {
		o.Network = cmp.Or(o.Network, f.Network)
		if o.Network == "" {
			c.fail(key, `needs a network: network = "eip155:8453", here or for all at the top of the file`)
			continue
		}
		o.Network = c.chain(key+".network", o.Network)
		c.refuse(!slices.Contains([]string{"", "exact", "upto", "batch-settlement"}, o.Scheme), key+".scheme",
			`must be "exact", "upto" or "batch-settlement"`)
		o.paywallOption.WithdrawDelay = c.duration(key+".withdraw_delay", o.WithdrawDelay, 0,
			x402.MinWithdrawDelay, x402.MaxWithdrawDelay)
		if o.PayTo == "" && f.PayTo != "" && c.chain("network", f.Network) == o.Network {
			o.PayTo = f.PayTo
		}
		c.refuse((o.Price == "") == (o.Amount == ""), key,
			`either price = "0.01" (dollars) or amount = "10000" (atomic units) says what it costs`)
		t.Accepts = append(t.Accepts, o.paywallOption)
	}
	return t
}

// exampleJSON refuses an example that is no JSON object.
func (c *checker) exampleJSON(key, text string) {
	var object map[string]any
	isNone := text != "" && json.Unmarshal([]byte(text), &object) != nil
	c.refuse(isNone, key, `is no JSON object, like '{"q": "x"}'`)
}
