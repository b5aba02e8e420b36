package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/internal/config"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

type policyOut struct {
	Sealed   bool            `json:"sealed"` // the agent pays under the rules as they are
	SealedAt string          `json:"sealedAt,omitempty"`
	Changes  []config.Change `json:"changes"` // since the sealing
	Problem  string          `json:"problem,omitempty"`
	Rules    rulesOut        `json:"rules"`
}

// rulesOut are all rules as text, by key.
type rulesOut map[string]string

func (p *Program) policyCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "The owner's rules: show, change and seal them", Args: wants(),
		Long: "The owner's rules, as they are in config.toml, and whether they are sealed. After editing " +
			"the file run policy seal, which\n" +
			"shows the difference. What loosens the rules takes the passphrase, typed at that moment; " +
			"what tightens them does not.",
		Example: "  x402-wallet policy\n  x402-wallet policy seal\n  x402-wallet policy deny api.example.com",
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.showPolicy(cmd.Context(), ui) },
	}
	cmd.AddCommand(ui.loosens(&cobra.Command{
		Use: "seal", Short: "Seal config.toml as it is now (asks for the passphrase)", Args: wants(),
		Long: "Show what changed in config.toml since it was sealed, and seal it as it is. It also " +
			"accepts a ledger that is not the one the\n" +
			"wallet last wrote (restored from a backup, or moved with its home), and moves to now what is " +
			"dated ahead of the\n" +
			"clock. The passphrase is asked for, unless nothing was loosened.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.changeRules(cmd.Context(), ui, nil)
		},
	}), ui.loosens(&cobra.Command{
		Use: "allow HOST", Short: "Let the agent pay a host (asks for the passphrase)", Args: wants("HOST"),
		Long: "Take a host from the denied ones, and add it to the allowed ones where only those are " +
			"allowed. A host is \"api.example.com\",\n" +
			"\"api.example.com:8443\" or \"*.example.com\".",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if _, err := setHosts(text, "allow_hosts", args); err != nil { // it is no host
					return nil, err
				}
				if slices.Contains(rules.Policy.DenyHosts, args[0]) {
					var err error
					if text, err = setHosts(text, "deny_hosts", slices.DeleteFunc(rules.Policy.DenyHosts,
						func(h string) bool {
							return h == args[0]
						})); err != nil {
						return nil, err
					}
				}
				if allowed := rules.Policy.AllowHosts; len(allowed) > 0 &&
					!slices.Contains(allowed, args[0]) {
					return setHosts(text, "allow_hosts", append(allowed, args[0]))
				}
				return text, nil
			})
		},
	}), ui.loosens(&cobra.Command{
		Use: "deny HOST", Short: "Never let the agent pay a host", Args: wants("HOST"),
		Long: "Add a host to the denied ones: \"api.example.com\", \"api.example.com:8443\" or " +
			"\"*.example.com\". It takes no passphrase.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if slices.Contains(rules.Policy.DenyHosts, args[0]) {
					return text, nil
				}
				return setHosts(text, "deny_hosts", append(rules.Policy.DenyHosts, args[0]))
			})
		},
	}))
	return cmd
}

func setHosts(text []byte, key string, hosts []string) ([]byte, error) {
	var list []string
	for _, host := range hosts {
		list = append(list, config.Quote(host))
	}
	text, err := config.Set(text, "["+strings.Join(list, ", ")+"]", "policy", key)
	if err == nil {
		_, err = config.Parse(text)
	}
	return text, err
}

// budgetKeys are what budget set can set, besides a host's day.
var budgetKeys = []string{"per_call", "session", "day", "month", "approve_above", "rate"}

func (p *Program) budgetSetCommand(ui *ui) *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use: "set NAME AMOUNT", Short: "Set a budget (asks for the passphrase where it is raised)",
		Args: wants("NAME", "AMOUNT"),
		Long: "Set a budget in config.toml, and seal it: " + strings.Join(budgetKeys, ", ") + ".\n" +
			"Amounts are dollars, rate is payments a minute. With --host it is that host's day. Lowering " +
			"takes no passphrase.",
		Example: "  x402-wallet budget set session 5.00\n  x402-wallet budget set day 1.00 --host " +
			"api.example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := []string{"budget", args[0]}
			switch {
			case host != "" && args[0] != "day":
				return usageError{text: "--host goes with day only"}
			case host != "":
				path = []string{"budget", "hosts", host, "day"}
			case !slices.Contains(budgetKeys, args[0]):
				return usageError{text: fmt.Sprintf("there is no budget %q; there are %s", args[0],
					strings.Join(budgetKeys, ", "))}
			}
			value := config.Quote(strings.TrimPrefix(args[1], "$"))
			if args[0] == "rate" {
				value = args[1]
			}
			return p.changeRules(cmd.Context(), ui, func(text []byte, _ *config.Config) ([]byte, error) {
				return config.Set(text, value, path...)
			})
		},
	}
	cmd.Flags().StringVar(&host, "host", "", "the day of this `HOST` alone")
	return ui.loosens(cmd)
}

// ruled is a wallet's rules, and its ledger, which knows what was sealed.
type ruled struct {
	rules *config.Config
	store *history.Store
	guard *seal.Guard // without a key
}

func (p *Program) ruled(ctx context.Context) (*ruled, error) {
	if err := p.haveWallet(); err != nil {
		return nil, err
	}
	rules, err := config.Load(p.Home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, config.Missing(p.Home)
	}
	if err != nil {
		return nil, fmt.Errorf("read the owner's rules: %w", err)
	}
	store, err := p.OpenLedger(ctx)
	if err != nil {
		return nil, err
	}
	return &ruled{rules: rules, store: store, guard: p.Guard(store, rules, nil)}, nil
}

func (p *Program) haveWallet() error {
	keys, err := wallet.Open(p.Home)
	if err == nil {
		err = keys.Close()
	}
	return err
}

func (p *Program) showPolicy(ctx context.Context, ui *ui) error {
	r, err := p.ruled(ctx)
	if err != nil {
		return err
	}
	defer r.store.Close()
	return ui.policy(ctx, r, filepath.Join(p.Home, config.FileName))
}

func (u *ui) policy(ctx context.Context, r *ruled, file string) error {
	out := policyOut{Changes: []config.Change{}, Rules: rulesOut{}}
	sealed, err := r.store.Rules(ctx)
	if err != nil {
		return err
	}
	if sealed.Version > 0 {
		out.SealedAt = sealed.At.Format(time.RFC3339)
		if changes, err := seal.Changes(sealed, r.rules); err == nil {
			out.Changes = append(out.Changes, changes...)
		}
	}
	if err := r.guard.CheckConfig(ctx); err != nil {
		out.Problem = x402.AsError(err).Message
	}
	out.Sealed = out.Problem == ""
	lines := r.rules.Lines()
	for _, line := range lines {
		out.Rules[line.Key] = line.Value
	}
	if u.json {
		return u.printJSON(out)
	}
	var rows [][]string
	for _, line := range lines {
		key := line.Key
		for _, value := range line.List { // one a line: nodes are long
			rows, key = append(rows, []string{key, value}), ""
		}
		if len(line.List) == 0 {
			rows = append(rows, []string{key, line.Value})
		}
	}
	u.table([]string{"RULE", "VALUE"}, rows)
	u.changes(out.Changes)
	if out.Sealed {
		u.note("sealed %s UTC", moment(out.SealedAt))
	} else {
		u.note("%s %s; nothing is paid until you run x402-wallet policy seal, or correct %s",
			paint(u.colorErr, red, "not sealed:"), out.Problem, file)
	}
	return nil
}

// changes shows what differs from the sealed rules.
func (u *ui) changes(list []config.Change) {
	for _, c := range list {
		effect := "tightens"
		if c.Loosens {
			effect = paint(u.colorErr, red, "loosens")
		}
		u.note("  %s %s: %s → %s", effect, safe(c.Key), safe(c.From), safe(c.To))
	}
}

// changeRules edits config.toml and seals it; without an edit it seals what is there, the ledger
// too. Whatever loosens, and whatever cannot be compared with what was sealed, takes the passphrase
// from the terminal and nowhere else (SPEC §4).
//
// The seal comes first: rules that were sealed and are not in the file yet are only tighter than
// allowed. A crash between the two leaves either what was or what is to be, and never a wallet that
// pays under more than was typed for.
func (p *Program) changeRules(ctx context.Context, ui *ui,
	edit func(text []byte, rules *config.Config) ([]byte, error)) error {
	r, err := p.ruled(ctx)
	if err != nil {
		return err
	}
	defer r.store.Close()
	text := r.rules.Raw
	if edit != nil {
		text, err = edit(text, r.rules)
		if err != nil {
			return asInvalid(err)
		}
		if bytes.Equal(text, r.rules.Raw) && r.guard.CheckConfig(ctx) == nil {
			// it is so, and in force: nobody need type a passphrase for that
			if ui.json {
				return ui.policy(ctx, r, "")
			}
			ui.say("nothing to change: the rules already say so")
			return nil
		}
	}
	change, err := p.showChange(ctx, ui, r, text, edit == nil)
	if err != nil {
		return err
	}
	guard := p.Guard(r.store, change.next, nil)
	if err := p.sealChange(ctx, ui, guard, change); err != nil {
		return err
	}
	if !bytes.Equal(text, r.rules.Raw) {
		if err := config.WriteFile(filepath.Join(p.Home, config.FileName), text); err != nil {
			return x402.Errorf(x402.SetupFailed, "%w", err)
		}
	}
	if len(change.keys) == 0 {
		ui.note("nothing changed: these rules are sealed")
	}
	if ui.json {
		return ui.policy(ctx, &ruled{rules: change.next, store: r.store, guard: guard}, "")
	}
	ui.say("done: these rules apply from now on")
	return nil
}

// ruleChange is what is to be sealed, and what of it only the owner may.
type ruleChange struct {
	next         *config.Config
	keys         []config.Change // since the sealed rules
	incomparable error           // why the difference cannot be computed
	redate       bool            // payments are dated ahead of the clock; sealing moves them to now
	lines        []string        // what the owner is shown
}

// showChange shows what text changes of the sealed rules. all: nothing was edited by a command, so
// what is sealed is the ledger, too.
func (p *Program) showChange(ctx context.Context, ui *ui, r *ruled, text []byte,
	all bool) (c ruleChange, err error) {
	c.next, err = config.Parse(text)
	if err != nil {
		return c, asInvalid(err)
	}
	sealed, err := r.store.Rules(ctx)
	if err != nil {
		return c, err
	}
	c.keys, c.incomparable = seal.Changes(sealed, c.next)
	if sealed.Version == 0 {
		c.incomparable = errors.New("never sealed")
	}
	ui.changes(c.keys)
	ui.warn(c.next.Warnings)
	c.lines = append(asLines(c.keys, c.incomparable), c.next.Warnings...)
	if !all {
		return c, nil
	}
	if len(c.keys) == 0 && c.incomparable == nil { // why the passphrase is asked all the same
		ui.note("%s", c.lines[0])
	}
	ahead, err := datedAhead(ctx, ui, r.store)
	if ahead != "" {
		c.redate = true
		c.lines = append(c.lines, ahead)
	}
	return c, err
}

// sealChange seals what was shown: by itself what only tightens, with the owner's passphrase
// everything else.
func (p *Program) sealChange(ctx context.Context, ui *ui, guard *seal.Guard, c ruleChange) error {
	owner := c.incomparable != nil || config.Loosens(c.keys) || c.redate
	if !owner {
		var err error
		owner, err = p.sealTighter(ctx, ui, guard, len(c.keys) > 0)
		if err != nil {
			return err
		}
	}
	if !owner {
		return nil
	}
	return p.sealAsOwner(ctx, ui, guard, c.lines, c.redate)
}

// datedAhead shows that payments are dated ahead of the clock, and returns the line; "" where none
// are.
func datedAhead(ctx context.Context, ui *ui, store *history.Store) (line string, err error) {
	latest, err := store.Ahead(ctx)
	if err != nil || latest.IsZero() {
		return "", err
	}
	line = fmt.Sprintf("payments are dated up to %s, and this computer's clock says %s: sealing moves the "+
		"later ones to now",
		latest.Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	ui.note("%s; if the clock is wrong, set it first", line)
	return line, nil
}

// sealAsOwner takes the passphrase, shows lines where that is asked for on a page, and seals;
// redate: it also moves to now what is dated ahead. It leaves the key closed.
func (p *Program) sealAsOwner(ctx context.Context, ui *ui, guard *seal.Guard, lines []string,
	redate bool) error {
	key, err := p.owner(ctx, ui, loosening{prompt: "Passphrase, to seal these rules: ",
		title: "Seal the owner's rules",
		lines: lines})
	if err != nil {
		return err
	}
	defer func() { _ = key.Close() }()
	guard.Key = key
	if err := p.lookAtAll(ctx, ui, guard); err != nil {
		return err
	}
	if redate {
		if err := guard.Store.Redate(ctx); err != nil {
			return err
		}
	}
	return guard.Seal(ctx)
}

// lookAtAll shows every rule and asks once more where the text that the difference was taken from
// was never sealed by this wallet: an agent with a shell could have put it into the ledger, to hide
// what it loosened.
func (p *Program) lookAtAll(ctx context.Context, ui *ui, guard *seal.Guard) error {
	err := guard.Authentic(ctx)
	if !x402.HasCode(err, x402.PolicyUnsealed) {
		return err
	}
	ui.note("%s %s", paint(ui.colorErr, red, "check every rule:"), safe(x402.AsError(err).Message))
	for _, line := range guard.Rules.Lines() {
		ui.note("  %s = %s", line.Key, safe(line.Value))
	}
	l := loosening{prompt: "Passphrase again, to seal all of these: ", title: "Seal every one of these rules",
		lines: []string{x402.AsError(err).Message}}
	for _, line := range guard.Rules.Lines() {
		l.lines = append(l.lines, line.Key+" = "+safe(line.Value))
	}
	again, err := p.owner(ctx, ui, l)
	if err == nil {
		err = again.Close()
	}
	return err
}

// asLines is what ui.changes prints.
func asLines(list []config.Change, incomparable error) (lines []string) {
	for _, c := range list {
		lines = append(lines, map[bool]string{true: "loosens ", false: "tightens "}[c.Loosens]+safe(c.Key)+
			": "+safe(c.From)+" → "+safe(c.To))
	}
	switch {
	case incomparable != nil:
		lines = append(lines, incomparable.Error())
	case len(list) == 0:
		lines = append(lines, "config.toml is unchanged; sealing accepts the ledger, and the location of "+
			"the home, as they are now")
	}
	return lines
}

// sealTighter seals rules that are no looser than the sealed ones, with whatever unlocks the wallet
// without a person; if nothing does, tighter rules are in force all the same. It reports whether
// only the owner can go on: the seal or the ledger is not what it was, or cannot be read.
func (p *Program) sealTighter(ctx context.Context, ui *ui, guard *seal.Guard, tighter bool) (owner bool,
	err error) {
	key, err := p.OpenKeys(guard.Rules)
	if err != nil {
		return false, err
	}
	defer func() { _ = key.Close() }()
	guard.Key = key
	err = guard.VerifySeals(ctx)
	if err == nil {
		return false, nil
	}
	switch coded := x402.AsError(err); coded.Code {
	case x402.LedgerCorrupt, x402.PolicyUnsealed:
		ui.note("%s", safe(coded.Message))
		return true, nil
	case x402.WalletLocked:
		if !tighter {
			return true, nil
		}
		ui.note("the wallet is locked: the rules apply at once, and the next payment seals them")
		return false, nil
	}
	return false, err
}

// asInvalid gives trouble with a value its code; the message of package config says what would have
// passed. The file's line is left out: what stands there is not in the file.
func asInvalid(err error) error {
	var fault *config.Error
	if errors.As(err, &fault) {
		return x402.Errorf(x402.InvalidArgument, "%s: %s", fault.Key, fault.Msg)
	}
	return err
}
