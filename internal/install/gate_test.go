package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// Where only some servers start, ours is added to them, and taken out again without a trace.
func TestAServerIsLetIn(t *testing.T) {
	e := &Entry{Command: "/usr/bin/x402-wallet", Args: []string{"mcp"}}
	for before, want := range map[string]string{
		`{"mcp":{"allowed":["other"]},"mcpServers":{}}`:                                                  `"allowed":["other","x402-wallet"]`,
		"{\n  \"mcp\": {\n    \"allowed\": [\"a\", \"b\"], // mine\n    \"excluded\": [\"c\"]\n  }\n}\n": `"x402-wallet"`,
		`{"mcp":{"allowed":["x402-wallet"]}}`:                                                            `"allowed":["x402-wallet"]`,
		`{"mcp":{"allowed":[]}}`:                                                                         `"allowed":[]`,
		`{"mcp":{}}`:                                                                                     `"mcp":{}`,
		byteOrderMark + `{"mcp":{"allowed":["a"]}}`:                                                      `"allowed":["a","x402-wallet"]`,
	} {
		c := must.Get(clientAt(t.TempDir(), "gemini", []byte(before)))(t)
		p := must.Get(c.Plan(e))(t)
		isAdded := strings.Contains(want, `,"x402-wallet"`) || want == `"x402-wallet"`
		require.Equal(t, isAdded, len(p.Notes) == 1, "%s: %v", before, p.Notes)
		must.Get(p.Apply(time.Now()))(t)
		text := string(must.Get(os.ReadFile(c.File))(t))
		require.Contains(t, strings.NewReplacer(" ", "", "\n", "").Replace(text), want)
		require.Empty(t, c.ShutOut("/"))
		require.Equal(t, "nothing", must.Get(c.change(e))(t), before)
		require.Equal(t, "remove", must.Get(c.change(nil))(t))
		require.Equal(t, before, string(must.Get(os.ReadFile(c.File))(t)))
	}
}

// An entry that is there already is let in; where its person has changed the file since, only our name goes.
func TestAnEntryThatIsShutOut(t *testing.T) {
	e := &Entry{Command: "/usr/bin/x402-wallet", Args: []string{"mcp"}}
	c := must.Get(clientAt(t.TempDir(), "gemini", []byte(`{}`)))(t)
	require.Equal(t, "add", must.Get(c.change(e))(t))
	entry := must.Get(os.ReadFile(c.File))(t)
	edit := func(value string) {
		text := must.Get(set(entry, []any{value}, "mcp", "allowed"))(t)
		require.NoError(t, os.WriteFile(c.File, text, 0o600))
	}
	edit("a")
	require.Contains(t, c.ShutOut("/"), "mcp.allowed in "+c.File)
	require.Equal(t, "change", must.Get(c.change(e))(t))
	require.Empty(t, c.ShutOut("/"))
	text := must.Get(set(must.Get(os.ReadFile(c.File))(t), 1, "theirs"))(t)
	require.NoError(t, os.WriteFile(c.File, text, 0o600))
	require.Equal(t, "remove", must.Get(c.change(nil))(t))
	allowed, _ := gate(must.Get(Decode(".json", must.Get(os.ReadFile(c.File))(t)))(t))
	require.Equal(t, []any{"a"}, allowed)

	for _, shut := range []string{`{"mcp":{"excluded":["x402-wallet"]}}`,
		`{"mcp":{"allowed":["x402-wallet"],"excluded":["b","x402-wallet"]}}`} {
		c = must.Get(clientAt(t.TempDir(), "gemini", []byte(shut)))(t)
		require.ErrorContains(t, must.Err(c.Plan(e)), "mcp.excluded names x402-wallet")
		require.Equal(t, shut, string(must.Get(os.ReadFile(c.File))(t)))
	}
}

func TestAFolderThatIsNotTrusted(t *testing.T) {
	const on = `{"security":{"folderTrust":{"enabled":true}}}`
	for _, row := range []struct {
		settings, rules, dir string
		isOut                bool
	}{
		{`{}`, ``, "/projects/a", false},
		{`{"security":{"folderTrust":{"enabled":false}}}`, ``, "/projects/a", false},
		{on, ``, "/projects/a", true},
		{on, `{"/projects/a":"TRUST_FOLDER"}`, "/projects/a", false},
		{on, `{"/projects/a":"TRUST_FOLDER"}`, "/projects/a/b", false},
		{on, `{"/projects/a":"TRUST_FOLDER"}`, "/projects/ab", true},
		{on, `{"/projects/x":"TRUST_PARENT"}`, "/projects/a", false},
		{on, `{"/projects/a":"DO_NOT_TRUST"}`, "/projects/a", true},
		{on, `no JSON`, "/projects/a", true},
	} {
		c := must.Get(clientAt(t.TempDir(), "gemini", []byte(row.settings)))(t)
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(c.File), "trustedFolders.json"),
			[]byte(row.rules), 0o600))
		require.Equal(t, row.isOut, c.ShutOut(row.dir) != "", "%+v", row)
	}
}
