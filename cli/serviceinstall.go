package cli

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"x402-wallet/internal/ownuser"
	"x402-wallet/wallet/owner"
)

type serviceOut struct {
	Installed bool        `json:"installed"`
	Home      string      `json:"home"`
	User      string      `json:"user"`
	Socket    string      `json:"socket"`
	Next      []nextThing `json:"next"`
}

type nextThing struct {
	What    string `json:"what"`
	Command string `json:"command"`
}

func (p *Program) serviceInstallCommand(ui *ui) *cobra.Command {
	var c systemChange
	var doors Doors
	var credential string
	cmd := &cobra.Command{
		Use: "install", Short: "Run the wallet as a service (once, as root)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := serviceSupported(); err != nil {
				return err
			}
			setup, err := serviceSetup(doors, credential)
			if err != nil {
				return err
			}
			for _, owner := range setup.Owners {
				if _, err := ownuser.ID(owner); err != nil && c.root == "" { // another root has other users
					return usagef("--owner: %v", err)
				}
			}
			done, err := p.carryOut(cmd, ui, c, ownuser.Install(setup))
			if err != nil || !done {
				return err
			}
			root, err := wholeRoot(c.root)
			if err != nil {
				return err
			}
			hasWallet := owner.Exists(filepath.Join(root, ownuser.Service().Home))
			return ui.installedService(credential != "", hasWallet, len(doors.Owners) > 0)
		},
	}
	c.add(cmd)
	doors.add(cmd)
	cmd.Flags().StringVar(&credential, "credential", "", "unlock by the passphrase in this `FILE`, which "+
		"systemd-creds encrypted by the name passphrase")
	return cmd
}

// serviceSetup is what is to be installed, by full paths: the service is started elsewhere.
func serviceSetup(doors Doors, credential string) (s ownuser.Setup, err error) {
	if err := doors.check(); err != nil {
		return s, err
	}
	if doors.HTTP != "" {
		if _, _, err := net.SplitHostPort(doors.HTTP); err != nil {
			return s, usagef("--http takes host:port, such as 127.0.0.1:8402")
		}
		s.Serve = append(s.Serve, "--http", doors.HTTP)
	}
	if doors.Metrics != "" {
		s.Serve = append(s.Serve, "--metrics", doors.Metrics)
	}
	for _, file := range []struct{ flag, path string }{{"--tls-certificate", doors.Certificate},
		{"--tls-key", doors.Key}, {"--client-ca", doors.ClientCA}} {
		if file.path == "" {
			continue
		}
		path, err := filepath.Abs(file.path)
		if err != nil {
			return s, err
		}
		s.Serve = append(s.Serve, file.flag, path)
	}
	s.Owners = doors.Owners
	if credential != "" {
		s.Credential, err = filepath.Abs(credential)
		if err != nil {
			return s, err
		}
	}
	s.Program, err = os.Executable()
	if err != nil {
		return s, err
	}
	_, missing := exec.LookPath("systemd-sysusers")
	s.NoSysusers = missing != nil
	return s, nil
}

// installedService says what the owner does next: at the service where it knows them, else as its user.
func (u *ui) installedService(unlocksItself, hasWallet, hasOwner bool) error {
	place := ownuser.Service()
	out := serviceOut{Installed: true, Home: place.Home, User: place.User, Socket: place.Socket}
	next := func(what, command string) {
		out.Next = append(out.Next, nextThing{What: what, Command: command})
	}
	owners := place.AsUser
	if hasOwner {
		owners = func(args ...string) string { return commandText(append([]string{"x402-wallet"}, args...)) }
	}
	switch {
	case !hasWallet && hasOwner:
		next("make its wallet, as its owner", owners("init"))
	case !hasWallet:
		next("make its wallet", owners("init", "--install", "none"))
		next("start it", "sudo systemctl start x402-wallet")
	}
	if !unlocksItself {
		next("unlock it, after each start of the machine", owners("unlock"))
	}
	next("let an agent in, which prints its token", owners("agents", "add", "NAME"))
	next("the agent's host starts, with X402_WALLET_TOKEN and X402_WALLET_SERVICE="+place.Socket,
		commandText([]string{place.Program, "mcp"}))
	return u.answer(out, func() {
		u.say("installed: %s, with its home %s", place.Unit, place.Home)
		u.note("what is next, in a terminal that no agent can write to:")
		for _, n := range out.Next {
			u.note("  %s:\n    %s", n.What, n.Command)
		}
	})
}

func (p *Program) serviceUninstallCommand(ui *ui) *cobra.Command {
	var c systemChange
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Stop the service and take it out of the system", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := serviceSupported(); err != nil {
				return err
			}
			done, err := p.carryOut(cmd, ui, c, ownuser.Uninstall())
			if err != nil || !done {
				return err
			}
			place := ownuser.Service()
			money := nextThing{What: fmt.Sprintf("the money is still there: its keys are in %s, which is "+
				"%s's", place.Home, place.User), Command: place.AsUser("balance")}
			out := serviceOut{Home: place.Home, User: place.User, Socket: place.Socket,
				Next: []nextThing{money}}
			return ui.answer(out, func() {
				ui.say("the service is gone; %s and the user %s stay", place.Home, place.User)
				ui.note("%s:\n  %s", money.What, money.Command)
			})
		},
	}
	c.add(cmd)
	return cmd
}
