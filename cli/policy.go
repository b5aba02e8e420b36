package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"x402-wallet/history"
	"x402-wallet/history/report"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/internal/ownfile"
	"x402-wallet/wallet"
	"x402-wallet/wallet/seal"
	"x402-wallet/x402"
)

type policyOut struct {
	Sealed   bool              `json:"sealed"` // the agent pays under the rules as they are
	SealedAt string            `json:"sealedAt,omitempty"`
	Changes  []config.Change   `json:"changes"` // since the sealing
	Problem  string            `json:"problem,omitempty"`
	Rules    map[string]string `json:"rules"` // as text, by key
}

func (p *Program) policyCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "The owner's rules: show, change and seal them", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			guard, err := p.rules(cmd.Context())
			if err != nil {
				return err
			}
			defer guard.Store.Close()
			return ui.policy(cmd.Context(), guard, filepath.Join(p.Home, config.FileName))
		},
	}
	cmd.AddCommand(p.sealCommand(ui), ui.loosens(&cobra.Command{
		Use: "deny HOST", Short: "Never let the agent pay a host", Args: wants("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if slices.Contains(rules.Policy.DenyHosts, args[0]) {
					return text, nil
				}
				return setHosts(text, append(rules.Policy.DenyHosts, args[0]), "policy", "deny_hosts")
			})
		},
	}), p.allowCommand(ui))
	return cmd
}

func (p *Program) sealCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "seal", Short: "Seal config.toml as it is now (asks for the passphrase)", Args: wants(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.changeRules(cmd.Context(), ui, nil)
		},
	})
}

func (p *Program) allowCommand(ui *ui) *cobra.Command {
	var agent, team string
	cmd := &cobra.Command{
		Use: "allow HOST", Short: "Let the agent pay a host (asks for the passphrase)", Args: wants("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if _, err := setHosts(text, args, "policy", "allow_hosts"); err != nil { // it is no host
					return nil, err
				}
				if agent != "" {
					return allowFor(text, rules, agent, args[0])
				}
				if team != "" {
					return allowForTeam(text, rules, team, args[0])
				}
				if denied := rules.Policy.DenyHosts; slices.Contains(denied, args[0]) {
					denied = slices.DeleteFunc(denied, func(h string) bool { return h == args[0] })
					var err error
					if text, err = setHosts(text, denied, "policy", "deny_hosts"); err != nil {
						return nil, err
					}
				}
				return addHost(text, rules.Policy.AllowHosts, args[0], "policy", "allow_hosts")
			})
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "of the hosts that you allow, for this agent, by its `NAME`")
	cmd.Flags().StringVar(&team, "team", "", "of the hosts that you allow, for this team, by its `NAME`")
	cmd.MarkFlagsMutuallyExclusive("agent", "team")
	return ui.loosens(cmd)
}

// allowFor lets one agent pay a host, where it may pay some hosts only.
func allowFor(text []byte, rules *config.Config, agent, host string) ([]byte, error) {
	if err := knownAgent(rules, agent); err != nil {
		return nil, err
	}
	return addHost(text, rules.Agents[agent].AllowHosts, host, "agents", agent, "allow_hosts")
}

// allowForTeam does the same for a team.
func allowForTeam(text []byte, rules *config.Config, team, host string) ([]byte, error) {
	if err := knownTeam(rules, team); err != nil {
		return nil, err
	}
	return addHost(text, rules.Budget.Teams[team].AllowHosts, host, "budget", "teams", team, "allow_hosts")
}

// addHost adds a host to a list of those that are allowed; an empty list allows any.
func addHost(text []byte, allowed []string, host string, path ...string) ([]byte, error) {
	if len(allowed) == 0 || slices.Contains(allowed, host) {
		return text, nil
	}
	return setHosts(text, append(allowed, host), path...)
}

func setHosts(text []byte, hosts []string, path ...string) ([]byte, error) {
	text, err := edit.Set(text, quotedList(hosts), path...)
	if err == nil {
		_, err = config.Parse(text)
	}
	return text, err
}

// guardedRules are the owner's rules, with the guard of the ledger that knows what was sealed.
type guardedRules struct {
	*seal.Guard
	config *config.Config
}

// rules are those of the wallet: those that the owner sealed at another replica, if the file has older ones.
// Their guard has no key, and its Store is the caller's to close.
func (p *Program) rules(ctx context.Context) (g guardedRules, err error) {
	if err := p.haveWallet(); err != nil {
		return g, err
	}
	rules, err := p.Rules()
	if errors.Is(err, fs.ErrNotExist) {
		return g, config.Missing(p.Home)
	}
	if err != nil {
		return g, fmt.Errorf("read the owner's rules: %w", err)
	}
	store, err := p.OpenLedger(ctx)
	if err != nil {
		return g, err
	}
	if !rules.Same(p.Home) { // a fleet's ledger brought tighter ones
		rules, err = p.Rules()
	}
	if err == nil && errors.Is(p.Guard(store, rules, nil).CheckConfig(ctx), seal.ErrSuperseded) {
		var sealed history.SealedRules
		sealed, err = store.Rules(ctx)
		if err == nil {
			rules, err = config.Parse(sealed.Config)
		}
	}
	if err != nil {
		return g, errors.Join(err, store.Close())
	}
	return guardedRules{p.Guard(store, rules, nil), rules}, nil
}

func (p *Program) haveWallet() error {
	keys, err := wallet.Open(p.Home)
	if err == nil {
		err = keys.Close()
	}
	return err
}

func (u *ui) policy(ctx context.Context, guard guardedRules, file string) error {
	out := policyOut{Changes: []config.Change{}, Rules: map[string]string{}}
	sealed, err := guard.Store.Rules(ctx)
	if err != nil {
		return err
	}
	if sealed.Version > 0 {
		out.SealedAt = sealed.At.Format(time.RFC3339)
		if changes, err := guard.config.ChangesSince(sealed.Config); err == nil {
			out.Changes = append(out.Changes, changes...)
		}
	}
	if err := guard.CheckConfig(ctx); err != nil {
		out.Problem = x402.AsError(err).Message
	}
	out.Sealed = out.Problem == ""
	lines := guard.config.Lines()
	for _, line := range lines {
		out.Rules[line.Key] = line.Value
	}
	return u.answer(out, func() {
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
	})
}

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
// from the terminal and nowhere else.
//
// The seal comes first: rules that were sealed and are not in the file yet are only tighter than
// allowed. A crash between the two leaves either what was or what is to be, and never a wallet that
// pays under more than was typed for.
func (p *Program) changeRules(ctx context.Context, ui *ui,
	edit func(text []byte, rules *config.Config) ([]byte, error)) error {
	return p.changeRulesThen(ctx, ui, edit, func(guard guardedRules, said string) error {
		return ui.ruled(ctx, guard, said)
	})
}

// changeRulesThen is changeRules, with what to say when it is done.
func (p *Program) changeRulesThen(ctx context.Context, ui *ui,
	edit func(text []byte, rules *config.Config) ([]byte, error),
	then func(guard guardedRules, said string) error) error {
	now, err := p.rules(ctx)
	if err != nil {
		return err
	}
	defer now.Store.Close()
	text := now.config.Raw
	if edit != nil {
		text, err = edit(text, now.config)
		if err != nil {
			return asInvalid(err)
		}
		if bytes.Equal(text, now.config.Raw) && now.CheckConfig(ctx) == nil {
			// it is so, and in force: nobody need type a passphrase for that
			return then(now, "nothing to change: the rules already say so")
		}
	}
	change, err := showChange(ctx, ui, now.Store, text, edit == nil)
	if err != nil {
		return err
	}
	change.adopted = !now.config.Same(p.Home)
	guard := guardedRules{p.Guard(now.Store, change.next, nil), change.next}
	if err := p.sealChange(ctx, ui, guard, change); err != nil {
		return err
	}
	if !change.next.Same(p.Home) {
		if err := ownfile.Write(filepath.Join(p.Home, config.FileName), text); err != nil {
			return x402.Errorf(x402.SetupFailed, "%w", err)
		}
	}
	if len(change.keys) == 0 {
		ui.note("nothing changed: these rules are sealed")
	}
	return then(guard, "done: these rules apply from now on")
}

// ruled says what became of the rules; as JSON it is the rules.
func (u *ui) ruled(ctx context.Context, guard guardedRules, said string) error {
	if u.json {
		return u.policy(ctx, guard, "")
	}
	u.say("%s", said)
	return nil
}

// ruleChange is what is to be sealed, and what of it only the owner may.
type ruleChange struct {
	next         *config.Config
	keys         []config.Change // since the sealed rules
	incomparable error           // why the difference cannot be computed
	adopted      bool            // next is made of another replica's rules, whose seal nobody checked here
	redate       bool            // payments are dated ahead of the clock; sealing moves them to now
	lines        []string        // what the owner is shown
}

// showChange shows what text changes of the sealed rules. all: nothing was edited by a command, so
// what is sealed is the ledger, too.
func showChange(ctx context.Context, ui *ui, store *history.Store, text []byte,
	all bool) (c ruleChange, err error) {
	c.next, err = config.Parse(text)
	if err != nil {
		return c, asInvalid(err)
	}
	sealed, err := store.Rules(ctx)
	if err != nil {
		return c, err
	}
	c.keys, c.incomparable = c.next.ChangesSince(sealed.Config)
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
	latest, err := report.Ahead(ctx, store)
	if err != nil || latest.IsZero() {
		return c, err
	}
	c.redate = true
	ahead := fmt.Sprintf("payments are dated up to %s, and this computer's clock says %s: sealing moves "+
		"the later ones to now", latest.Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	ui.note("%s; if the clock is wrong, set it first", ahead)
	c.lines = append(c.lines, ahead)
	return c, nil
}

// sealChange seals what was shown: by itself what only tightens, with the owner's passphrase
// everything else.
func (p *Program) sealChange(ctx context.Context, ui *ui, guard guardedRules, c ruleChange) error {
	owner := c.incomparable != nil || config.Loosens(c.keys) || c.redate || c.adopted
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
	return p.sealAsOwner(ctx, ui, guard, c)
}

// sealAsOwner takes the passphrase, shows the change where that is asked for on a page, and seals.
// It leaves the key closed.
func (p *Program) sealAsOwner(ctx context.Context, ui *ui, guard guardedRules, c ruleChange) error {
	key, err := p.owner(ctx, ui, loosening{prompt: "Passphrase, to seal these rules: ",
		title: "Seal the owner's rules", lines: c.lines})
	if err != nil {
		return err
	}
	defer func() { _ = key.Close() }()
	guard.Key = key
	if err := p.lookAtAll(ctx, ui, guard); err != nil {
		return err
	}
	// Where nothing else changed, the owner was told that they accept the ledger.
	isChange := len(c.keys) > 0 && c.incomparable == nil
	accept, err := p.acceptLedger(ctx, ui, guard.Guard, isChange)
	if err != nil {
		return err
	}
	if c.redate {
		if err := guard.Store.Redate(ctx); err != nil {
			return err
		}
	}
	if isChange && !accept && !c.redate {
		return guard.SealFollowing(ctx)
	}
	return guard.Seal(ctx, accept || c.redate)
}

// acceptLedger shows that the budgets in the ledger are not what this wallet sealed, or with isChange that it
// is older than its checkpoint, where that is so, and asks once more: an agent with a shell could have
// written to it before the owner came to seal something else.
func (p *Program) acceptLedger(ctx context.Context, ui *ui, guard *seal.Guard, isChange bool) (accept bool,
	err error) {
	err = guard.CheckSealed(ctx)
	if err == nil && isChange {
		_, err = guard.CheckLedger(ctx)
	}
	if !x402.HasCode(err, x402.LedgerCorrupt) {
		return false, err
	}
	found := x402.AsError(err)
	ui.note("%s %s", paint(ui.colorErr, red, "look at the ledger:"), safe(found.Message))
	ui.note("  x402-wallet history, and history verify, show what it has; budgets begin from that")
	again, err := p.owner(ctx, ui, loosening{prompt: "Passphrase again, to accept the ledger as it is: ",
		title: "Accept the ledger as it is", lines: []string{found.Message}})
	if err != nil {
		return false, err
	}
	return true, again.Close()
}

// lookAtAll shows every rule and asks once more where the text that the difference was taken from
// was never sealed by this wallet: an agent with a shell could have put it into the ledger, to hide
// what it loosened.
func (p *Program) lookAtAll(ctx context.Context, ui *ui, guard guardedRules) error {
	err := guard.Authentic(ctx)
	if !x402.HasCode(err, x402.PolicyUnsealed) {
		return err
	}
	ui.note("%s %s", paint(ui.colorErr, red, "check every rule:"), safe(x402.AsError(err).Message))
	l := loosening{prompt: "Passphrase again, to seal all of these: ", title: "Seal every one of these rules",
		lines: []string{x402.AsError(err).Message}}
	for _, line := range guard.config.Lines() {
		l.lines = append(l.lines, line.Key+" = "+safe(line.Value))
		ui.note("  %s", l.lines[len(l.lines)-1])
	}
	again, err := p.owner(ctx, ui, l)
	if err == nil {
		err = again.Close()
	}
	return err
}

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
func (p *Program) sealTighter(ctx context.Context, ui *ui, guard guardedRules,
	tighter bool) (owner bool, err error) {
	key, err := p.OpenKeys(guard.config)
	if err != nil {
		return false, err
	}
	defer func() { _ = key.Close() }()
	guard.Key = key
	err = guard.VerifySeals(ctx)
	if err == nil && !tighter {
		err = guard.CheckSealed(ctx)
	}
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
	if fault, ok := errors.AsType[*config.Error](err); ok {
		return x402.Errorf(x402.InvalidArgument, "%s: %s", fault.Key, fault.Msg)
	}
	return err
}
