package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"x402-wallet/internal/ownuser"
	"x402-wallet/internal/relay"
	"x402-wallet/wallet/owner"
	"x402-wallet/x402"
)

// Where the wallet is a service of a user of its own, its owner's commands come to it by its socket:
// the owner's program hands its arguments and its terminal over, and the service starts this program
// again, as its own user, with both. So that program must not do for its caller what only the service's user
// could: read or write a file that they name, or start a program. What it may do is listed here, and nothing
// else.

// handed is what of a command may come by the socket.
type handed struct {
	flags   []string // those of its flags that may be given
	refused []string // and those that may not
}

// page would take passphrases by HTTP, uncounted.
const page = "page"

// atService are the commands that may, by what stands after the program's name.
var atService = map[string]handed{
	"account": {},
	"account add": {flags: []string{"agent", "allow-host", "budget", "index", "phrase-passphrase", "team"},
		refused: []string{page}},
	"account list": {},
	"address":      {flags: []string{"account", "qr"}},
	"agents":       {},
	"agents add": {flags: []string{"allow-host", "budget", "certificate", "label", "subject", "user"},
		refused: []string{page}},
	"agents list":   {},
	"agents revoke": {refused: []string{page}},
	"alerts":        {flags: []string{"limit"}},
	"approvals":     {},
	"approve":       {refused: []string{page}},
	"balance":       {flags: []string{"account", "asset", "network"}},
	"budget":        {},
	"budget set": {flags: []string{"account", "agent", "agents", "host", "team"},
		refused: []string{page}},
	"channel":      {},
	"channel list": {},
	"delegation":   {flags: []string{"account", "network", "token-account"}},
	"delegation permit2": {flags: []string{"account", "amount", "asset", "network", "revoke"},
		refused: []string{page}},
	"delegation show": {flags: []string{"account", "network", "token-account"}},
	"deny":            {},
	"doctor":          {flags: []string{"full"}},
	"export": {flags: []string{"account", "after", "agent", "before", "by", "format", "host", "label", "team",
		"url"},
		refused: []string{"output"}},
	"freeze": {},
	"history": {flags: []string{"account", "after", "agent", "before", "days", "limit", "plot", "status",
		"team", "url"}},
	"history verify": {flags: []string{"seals"}},
	"ledger":         {},
	"ledger check":   {flags: []string{"seals"}},
	"init": {flags: []string{"import-phrase", "index", "key-path", "keys-only", "phrase-passphrase"},
		refused: []string{"config", "export-phrase", "import-evm", "import-key-file", "import-ozskr",
			"import-passphrase-fd", "import-passphrase-file", "import-phrase-fd", "import-phrase-file",
			"import-phrase-of",
			"import-solana", "install", "keyring", "no-input", "passphrase-fd", "passphrase-file",
			"phrase-passphrase-fd", "phrase-passphrase-file", "unlock", "wait-for-funds", "yes"}},
	"lock":            {},
	"notify":          {},
	"notify test":     {},
	"passkeys":        {},
	"passkeys add":    {refused: []string{page}},
	"passkeys list":   {},
	"passkeys remove": {refused: []string{page}},
	"passphrase": {refused: []string{"forget-keyring", "keyring", "new-passphrase-fd", "new-passphrase-file",
		"passphrase-fd", "passphrase-file"}},
	"policy":        {},
	"policy allow":  {flags: []string{"agent", "team"}, refused: []string{page}},
	"policy deny":   {refused: []string{page}},
	"policy seal":   {refused: []string{page}},
	"reconcile":     {},
	"session":       {},
	"session label": {},
	"session new":   {flags: []string{"label"}, refused: []string{page}},
	"session show":  {},
	"show":          {flags: []string{"content", "receipt"}},
	"signer":        {},
	"signer list":   {},
	"signer remove": {refused: []string{page}},
	"signer test":   {},
	"subscribe": {flags: []string{"account", "agent", "asset", "every", "header", "max", "name", "network",
		"request", "start", "total",
		"until"}, refused: []string{"data", page}},
	"subscriptions": {},
	"subscriptions accept": {flags: []string{"asset", "max", "name", "network", "start", "total", "until"},
		refused: []string{page}},
	"subscriptions cancel":  {refused: []string{page}},
	"subscriptions decline": {},
	"subscriptions list":    {},
	"subscriptions pause":   {refused: []string{page}},
	"subscriptions resume":  {refused: []string{page}},
	"subscriptions show":    {},
	"unfreeze":              {refused: []string{page}},
	"unlock": {refused: []string{"foreground", handedOver, "passphrase-fd",
		"passphrase-file"}},
	"vault":      {flags: []string{"network", "vault"}},
	"vault show": {flags: []string{"network", "vault"}},
}

// onlyHere are the commands to which a service elsewhere is nothing, besides noHomeCommands: mcp finds it
// itself.
var onlyHere = []string{"install", "mcp", "paywall", "serve"}

// everywhere are the flags that any command has.
var everywhere = []string{"help", "json"}

// below is a command without the program's name.
func below(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// CheckHanded refuses a command line that may not come by the service's socket: INVALID_ARGUMENT. home is the
// service's.
func CheckHanded(args []string, home string) error {
	p := &Program{}
	root := p.root(&ui{out: &output{w: io.Discard}, err: io.Discard})
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		return x402.Errorf(x402.InvalidArgument, "the service does not know this command: %w", err)
	}
	return checkHanded(cmd, args, home)
}

// checkHanded is CheckHanded for a command whose flags were parsed.
func checkHanded(cmd *cobra.Command, args []string, home string) error {
	may, ok := atService[below(cmd)]
	what := cmd.CommandPath()
	if ok {
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if ok && !slices.Contains(may.flags, f.Name) && !slices.Contains(everywhere, f.Name) {
				ok, what = false, what+" --"+f.Name
			}
		})
	}
	if ok {
		return nil
	}
	asUser := ownuser.Here(home).AsUser(each(args, shellWord)...)
	return x402.Errorf(x402.InvalidArgument, "%s is not run for who comes by the service's socket", what).
		WithCommand(asUser, "run: "+asUser).WithHint("as the service's user: %s", asUser)
}

// service is where the owner's commands go; "": they are run here. found: nobody named it.
func (p *Program) service() (socket string, found bool) {
	switch named := p.Env.Service; {
	case named == "off" || p.Env.Handed != "":
		return "", false
	case named != "":
		return named, false
	case p.Env.Home != "" || p.NoHome != nil || owner.Exists(p.Home):
		return "", false
	case ownuser.Supported(runtime.GOOS) != nil:
		return "", false
	}
	return ownuser.Service().Socket, true
}

// atItsPlace runs a command at the service, where the wallet is there: then its error is an exitError, or why
// it was not run. nil: it is to be run here.
func (p *Program) atItsPlace(ctx context.Context, ui *ui, cmd *cobra.Command) error {
	if p.Env.Handed != "" {
		return checkHanded(cmd, p.args, p.Home)
	}
	first, _, _ := strings.Cut(below(cmd), " ")
	if first == "" || slices.Contains(noHomeCommands, first) || slices.Contains(onlyHere, first) {
		return nil
	}
	socket, found := p.service()
	if socket == "" {
		return nil
	}
	stderr, isFile := p.Stderr.(*os.File)
	if !isFile {
		return nil
	}
	files, done := p.streams(stderr)
	defer done()
	command := relay.Command{Args: p.args, NoColor: p.Env.NoColor}
	exit, err := relay.HandOver(ctx, socket, p.Home, command, files,
		func() { ui.note("%s", paint(ui.colorErr, dim, "at the service "+safe(socket))) })
	switch {
	case found && (errors.Is(err, relay.ErrNone) || x402.HasCode(err, x402.PolicyDenied)):
		return nil // none runs here, or it is not theirs
	case errors.Is(err, relay.ErrNone):
		return relay.NoneAt(socket)
	case err != nil:
		return err
	}
	return exitError(exit)
}
