package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

// The variables that other programs read from the environment keep the wallet from nothing: a library that
// it is built with took TRACE for a regular expression, and panicked before main.
func TestStarts_WhateverOtherProgramsVariablesSay(t *testing.T) {
	for _, variable := range []string{"TRACE=(", "TRACE=*,foo", "DEBUG=*", "DLOG=(", "ZAP_PRETTY=("} {
		out, problems := runs(t, 0, []string{variable, "X402_WALLET_HOME=" + t.TempDir()}, "version")
		require.Contains(t, out, "platform", variable)
		require.Empty(t, problems, variable)
	}
}

// A host that gives no home, or one that no shell has read, hears by MCP what is wrong, and no wallet is
// made.
func TestAnAgentHearsThatThereIsNoHome(t *testing.T) {
	dir := t.TempDir()
	for _, home := range []string{"", "~nobody/w", "${workspaceFolder}/w", "$X/w", "'/w'"} {
		s := serve(t, "HOME=", "XDG_CONFIG_HOME=", "X402_WALLET_HOME="+home, "PWD="+dir)
		for _, call := range [][2]string{{"x402_pay", `{"url":"https://a.example/"}`}, {"x402_check_balance", "{}"}} {
			require.Contains(t, s.call(call[0], call[1]), `"error":"SETUP_FAILED"`, home)
		}
		s.leave()
	}
	require.NoDirExists(t, "~nobody")
}

// A client's entry has the name that the wallet is found or was started by: a package manager moves a link to
// the next version, and removes what it led to.
func TestAnEntryKeepsALink(t *testing.T) {
	program := testworld.Build(t) // testscript renames what it runs
	dir := t.TempDir()
	link := filepath.Join(dir, "bin", "x402-wallet")
	require.NoError(t, os.Mkdir(filepath.Dir(link), 0o700))
	if err := os.Symlink(program, link); err != nil {
		t.Skip(err) // Windows, without the right to make links
	}
	for name, c := range map[string]struct{ arg0, path, want string }{
		"on the PATH":               {"x402-wallet", filepath.Dir(link) + ":/usr/bin", link},
		"by its path, and on it":    {link, filepath.Dir(link) + ":/usr/bin", link},
		"by its path alone":         {link, "/usr/bin", link},
		"by a relative path":        {"bin/x402-wallet", "/usr/bin", link},
		"the program, link on PATH": {program, filepath.Dir(link), link},
	} {
		cmd := command(t, []string{"PATH=" + c.path, "X402_WALLET_HOME=" + dir}, "install", "cursor",
			"--print")
		cmd.Dir, cmd.Path, cmd.Args[0] = dir, link, c.arg0
		var entry struct {
			MCPServers map[string]struct{ Command string }
		}
		require.NoError(t, json.Unmarshal(must.Get(cmd.Output())(t), &entry), name)
		require.Equal(t, c.want, entry.MCPServers["x402-wallet"].Command, name)
	}
}
