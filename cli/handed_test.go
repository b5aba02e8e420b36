package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/must"
	"x402-wallet/internal/ownuser"
	"x402-wallet/x402"
)

func allCommands(t *testing.T) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		all[below(cmd)] = cmd
		if cmd.HasParent() {
			require.Nil(t, cmd.PersistentPreRunE, "%s would not be checked", cmd.CommandPath())
			require.Nil(t, cmd.PersistentPreRun, "%s would not be checked", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	p := &Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	root := p.root(newUI(os.Stdout, os.Stderr, true))
	walk(root)
	delete(all, "")
	return all
}

func isBelow(name string, list []string) bool {
	return slices.ContainsFunc(list, func(top string) bool {
		return name == top || strings.HasPrefix(name, top+" ")
	})
}

// Every command and every flag was thought about: it may come by the service's socket, or it may not, on
// purpose. Add a new one to atService, where it lets its caller do nothing with the files and programs of the
// service's user, else to notAtService.
func TestEveryCommandMayBeHandedOverOrNot(t *testing.T) {
	all := allCommands(t)
	require.Greater(t, len(all), 60)
	for name, cmd := range all {
		may, ok := atService[name]
		where := []bool{ok, isBelow(name, notAtService), isBelow(name, onlyHere) ||
			isBelow(name, noHomeCommands)}
		n := 0
		for _, is := range where {
			if is {
				n++
			}
		}
		require.Equal(t, 1, n, "%s is in %d of atService, notAtService and onlyHere", name, n)
		if !ok {
			continue
		}
		var flags []string
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(everywhere, f.Name) {
				flags = append(flags, f.Name)
			}
		})
		require.ElementsMatch(t, slices.Concat(may.flags, may.refused), flags, "the flags of %s", name)
		for _, flag := range may.flags {
			usage := cmd.Flags().Lookup(flag).Usage
			require.NotRegexp(t, "`(FILE|DIR|DIRECTORY|PATH)`|descriptor", usage, "%s --%s", name, flag)
		}
		require.NotRegexp(t, "FILE|DIR|PATH", cmd.Use, name)
	}
	for _, list := range [][]string{notAtService, onlyHere} {
		for _, name := range list {
			require.Contains(t, all, name)
		}
	}
	for name := range atService {
		require.Contains(t, all, name)
	}
}

func TestWhatMayBeHandedOver(t *testing.T) {
	for _, line := range []string{"balance", "balance --network base --json", "--json=false approve apr_1",
		"agents add x --budget day=1 --user alice", "export --format csv", "init", "init --import-phrase " +
			"--index 2 --keys-only", "history verify --seals",
		"budget set day 5.00 --host a.example"} {
		require.NoError(t, CheckHanded(strings.Fields(line), "/home/of/it"), line)
	}
	for _, line := range []string{"", "--json", "mcp", "serve", "pay https://a.example", "dashboard",
		"export -o /etc/x", "export-phrase", "init --export-phrase", "init --import-phrase-file /etc/x",
		"init --import-phrase-of /home", "init --import-phrase-fd 3", "export --output=/etc/x", "export " +
			"-o/etc/x", "init --passphrase-file /etc/x",
		"unlock --passphrase-fd 0", "unlock --handed-over", "unlock --foreground", "approve x --page",
		"history import /etc/x", "ledger prune", "man /etc", "verify-receipt /etc/x", "install claude-code",
		"service install", "paywall --config /etc/x", "__complete approve x", "completion bash", "help",
		"policy seal --page=true", "nothing", "balance --nothing"} {
		err := CheckHanded(strings.Fields(line), "/home/of/it")
		require.True(t, x402.HasCode(err, x402.InvalidArgument), "%q: %v", line, err)
	}
	err := x402.AsError(CheckHanded([]string{"export", "-o", "/a b"}, "/home/of/it"))
	require.Contains(t, err.Message, "export --output is not run")
	require.Regexp(t, `^as the service's user: sudo -u \S+ env X402_WALLET_HOME=/home/of/it \S+ `+
		`export -o '/a b'$`, err.Hint)
}

// The program that the service starts checks for itself what the service has checked.
func TestTheProgramOfAnOwnerChecksItself(t *testing.T) {
	for _, args := range [][]string{{"mcp"}, {}, {"unlock", "--foreground"}, {"pay", "https://a.example"},
		{"verify-receipt", "/etc/passwd"}, {"man", t.TempDir()},
		{cobra.ShellCompRequestCmd, "approve", ""}} {
		in, out, err := os.Pipe() // no terminal
		require.NoError(t, err)
		stdout := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
		p := &Program{Env: environ.Env{Handed: environ.HandedTerminal}, Home: t.TempDir(), Stdin: in,
			Stdout: stdout, Stderr: stdout}
		require.Equal(t, exitUsage, p.Run(t.Context(), args), args)
		require.Contains(t, string(must.Get(os.ReadFile(stdout.Name()))(t)), "service", args)
		for _, f := range []*os.File{in, out, stdout} {
			require.NoError(t, f.Close())
		}
	}
}

// Where a command goes: nobody has to say so where there is no wallet, and no place was named for one.
func TestWhereACommandGoes(t *testing.T) {
	machines := ownuser.Service().Socket
	for name, c := range map[string]struct {
		env    environ.Env
		noHome error
		goes   string
		found  bool
	}{
		"by itself":                  {environ.Env{}, nil, machines, true},
		"the home is named":          {environ.Env{Home: "/x"}, nil, "", false},
		"it is off":                  {environ.Env{Service: "off"}, nil, "", false},
		"it is named":                {environ.Env{Service: "/s", Home: "/x"}, nil, "/s", false},
		"it is there already":        {environ.Env{Service: "/s", Handed: "terminal"}, nil, "", false},
		"there can be no home of it": {environ.Env{}, os.ErrNotExist, "", false},
	} {
		p := &Program{Env: c.env, NoHome: c.noHome, Home: t.TempDir()}
		socket, found := p.service()
		require.Equal(t, []any{c.goes, c.found}, []any{socket, found}, name)
	}
	home := t.TempDir()
	require.NoError(t, os.WriteFile(home+"/keystore.json", nil, 0o600))
	socket, _ := (&Program{Home: home}).service()
	require.Empty(t, socket, "there is a wallet")
}
