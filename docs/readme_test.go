package docs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/install"
)

var updateReadme = flag.Bool("update", false, "write the generated parts of clients.md again")

// The table of clients is made from the code: go test -run Readme -update . writes it.
// That of the codes is checked in package x402.
func TestReadmeSaysWhatTheCodeSays(t *testing.T) {
	text, err := os.ReadFile("clients.md")
	require.NoError(t, err)
	begin, end := "<!-- clients: made by readme_test.go -->\n", "<!-- /clients -->"
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	written := before + begin + clientTable(t) + end + after
	if *updateReadme {
		require.NoError(t, os.WriteFile("clients.md", []byte(written), 0o644))
		return
	}
	require.Equal(t, written, string(text))
}

// clientTable is how each client gets the wallet, for a binary that is in the PATH.
func clientTable(t *testing.T) string {
	t.Helper()
	entry := install.Entry{Command: "x402-wallet", Args: []string{"mcp"}}
	var b strings.Builder
	b.WriteString("| client | with us | or its own way |\n|---|---|---|\n")
	for _, c := range install.Clients(install.System{}) {
		snippet, own, err := c.Snippet(entry)
		require.NoError(t, err)
		switch button := button(t, c.Name, snippet); {
		case button != "":
			own = "[Add to " + c.Title + "](" + button + ")"
		case own != "":
			own = "`" + own + "`"
		case c.Name == "claude-desktop":
			own = "open the `.mcpb` bundle of your platform (`make release`)"
		}
		fmt.Fprintf(&b, "| %s | `x402-wallet install %s` | %s |\n", c.Title, c.Name, own)
	}
	return b.String()
}

// button is a page that opens a client and installs the snippet there; "" when the client has none.
func button(t *testing.T, client, snippet string) string {
	t.Helper()
	page := map[string]string{"cursor": "https://cursor.com/en/install-mcp",
		"vscode": "https://vscode.dev/redirect/mcp/install"}[client]
	if page == "" {
		return ""
	}
	var settings map[string]map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(snippet), &settings))
	var entry bytes.Buffer
	for _, servers := range settings {
		require.NoError(t, json.Compact(&entry, servers["x402-wallet"]))
	}
	config := entry.String()
	if client == "cursor" {
		config = base64.StdEncoding.EncodeToString(entry.Bytes())
	}
	return page + "?name=x402-wallet&config=" + url.QueryEscape(config)
}
