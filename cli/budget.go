package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/budget"
	"x402-wallet/budget/standing"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/edit"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

type budgetOut struct {
	standing.Report
	Tree []standing.Branch `json:"tree,omitempty"`
}

func (p *Program) budgetCommand(ui *ui) *cobra.Command {
	cmd := &cobra.Command{
		Use: "budget", Short: "What is left of each budget", Args: wants(),
		RunE: p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
			facts, err := w.Engine.TreeFacts(ctx)
			if err != nil {
				return err
			}
			rules := w.Engine.Rules
			out := budgetOut{Report: standing.Of(rules, "", facts), Tree: standing.Tree(rules, facts)}
			return ui.answer(out, func() {
				ui.budgets(out.Report)
				ui.tree(out.Tree)
			})
		}),
	}
	cmd.AddCommand(p.budgetSetCommand(ui))
	return cmd
}

func budgetReport(ctx context.Context, w *tools.Wallet) (standing.Report, budget.Session, error) {
	facts, err := w.Engine.BudgetFacts(ctx)
	return standing.Of(w.Engine.Rules, "", facts), facts.Session, err
}

// tree shows the teams, each with its agents and the teams below it.
func (u *ui) tree(branches []standing.Branch) {
	if len(branches) == 0 {
		return
	}
	var rows [][]string
	depth := map[string]int{}
	row := func(at int, name string, perCall *money.Dollars, day, month standing.Line, rate int) {
		limits := []string{"–", "–"}
		if perCall != nil {
			limits[0] = perCall.Price()
		}
		if rate != 0 {
			limits[1] = strconv.Itoa(rate) + "/min"
		}
		rows = append(rows, []string{strings.Repeat("  ", at) + name, limits[0], usedOf(day), usedOf(month),
			limits[1]})
	}
	for _, b := range branches {
		if b.Parent != "" {
			depth[b.Name] = depth[b.Parent] + 1
		}
		row(depth[b.Name], b.Name+": "+strings.Join(b.Agents, ", "), b.PerCall, b.Day, b.Month, b.Rate)
		for _, leaf := range b.Members {
			row(depth[b.Name]+1, leaf.Name, leaf.PerCall, leaf.Day, leaf.Month, leaf.Rate)
		}
	}
	u.say("")
	u.table([]string{"TEAM, AGENT", "CALL", "DAY", "MONTH", "RATE"}, rows)
}

// usedOf is what was used of a window, spent or held, and its limit if it has one.
func usedOf(line standing.Line) string {
	used := line.Spent.Add(line.Held).Price()
	if line.Limit == nil {
		return used
	}
	return used + " of " + line.Limit.Price()
}

// What budget set can set: of the owner's, of an agent's own entry, of each agent of a pattern, and of a
// team.
var (
	budgetKeys   = []string{"per_call", "session", "day", "month", "approve_above", "rate"}
	agentBudgets = []string{"per_call", "day", "month"}
	eachBudgets  = []string{"per_call", "day", "month", "rate"}
	teamBudgets  = eachBudgets
	hostsBudgets = []string{"day"}
)

// budgetOf is whose budget is set; of the owner's own, all are "".
type budgetOf struct{ host, agent, agents, team string }

// key is where a budget stands in config.toml.
func (of budgetOf) key(name string) ([]string, error) {
	known, path := budgetKeys, []string{"budget", name}
	switch {
	case of.host != "":
		known, path = hostsBudgets, []string{"budget", "hosts", of.host, name}
	case of.agent != "":
		known, path = agentBudgets, []string{"agents", of.agent, name}
	case of.agents != "":
		known, path = eachBudgets, []string{"budget", "agents", of.agents, name}
	case of.team != "":
		known, path = teamBudgets, []string{"budget", "teams", of.team, name}
	}
	if !slices.Contains(known, name) {
		return nil, of.hasNo(name, known)
	}
	return path, nil
}

// hasNo is the answer where there is no such budget.
func (of budgetOf) hasNo(name string, known []string) error {
	list := strings.Join(known, ", ")
	switch {
	case of.host != "":
		return usagef("--host goes with day only")
	case of.agent != "":
		return usagef("an agent has no %q of its own; it has %s (and rate with --agents NAME)", name, list)
	case of.agents != "":
		return usagef("each agent of a pattern has no %q of its own; it has %s", name, list)
	case of.team != "":
		return usagef("a team has no %q of its own; it has %s", name, list)
	}
	return usagef("there is no budget %q; there are %s", name, list)
}

func (of budgetOf) check(rules *config.Config) error {
	switch {
	case of.agent != "":
		return knownAgent(rules, of.agent)
	case of.team != "":
		return knownTeam(rules, of.team)
	}
	return nil
}

func (p *Program) budgetSetCommand(ui *ui) *cobra.Command {
	var of budgetOf
	cmd := &cobra.Command{
		Use: "set NAME AMOUNT", Short: "Set a budget (asks for the passphrase where it is raised)",
		Args: wants("NAME", "AMOUNT"),
		Long: "Set a budget in config.toml, and seal it: " + strings.Join(budgetKeys, ", ") +
			".\nAmounts are dollars, rate is payments a minute. With --host it is that host's day, with " +
			"--agent\nthat agent's own " + strings.Join(agentBudgets, ", ") + ", with --team that team's " +
			strings.Join(teamBudgets, ", ") + ",\nwith --agents the same of each agent whose name matches, " +
			"for itself. Lowering takes no passphrase.",
		Example: "  x402-wallet budget set session 5.00\n  x402-wallet budget set day 1.00 --host " +
			"api.example.com\n  x402-wallet budget set day 20.00 --team research\n" +
			"  x402-wallet budget set day 2.00 --agents 'research-*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := of.key(args[0])
			if err != nil {
				return err
			}
			value := edit.Quote(strings.TrimPrefix(args[1], "$"))
			if args[0] == "rate" {
				value = args[1]
			}
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if err := of.check(rules); err != nil {
					return nil, err
				}
				return edit.Set(text, value, path...)
			})
		},
	}
	cmd.Flags().StringVar(&of.host, "host", "", "the day of this `HOST` alone")
	cmd.Flags().StringVar(&of.agent, "agent", "", "of this agent alone, by its `NAME`")
	cmd.Flags().StringVar(&of.agents, "agents", "", "of each agent whose name matches this `PATTERN`, "+
		"for itself")
	cmd.Flags().StringVar(&of.team, "team", "", "of this team alone, by its `NAME`")
	cmd.Flags().StringVar(&of.team, "account", "", "of this account alone, by its `NAME`")
	cmd.MarkFlagsMutuallyExclusive("host", "agent", "agents", "team", "account")
	return ui.loosens(cmd)
}

func knownTeam(rules *config.Config, name string) error {
	if _, known := rules.Budget.Teams[name]; known {
		return nil
	}
	return x402.Errorf(x402.InvalidArgument, "there is no team %s", x402.Quote(name)).
		WithHint("a team is [budget.teams.NAME] in config.toml; x402-wallet budget shows those there are")
}
