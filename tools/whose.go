package tools

import (
	"context"
	"maps"
	"slices"
	"strings"

	"x402-wallet/budget"
	"x402-wallet/history/report"
	"x402-wallet/x402"
)

// Whose names some of the agents that share the wallet; the zero value: nobody is named, so that callers
// without a name are meant, too.
type Whose struct {
	Agent string // a name, or a pattern of names
	Team  string // of the owner's rules: its agents, and those of the teams below it
}

// Agents are the names of those agents; nil: anybody. INVALID_ARGUMENT where there is no such team.
func (w *Wallet) Agents(ctx context.Context, of Whose) ([]string, error) {
	if of == (Whose{}) {
		return nil, nil
	}
	teams := w.Engine.Rules.Teams
	if _, known := teams[of.Team]; of.Team != "" && !known {
		err := x402.Errorf(x402.InvalidArgument, "there is no team %s", x402.Quote(of.Team))
		if len(teams) > 0 {
			err = err.WithHint("there are %s", strings.Join(slices.Sorted(maps.Keys(teams)), ", "))
		}
		return nil, err
	}
	if of.Team == "" && !strings.Contains(of.Agent, "*") {
		return []string{of.Agent}, nil
	}
	all, err := report.Agents(ctx, w.Store)
	if err != nil {
		return nil, historyFailed(err)
	}
	named := []string{} // not nil: nobody is somebody else than anybody
	for _, name := range all {
		fits := of.Agent == "" || budget.Matches(of.Agent, name)
		if fits && (of.Team == "" || teams.Have(of.Team, name)) {
			named = append(named, name)
		}
	}
	return named, nil
}
