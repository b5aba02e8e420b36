package install

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Name is what the wallet is called in every client.
const entryName = "x402-wallet"

// System is where a person's settings lie.
type System struct {
	OS     string // GOOS
	Home   string
	Config string // os.UserConfigDir: ~/.config, ~/Library/Application Support, %AppData%
	Claude string // CLAUDE_CONFIG_DIR; "" when not set
	Codex  string // CODEX_HOME; "" when not set

	Packages string // Windows: where packaged programs (MSIX) have their files; else ""
}

// join writes a path as the system does, also on another one.
func (s System) join(parts ...string) string {
	if s.OS == "windows" {
		return strings.Join(parts, `\`)
	}
	return strings.Join(parts, "/")
}

// Client is a program that starts MCP servers, as it is set up in a System.
type Client struct {
	Name, Title string
	Restart     string   // what makes it look at its settings again
	File        string   // where its settings are
	marks       []string // one of these is there when the client is; nil: the file's directory
	at          string   // the table of servers
	toml        bool
	gated       bool    // by mcp.allowed, mcp.excluded and the trust in folders: see gate
	extra       []field // members of the entry that are the same for everybody
	usual       []field // and those that are written only where the person has set none
}

type field struct {
	name  string
	value any
}

// Clients are those that are known. Sources, looked up again in 2026-11:
//   - Claude Code: docs.claude.com/en/docs/claude-code/mcp (user scope: ~/.claude.json)
//   - Claude Desktop: modelcontextprotocol.io/quickstart/user; packaged for Windows:
//     github.com/anthropics/claude-code/issues/26073
//   - Cursor: docs.cursor.com/context/model-context-protocol
//   - Codex: developers.openai.com/codex/config-reference (tool_timeout_sec: 60)
//   - VS Code: code.visualstudio.com/docs/copilot/reference/mcp-configuration
//   - Gemini CLI: geminicli.com/docs/tools/mcp-server (timeout: 10 minutes)
//   - Windsurf: docs.windsurf.com/windsurf/cascade/mcp; as Devin Desktop, since 2026-06:
//     vaadin.com/docs/latest/building-apps/agentic-development/mcp/supported-tools/devin-desktop
//   - Zed: zed.dev/docs/ai/mcp; github.com/zed-industries/zed/pull/45378 (timeout: 60 s)
func Clients(s System) []Client {
	stdio := []field{{name: "type", value: "stdio"}}
	zed := s.join(s.Config, "zed", "settings.json")
	switch s.OS {
	case "windows":
		zed = s.join(s.Config, "Zed", "settings.json")
	case "darwin":
		zed = s.join(s.Home, ".config", "zed", "settings.json")
	}
	// a payment may take policy.deadline, 90 s; their own limit is 60 s
	const patience = 120
	return []Client{
		{Name: "claude-code", Title: "Claude Code", Restart: "start a new session of Claude Code",
			at: "mcpServers", extra: stdio, File: s.join(cmp.Or(s.Claude, s.Home), ".claude.json"),
			marks: []string{s.Claude, s.join(s.Home, ".claude.json"), s.join(s.Home, ".claude")}},
		{Name: "claude-desktop", Title: "Claude Desktop", Restart: "quit Claude Desktop and start it again",
			at: "mcpServers", File: s.claudeDesktop()},
		{Name: "cursor", Title: "Cursor", Restart: "look at Cursor's settings, under MCP",
			at: "mcpServers", File: s.join(s.Home, ".cursor", "mcp.json")},
		{Name: "codex", Title: "Codex", Restart: "start Codex again", at: "mcp_servers", toml: true,
			usual: []field{{name: "tool_timeout_sec", value: patience}},
			File:  s.join(cmp.Or(s.Codex, s.join(s.Home, ".codex")), "config.toml")},
		{Name: "vscode", Title: "VS Code", Restart: "run \"MCP: List Servers\" in VS Code and start it there",
			at: "servers", extra: stdio, File: s.join(s.Config, "Code", "User", "mcp.json")},
		{Name: "gemini", Title: "Gemini CLI", Restart: "start Gemini CLI again, in a folder that it trusts",
			at: "mcpServers", gated: true, File: s.join(s.Home, ".gemini", "settings.json")},
		{Name: "windsurf", Title: "Windsurf", Restart: "press refresh in its MCP settings",
			at: "mcpServers", File: s.windsurf()},
		{Name: "zed", Title: "Zed", at: "context_servers", File: zed,
			Restart: "open the Agent Panel's settings in Zed, which has seen it already",
			usual:   []field{{name: "timeout", value: patience}}},
	}
}

// claudeDesktop is where Claude Desktop has its settings. Packaged for Windows, as it is since 2026-02,
// it sees a copy of the roaming directory that is its own, and not the directory itself.
func (s System) claudeDesktop() string {
	if s.Packages != "" {
		own, _ := filepath.Glob(filepath.Join(s.Packages, "Claude_*", "LocalCache", "Roaming"))
		if len(own) > 0 {
			return filepath.Join(own[0], "Claude", "claude_desktop_config.json")
		}
	}
	return s.join(s.Config, "Claude", "claude_desktop_config.json")
}

// windsurf is where Windsurf has its settings. It is called Devin Desktop now; whoever came with it from
// Windsurf has the old file.
func (s System) windsurf() string {
	old, devin := s.join(s.Home, ".codeium", "windsurf"), s.join(s.Home, ".config", "devin")
	if s.OS == "windows" {
		devin = s.join(s.Config, "devin")
	}
	renamed := isThere(devin) && !isThere(old)
	if file := s.join(devin, "mcp_config.json"); renamed || isThere(file) {
		return file
	}
	return s.join(old, "mcp_config.json")
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Entry is how the wallet is started. It holds paths and names, never a secret: Check.
type Entry struct {
	Command string
	Args    []string
	Env     map[string]string
}

// fields are the entry's members, in the order in which people write them.
func (c Client) fields(e Entry) []field {
	list := []field{{name: "command", value: e.Command}, {name: "args", value: e.Args}}
	if len(e.Env) > 0 {
		list = append(list, field{name: "env", value: e.Env})
	}
	return slices.Concat(c.extra, list, c.usual)
}

// isUsual reports whether a member is written only where there is none.
func (c Client) isUsual(name string) bool {
	return slices.ContainsFunc(c.usual, func(f field) bool { return f.name == name })
}

// ordered is a JSON object whose members keep their order.
type ordered []field

func (o ordered) MarshalJSON() ([]byte, error) {
	var members [][]byte
	for _, f := range o {
		key, err := style{}.render(f.name, "", true)
		if err != nil {
			return nil, err
		}
		value, err := style{}.render(f.value, "", true)
		if err != nil {
			return nil, err
		}
		members = append(members, slices.Concat(key, []byte(":"), value))
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), nil
}

// Snippet is what a person would write into the client's settings by hand; line is a command of the
// client's own that does the same, or a link that opens it, "" when it has none.
func (c Client) Snippet(e Entry) (text, line string, err error) {
	written, err := c.write(nil, nil, c.fields(e))
	if err != nil {
		return "", "", err
	}
	linked, err := json.Marshal(ordered(c.fields(e)))
	if err != nil {
		return "", "", err
	}
	named, err := json.Marshal(ordered(append([]field{{name: "name", value: entryName}}, c.fields(e)...)))
	flag := map[string]string{"claude-code": "-e", "codex": "--env", "gemini": "-e"}[c.Name]
	var env strings.Builder
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		env.WriteString(" " + flag + " " + name + "=" + quote(e.Env[name]))
	}
	command := quote(e.Command) + " " + strings.Join(e.Args, " ")
	switch c.Name {
	case "claude-code":
		line = "claude mcp add --scope user " + entryName + env.String() + " -- " + command
	case "codex":
		line = "codex mcp add " + entryName + env.String() + " -- " + command
	case "gemini":
		line = "gemini mcp add" + env.String() + " --scope user " + entryName + " " + command
	case "cursor":
		line = "cursor://anysphere.cursor-deeplink/mcp/install?name=" + entryName + "&config=" +
			url.QueryEscape(base64.StdEncoding.EncodeToString(linked))
	case "vscode":
		line = "vscode:mcp/install?" + url.PathEscape(string(named))
	}
	return string(written), line, err
}

func quote(word string) string {
	if strings.ContainsAny(word, " '\"$\\&;()<>|*?[]#~`") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
