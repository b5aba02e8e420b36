// Package ownuser is what a Linux system with systemd needs to run the wallet as a service of a user of its
// own: that user, its home, a copy of the program that only root can change, and the unit by which systemd
// starts it.
//
// What must stay true: the unit follows from Setup alone, and what a Plan says is all that is done; nothing
// is written where anybody but root could put something else instead; the home and the user are never
// removed.
//
// The files: systemd.go (the unit and the plans), write.go (a plan, carried out).
package ownuser

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// Place is where the service's parts lie on a system.
type Place struct {
	User    string // of the operating system
	Home    string // the wallet's home: that user's alone
	Socket  string // by which agents come; its directory is that user's, and anybody may enter it
	Program string
	Unit    string // the file by which the system starts it
}

// Service is the place of the machine's service.
func Service() Place {
	return Place{User: "x402-wallet", Home: "/var/lib/x402-wallet",
		Socket: "/run/x402-wallet/service.sock", Program: "/usr/local/bin/x402-wallet",
		Unit: "/etc/systemd/system/x402-wallet.service"}
}

// Supported returns an error on systems where the wallet cannot be installed as a service.
func Supported(system string) error {
	if system != "linux" {
		return errors.New("the wallet is installed as a service on Linux with systemd alone")
	}
	return nil
}

type Setup struct {
	Program    string   // the file of the program that is copied
	Serve      []string // options of serve besides its socket, such as --http
	Owners     []string // users whose owner's commands the service runs; they may make its wallet, too
	Credential string   // the file of the passphrase, encrypted by systemd-creds; "" for none
	NoSysusers bool     // the system makes users by useradd alone
}

// File is one that is written, root's.
type File struct {
	Path string
	Mode fs.FileMode
	Text string
	From string // the file that it is a copy of, instead of Text
}

// Action is one of a plan: a file that is written, a file that is removed, or a command that is run.
type Action struct {
	Write   *File
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

// ID is the uid of a user, by its name or as it is.
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
func Here(home string) Place {
	p := Service()
	p.Home = home
	if u, err := user.Current(); err == nil {
		p.User = u.Username
	}
	return p
}

// AsUser is a command of the program as its owner types it, for the service's wallet.
func (p Place) AsUser(args ...string) string {
	return strings.Join(append([]string{"sudo", "-u", p.User, "env", "X402_WALLET_HOME=" + p.Home, p.Program},
		args...), " ")
}

type Found struct {
	Installed bool   // its unit is there
	HomeOwner string // "": there is no home
	HomeMode  fs.FileMode
	Wallet    *bool // nil: who looks may not see
}

// Look looks for the service's parts below root, which is "" or another.
func Look(p Place, root string) (f Found, err error) {
	isThere := func(path string) (bool, error) {
		_, err := os.Lstat(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	f.Installed, err = isThere(p.Unit)
	if err != nil {
		return f, err
	}
	switch home, err := os.Lstat(filepath.Join(root, p.Home)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return f, err
	default:
		f.HomeOwner, f.HomeMode = ownerOf(home), home.Mode().Perm()
	}
	if has, err := isThere(filepath.Join(p.Home, "keystore.json")); err == nil {
		f.Wallet = &has
	}
	return f, nil
}

// RunsServices returns an error if this system's manager of services is not systemd.
func RunsServices() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil { // sd_booted(3)
		return errors.New("this system was not started by systemd")
	}
	return nil
}
