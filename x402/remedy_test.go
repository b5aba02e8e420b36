package x402

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/x402/money"
)

func TestNetworkOff(t *testing.T) {
	e := NetworkOff("eip155:10")
	require.Equal(t, InvalidRequirement, e.Code)
	require.Equal(t, ByPerson, e.FixableBy())
	require.Contains(t, e.Message, "OP Mainnet (eip155:10)")
	next := e.NextStep()
	require.Equal(t, AskPerson, next.Do)
	require.Equal(t, "x402-wallet policy seal", next.Command)
	require.Contains(t, next.Say, "[networks.\"eip155:10\"]\nrpc = \"https://mainnet.optimism.io\"")
	require.Contains(t, NetworkOff("eip155:31337").NextStep().Say, `rpc = "https://…"`,
		"where no node is known the person fills one in")
}

// A token that is no dollar is never counted as one: without its owner's rate it is above every limit.
func TestUnrated(t *testing.T) {
	eurc, known := NewRegistry(nil).Named("eip155:8453", "EURC")
	require.True(t, known)
	require.False(t, eurc.Rated())
	require.Greater(t, eurc.Dollars(money.NewAmount(1)), money.Dollars(1)<<62)
	require.Equal(t, money.Amount{}, eurc.Units(1_000_000))
	e := Unrated(eurc)
	require.Equal(t, AskPerson, e.NextStep().Do)
	require.Contains(t, e.NextStep().Say, `symbol = "EURC"`)
	require.Contains(t, e.Details["config"], `usd = "RATE"`)
}

func TestPublicNodes(t *testing.T) {
	hosts := map[string]string{}
	for _, network := range PublicNetworks() {
		u, err := url.Parse(PublicNode(network))
		require.NoError(t, err)
		require.Equal(t, "https", u.Scheme)
		require.NotEqual(t, network, Title(network), "it is a network of the table")
		require.Empty(t, hosts[u.String()], "one node, one network")
		hosts[u.String()] = network
		require.False(t, strings.HasSuffix(u.Path, "/"))
		require.NotEmpty(t, u.Host)
	}
}
