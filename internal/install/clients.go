package install

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
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
}

// join writes a path as the system does, also on another one.
func (s System) join(parts ...string) string {
	if s.OS == "windows" {
		return strings.Join(parts, `\`)
	}
	return strings.Join(parts, "/")
}

// Client is a program that starts MCP servers.
type Client struct {
	Name    string
	Title   string
	Restart string // what makes it look at its settings again
	file    func(System) string
	marks   func(System) []string // one of these is there when the client is; nil: the file's directory
	at      string                // the table of servers
	toml    bool
	extra   []field // members of the entry that are the same for everybody
}

type field struct {
	name  string
	value any
}

// Clients are those that are known, in the order of SPEC §1. Sources: each one's own documentation
// of its settings, 2026-11.
func Clients() []Client {
	return []Client{
		{Name: "claude-code", Title: "Claude Code", Restart: "start a new session of Claude Code",
			at: "mcpServers", extra: []field{{name: "type", value: "stdio"}},
			file: func(s System) string {
				if s.Claude != "" {
					return s.join(s.Claude, ".claude.json")
				}
				return s.join(s.Home, ".claude.json")
			},
			marks: func(s System) []string {
				return []string{s.Claude, s.join(s.Home, ".claude.json"), s.join(s.Home, ".claude")}
			}},
		{Name: "claude-desktop", Title: "Claude Desktop", Restart: "quit Claude Desktop and start it again",
			at:   "mcpServers",
			file: func(s System) string { return s.join(s.Config, "Claude", "claude_desktop_config.json") }},
		{Name: "cursor", Title: "Cursor", Restart: "look at Cursor's settings, under MCP", at: "mcpServers",
			file: func(s System) string { return s.join(s.Home, ".cursor", "mcp.json") }},
		{Name: "codex", Title: "Codex", Restart: "start Codex again", at: "mcp_servers", toml: true,
			// its own is 60 s, and a payment may take policy.deadline, 90 s
			extra: []field{{name: "tool_timeout_sec", value: 120}},
			file: func(s System) string {
				if s.Codex != "" {
					return s.join(s.Codex, "config.toml")
				}
				return s.join(s.Home, ".codex", "config.toml")
			}},
		{Name: "vscode", Title: "VS Code", Restart: "run \"MCP: List Servers\" in VS Code and start it there",
			at: "servers", extra: []field{{name: "type", value: "stdio"}},
			file: func(s System) string { return s.join(s.Config, "Code", "User", "mcp.json") }},
		{Name: "gemini", Title: "Gemini CLI", Restart: "start Gemini CLI again", at: "mcpServers",
			file: func(s System) string { return s.join(s.Home, ".gemini", "settings.json") }},
		{Name: "windsurf", Title: "Windsurf", Restart: "press refresh in Windsurf's MCP settings",
			at:   "mcpServers",
			file: func(s System) string { return s.join(s.Home, ".codeium", "windsurf", "mcp_config.json") }},
		{Name: "zed", Title: "Zed", Restart: "open the Agent Panel's settings in Zed, which has seen it " +
			"already", at: "context_servers",
			// asked for by versions of 2025, ignored by later ones
			extra: []field{{name: "source", value: "custom"}},
			file: func(s System) string {
				switch s.OS {
				case "windows":
					return s.join(s.Config, "Zed", "settings.json")
				case "darwin":
					return s.join(s.Home, ".config", "zed", "settings.json")
				}
				return s.join(s.Config, "zed", "settings.json")
			}},
	}
}

// File is where the client's settings are.
func (c Client) File(s System) string { return c.file(s) }

func (c Client) presence(s System) []string {
	if c.marks != nil {
		return c.marks(s)
	}
	file := c.file(s)
	return []string{file[:strings.LastIndexAny(file, `/\`)]}
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
	if c.toml {
		return append(list, c.extra...)
	}
	return append(append([]field{}, c.extra...), list...)
}

// ordered is a JSON object whose members keep their order.
type ordered []field

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, f := range o {
		key, err := style{}.render(f.name, "", true)
		if err != nil {
			return nil, err
		}
		value, err := style{}.render(f.value, "", true)
		if err != nil {
			return nil, err
		}
		b.WriteByte("{,"[min(i, 1)])
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Snippet is what a person would write into the client's settings by hand.
func (c Client) Snippet(e Entry) (string, error) {
	if c.toml {
		text, err := setTOML(nil, nil, c.at, c.fields(e))
		return string(text), err
	}
	text, err := set(nil, map[string]any{entryName: ordered(c.fields(e))}, c.at)
	return string(text), err
}

// Line is a command of the client's own that does the same, or a link that opens it; "" when it has
// none.
func (c Client) Line(e Entry) string {
	compact := func(o ordered) string {
		text, err := json.Marshal(o)
		if err != nil {
			return ""
		}
		return string(text)
	}
	var env strings.Builder
	for _, name := range sortedNames(e.Env) {
		env.WriteString(map[string]string{"claude-code": " -e ", "codex": " --env ",
			"gemini": " -e "}[c.Name] + name + "=" + quote(e.Env[name]))
	}
	switch c.Name {
	case "claude-code":
		return "claude mcp add --scope user " + entryName + env.String() + " -- " + quote(e.Command) + " " +
			strings.Join(e.Args, " ")
	case "codex":
		return "codex mcp add " + entryName + env.String() + " -- " + quote(e.Command) + " " +
			strings.Join(e.Args, " ")
	case "gemini":
		return "gemini mcp add" + env.String() + " --scope user " + entryName + " " + quote(e.Command) + " " +
			strings.Join(e.Args, " ")
	case "cursor":
		return "cursor://anysphere.cursor-deeplink/mcp/install?name=" + entryName + "&config=" +
			url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(compact(c.fields(e)))))
	case "vscode":
		return "vscode:mcp/install?" +
			url.PathEscape(compact(append([]field{{name: "name", value: entryName}}, c.fields(e)...)))
	}
	return ""
}

// Button is a page that opens the client and installs the entry there; "" when the client has none.
func (c Client) Button(e Entry) string {
	text, err := json.Marshal(ordered(c.fields(e)))
	if err != nil {
		return ""
	}
	switch c.Name {
	case "cursor":
		return "https://cursor.com/en/install-mcp?name=" + entryName + "&config=" +
			url.QueryEscape(base64.StdEncoding.EncodeToString(text))
	case "vscode":
		return "https://vscode.dev/redirect/mcp/install?name=" + entryName + "&config=" +
			url.QueryEscape(string(text))
	}
	return ""
}

// quote is for a POSIX shell.
func quote(word string) string {
	if strings.ContainsAny(word, " '\"$\\&;()<>|*?[]#~`") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
