package ownuser

import (
	"path/filepath"
	"strings"
)

const (
	sysusersFile   = "/etc/sysusers.d/x402-wallet.conf"
	credentialFile = "/etc/x402-wallet/passphrase.cred" //nolint:gosec // a path
	credentialName = "passphrase"
	systemdName    = "x402-wallet.service"
	systemdCache   = "/var/cache/x402-wallet"
)

// hardening is what the service is kept from. Each line is one that the wallet can do without, and MCP
// servers that are commands as a rule: what runs compiled code that it makes itself (node) cannot, see
// docs/service.md.
const hardening = `
# no rights that a user of its own does not have, and none to be had
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
RestrictSUIDSGID=yes
# of the machine it sees what it needs; it writes to its home and to its socket's directory alone
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
# landlock: by which it keeps the MCP servers that it starts from its home
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallErrorNumber=EPERM
# PrivateUsers= must stay off: with it the kernel does not say whose process is at the socket's other end
`

// limits are the resources of the service. The keys lie in one page of memory that is never swapped; some
// more are needed while they are opened.
const limits = `UMask=0077
LimitCORE=0
LimitMEMLOCK=8M
LimitNOFILE=16384
`

func (s Setup) systemdUnit() string {
	p := Service()
	var b strings.Builder
	b.WriteString("# Made by x402-wallet service install, which writes it again. What you change: " +
		"systemctl edit x402-wallet\n[Unit]\nDescription=x402-wallet, which the agents of this machine pay " +
		"by\nWants=network-online.target\nAfter=network-online.target\n")
	if len(s.Owners) == 0 {
		b.WriteString("# it has nothing to do before x402-wallet init\n" +
			"ConditionPathExists=" + p.Home + "/keystore.json\n")
	}
	b.WriteString("\n[Service]\nType=exec\n" +
		"User=" + p.User + "\nGroup=" + p.User + "\n" +
		"ExecStart=" + systemdLine(s.serve(p)) + "\nRestart=on-failure\nRestartSec=2\n" +
		"Environment=X402_WALLET_HOME=" + p.Home + "\n" +
		"# where the MCP servers that it starts keep what they fetch: the wallet's home is closed to them\n" +
		"Environment=HOME=" + systemdCache + "\nCacheDirectory=" + filepath.Base(systemdCache) +
		"\nCacheDirectoryMode=0700\n")
	if s.Credential != "" {
		b.WriteString("LoadCredentialEncrypted=" + credentialName + ":" + credentialFile + "\n" +
			"Environment=X402_WALLET_PASSPHRASE_FILE=%d/" + credentialName + "\n")
	}
	b.WriteString("StateDirectory=" + filepath.Base(p.Home) + "\nStateDirectoryMode=0700\n" +
		"RuntimeDirectory=" + filepath.Base(filepath.Dir(p.Socket)) + "\nRuntimeDirectoryMode=0755\n")
	b.WriteString(limits + hardening + "\n[Install]\nWantedBy=multi-user.target\n")
	return b.String()
}

// serve is the command that the system starts.
func (s Setup) serve(p Place) []string {
	argv := append([]string{p.Program, "serve", "--socket", p.Socket}, s.Serve...)
	for _, owner := range s.Owners {
		argv = append(argv, "--owner", owner)
	}
	return argv
}

// systemdLine writes a command for ExecStart=, where % and $ mean something, and so do quotes and
// backslashes.
func systemdLine(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		arg = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(arg)
		if strings.ContainsAny(arg, " '\"\\;") {
			arg = `"` + arg + `"`
		}
		words[i] = arg
	}
	return strings.Join(words, " ")
}

// Install is the plan that installs the service, or brings an installed one up to date.
func Install(s Setup) Plan {
	p := Service()
	plan := Plan{write(File{Path: p.Program, Mode: 0o755, From: s.Program})}
	if s.NoSysusers {
		plan = append(plan, tryTo("useradd", "--system", "--user-group", "--home-dir", p.Home,
			"--no-create-home", "--shell", "/usr/sbin/nologin", p.User))
	} else {
		plan = append(plan, write(File{Path: sysusersFile, Mode: 0o644,
			Text: "u " + p.User + " - \"x402-wallet service\" " + p.Home + "\n"}),
			run("systemd-sysusers", sysusersFile))
	}
	plan = append(plan, run("install", "-d", "-m", "0700", "-o", p.User, "-g", p.User, p.Home))
	if s.Credential != "" {
		plan = append(plan, write(File{Path: credentialFile, Mode: 0o600, From: s.Credential}))
	}
	return append(plan, write(File{Path: p.Unit, Mode: 0o644, Text: s.systemdUnit()}),
		run("systemctl", "daemon-reload"), run("systemctl", "enable", systemdName),
		run("systemctl", "restart", systemdName)) // without a wallet it stays down (ConditionPathExists)
}

// Uninstall is the plan that takes the service away again. Home, user, program and credential stay. The
// socket does not: systemd removes its directory when the service has stopped.
func Uninstall() Plan {
	return Plan{tryTo("systemctl", "disable", "--now", systemdName), remove(Service().Unit),
		run("systemctl", "daemon-reload")}
}
