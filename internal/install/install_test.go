package install

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

var update = flag.Bool("update", false, "write the golden files again")

var entry = Entry{Command: "/usr/local/bin/x402-wallet", Args: []string{"mcp"},
	Env: map[string]string{"X402_WALLET_PASSPHRASE_FILE": "/home/ada/.x402-pass"}}

func golden(t *testing.T, name string, got string) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	require.Equal(t, string(must.Get(os.ReadFile(path))(t)), got)
}

func at(t *testing.T, index int) Client {
	t.Helper()
	home := t.TempDir()
	c := Clients(System{OS: "linux", Home: home, Config: filepath.Join(home, ".config")})[index]
	before := must.Get(os.ReadFile(filepath.Join("testdata", c.Name, "before")))(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(c.File), 0o700))
	require.NoError(t, os.WriteFile(c.File, before, 0o644))
	return c
}

func read(t *testing.T, path string) string { return string(must.Get(os.ReadFile(path))(t)) }

// Per client: what is written, that a second time nothing is, and that taking it out leaves the
// rest as it was.
func TestClients(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, c := range Clients(System{}) {
		t.Run(c.Name, func(t *testing.T) {
			c := at(t, i)
			before := read(t, c.File)
			plan := must.Get(c.Plan(&entry))(t)
			golden(t, c.Name+"/difference", "--- before\n"+plan.Before+"+++ after\n"+
				plan.After+strings.Join(plan.Notes, "\n"))
			require.Equal(t, before, read(t, c.File), "a plan changes nothing")

			backup := must.Get(plan.Apply(now))(t)
			golden(t, c.Name+"/after", read(t, c.File))
			require.Equal(t, before, read(t, backup))
			info := must.Get(os.Stat(c.File))(t)
			if runtime.GOOS != "windows" {
				require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "the file's own mode stays")
			}

			require.Equal(t, "nothing", must.Get(c.Plan(&entry))(t).Change)
			status, _, err := c.Detect(entry)
			require.NoError(t, err)
			require.Equal(t, "installed", status)

			out := must.Get(c.Plan(nil))(t)
			require.Equal(t, "remove", out.Change)
			must.Get(out.Apply(now.Add(time.Second)))(t)
			golden(t, c.Name+"/removed", read(t, c.File))
			out = must.Get(c.Plan(nil))(t)
			require.Equal(t, "nothing", out.Change)

			snippet, line, err := c.Snippet(entry)
			require.NoError(t, err)
			golden(t, c.Name+"/snippet", snippet+"\n"+line+"\n")
			for _, text := range []string{plan.Before, plan.After, snippet, read(t, c.File)} {
				require.NotContains(t, text, "hunter2")
			}
			require.NotContains(t, plan.After, "of somebody")
		})
	}
}

// Where each client's settings lie, per system.
func TestFiles(t *testing.T) {
	for _, s := range []System{
		{OS: "linux", Home: "/home/ada", Config: "/home/ada/.config"},
		{OS: "darwin", Home: "/Users/ada", Config: "/Users/ada/Library/Application Support"},
		{OS: "windows", Home: `C:\Users\ada`, Config: `C:\Users\ada\AppData\Roaming`},
		{OS: "linux", Home: "/home/ada", Config: "/home/ada/.config", Claude: "/srv/claude",
			Codex: "/srv/codex"},
	} {
		var b strings.Builder
		for _, c := range Clients(s) {
			b.WriteString(c.Name + "\t" + c.File + "\n")
		}
		name := s.OS
		if s.Codex != "" {
			name += "-moved"
		}
		golden(t, "files-"+name, b.String())
	}
}

// Claude Desktop as a package of Windows sees another directory, and Windsurf has a new name.
func TestFilesThatMoved(t *testing.T) {
	home, packages := t.TempDir(), t.TempDir()
	own := filepath.Join(packages, "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming")
	s := System{OS: "windows", Home: home, Config: home, Packages: packages}
	require.Equal(t, home+`\Claude\claude_desktop_config.json`, Clients(s)[1].File)
	require.NoError(t, os.MkdirAll(own, 0o700))
	require.Equal(t, filepath.Join(own, "Claude", "claude_desktop_config.json"), Clients(s)[1].File)

	s = System{OS: "linux", Home: home, Config: filepath.Join(home, ".config")}
	old, renamed := filepath.Join(home, ".codeium", "windsurf"), filepath.Join(home, ".config", "devin")
	windsurf := func() string { return filepath.Dir(Clients(s)[6].File) }
	require.Equal(t, old, windsurf())
	require.NoError(t, os.MkdirAll(renamed, 0o700))
	require.Equal(t, renamed, windsurf())
	require.NoError(t, os.MkdirAll(old, 0o700))
	require.Equal(t, old, windsurf(), "it was taken along")
	require.NoError(t, os.WriteFile(filepath.Join(renamed, "mcp_config.json"), nil, 0o600))
	require.Equal(t, renamed, windsurf())
}

func TestDetect(t *testing.T) {
	s := System{OS: "linux", Home: t.TempDir()}
	s.Config = filepath.Join(s.Home, ".config")
	for _, c := range Clients(s) {
		status, _, err := c.Detect(entry)
		require.NoError(t, err)
		require.Equal(t, "not found", status, c.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(c.File), 0o700))
	}
	cursor := Clients(s)[2]
	status, _, err := cursor.Detect(entry)
	require.NoError(t, err)
	require.Equal(t, "not installed", status)
	for text, want := range map[string]string{
		`{"mcpServers":{"x402-wallet":{"command":"x"}}}`: "differs",
		`{"mcpServers":{}`: "unreadable", `[]`: "unreadable", `{"mcpServers":[]}`: "unreadable",
		`{"mcpServers":{"x402-wallet":1}}`: "unreadable", "": "not installed",
	} {
		t.Run(text, func(t *testing.T) {
			require.NoError(t, os.WriteFile(cursor.File, []byte(text), 0o600))
			status, _, err := cursor.Detect(entry)
			require.Equal(t, want, status, text)
			require.Equal(t, want == "unreadable", err != nil, text)
		})
	}
}

func TestNewSettingsFile(t *testing.T) {
	home := t.TempDir()
	for _, c := range Clients(System{OS: "linux", Home: home, Config: filepath.Join(home, ".config")}) {
		plan, err := c.Plan(&entry)
		require.NoError(t, err, c.Name)
		require.Equal(t, "add", plan.Change)
		require.Empty(t, must.Get(plan.Apply(time.Now()))(t))
		snippet, _, err := c.Snippet(entry)
		require.NoError(t, err)
		require.Equal(t, snippet, read(t, c.File))
	}
}

func TestNoSecretIsWritten(t *testing.T) {
	for _, name := range []string{"X402_WALLET_PASSPHRASE", "CDP_API_KEY_SECRET", "PRIVATE_KEY",
		"x402_wallet_home"} {
		t.Run(name, func(t *testing.T) {
			for _, c := range Clients(System{OS: "linux", Home: t.TempDir(), Config: t.TempDir()}) {
				_, err := c.Plan(&Entry{Command: "x402-wallet", Env: map[string]string{name: "v"}})
				require.ErrorIs(t, err, errSecret)
			}
		})
	}
}

// A file that is a link into somebody's dotfiles stays one.
func TestSymlinkIsKept(t *testing.T) {
	c := at(t, 2)
	kept := filepath.Join(t.TempDir(), "dotfiles.json")
	require.NoError(t, os.Rename(c.File, kept))
	require.NoError(t, os.Symlink(kept, c.File))
	plan := must.Get(c.Plan(&entry))(t)
	require.Equal(t, filepath.Dir(kept), filepath.Dir(must.Get(plan.Apply(time.Now()))(t)))
	require.NotZero(t, must.Get(os.Lstat(c.File))(t).Mode()&os.ModeSymlink)
	require.Contains(t, read(t, kept), "/usr/local/bin/x402-wallet")

	require.NoError(t, os.Remove(kept))
	require.ErrorContains(t, must.Err(c.Plan(&entry)), "leads nowhere")
}

// Claude Code writes its file all the time: what it wrote between the plan and the change is not
// lost.
func TestApplyRefusesChangedFile(t *testing.T) {
	c := at(t, 0)
	plan := must.Get(c.Plan(&entry))(t)
	require.NoError(t, os.WriteFile(c.File, []byte(`{"numStartups": 43}`), 0o600))
	require.ErrorContains(t, must.Err(plan.Apply(time.Now())), "changed meanwhile")
	require.Equal(t, `{"numStartups": 43}`, read(t, c.File))
}

func TestApplyRefusesReadOnlyFile(t *testing.T) {
	c := at(t, 2)
	was := read(t, c.File)
	require.NoError(t, os.Chmod(c.File, 0o400))
	plan := must.Get(c.Plan(&entry))(t)
	require.ErrorContains(t, must.Err(plan.Apply(time.Now())), "is read-only")
	require.Equal(t, was, read(t, c.File))
	require.Len(t, must.Get(os.ReadDir(filepath.Dir(c.File)))(t), 1, "no backup of what is not changed")
}

// What cannot be edited without guessing is left alone, with what to write by hand.
func TestUneditableFilesAreRefused(t *testing.T) {
	for _, text := range []string{
		"[mcp_servers]\nx402-wallet = { command = \"old\" }\n", "mcp_servers.x402-wallet.command = \"old\"\n",
		"mcp_servers = {}\n", "a = \n",
		"[[mcp_servers]]\n",
	} {
		t.Run(text, func(t *testing.T) {
			codex := Clients(System{OS: "linux", Home: t.TempDir()})[3]
			require.NoError(t, os.MkdirAll(filepath.Dir(codex.File), 0o700))
			require.NoError(t, os.WriteFile(codex.File, []byte(text), 0o600))
			require.Error(t, must.Err(codex.Plan(&entry)), text)
			require.Equal(t, text, read(t, codex.File))
		})
	}
	_, err := set([]byte(`{"servers": {"x402-wallet": 1, "x402-wallet": 2}}`), 3, "servers", entryName)
	require.ErrorContains(t, err, "twice")
}

func TestSetAndRemove(t *testing.T) {
	for _, line := range []struct{ name, before, after, removed string }{
		{"nothing", "", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n", "{\n  \"a\": {\n  }\n}\n"},
		{"one line", `{"x": 1}`, `{"x": 1, "a": {"b":1}}`, `{"x": 1, "a": {}}`},
		{"one line, trailing comma", `{"x": 1,}`, `{"x": 1, "a": {"b":1},}`, `{"x": 1, "a": {},}`},
		{"the last one in a line", `{"a": {"x": 1, "b": 2}}`, `{"a": {"x": 1, "b": 1}}`, `{"a": {"x": 1}}`},
		{"a comment behind the last", "{\n  \"x\": 1 // one\n}",
			"{\n  \"x\": 1, // one\n  \"a\": {\n    \"b\": 1\n  }\n}",
			"{\n  \"x\": 1, // one\n  \"a\": {\n  }\n}"},
		{"a comment in an empty one", "{\"a\": { /* none */ }}", "{\"a\": { /* none */\n  \"b\": 1\n}}",
			"{\"a\": { /* none */\n}}"},
		{"tabs", "{\n\t\"a\": {\n\t\t\"x\": []\n\t}\n}\n",
			"{\n\t\"a\": {\n\t\t\"x\": [],\n\t\t\"b\": 1\n\t}\n}\n",
			"{\n\t\"a\": {\n\t\t\"x\": []\n\t}\n}\n"},
		{"in the middle", `{"a": {"b": 0, "c": 2}}`, `{"a": {"b": 1, "c": 2}}`, `{"a": {"c": 2}}`},
		{"a string that looks like one", `{"a": {"//": "/* } */", "x": "\""}}`,
			`{"a": {"//": "/* } */", "x": "\"", "b": 1}}`, `{"a": {"//": "/* } */", "x": "\""}}`},
		{"byte order mark", "\ufeff{\"a\": {\"b\": 2}}", "\ufeff{\"a\": {\"b\": 1}}", "\ufeff{\"a\": {}}"},
	} {
		t.Run(line.name, func(t *testing.T) {
			after := must.Get(set([]byte(line.before), 1, "a", "b"))(t)
			require.Equal(t, line.after, string(after))
			require.Equal(t, line.removed, string(must.Get(remove(after, "a", "b"))(t)))
		})
	}
}

func TestSetRefusesInvalidJSON(t *testing.T) {
	for _, text := range []string{"{", `{"a"}`, `{"a": }`, `{"a": 1 "b": 2}`, `{a: 1}`, `{"a": 01}`, `{} {}`,
		`{"a": "`, `/*`, `{"a": 1,, }`, `{,}`, "{\"a\": \"\n\"}", `{"a": 'x'}`} {
		t.Run(text, func(t *testing.T) {
			require.Error(t, must.Err(set([]byte(text), 1, "b")), text)
		})
	}
}

// Whatever the file, what comes out has the member and everything else that was there; and a plan
// that did not would not be applied.
func FuzzSet(f *testing.F) {
	f.Add(`{"a": {"x": 1, /* c */ }, // d` + "\n}")
	f.Add("{\r\n\t\"a\": {}\r\n}")
	f.Add(`{"a":{"b":[1,{"c":"}"}]},"d":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		before, err := decode([]byte(text))
		if err != nil {
			return
		}
		after, err := set([]byte(text), map[string]any{"v": "w"}, "a", "b")
		if err != nil {
			return
		}
		got, err := decode(after)
		require.NoError(t, err, "%q", after)
		if before["a"] == nil {
			before["a"] = map[string]any{}
		}
		before["a"].(map[string]any)["b"] = map[string]any{"v": "w"}
		require.True(t, reflect.DeepEqual(before, got), "%q\n%q", text, after)
		removed := must.Get(remove(after, "a", "b"))(t)
		delete(before["a"].(map[string]any), "b")
		got, err = decode(removed)
		require.NoError(t, err, "%q", removed)
		want, _ := json.Marshal(before)
		have, _ := json.Marshal(got)
		require.JSONEq(t, string(want), string(have), "%q", removed)
	})
}
