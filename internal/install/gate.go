package install

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Gemini CLI starts only the servers of mcp.allowed, where that has any, none of mcp.excluded, and none in a
// folder that is not trusted (geminicli.com/docs/reference/configuration,
// geminicli.com/docs/cli/trusted-folders).

// gate are the lists of a client's settings that say which servers start.
func gate(values map[string]any) (allowed, excluded []any) {
	lists, _ := values["mcp"].(map[string]any)
	allowed, _ = lists["allowed"].([]any)
	excluded, _ = lists["excluded"].([]any)
	return allowed, excluded
}

// isShut reports whether a list of allowed servers is there and has not our name.
func isShut(values map[string]any) bool {
	allowed, _ := gate(values)
	return len(allowed) > 0 && !slices.Contains(allowed, any(entryName))
}

// allow adds our name to the allowed servers, where only some are.
func allow(text []byte) ([]byte, error) {
	values, err := Decode(".json", text)
	if err != nil || !isShut(values) {
		return text, err
	}
	allowed, _ := gate(values)
	return set(text, append(slices.Clone(allowed), entryName), "mcp", "allowed")
}

// disallow takes our name out again, if others stay: an empty list would allow all.
func disallow(text []byte) ([]byte, error) {
	values, err := Decode(".json", text)
	allowed, _ := gate(values)
	if err != nil || !slices.Contains(allowed, any(entryName)) || len(allowed) == 1 {
		return text, err
	}
	return set(text, without(allowed), "mcp", "allowed")
}

func without(allowed []any) []any {
	return slices.DeleteFunc(slices.Clone(allowed), func(name any) bool { return name == entryName })
}

// withoutUs are settings with our name taken out of the allowed servers: the rest must stay as it was.
func withoutUs(values map[string]any) map[string]any {
	lists, ok := values["mcp"].(map[string]any)
	allowed, isList := lists["allowed"].([]any)
	if !ok || !isList {
		return values
	}
	values, lists = maps.Clone(values), maps.Clone(lists)
	lists["allowed"], values["mcp"] = without(allowed), lists
	return values
}

// ShutOut says why the client does not start our entry in a folder, though it is there; "" where nothing is
// known that keeps it.
func (c Client) ShutOut(dir string) string {
	_, values, err := c.read()
	if !c.gated || err != nil {
		return ""
	}
	if isShut(values) {
		return "mcp.allowed in " + c.File + " does not name " + entryName
	}
	security, _ := values["security"].(map[string]any)
	trust, _ := security["folderTrust"].(map[string]any)
	if trust["enabled"] != true || c.trusts(dir) {
		return ""
	}
	return fmt.Sprintf("it starts no MCP server in a folder that it does not trust, as %s "+
		"(security.folderTrust; /permissions there)", dir)
}

// trusts reports whether a folder is one of those that the client's person trusts.
func (c Client) trusts(dir string) bool {
	rules := map[string]string{}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(c.File), "trustedFolders.json"))
	if err != nil || json.Unmarshal(text, &rules) != nil {
		return false
	}
	for path, rule := range rules {
		if rule == "TRUST_PARENT" {
			path = filepath.Dir(path)
		}
		inside, err := filepath.Rel(path, dir)
		isInside := err == nil && inside != ".." && !strings.HasPrefix(inside,
			".."+string(filepath.Separator))
		if isInside && strings.HasPrefix(rule, "TRUST_") {
			return true
		}
	}
	return false
}
