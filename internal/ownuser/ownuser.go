// Package ownuser is what a system needs to run the wallet as a service of a user of its own: that user, its
// home, a copy of the program that only root can change, and the text by which the system starts it. Linux
// with systemd, macOS with launchd and Windows with its service manager are known.
//
// What must stay true: the texts follow from Setup alone, and what a Plan says is all that is done; nothing
// is written where anybody but root could put something else instead; the home and the user are never
// removed.
//
// The files: systemd.go, launchd.go and windows.go (the texts), write.go and dir_windows.go (a plan, carried
// out).
package ownuser

import (
	"errors"
	"io/fs"
	"os/user"
	"strconv"
	"strings"
)

// Place is where the service's parts lie on a system.
type Place struct {
	User    string // of the operating system
	Home    string // the wallet's home: that user's alone
	Socket  string // by which agents come; its directory is that user's, and anybody may enter it
	Program string
	Unit    string // the file by which the system starts it, on Windows a registry key
}

var (
	onSystemd = Place{User: "x402-wallet", Home: "/var/lib/x402-wallet",
		Socket: "/run/x402-wallet/service.sock", Program: "/usr/local/bin/x402-wallet",
		Unit: "/etc/systemd/system/x402-wallet.service"}
	onLaunchd = Place{User: "_x402-wallet", Home: "/var/db/x402-wallet/home",
		Socket: "/var/db/x402-wallet/run/service.sock", Program: "/usr/local/bin/x402-wallet",
		Unit: "/Library/LaunchDaemons/x402-wallet.plist"}
)

// PlaceOn is that of an operating system, by Go's name of it.
func PlaceOn(system string) Place {
	switch system {
	case "darwin":
		return onLaunchd
	case "windows":
		return systemFolders().place()
	}
	return onSystemd
}

// ErrUnsupported: on this system the wallet cannot be a service of its own user.
var ErrUnsupported = errors.New("the wallet can be a service on Linux with systemd, on macOS and on " +
	"Windows: on this system a socket cannot tell whose process is at its other end")

// Setup is what is to be installed.
type Setup struct {
	Program    string   // the file of the program that is copied
	Serve      []string // options of serve besides its socket, such as --http
	Owners     []string // users whose owner's commands the service runs; they may make its wallet, too
	Credential string   // the file of the passphrase, for systemd encrypted by systemd-creds; "": none
	HasWallet  bool     // there is one in the home; asked on Windows alone
	NoSysusers bool     // the system makes users by useradd alone
}

// File is one that is written, root's.
type File struct {
	Path string
	Mode fs.FileMode
	Text string
	From string // the file that it is a copy of, instead of Text
}

// Dir is a directory of Windows, with who may do what in it, as SDDL.
type Dir struct {
	Path, Access string
}

// Action is one of a plan: a file that is written, a directory that is made, a file that is removed, or a
// command that is run.
type Action struct {
	Write   *File
	Make    *Dir
	Remove  string
	Run     []string
	MayFail bool // the command, where what it is to bring about is so already
}

// Plan is what is done, in this order.
type Plan []Action

func write(f File) Action         { return Action{Write: &f} }
func remove(path string) Action   { return Action{Remove: path} }
func run(argv ...string) Action   { return Action{Run: argv} }
func tryTo(argv ...string) Action { return Action{Run: argv, MayFail: true} }

// Install is the plan for a system.
func Install(system string, s Setup) (Plan, error) {
	switch system {
	case "linux":
		return s.systemd(), nil
	case "darwin":
		if s.Credential != "" {
			return nil, errors.New("credentials are systemd's: this system has none")
		}
		return s.launchd(), nil
	case "windows":
		return s.windows(systemFolders()), nil
	}
	return nil, ErrUnsupported
}

// Uninstall is the plan that takes the service away again. Home, user and program stay.
func Uninstall(system string) (Plan, error) {
	switch system {
	case "linux":
		return withoutSystemd(), nil
	case "darwin":
		return withoutLaunchd(), nil
	case "windows":
		return withoutWindows(systemFolders()), nil
	}
	return nil, ErrUnsupported
}

// ID is the uid, or on Windows the SID, of a user, by its name or as it is.
func ID(name string) (string, error) {
	known, err := user.Lookup(name)
	if err == nil {
		return known.Uid, nil
	}
	if uid, notNumber := strconv.ParseUint(name, 10, 32); notNumber == nil {
		return strconv.FormatUint(uid, 10), nil
	}
	return "", err
}

// Here is the place of a wallet that runs as this process's user, in a home.
func Here(system, home string) Place {
	p := PlaceOn(system)
	p.Home = home
	if u, err := user.Current(); err == nil {
		p.User = u.Username
	}
	return p
}

// AsUser is a command of the program as its owner types it, for the service's wallet.
func (p Place) AsUser(args ...string) string {
	if strings.HasPrefix(p.User, serviceAccount) {
		return asAdministrator(p, args)
	}
	return strings.Join(append([]string{"sudo", "-u", p.User, "env", "X402_WALLET_HOME=" + p.Home, p.Program},
		args...), " ")
}
