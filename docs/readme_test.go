package docs

import (
	"flag"
	"fmt"
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
	for name, part := range map[string]string{"codes": x402.ExplanationTable(), "clients": clientTable()} {
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
func clientTable() string {
	entry := install.Entry{Command: "x402-wallet", Args: []string{"mcp"}}
	var b strings.Builder
	b.WriteString("| client | with us | or its own way |\n|---|---|---|\n")
	for _, c := range install.Clients() {
		own := c.Line(entry)
		switch button := c.Button(entry); {
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
