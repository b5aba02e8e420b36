package publicnode

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

func TestPublicNodes(t *testing.T) {
	hosts := map[string]string{}
	for _, network := range Networks() {
		u := must.Get(url.Parse(Of(network)))(t)
		require.Equal(t, "https", u.Scheme)
		require.NotEqual(t, network, x402.Title(network), "it is a network of the table")
		require.Empty(t, hosts[u.String()], "one node, one network")
		hosts[u.String()] = network
		require.False(t, strings.HasSuffix(u.Path, "/"))
		require.NotEmpty(t, u.Host)
	}
}
