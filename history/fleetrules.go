package history

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"

	"x402-wallet/budget"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Budget is one of the owner's budgets, as a fleet's ledger keeps it. nil is no limit of its own.
type Budget struct {
	// ID is "org", "team:NAME", "agent:NAME" for one agent, "each:PATTERN" for each agent of such a name, or
	// "host:ENTRY".
	ID      string         `json:"id"`
	Parent  string         `json:"parent,omitempty"`  // of a team: the team above it; "": the organisation
	Members []string       `json:"members,omitempty"` // of a team: patterns of its agents' names
	PerCall *money.Dollars `json:"per_call,omitempty"`
	Session *money.Dollars `json:"session,omitempty"`
	Day     *money.Dollars `json:"day,omitempty"`
	Month   *money.Dollars `json:"month,omitempty"`
	Rate    int            `json:"rate,omitempty"` // payments a minute; 0: any number
}

// Organisation is the ID of the budget that every payment counts in.
const Organisation = "org"

// BudgetsOf are the budgets of the owner's rules.
func BudgetsOf(r budget.Rules) []Budget {
	list := []Budget{
		{ID: Organisation, PerCall: &r.PerCall, Session: r.Session, Day: &r.Day, Month: &r.Month,
			Rate: r.Rate},
	}
	for _, entry := range slices.Sorted(maps.Keys(r.HostDay)) {
		list = append(list, Budget{ID: "host:" + entry, Day: new(r.HostDay[entry])})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Agents)) {
		a := r.Agents[name]
		list = append(list, Budget{ID: "agent:" + name, PerCall: a.PerCall, Day: a.Day, Month: a.Month})
	}
	for _, pattern := range slices.Sorted(maps.Keys(r.EachAgent)) {
		each := r.EachAgent[pattern]
		list = append(list, Budget{ID: "each:" + pattern, PerCall: each.PerCall, Day: each.Day,
			Month: each.Month, Rate: each.Rate})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Teams)) {
		t := r.Teams[name]
		b := Budget{ID: "team:" + name, Members: t.Agents, PerCall: t.PerCall, Day: t.Day, Month: t.Month,
			Rate: t.Rate}
		if t.Parent != "" {
			b.Parent = "team:" + t.Parent
		}
		list = append(list, b)
	}
	return list
}

// GoBy says by which version of the owner's rules what is asked of a fleet's ledger is decided. Facts for a
// payment look whether it is the newest.
func (s *Store) GoBy(version int64) {
	if s.fleet != nil {
		s.fleet.rules.Store(version)
	}
}

// RulesMoved reports whether a newer version than that of GoBy was met.
func (s *Store) RulesMoved() bool { return s.fleet != nil && s.fleet.moved.Load() }

// goesBy refuses a decision by other rules than the newest.
func (e *fleet) goesBy(newest int64) error {
	version := e.rules.Load()
	if version == 0 || version == newest {
		return nil
	}
	e.moved.Store(true)
	refused := x402.Errorf(x402.PolicyUnsealed, "the owner signed other rules for the fleet (version %d)",
		newest).
		WithHint("make the same call again: it goes by the new rules")
	refused.FixedBy = x402.ByTime
	return refused
}

// ApplyRules makes rules those of a fleet, with their budgets: of the version behind the last one's, else
// ErrRulesMoved. Only the owner's login may. What is used of a window stays used, also where that is more
// than its new cap.
func (s *Store) ApplyRules(ctx context.Context, r SealedRules, budgets []Budget) error {
	rows := make([]map[string]any, len(budgets))
	for i, b := range budgets {
		row := map[string]any{
			"id":       b.ID,
			"per_call": b.PerCall,
			"session":  b.Session,
			"day":      b.Day,
			"month":    b.Month,
			"members":  b.Members,
		}
		if b.Parent != "" {
			row["parent"] = b.Parent
		}
		if b.Rate > 0 {
			row["rate"] = b.Rate
		}
		for _, limit := range []string{"per_call", "session", "day", "month"} {
			if d, _ := row[limit].(*money.Dollars); d != nil {
				row[limit] = int64(*d)
			} else {
				row[limit] = nil
			}
		}
		rows[i] = row
	}
	q := map[string]any{
		"writer":  s.fleet.Writer,
		"version": r.Version,
		"budgets": rows,
		"config":  base64.StdEncoding.EncodeToString(r.Config),
		"seal":    base64.StdEncoding.EncodeToString(r.Seal),
		"detail": toJSON(
			map[string]any{"version": r.Version, "sha256": digestOf(r.Config), "seal": digestOf(r.Seal)},
		),
	}
	_, err := call(ctx, s.fleet, scanNumber, `SELECT policy_apply(?::jsonb)`, toJSON(q))
	if refusedAs(err, "X4M01") {
		return ErrRulesMoved
	}
	return s.fleet.tell(err)
}
