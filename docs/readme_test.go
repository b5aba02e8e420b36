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
	"x402-wallet/x402"
)

var updateReadme = flag.Bool("update", false, "write the generated parts of README.md again")

// The parts of the README that say what the code says are made from it: go test -run Readme -update
// . writes them.
func TestReadmeSaysWhatTheCodeSays(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	written := string(text)
	for name, part := range map[string]string{"codes": x402.ExplanationTable(), "clients": clientTable(t)} {
		begin, end := "<!-- "+name+": made by readme_test.go -->\n", "<!-- /"+name+" -->"
		before, rest, ok := strings.Cut(written, begin)
		require.True(t, ok, name)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, name)
		written = before + begin + part + end + after
	}
	if *updateReadme {
		require.NoError(t, os.WriteFile("../README.md", []byte(written), 0o644))
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
