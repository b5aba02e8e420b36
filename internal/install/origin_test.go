package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"x402-wallet/internal/must"
)

// clientAt is a client of a home of its own, whose settings hold a text; nil: there is no file.
func clientAt(home, name string, text []byte) (c Client, err error) {
	for _, c = range Clients(System{OS: "linux", Home: home, Config: filepath.Join(home, ".config")}) {
		if c.Name == name {
			break
		}
	}
	if err = os.MkdirAll(filepath.Dir(c.File), 0o700); err == nil && text != nil {
		err = os.WriteFile(c.File, text, 0o600)
	}
	return c, err
}

// change plans and makes a change: an entry is installed, nil is removed.
func (c Client) change(e *Entry) (string, error) {
	p, err := c.Plan(e)
	if err != nil {
		return "", err
	}
	_, err = p.Apply(time.Now())
	return p.Change, err
}

// Settings of Codex as people have them, in every spelling of lines, marks and comments: what is ours goes
// in and out again without a trace.
var codexFiles = map[string]string{
	"empty": "", "one empty line": "\n", "comment": "# mine", "comment, line": "# mine\n",
	"keys":             "model = \"gpt-5\"\n",
	"no last line end": "model = \"gpt-5\"",
	"many empty lines": "model = \"gpt-5\"\n\n\n\n",
	"a table":          "[tui]\ntheme = \"dark\" # at night\n",
	"another server": "[mcp_servers.docs]\ncommand = \"docs\"\n\n" +
		"[mcp_servers.docs.env]\nTOKEN = \"x\"\n# end",
	"servers, and a table": "[mcp_servers.docs]\ncommand = \"docs\"\n\n# after\n[tui]\na = [\n 1,\n]\n",
	"the parent's table":   "[mcp_servers]\n# none yet\n",
	"multi-line string":    "a = '''\n[mcp_servers.x402-wallet]\n'''\nb = \"\"\"\nx\"\"\"\n",
}

func TestRemoveLeavesNoTrace(t *testing.T) {
	for name, text := range codexFiles {
		for _, mark := range []string{"", byteOrderMark} {
			for _, end := range []string{"\n", "\r\n"} {
				t.Run(name, func(t *testing.T) {
					before := mark + strings.ReplaceAll(text, "\n", end)
					c := must.Get(clientAt(t.TempDir(), "codex", []byte(before)))(t)
					must.Get(c.change(&entry))(t)
					written := read(t, c.File)
					require.Contains(t, written, "[mcp_servers.x402-wallet]")
					require.Equal(t, strings.HasPrefix(before, byteOrderMark),
						strings.HasPrefix(written, byteOrderMark))
					if strings.Contains(before, "\r\n") {
						lines := strings.Count(written, "\n")
						require.Equal(t, lines, strings.Count(written, "\r\n"), "%q", written)
					}
					require.Equal(t, "nothing", must.Get(c.change(&entry))(t), "twice is once")
					must.Get(c.change(nil))(t)
					require.Equal(t, before, read(t, c.File))
				})
			}
		}
	}
}

// A file that was not there is not there afterwards.
func TestRemoveOfWhatInstallMade(t *testing.T) {
	for _, c := range Clients(System{}) {
		c := must.Get(clientAt(t.TempDir(), c.Name, nil))(t)
		must.Get(c.change(&entry))(t)
		must.Get(c.change(nil))(t)
		require.NoFileExists(t, c.File)
		require.Equal(t, "nothing", must.Get(c.change(nil))(t))
	}
}

// Installed again with another entry, and removed: the first state is back.
func TestRemoveAfterTwoInstalls(t *testing.T) {
	for _, c := range Clients(System{}) {
		before := []byte("{ // mine\n  \"a\": [1], /* b */ }")
		if c.toml {
			before = []byte("a = 1 # mine")
		}
		c := must.Get(clientAt(t.TempDir(), c.Name, before))(t)
		must.Get(c.change(&Entry{Command: "/old/x402-wallet", Args: []string{"mcp"}}))(t)
		must.Get(c.change(&entry))(t)
		must.Get(c.change(nil))(t)
		require.Equal(t, string(before), read(t, c.File), c.Name)
	}
}

// The person went on editing: only what is ours goes, with the table of servers that it brought.
func TestRemoveAfterEdits(t *testing.T) {
	c := must.Get(clientAt(t.TempDir(), "gemini", []byte("{\n  \"theme\": \"Default\" // light\n}\n")))(t)
	must.Get(c.change(&entry))(t)
	edited := strings.Replace(read(t, c.File), "Default", "Dark", 1)
	require.NoError(t, os.WriteFile(c.File, []byte(edited), 0o600))
	must.Get(c.change(nil))(t)
	require.Equal(t, "{\n  \"theme\": \"Dark\" // light\n}\n", read(t, c.File))

	codex := must.Get(clientAt(t.TempDir(), "codex", []byte("a = 1\n")))(t)
	must.Get(codex.change(&entry))(t)
	edited = strings.Replace(read(t, codex.File), "a = 1", "a = 2", 1)
	require.NoError(t, os.WriteFile(codex.File, []byte(edited), 0o600))
	must.Get(codex.change(nil))(t)
	require.Equal(t, "a = 2\n", read(t, codex.File))
}

// What a person set in our entry is theirs.
func TestTheirOwnKeysStay(t *testing.T) {
	const before = "[mcp_servers.x402-wallet]\r\ncommand = \"/old\"\r\nargs = [\"mcp\"]\r\n" +
		"tool_timeout_sec = 300 # patient\r\nenabled_tools = [\"x402_pay\"]\r\n" +
		"env_vars = [\"LANG\"]\r\n\r\n" +
		"[mcp_servers.x402-wallet.env] # theirs\r\nHTTPS_PROXY = \"http://proxy:3128\" # of the office\r\n" +
		"X402_WALLET_PASSPHRASE = \"hunter2\"\r\nLOG_LEVEL = \"debug\"\r\n"
	c := must.Get(clientAt(t.TempDir(), "codex", []byte(before)))(t)
	plan := must.Get(c.Plan(&entry))(t)
	require.Equal(t, []string{"X402_WALLET_PASSPHRASE"}, plan.Secrets)
	require.NotContains(t, plan.Before+plan.After, "hunter2")
	must.Get(plan.Apply(time.Now()))(t)
	after := strings.Replace(before, "/old", entry.Command, 1)
	after = strings.Replace(after, "X402_WALLET_PASSPHRASE = \"hunter2\"\r\nLOG_LEVEL = \"debug\"\r\n",
		"LOG_LEVEL = \"debug\"\r\nX402_WALLET_PASSPHRASE_FILE = \"/home/ada/.x402-pass\"\r\n", 1)
	require.Equal(t, after, read(t, c.File))

	zed, err := clientAt(t.TempDir(), "zed", []byte(`{"context_servers": {"x402-wallet": {"command": "/old", `+
		`"args": ["mcp"], "timeout": 30, "source": "custom", "env": {"A": "b", /* c */ "LOG_LEVEL": "debug"}}}}`))
	require.NoError(t, err)
	must.Get(zed.change(&entry))(t)
	require.Equal(t, `{"context_servers": {"x402-wallet": {"command": "`+entry.Command+`", "args": ["mcp"], `+
		`"timeout": 30, "source": "custom", "env": {"A": "b", /* c */ "LOG_LEVEL": "debug", `+
		`"X402_WALLET_PASSPHRASE_FILE": "/home/ada/.x402-pass"}}}}`, read(t, zed.File))
}

// Any file of any client, with any entry: in and out again is nothing, and in twice is once.
func TestAnyFileComesBack(t *testing.T) {
	clients := Clients(System{})
	rapid.Check(t, func(r *rapid.T) {
		of := clients[rapid.IntRange(0, len(clients)-1).Draw(r, "client")]
		before := anyJSON(r, of.at)
		if of.toml {
			before = anyTOML(r)
		}
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(r, "line end")
		before = strings.ReplaceAll(before, "\n", end)
		before = rapid.SampledFrom([]string{"", byteOrderMark}).Draw(r, "mark") + before
		home := must.Get(os.MkdirTemp("", "install"))(r)
		defer os.RemoveAll(home)
		c := must.Get(clientAt(home, of.Name, []byte(before)))(r)
		require.NoError(r, must.Err(c.change(&entry)), "%q", before)
		require.Equal(r, "nothing", must.Get(c.change(&entry))(r), "%q", before)
		must.Get(c.change(nil))(r)
		require.Equal(r, before, string(must.Get(os.ReadFile(c.File))(r)))
	})
}

// anyJSON is an object as people write it, with comments, trailing commas and sometimes servers.
func anyJSON(r *rapid.T, servers string) string {
	space := rapid.SampledFrom([]string{"", " ", "\n", "\n  ", "\t", " // c\n", "/* c */", "\n// \"c\"\n"})
	value := rapid.SampledFrom([]string{"1", `"a}"`, "null", "[1, {\"b\": []}]", "{}", "{\n  \"c\": 1\n}",
		"{ /* none */ }", `"é\n"`, "[\n1,\n]"})
	var members []string
	for i := range rapid.IntRange(0, 4).Draw(r, "members") {
		name, v := string(rune('a'+i)), value.Draw(r, "value")
		if i == 2 {
			name = servers
			v = rapid.SampledFrom([]string{"{}", "{\n}", `{"docs": {"command": "d"}}`,
				"{\n    \"docs\": {\"url\": \"https://d\"}, // mine\n  }"}).Draw(r, "servers")
		}
		members = append(members, space.Draw(r, "space")+`"`+name+`":`+space.Draw(r, "space")+v)
	}
	text := strings.Join(members, space.Draw(r, "space")+",")
	if len(members) > 0 && rapid.Bool().Draw(r, "trailing comma") {
		text += ","
	}
	return space.Draw(r, "space") + "{" + text + space.Draw(r, "space") + "}" + space.Draw(r, "space")
}

func anyTOML(r *rapid.T) string {
	line := rapid.SampledFrom([]string{"", "# c", "\t# [a]"})
	value := rapid.SampledFrom([]string{"1", `"a"`, "[\n  1, # one\n  2,\n]", "{ x = 1 }", "'''\nq = 1\n'''",
		"1979-05-27", "\"#\" # c"})
	var lines []string
	for i := range rapid.IntRange(0, 3).Draw(r, "keys") {
		lines = append(lines, line.Draw(r, "line"), string(rune('a'+i))+" = "+value.Draw(r, "value"))
	}
	for i := range rapid.IntRange(0, 4).Draw(r, "tables") {
		name := rapid.SampledFrom([]string{"[t%]", "[[l]]", "[mcp_servers.s%]",
			"[ mcp_servers . \"u%\" . env ]", "[t%.below] # c"}).Draw(r, "table")
		lines = append(lines, line.Draw(r, "line"), strings.ReplaceAll(name, "%", string(rune('0'+i))),
			"k = "+value.Draw(r, "value"), line.Draw(r, "line"))
	}
	return strings.Join(lines, "\n") + rapid.SampledFrom([]string{"", "\n", "\n\n\n"}).Draw(r, "end")
}
