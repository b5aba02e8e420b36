package environ

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/x402"
)

// The names of networks that the ozskr wallet's environment may mean.
const (
	solanaDevnet  = "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1"
	solanaTestnet = "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z"
	baseSepolia   = "eip155:84532"
)

// ozskrNetworks are the ozskr wallet's names; it took devnet where none was given.
var ozskrNetworks = map[string]string{
	"": solanaDevnet, "devnet": solanaDevnet, "testnet": solanaTestnet, "mainnet-beta": config.SolanaMainnet,
	"mainnet": config.SolanaMainnet,
}

// ozskrRules is the ozskr wallet's environment in the words of config.toml.
type ozskrRules struct {
	network      string   // CAIP-2; "" when neither network nor node was given
	rpc          string   // of that network; "" when none was given
	prefer       []string // nil when no network was given
	facilitators []config.Facilitator
}

// ozskr checks the environment's values as strictly as the file's: they end up in it.
func (env Env) ozskr() (ozskrRules, error) {
	var s ozskrRules
	var c config.Checker
	if env.SolanaNetwork != "" || env.SolanaRPC != "" {
		id, ok := ozskrNetworks[env.SolanaNetwork]
		if !ok {
			return s, fmt.Errorf("SOLANA_NETWORK is %q; it must be devnet, testnet or mainnet-beta",
				env.SolanaNetwork)
		}
		s.network, s.rpc = id, env.SolanaRPC
		if s.rpc != "" {
			c.OwnerURL("SOLANA_RPC_URL", s.rpc, "https://…")
		}
		s.prefer = []string{id, config.Base}
		if id != config.SolanaMainnet {
			s.prefer = []string{id, baseSepolia}
		}
	}
	for _, v := range env.facilitators() {
		if v.url == "" {
			continue
		}
		if at := c.OwnerURL(v.name, v.url, "https://…"); at != nil {
			s.facilitators = append(s.facilitators, knownFacilitator(at))
		}
	}
	if len(s.facilitators) == 2 && s.facilitators[0].Name == s.facilitators[1].Name {
		s.facilitators[1].Name += "-fallback"
	}
	if wrong, is := errors.AsType[*config.Error](c.Err()); is {
		return s, fmt.Errorf("the environment: %s %s", wrong.Key, wrong.Msg)
	}
	return s, nil
}

type variable struct{ name, url string }

// knownFacilitator names a facilitator by its host, and knows how the two that need a key are spoken to.
func knownFacilitator(at *url.URL) config.Facilitator {
	f := config.Facilitator{Name: at.Host, URL: strings.TrimRight(at.String(), "/"), Auth: "none"}
	switch at.Host {
	case "api.cdp.coinbase.com":
		f.Name, f.Auth = "cdp", "cdp"
	case "facilitator.payai.network":
		f.Name, f.Auth = "payai", "payai"
	}
	return f
}

// WithEnv is a configuration with the ozskr wallet's environment over it, where the sealed file says
// `env = true`; otherwise it is c itself.
func Over(c *config.Config, env Env) (*config.Config, error) {
	if !c.Env {
		return c, nil
	}
	s, err := env.ozskr()
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "%w", err).
			WithHint("correct or unset it: env = true in config.toml lets it count")
	}
	over := *c
	if s.rpc != "" {
		over.Networks = maps.Clone(c.Networks)
		other := c.Networks[s.network]
		other.RPC = s.rpc
		over.Networks[s.network] = other
	}
	if s.prefer != nil {
		over.Policy.Prefer = s.prefer
	}
	if s.facilitators != nil {
		over.Facilitators = s.facilitators
	}
	return &over, nil
}

// IgnoredEnv is a warning for each variable of the ozskr wallet that is set, is not what the configuration
// says already, and does not count. Values are not quoted: a node's URL often holds a key.
func Ignored(env Env, c *config.Config) (warnings []string) {
	warn := func(name, where string) {
		warnings = append(warnings, fmt.Sprintf("%s is set, but only config.toml counts: %s", name, where))
	}
	if env.AgentKeypair != "" {
		warn("AGENT_KEYPAIR_PATH", "its key comes in only when a wallet is made, by x402-wallet init "+
			"--import-ozskr FILE in another X402_WALLET_HOME")
	}
	if env.Authorities {
		warnings = append(warnings, "SSL_CERT_FILE and SSL_CERT_DIR are set, but only the system's own "+
			"certificate authorities count")
	}
	if c.Env {
		return warnings
	}
	network, known := ozskrNetworks[env.SolanaNetwork]
	sameNode := known && c.Nodes()[network] == env.SolanaRPC
	if env.SolanaRPC != "" && !sameNode {
		warn("SOLANA_RPC_URL", "set rpc under [networks.\""+network+"\"], or env = true")
	}
	isPreferred := known && slices.Contains(c.Policy.Prefer, network)
	if env.SolanaNetwork != "" && !isPreferred {
		warn("SOLANA_NETWORK", "set prefer under [policy], or env = true")
	}
	for _, v := range env.facilitators() {
		inFile := slices.ContainsFunc(c.Facilitators, func(f config.Facilitator) bool {
			return f.URL == strings.TrimRight(v.url, "/")
		})
		if v.url != "" && !inFile {
			warn(v.name, "list it under [[facilitators]], or set env = true")
		}
	}
	return warnings
}

// FacilitatorList is the order in which facilitators are asked. Without any in the file: CDP, which needs
// keys, then PayAI for mainnets; x402.org, which knows test networks only, then PayAI for those.
func Facilitators(c *config.Config, env Env) []config.Facilitator {
	if len(c.Facilitators) > 0 {
		return c.Facilitators
	}
	var list []config.Facilitator
	if env.CDPKeyID != "" && env.CDPKeySecret != "" {
		list = append(list, config.Facilitator{Name: "cdp", URL: cdpURL, Auth: "cdp",
			Networks: []string{config.Mainnets}})
	}
	return append(list,
		config.Facilitator{Name: "x402.org", URL: x402orgURL, Auth: "none",
			Networks: []string{config.Testnets}},
		config.Facilitator{Name: "payai", URL: payaiURL, Auth: "payai"})
}

const (
	cdpURL     = "https://api.cdp.coinbase.com/platform/v2/x402"
	x402orgURL = "https://x402.org/facilitator"
	payaiURL   = "https://facilitator.payai.network"
)

// Template is the config.toml that init writes: every key, explained, at its default, with the
// ozskr wallet's environment taken in. It fails where that environment holds a value that the
// file could not.
func Template(env Env) ([]byte, error) {
	s, err := env.ozskr()
	if err != nil {
		return nil, err
	}
	prefer := []string{config.SolanaMainnet, config.Base}
	if s.prefer != nil {
		prefer = s.prefer
	}
	var networks, facilitators strings.Builder
	if s.rpc != "" {
		fmt.Fprintf(&networks, "[networks.%q]\nrpc = %s   # from SOLANA_RPC_URL\n", s.network,
			edit.Quote(s.rpc))
	}
	for _, f := range s.facilitators {
		fmt.Fprintf(&facilitators, "[[facilitators]]   # from the environment\nname = %s\nurl = %s\n"+
			"auth = %q\n", edit.Quote(f.Name), edit.Quote(f.URL), f.Auth)
	}
	return fmt.Appendf(nil, template, quoted(prefer), &networks, &facilitators), nil
}

// template has three holes: the preferred networks, the nodes, and facilitators.
//
//go:embed template.toml
var template string

// quoted is a list's inside, as TOML has it.
func quoted(words []string) string {
	var list []string
	for _, word := range words {
		list = append(list, strconv.Quote(word))
	}
	return strings.Join(list, ", ")
}
