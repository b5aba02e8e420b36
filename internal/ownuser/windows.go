package ownuser

import (
	"strings"

	"x402-wallet/internal/socket"
)

const (
	// serviceAccount begins the names of virtual accounts: users of one service each, without a password.
	serviceAccount = `NT SERVICE\`
	servicesKey    = `HKLM\SYSTEM\CurrentControlSet\Services\`
	// eventsKey makes the service's name known to the event log, where its messages go.
	eventsKey = servicesKey + `EventLog\Application\` + socket.ServiceName
	// passphraseName is the file of the passphrase, beside the home.
	passphraseName = "passphrase"
)

// folders are where a Windows has its parts.
type folders struct{ data, programs, system string }

var usualFolders = folders{data: `C:\ProgramData`, programs: `C:\Program Files`,
	system: `C:\Windows\System32`}

func (f folders) place() Place {
	return Place{User: serviceAccount + socket.ServiceName, Home: f.own() + `\home`,
		Socket: socket.ServicePipe, Program: f.programs + `\x402-wallet\x402-wallet.exe`, Unit: servicesKey + socket.ServiceName}
}

func (f folders) own() string { return f.data + `\x402-wallet` }

// asAdministrator is a command as it is typed to cmd.exe, run as administrator: administrators may write to
// the home, and nobody can start a program as the service's user.
func asAdministrator(p Place, args []string) string {
	return "set X402_WALLET_HOME=" + p.Home + "&& " + WindowsLine(append([]string{p.Program}, args...))
}

// access to a directory: all of it for the system and for administrators, to whom it belongs, and what rights
// says for the service; nothing comes from the directory above.
func access(rights string) string {
	return "O:BAG:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;" + rights + ";;;" +
		string(socket.ServiceUser(socket.ServiceName)) + ")"
}

// windows makes a service that only reads its program, and has no privilege but to pass through directories.
// It is stopped first, because a program that runs cannot be replaced.
func (s Setup) windows(f folders) Plan {
	p := f.place()
	sc := func(argv ...string) []string { return append([]string{f.system + `\sc.exe`}, argv...) }
	reg := func(argv ...string) Action { return run(append([]string{f.system + `\reg.exe`}, argv...)...) }
	environment := "X402_WALLET_HOME=" + p.Home
	plan := Plan{
		tryTo(f.system+`\net.exe`, "stop", socket.ServiceName),
		write(File{Path: p.Program, Mode: 0o755, From: s.Program}),
		// anybody may see that it is there: (A;;0x1200a9;;;BU), read by users, for this directory alone
		{Make: &Dir{Path: f.own(), Access: access("0x1200a9") + "(A;;0x1200a9;;;BU)"}},
		{Make: &Dir{Path: p.Home, Access: access("FA")}},
	}
	if s.Credential != "" {
		file := f.own() + `\` + passphraseName
		plan = append(plan, write(File{Path: file, Mode: 0o600, From: s.Credential}))
		environment += ";X402_WALLET_PASSPHRASE_FILE=" + file
	}
	what := []string{socket.ServiceName, "binPath=", WindowsLine(s.serve(p)), "type=", "own", "start=",
		"delayed-auto", "obj=", p.User}
	plan = append(plan,
		tryTo(sc(append([]string{"create"}, what...)...)...), // it may be there
		run(sc(append([]string{"config"}, what...)...)...),
		run(sc("description", socket.ServiceName, "x402-wallet, which the agents of this machine pay by")...),
		run(sc("sidtype", socket.ServiceName, "unrestricted")...),
		run(sc("privs", socket.ServiceName, "SeChangeNotifyPrivilege")...),
		run(sc("failure", socket.ServiceName, "reset=", "86400", "actions=",
			"restart/2000/restart/10000/restart/60000")...),
		run(sc("failureflag", socket.ServiceName, "1")...), // also where it ends by itself with an error
		reg("add", p.Unit, "/v", "Environment", "/t", "REG_MULTI_SZ", "/s", ";", "/d", environment, "/f"),
		reg("add", eventsKey, "/v", "EventMessageFile", "/t", "REG_SZ", "/d", f.system+`\EventCreate.exe`,
			"/f"),
		reg("add", eventsKey, "/v", "TypesSupported", "/t", "REG_DWORD", "/d", "7", "/f"),
	)
	if s.HasWallet {
		plan = append(plan, run(f.system+`\net.exe`, "start", socket.ServiceName))
	}
	return plan
}

func withoutWindows(f folders) Plan {
	return Plan{tryTo(f.system+`\net.exe`, "stop", socket.ServiceName),
		run(f.system+`\sc.exe`, "delete", socket.ServiceName),
		tryTo(f.system+`\reg.exe`, "delete", eventsKey, "/f")}
}

// WindowsLine writes a command as Windows' programs take one apart (CommandLineToArgvW).
func WindowsLine(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		if arg == "" || strings.ContainsAny(arg, " \t\"") {
			arg = quoted(arg)
		}
		words[i] = arg
	}
	return strings.Join(words, " ")
}

// quoted doubles the backslashes before a quote, of which the closing one is one.
func quoted(arg string) string {
	var b strings.Builder
	slashes := 0
	b.WriteByte('"')
	for i := range len(arg) {
		switch arg[i] {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes+1))
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteByte(arg[i])
	}
	return b.String() + strings.Repeat(`\`, slashes) + `"`
}
