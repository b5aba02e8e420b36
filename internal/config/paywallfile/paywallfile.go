// Package paywallfile reads the file of `x402-wallet paywall`, as strictly as config.toml is read.
package paywallfile

import (
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/ownfile"
	"x402-wallet/x402/channelterms"
)

// Paywall is the file of `x402-wallet paywall`. It is not sealed: nothing in it can spend.
type File struct {
	Command []string `toml:"command"` // of the MCP server behind it, or URL
	// the variables of ours that the command gets besides ChildEnv's own
	Env []string `toml:"env"`
	// the command is confined, or not; nil: where the system can
	Sandbox      *bool                `toml:"sandbox"`
	URL          string               `toml:"url"`
	Listen       string               `toml:"listen"` // "": stdio
	Version      int                  `toml:"-"`
	Dialect      string               `toml:"-"`
	VerifyOnly   bool                 `toml:"verify_only"`
	Tools        []Tool               `toml:"-"`
	Facilitators []config.Facilitator `toml:"-"` // empty: those of config.toml
	MaxSessions  int                  `toml:"-"` // over HTTP, at once
	MaxRequest   int                  `toml:"-"` // bytes of a request of a session that bought nothing
	// the last of X-Forwarded-For is the visitor's address
	BehindProxy bool `toml:"behind_proxy"`
	// others are paid to the same address, with books of their own
	SharedPayTo bool `toml:"shared_pay_to"`
	// offers and receipts are signed, by a key in the home
	SignOffers bool `toml:"sign_offers"`
	// signed receipts name the transaction
	ReceiptTransaction bool `toml:"receipt_transaction"`
	// where buyers find it: what they sign in for; "": nobody signs in
	Origin string `toml:"origin"`
	// of batch-settlement: the age at which a charge is claimed, 0 is the default; the sum, "": however much
	ClaimAfter time.Duration `toml:"-"`
	ClaimAbove string        `toml:"claim_above"`
	// over HTTP, what can be found here is listed
	DiscoveryList bool `toml:"discovery_list"`
	// over HTTP, the origins whose web pages may buy; "*": all
	Origins []string `toml:"origins"`
}

// Tool is what a tool of that server costs, or a resource, a prompt, or a session.
type Tool struct {
	Kind        string        `toml:"-"` // "" is a tool; else "resource", "prompt" or "entry"
	Name        string        `toml:"-"`
	Description string        `toml:"description"`
	Accepts     []Option      `toml:"-"`
	Upfront     bool          `toml:"-"`
	MaxTimeout  time.Duration `toml:"-"` // 0: the default
	// by the scheme upto: what a begun kilobyte of the answer costs; "": nothing
	PerKilobyte string `toml:"per_kilobyte"`
	// a payment without a payment-identifier is refused
	RequireIdentifier bool `toml:"-"`
	// how long who bought a call gets it again by signing in; 0: not at all
	Access time.Duration `toml:"-"`
	// it is declared for discovery, with these examples of its arguments and of what it answers (JSON; "":
	// none)
	Discoverable  bool   `toml:"discoverable"`
	ExampleInput  string `toml:"example_input"`
	ExampleOutput string `toml:"example_output"`
}

// paywallOption is one way to pay it. Whether its network, asset and addresses are any is for the
// paywall to say.
type Option struct {
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

type writtenOption struct {
	Option
	WithdrawDelay *string `toml:"withdraw_delay"`
}

type writtenTool struct {
	Tool
	Accepts    []writtenOption `toml:"accepts"`
	Flow       *string         `toml:"payment_flow"`
	MaxTimeout *int            `toml:"max_timeout_seconds"`
	Identifier *string         `toml:"payment_identifier"`
	Access     *string         `toml:"access"`
	writtenOption
}

type filePaywall struct {
	File
	Network    string  `toml:"network"`
	PayTo      string  `toml:"pay_to"`
	Version    *int    `toml:"version"`
	Dialect    *string `toml:"dialect"`
	MaxTimeout *int    `toml:"max_timeout_seconds"`

	Tools     map[string]writtenTool `toml:"tools"`
	Resources map[string]writtenTool `toml:"resources"`
	Prompts   map[string]writtenTool `toml:"prompts"`
	Entry     *writtenTool           `toml:"entry"`

	Facilitators []config.WrittenFacilitator `toml:"facilitators"`
	MaxSessions  *int                        `toml:"max_sessions"`
	MaxRequest   *int                        `toml:"max_request_bytes"`
	ClaimAfter   *string                     `toml:"claim_after"`
}

// LoadPaywall reads the file of a paywall; only its owner may be able to write it. Errors come
// joined, each an *Error.
func Load(path string) (*File, error) {
	data, _, err := ownfile.Read(path, config.MaxFile)
	if err != nil {
		return nil, err
	}
	var f filePaywall
	c, err := config.Read(path, data, &f)
	if err != nil {
		return nil, err
	}
	p := readPaywall(c, &f)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// isOrigin reports whether a text is an origin as browsers write it.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	isPlain := err == nil && text == strings.ToLower(text) && (u.Scheme == "http" || u.Scheme == "https") &&
		u.Hostname() != "" && u.User == nil && !strings.Contains(u.Host, "*") && u.Scheme+"://"+u.Host == text
	isUsual := err == nil && ((u.Scheme == "https" && u.Port() == "443") || (u.Scheme == "http" &&
		u.Port() == "80"))
	return text == "*" || (isPlain && !isUsual)
}

func readPaywall(c *config.Checker, f *filePaywall) *File {
	p := &f.File
	p.Dialect = c.OneOf("dialect", f.Dialect, "result", "error", "x402-mcp", "cloudflare")
	p.Facilitators = c.Facilitators(f.Facilitators)
	p.ClaimAfter = c.Duration("claim_after", f.ClaimAfter, 0, time.Minute, channelterms.MaxWithdrawDelay/2)
	p.MaxSessions = c.Whole("max_sessions", f.MaxSessions, 1000, 10, 100_000)
	p.MaxRequest = c.Whole("max_request_bytes", f.MaxRequest, 64<<10, 4<<10, 16<<20)
	preset := 2
	if p.Dialect == "x402-mcp" {
		preset = 1
	}
	p.Version = c.Whole("version", f.Version, preset, 1, 2)
	switch {
	case (len(f.Command) > 0) == (f.URL != ""):
		c.Fail("command", `either command = ["…"] or url = "https://…/mcp" says which server is behind it`)
	case len(f.Command) > 0 && f.Command[0] == "":
		c.Fail("command", "has no program")
	case f.URL != "":
		c.OwnerURL("url", f.URL, "https://…/mcp")
		isForCommand := f.Env != nil || f.Sandbox != nil
		c.Refuse(isForCommand, "url", "env and sandbox are for a server with a command")
	}
	c.Variables("env", f.Env)
	c.Refuse(f.ReceiptTransaction && !f.SignOffers, "receipt_transaction", "is for sign_offers = true")
	if f.Listen != "" {
		host, port, err := net.SplitHostPort(f.Listen)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || !config.IsLoopback(host) {
			c.Fail("listen",
				`must be empty (stdio) or an address of this machine like "127.0.0.1:4040"; `+
					`put a web server with TLS in front for others`)
		}
	}
	c.Refuse(f.Listen == "" && len(f.Origins) > 0, "origins", "needs listen: web pages come over HTTP")
	for _, origin := range f.Origins {
		c.Refuse(!isOrigin(origin), "origins", `%q is not like "https://app.example": a scheme, a host and maybe a `+
			`port, in small letters; "*" is all`, origin)
	}
	for _, of := range []struct {
		table, kind string
		sold        map[string]writtenTool
	}{{"tools", "", f.Tools}, {"resources", "resource", f.Resources}, {"prompts", "prompt", f.Prompts}} {
		for _, name := range slices.Sorted(maps.Keys(of.sold)) {
			t := sold(c, f, config.Dotted(of.table, name), of.sold[name])
			t.Kind, t.Name = of.kind, name
			c.Refuse(of.kind != "" && t.Discoverable, config.Dotted(of.table, name)+".discoverable",
				"is for tools")
			p.Tools = append(p.Tools, t)
		}
	}
	if f.Entry != nil {
		t := sold(c, f, "entry", *f.Entry)
		t.Kind = "entry"
		c.Refuse(t.Discoverable, "entry.discoverable", "is for tools")
		p.Tools = append(p.Tools, t)
	}
	isDiscoverable := slices.ContainsFunc(p.Tools, func(t Tool) bool { return t.Discoverable })
	c.Refuse(f.DiscoveryList && (f.Listen == "" || !isDiscoverable), "discovery_list",
		"needs listen, and a tool with discoverable = true: else there is nothing to list, or nowhere")
	c.Refuse(len(p.Tools) == 0, "tools",
		`nothing is charged for: give a tool a price, as in [tools.search] price = "0.01"`)
	return p
}

func sold(c *config.Checker, f *filePaywall, key string, written writtenTool) Tool {
	t := written.Tool
	t.Upfront = c.OneOf(key+".payment_flow", written.Flow, "authorization", "upfront") == "upfront"
	t.RequireIdentifier = c.OneOf(key+".payment_identifier", written.Identifier, "optional",
		"required") == "required"
	t.Access = c.Duration(key+".access", written.Access, 0, time.Minute, 365*24*time.Hour)
	c.Refuse(t.Discoverable && f.Origin == "", key+".discoverable",
		`needs an origin: at the top of the file, origin = "https://shop.example", where buyers find you`)
	c.Refuse(!t.Discoverable && (t.ExampleInput != "" || t.ExampleOutput != ""), key,
		"has examples for discovery, which need discoverable = true")
	exampleJSON(c, key+".example_input", t.ExampleInput)
	exampleJSON(c, key+".example_output", t.ExampleOutput)
	c.Refuse(t.Access > 0 && f.Origin == "", key+".access",
		`needs an origin: at the top of the file, origin = "https://shop.example", where buyers find it`)
	if timeout := cmp.Or(written.MaxTimeout, f.MaxTimeout); timeout != nil {
		t.MaxTimeout = time.Duration(c.Whole(key+".max_timeout_seconds", timeout, 0, 15, 3600)) * time.Second
	}
	options := written.Accepts
	if written.writtenOption != (writtenOption{}) {
		c.Refuse(len(options) > 0, key, "either accepts = [ … ] or one price says what it costs")
		options = []writtenOption{written.writtenOption}
	}
	c.Refuse(len(options) == 0, key, `needs a price: price = "0.01"`)
	for _, o := range options {
		o.Network = cmp.Or(o.Network, f.Network)
		if o.Network == "" {
			c.Fail(key, `needs a network: network = "eip155:8453", here or for all at the top of the file`)
			continue
		}
		o.Network = c.Chain(key+".network", o.Network)
		c.Refuse(!slices.Contains([]string{"", "exact", "upto", "batch-settlement"}, o.Scheme), key+".scheme",
			`must be "exact", "upto" or "batch-settlement"`)
		o.Option.WithdrawDelay = c.Duration(key+".withdraw_delay", o.WithdrawDelay, 0,
			channelterms.MinWithdrawDelay, channelterms.MaxWithdrawDelay)
		if o.PayTo == "" && f.PayTo != "" && c.Chain("network", f.Network) == o.Network {
			o.PayTo = f.PayTo
		}
		c.Refuse((o.Price == "") == (o.Amount == ""), key,
			`either price = "0.01" (dollars) or amount = "10000" (atomic units) says what it costs`)
		t.Accepts = append(t.Accepts, o.Option)
	}
	return t
}

func exampleJSON(c *config.Checker, key, text string) {
	var object map[string]any
	isNone := text != "" && json.Unmarshal([]byte(text), &object) != nil
	c.Refuse(isNone, key, `is no JSON object, like '{"q": "x"}'`)
}

// NeedsWallet reports whether it is paid to the wallet's own addresses.
func (p *File) NeedsWallet() bool {
	return slices.ContainsFunc(p.Tools, func(t Tool) bool {
		return slices.ContainsFunc(t.Accepts, func(o Option) bool { return o.PayTo == "" })
	})
}
