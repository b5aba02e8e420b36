package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"x402-wallet/budget/standing"
	"x402-wallet/internal/config"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/wallet/owner"
	"x402-wallet/wallet/recovery"
	"x402-wallet/wallet/terminal"
	"x402-wallet/x402"
)

// The wallet's accounts besides its own: each a team of the rules, [budget.teams.NAME] with account = true,
// whose agents pay from keys of their own.

// accountRow is an account, where its money arrives, and what is left of its limits.
type accountRow struct {
	Name string `json:"name"`
	// Index is which account of the recovery phrase it is; missing: its keys come from no phrase.
	Index  uint32        `json:"index,omitempty"`
	Solana string        `json:"solana,omitempty"`
	EVM    string        `json:"evm,omitempty"`
	Agents []string      `json:"agents,omitempty"` // names and patterns of those that pay from it
	Day    standing.Line `json:"day"`
	Month  standing.Line `json:"month"`
	// Problem is why nothing is paid from it.
	Problem string `json:"problem,omitempty"`
}

func (p *Program) accountCommand(ui *ui) *cobra.Command {
	list := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		rows, err := p.accounts(ctx, w)
		if err != nil {
			return err
		}
		return ui.answer(map[string]any{"accounts": rows}, func() { ui.accounts(rows) })
	})
	cmd := &cobra.Command{Use: "account", Short: "The wallet's accounts, and what each may spend",
		Args: wants(), RunE: list}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the accounts", Args: wants(), RunE: list},
		p.accountAddCommand(ui))
	return cmd
}

func (p *Program) accounts(ctx context.Context, w *tools.Wallet) ([]accountRow, error) {
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return nil, err
	}
	defer func() { _ = keys.Close() }()
	facts, err := w.Engine.TreeFacts(ctx)
	if err != nil {
		return nil, err
	}
	rows := []accountRow{}
	for _, a := range keys.Accounts() {
		rows = append(rows, accountRow{Name: a.Name, Index: a.Index, Solana: a.Solana, EVM: a.EVM,
			Problem: "the rules do not name it: x402-wallet account add " + a.Name})
	}
	rules := w.Engine.Rules
	for _, branch := range standing.Tree(rules, facts) {
		if !rules.Teams[branch.Name].Account {
			continue
		}
		at := slices.IndexFunc(rows, func(r accountRow) bool { return r.Name == branch.Name })
		if at < 0 {
			at = len(rows)
			rows = append(rows, accountRow{Name: branch.Name})
		}
		rows[at].Problem, rows[at].Agents = "", branch.Agents
		rows[at].Day, rows[at].Month = branch.Day, branch.Month
		if rows[at].EVM == "" {
			rows[at].Problem = "the keystore has no keys of it: x402-wallet account add " + branch.Name
		}
	}
	return rows, nil
}

func (u *ui) accounts(rows []accountRow) {
	if len(rows) == 0 {
		u.note("there is the wallet's own account alone (x402-wallet account add NAME makes another)")
		return
	}
	var table [][]string
	for _, r := range rows {
		index := "–"
		if r.Index > 0 {
			index = strconv.FormatUint(uint64(r.Index), 10)
		}
		table = append(table, []string{r.Name, index, usedOf(r.Day), usedOf(r.Month),
			strings.Join(r.Agents, ", ")})
	}
	u.table([]string{"ACCOUNT", "INDEX", "DAY", "MONTH", "AGENTS"}, table)
	for _, r := range rows {
		u.say("\n%s\n  Solana  %s\n  EVM     %s", r.Name, r.Solana, r.EVM)
		if r.Problem != "" {
			u.note("%s %s", paint(u.colorErr, yellow, r.Name+":"), r.Problem)
		}
	}
}

type newAccount struct {
	name       string
	index      uint32
	asksForOne bool // the phrase has a passphrase of its own
	budgets    []string
	agents     []string
	hosts      []string
	parent     string
}

func (p *Program) accountAddCommand(ui *ui) *cobra.Command {
	var a newAccount
	cmd := ui.loosens(&cobra.Command{
		Use: "add NAME", Short: "Add an account with keys of its own (asks for the passphrase)",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.name = args[0]
			return p.addAccount(cmd.Context(), ui, a)
		},
	})
	cmd.Flags().Uint32Var(&a.index, "index", 0, "the account `N` of the recovery phrase, counted from 0, which "+
		"is the wallet's own; without it the first that is free")
	cmd.Flags().BoolVar(&a.asksForOne, "phrase-passphrase", false, "the recovery phrase has a passphrase of "+
		"its own (BIP-39): ask for it")
	cmd.Flags().StringArrayVar(&a.budgets, "budget", nil, "a limit of its own below yours, as "+
		"`NAME=AMOUNT`: "+strings.Join(teamBudgets, ", ")+"; once for each")
	cmd.Flags().StringArrayVar(&a.agents, "agent", nil, "an agent of the service that pays from it, by its "+
		"`NAME` or a pattern; once for each")
	cmd.Flags().StringArrayVar(&a.hosts, "allow-host", nil, "pay only this `HOST` of those that you allow; "+
		"once for each")
	cmd.Flags().StringVar(&a.parent, "team", "", "the `TEAM` that it is a part of, whose limits hold, too")
	return cmd
}

// addAccount makes the rules, and then the keys. The passphrase is typed once, after all that it seals was
// shown: an agent may have edited config.toml before. An account that only one of both has pays nothing, and
// the same command again adds the rest.
func (p *Program) addAccount(ctx context.Context, ui *ui, a newAccount) error {
	guard, err := p.rules(ctx)
	if err != nil {
		return err
	}
	rules := guard.config
	_ = guard.Store.Close()
	if err := config.CheckAccountName(a.name); err != nil {
		return err
	}
	keys, err := wallet.Open(p.Home)
	if err != nil {
		return err
	}
	defer func() { _ = keys.Close() }()
	if err := a.check(keys, rules); err != nil {
		return err
	}
	ui.keeps = true
	defer ui.forgetGiven()
	edit := func(text []byte, _ *config.Config) ([]byte, error) { return a.write(text) }
	return p.changeRulesThen(ctx, ui, edit, func(guardedRules, string) error {
		info, err := a.makeKeys(ctx, ui, keys)
		if err != nil {
			return err
		}
		row := accountRow{Name: info.Name, Index: info.Index, Solana: info.Solana, EVM: info.EVM,
			Agents: a.agents}
		return ui.answer(row, func() { ui.newAccount(info) })
	})
}

// check refuses what makeKeys would, as far as that is known without the passphrase.
func (a newAccount) check(keys *wallet.Wallet, rules *config.Config) error {
	for _, has := range keys.Accounts() {
		switch {
		case has.Name == a.name && rules.HasAccount(a.name):
			return x402.Errorf(x402.InvalidArgument, "there is an account %s already", a.name).
				WithHint("its limits: x402-wallet budget set NAME AMOUNT --account %s", a.name)
		case has.Name != a.name && a.index != 0 && has.Index == a.index:
			return x402.Errorf(x402.InvalidArgument, "the account %d of the phrase is %s", a.index, has.Name).
				WithHint("choose another --index, or leave it out: the first that is free is taken")
		}
	}
	hasPhrase, err := owner.HasPhrase(keys)
	if err == nil && !hasPhrase && (a.index != 0 || a.asksForOne) {
		err = usageError{text: "--index and --phrase-passphrase say something of a recovery phrase, and " +
			"this keystore has none", hint: "leave them out: the keys are random then"}
	}
	return err
}

// makeKeys gives the keystore the account, with the passphrase that the owner typed to seal the rules, or
// types now, where these were in force already. It makes none where the keystore has it.
func (a newAccount) makeKeys(ctx context.Context, ui *ui, keys *wallet.Wallet) (info wallet.AccountInfo,
	err error) {
	for _, has := range keys.Accounts() {
		if has.Name == a.name {
			return has, nil
		}
	}
	wanted := owner.NewAccount{Name: a.name, Index: a.index, Derive: recovery.Derive}
	if a.asksForOne {
		wanted.PhrasePassphrase = ui.asking(terminal.Ask(askPhrases))
	}
	add := func(passphrase wallet.Passphrase) (err error) {
		info, err = owner.AddAccount(ctx, keys, passphrase, wanted)
		return err
	}
	if ui.given != nil {
		err = add(typed(ui.given))
		return info, err
	}
	err = ui.asked(ctx, loosening{prompt: "Passphrase, to add the account: ",
		title: "Add an account to the wallet", lines: []string{"keys for the account " + a.name}}, add)
	return info, err
}

func (a newAccount) write(text []byte) ([]byte, error) {
	limits, err := ownBudgets(a.budgets, teamBudgets)
	if err != nil {
		return nil, err
	}
	table := append(tomlTable{{"account", "true"}}, limits...)
	table.add("parent", a.parent)
	table.addList("agents", a.agents)
	table.addList("allow_hosts", a.hosts)
	return table.write(text, "budget", "teams", a.name)
}

func (u *ui) newAccount(info wallet.AccountInfo) {
	u.say("the account %s:\n  Solana  %s\n  EVM     %s", info.Name, info.Solana, info.EVM)
	if info.Index > 0 {
		u.note("its keys are the account %d of the recovery phrase, which makes them again: x402-wallet "+
			"account add %s --index %[1]d", info.Index, info.Name)
	} else {
		u.note("back up keystore.json again: an older copy has not its keys, and nothing else has")
	}
	u.note("send USDC there, and pay from it: x402-wallet pay --account %[1]s URL; for an agent: "+
		"x402-wallet install CLIENT --account %[1]s", info.Name)
}

// addAccountFlag lets a command pay from one of the accounts, or look at it.
func addAccountFlag(flags *pflag.FlagSet) {
	flags.String(accountFlag, "", "from this account of the wallet, by its `NAME`, and within its limits; "+
		"without it the wallet's own")
	_ = flags.SetAnnotation(accountFlag, paysFrom, []string{"true"}) // it is there
}

const (
	accountFlag = "account"
	// paysFrom marks the flag where it says who the command is, and not what it looks for.
	paysFrom = "pays-from"
)

// accountOf is the account that a command line names; "" is the wallet's own.
func (p *Program) accountOf(cmd *cobra.Command) (string, error) {
	flag := cmd.Flags().Lookup(accountFlag)
	if flag == nil || !flag.Changed || flag.Annotations[paysFrom] == nil {
		return "", nil
	}
	name := flag.Value.String()
	rules, err := p.Rules()
	if err != nil {
		return "", err
	}
	if !rules.HasAccount(name) {
		return "", config.NoAccount(name)
	}
	return name, nil
}

// asAccount is the context of a command, for the account that its command line names.
func (p *Program) asAccount(cmd *cobra.Command) (context.Context, error) {
	name, err := p.accountOf(cmd)
	if name == "" || err != nil {
		return cmd.Context(), err
	}
	return pay.WithAgent(cmd.Context(), name), nil
}

// accountKeys are the keys of the account that a wallet pays from.
func accountKeys(keys *wallet.Wallet, name string) (*wallet.Account, error) {
	account, err := keys.AccountNamed(name)
	if err != nil {
		return nil, config.NoAccount(name)
	}
	return account, nil
}
