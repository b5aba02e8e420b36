package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"x402-wallet/budget/standing"
	"x402-wallet/internal/config"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/config/edit"
	"x402-wallet/pay"
	"x402-wallet/tools"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The agents that share the wallet as a service, each with a token and limits of its own.

// agentRow is an agent, what is left to it, and what it is known by: never a token.
type agentRow struct {
	standing.AgentReport
	AllowHosts  []string `json:"allowHosts,omitempty"`
	Token       bool     `json:"token"` // it has one
	User        string   `json:"user,omitempty"`
	Certificate string   `json:"certificate,omitempty"`
	Subject     string   `json:"subject,omitempty"`
	Label       string   `json:"label,omitempty"`
	Team        string   `json:"team,omitempty"`
}

func (p *Program) agentsCommand(ui *ui) *cobra.Command {
	list := p.onWallet(ui, func(ctx context.Context, w *tools.Wallet, _ []string) error {
		rules, err := p.Rules()
		if err != nil {
			return err
		}
		rows := []agentRow{}
		for _, name := range slices.Sorted(maps.Keys(rules.Agents)) {
			facts, err := w.Engine.BudgetFacts(pay.WithAgent(ctx, name))
			if err != nil {
				return err
			}
			a := rules.Agents[name]
			rows = append(rows, agentRow{AgentReport: *standing.Of(w.Engine.Rules, name, facts).Agent,
				AllowHosts: a.AllowHosts, Token: a.Token != "", User: a.User, Certificate: a.Certificate,
				Subject: a.Subject, Label: a.Label, Team: w.Engine.Rules.Teams.Of(name)})
		}
		return ui.answer(map[string]any{"agents": rows}, func() { ui.agents(rows) })
	})
	cmd := &cobra.Command{Use: "agents", Short: "The agents that share the wallet, and what each may spend",
		Args: wants(), RunE: list}
	cmd.AddCommand(&cobra.Command{Use: "list", Short: "List the agents", Args: wants(), RunE: list},
		p.agentsAddCommand(ui), p.agentsRevokeCommand(ui))
	return cmd
}

func (u *ui) agents(rows []agentRow) {
	if len(rows) == 0 {
		u.note("no agent has a name: whoever calls has your limits (x402-wallet agents add NAME)")
		return
	}
	var table [][]string
	for _, r := range rows {
		hosts := strings.Join(r.AllowHosts, ", ")
		if hosts == "" {
			hosts = "any"
		}
		perCall := "–"
		if r.PerCall != nil {
			perCall = r.PerCall.Price()
		}
		table = append(table, []string{r.Name, perCall, left(r.Day), left(r.Month), hosts,
			strings.Join(r.knownBy(), ", "), r.Team, r.Label})
	}
	u.table([]string{"AGENT", "CALL", "DAY", "MONTH", "HOSTS", "KNOWN BY", "TEAM", "LABEL"}, table)
}

func left(line *standing.Line) string {
	if line == nil {
		return "–"
	}
	return line.Remaining.Price() + " of " + line.Limit.Price()
}

func (r agentRow) knownBy() (list []string) {
	if r.Token {
		list = append(list, "token")
	}
	if r.User != "" {
		list = append(list, "user "+r.User)
	}
	if r.Certificate != "" {
		list = append(list, r.Certificate)
	}
	if r.Subject != "" {
		list = append(list, "subject "+r.Subject)
	}
	return list
}

type adding struct {
	budgets                           []string
	label, user, certificate, subject string
	hosts                             []string
}

// agentsAddCommand adds an agent and prints its token, of which the rules keep the hash alone; an agent that
// an authorization server gives its tokens has none of ours. Somebody more may spend then, so it takes the
// passphrase, typed by a person at this moment.
func (p *Program) agentsAddCommand(ui *ui) *cobra.Command {
	var a adding
	cmd := ui.loosens(&cobra.Command{
		Use: "add NAME", Short: "Add an agent, and print its token once (asks for the passphrase)",
		Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			token := ""
			if a.subject == "" {
				var err error
				if token, err = newToken(); err != nil {
					return err
				}
			}
			edit := func(text []byte, rules *config.Config) ([]byte, error) {
				if _, there := rules.Agents[name]; there {
					return nil, x402.Errorf(x402.InvalidArgument, "there is an agent %s already", name).
						WithHint("its limits: x402-wallet budget set NAME AMOUNT --agent %s; for a new "+
							"token revoke it first", name)
				}
				return a.write(text, name, token)
			}
			return p.changeRulesThen(cmd.Context(), ui, edit, func(guardedRules, string) error {
				if token == "" {
					return ui.answerLine(map[string]string{"agent": name, "subject": a.subject},
						"%s is let in by tokens of the authorization server for %s", name, a.subject)
				}
				ui.note("the token of %s, which is not shown again:", name)
				return ui.answerLine(map[string]string{"agent": name, "token": token}, "%s", token)
			})
		},
	})
	cmd.Flags().StringArrayVar(&a.budgets, "budget", nil, "a limit of its own below yours, as "+
		"`NAME=AMOUNT`: "+strings.Join(agentBudgets, ", ")+"; once for each")
	cmd.Flags().StringArrayVar(&a.hosts, "allow-host", nil, "pay only this `HOST` of those that you allow; "+
		"once for each")
	cmd.Flags().StringVar(&a.label, "label", "", "its `NAME` in your books: team=research, say")
	cmd.Flags().StringVar(&a.user, "user", "", "the `USER`, or uid, whose sessions on the socket are its")
	cmd.Flags().StringVar(&a.certificate, "certificate", "", "the `SUBJECT` of its client certificate")
	cmd.Flags().StringVar(&a.subject, "subject", "", "the `SUBJECT` (sub) of its access tokens, which the "+
		"issuer under [service] signs; then it gets no token here")
	return cmd
}

// newToken is a bearer token: 256 bits that nobody can guess, so that its hash can lie open.
func newToken() (string, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", x402.Errorf(x402.Internal, "make a token: %w", err)
	}
	return "x402w_" + base64.RawURLEncoding.EncodeToString(random), nil
}

// write adds the agent's table to the text of config.toml, with a token unless it is "".
func (a adding) write(text []byte, name, token string) ([]byte, error) {
	var table tomlTable
	if token != "" {
		table.add("token", callers.TokenHash(token))
	}
	limits, err := ownBudgets(a.budgets, agentBudgets)
	if err != nil {
		return nil, err
	}
	table = append(table, limits...)
	table.add("user", a.user)
	table.add("certificate", a.certificate)
	table.add("subject", a.subject)
	table.add("label", a.label)
	table.addList("allow_hosts", a.hosts)
	return table.write(text, "agents", name)
}

// ownBudgets reads --budget NAME=AMOUNT, as keys and values of config.toml.
func ownBudgets(given, known []string) (keys tomlTable, err error) {
	for _, text := range given {
		key, amount, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(known, key) {
			return nil, usageError{text: "--budget " + text + " is not like day=5.00",
				hint: "the limits are " + strings.Join(known, ", ")}
		}
		if key == "rate" {
			keys = append(keys, tomlKey{key, amount}) // config.toml says whether it is one
			continue
		}
		amount = strings.TrimPrefix(amount, "$")
		if _, err := money.ParseDollars(amount); err != nil {
			return nil, usagef("--budget %s: %v", text, err)
		}
		keys.add(key, amount)
	}
	return keys, nil
}

// agentsRevokeCommand takes an agent out of the rules: its token is nobody's from then on, and nothing is
// signed for it any more.
func (p *Program) agentsRevokeCommand(ui *ui) *cobra.Command {
	return ui.loosens(&cobra.Command{
		Use: "revoke NAME", Short: "Take an agent away, with its token", Args: wants("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeRules(cmd.Context(), ui, func(text []byte, rules *config.Config) ([]byte, error) {
				if err := knownAgent(rules, args[0]); err != nil {
					return nil, err
				}
				return edit.Remove(text, "agents", args[0])
			})
		},
	})
}

func knownAgent(rules *config.Config, name string) error {
	if _, known := rules.Agents[name]; known {
		return nil
	}
	return x402.Errorf(x402.InvalidArgument, "there is no agent %s", x402.Quote(name)).
		WithHint("x402-wallet agents list shows those there are")
}

// tomlTable is a table that a command writes into config.toml.
type tomlTable []tomlKey

type tomlKey struct{ name, value string } // the value as TOML has it

// add adds a text, unless it is "".
func (t *tomlTable) add(name, text string) {
	if text != "" {
		*t = append(*t, tomlKey{name, edit.Quote(text)})
	}
}

// addList adds a list of texts, unless it is empty.
func (t *tomlTable) addList(name string, list []string) {
	if len(list) > 0 {
		*t = append(*t, tomlKey{name, quotedList(list)})
	}
}

func (t tomlTable) write(text []byte, path ...string) ([]byte, error) {
	var err error
	for _, key := range t {
		if text, err = edit.Set(text, key.value, append(path, key.name)...); err != nil {
			return nil, err
		}
	}
	return text, nil
}

func quotedList(list []string) string {
	return "[" + strings.Join(each(list, edit.Quote), ", ") + "]"
}
