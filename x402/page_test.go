package x402_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/publicnode"
)

var update = flag.Bool("update", false, "write the tables of docs/funding.md")

const networksPage = "../docs/funding.md"

// The tables of docs/funding.md are what is built in.
func TestNetworksPage(t *testing.T) {
	written := must.Get(os.ReadFile(networksPage))(t)
	head, rest, found := strings.Cut(string(written), "<!-- table -->\n")
	require.True(t, found)
	_, tail, found := strings.Cut(rest, "<!-- end -->")
	require.True(t, found)
	page := head + "<!-- table -->\n" + networkTable() + "<!-- end -->" + tail
	if *update {
		require.NoError(t, os.WriteFile(networksPage, []byte(page), 0o600))
	}
	require.Equal(t, page, string(written), "go test ./x402 -run NetworksPage -update")
}

func networkTable() string {
	registry := x402.NewRegistry(nil)
	var b strings.Builder
	b.WriteString("| network | CAIP-2 | public node | tokens |\n|---|---|---|---|\n")
	for _, n := range x402.Networks() {
		var tokens []string
		for _, a := range registry.Assets(n.CAIP2) {
			note := ""
			switch {
			case a.IsTIP20():
				note = " ³"
			case a.Permit2Only:
				note = " ²"
			case !a.Rated():
				note = " ¹"
			}
			tokens = append(tokens, fmt.Sprintf("%s%s `%s`", a.Symbol, note, a.Address))
		}
		node := publicnode.Of(n.CAIP2)
		if node != "" {
			node = "`" + strings.TrimPrefix(node, "https://") + "`"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", n.Title, n.CAIP2, node, strings.Join(tokens, "<br>"))
	}
	return b.String()
}
