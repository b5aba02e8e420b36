package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
)

// Where a new wallet's money is expected: on the networks that it can pay on, the preferred ones first. Most
// files name no network, because the public nodes do.
func TestWhereMoneyIsExpected(t *testing.T) {
	template := must.Get(environ.Template(environ.Env{}))(t)
	const solana, base, polygon = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "eip155:8453", "eip155:137"
	for name, c := range map[string]struct {
		rules string
		want  []string
	}{
		"what init writes": {string(template), []string{solana, base}},
		"empty":            {"", []string{solana, base}},
		"one is named":     {"[networks.base]\n", []string{base}},
		"one is off": {"[policy]\npublic_nodes = true\n[networks.solana]\nrpc = \"\"\n",
			[]string{base}},
		"none is preferred":   {"[networks.polygon]\n", []string{polygon}},
		"nor is any by name":  {"[policy]\nprefer = [\"polygon\"]\n", []string{polygon}},
		"channels alone":      {"[networks.\"rooch:main\"]\nrpc = \"https://rooch.example\"\n", []string{}},
		"none can be paid on": {"[policy]\npublic_nodes = false\n", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			rules := must.Get(config.Parse([]byte(c.rules)))(t)
			require.Equal(t, c.want, append([]string{}, watched(rules)...))
		})
	}
}
