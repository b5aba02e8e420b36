package ownuser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// directives are a unit's, by section and name; each may be there several times.
func directives(t *testing.T, unit string) map[string][]string {
	t.Helper()
	found, section := map[string][]string{}, ""
	for line := range strings.Lines(unit) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		default:
			name, value, ok := strings.Cut(line, "=")
			require.True(t, ok, line)
			found[section+"."+name] = append(found[section+"."+name], value)
		}
	}
	return found
}

// Each line that makes the service safe is there, with this value and no other.
func TestTheUnit(t *testing.T) {
	unit := Setup{Serve: []string{"--http", "127.0.0.1:8402"}, Credential: "x"}.systemdUnit()
	is := directives(t, unit)
	for name, value := range map[string]string{
		"Unit.ConditionPathExists":        "/var/lib/x402-wallet/keystore.json",
		"Service.User":                    "x402-wallet",
		"Service.Group":                   "x402-wallet",
		"Service.StateDirectory":          "x402-wallet",
		"Service.StateDirectoryMode":      "0700",
		"Service.RuntimeDirectory":        "x402-wallet",
		"Service.CacheDirectory":          "x402-wallet",
		"Service.CacheDirectoryMode":      "0700",
		"Service.RuntimeDirectoryMode":    "0755",
		"Service.UMask":                   "0077",
		"Service.LimitCORE":               "0",
		"Service.LimitNOFILE":             "16384",
		"Service.LimitMEMLOCK":            "8M",
		"Service.Restart":                 "on-failure",
		"Service.CapabilityBoundingSet":   "",
		"Service.AmbientCapabilities":     "",
		"Service.ProtectSystem":           "strict",
		"Service.ProtectProc":             "invisible",
		"Service.RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
		"Service.SystemCallArchitectures": "native",
		"Service.LoadCredentialEncrypted": "passphrase:/etc/x402-wallet/passphrase.cred",
		"Service.ExecStart": "/usr/local/bin/x402-wallet serve --socket " +
			"/run/x402-wallet/service.sock --http 127.0.0.1:8402",
	} {
		require.Equal(t, []string{value}, is[name], name)
	}
	for _, name := range []string{"NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices",
		"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
		"ProtectClock", "ProtectHostname", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
		"LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC"} {
		require.Equal(t, []string{"yes"}, is["Service."+name], name)
	}
	require.Equal(t, []string{"@system-service",
		"landlock_create_ruleset landlock_add_rule landlock_restrict_self"}, is["Service.SystemCallFilter"])
	require.Contains(t, is["Service.Environment"], "X402_WALLET_PASSPHRASE_FILE=%d/passphrase")
	require.Empty(t, is["Service.PrivateUsers"], "the uid of who connects would be nobody's")
	without := directives(t, Setup{}.systemdUnit())
	require.Empty(t, without["Service.LoadCredentialEncrypted"])
	require.Equal(t, []string{"X402_WALLET_HOME=/var/lib/x402-wallet", "HOME=/var/cache/x402-wallet"},
		without["Service.Environment"])
}

// systemd itself reads the unit, and finds nothing that it does not know.
func TestSystemdKnowsTheUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT TESTED HERE: there is no systemd-analyze")
	}
	unit := Setup{Serve: []string{"--tls-key", "/etc/a b/100%"}, Credential: "x"}.systemdUnit()
	unit = strings.Replace(unit, Service().Program+" serve", "/bin/sh serve", 1) // it looks for the program
	path := filepath.Join(t.TempDir(), systemdName)
	require.NoError(t, os.WriteFile(path, []byte(unit), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), path, "it warns of what it does not know")

	out, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=20",
		path).CombinedOutput()
	require.NoError(t, err, "its exposure is above 2.0 of 10\n%s", out)
}

// A service with owners starts without a wallet, which they make.
func TestTheUnitOfOwners(t *testing.T) {
	with := Setup{Owners: []string{"alice", "1000"}}
	is := directives(t, with.systemdUnit())
	require.Empty(t, is["Unit.ConditionPathExists"])
	require.Equal(t, []string{"/usr/local/bin/x402-wallet serve --socket /run/x402-wallet/service.sock " +
		"--owner alice --owner 1000"}, is["Service.ExecStart"])
}

func TestWordsOfACommand(t *testing.T) {
	for from, to := range map[string]string{`a`: `a`, `a b`: `"a b"`, `50%`: `50%%`, `$HOME`: `$$HOME`,
		`a"b`: `"a\"b"`, `a\b`: `"a\\b"`} {
		require.Equal(t, "x "+to, systemdLine([]string{"x", from}))
	}
}

func TestSystemsWithoutAService(t *testing.T) {
	require.NoError(t, Supported("linux"))
	for _, system := range []string{"darwin", "windows", "freebsd"} {
		require.ErrorContains(t, Supported(system), "systemd", system)
	}
}

// Uninstalling touches neither the home nor the user, nor the program, by which the owner gets at the money.
func TestUninstallingLeavesTheWallet(t *testing.T) {
	place := Service()
	var removed []string
	for _, a := range Uninstall() {
		require.Nil(t, a.Write)
		for _, word := range append(a.Run, a.Remove) {
			require.NotContains(t, []string{"userdel", "rm", place.Home, place.Program, credentialFile}, word)
			require.False(t, strings.HasPrefix(word, place.Home), word)
		}
		removed = append(removed, a.Remove)
	}
	require.Contains(t, removed, place.Unit)
}
