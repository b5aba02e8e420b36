package pay

import (
	"maps"

	"x402-wallet/budget"
)

// afterHold is what the facts of a payment, of, are when another one of the same agent has been held before
// it: of several payments that are held in one step each is decided on as if those before it were held
// already.
func afterHold(r budget.Rules, f budget.Facts, of, before budget.Ask) budget.Facts {
	f.LastMinute++
	f.LastHour++
	if f.RateSince.IsZero() {
		f.RateSince = f.Now
	}
	f.NodeRates = maps.Clone(f.NodeRates)
	for node, use := range f.NodeRates {
		use.LastMinute++
		if use.Since.IsZero() {
			use.Since = f.Now
		}
		f.NodeRates[node] = use
	}
	if before.Prepaid {
		return f
	}
	add := func(u budget.Use) budget.Use { return budget.Use{Spent: u.Spent, Held: u.Held.Add(before.Price)} }
	addTo := func(n budget.NodeUsage) budget.NodeUsage {
		return budget.NodeUsage{Day: add(n.Day), Month: add(n.Month)}
	}
	used := f.Used
	used.Session, used.Day, used.Month = add(used.Session), add(used.Day), add(used.Month)
	used.Agent = addTo(used.Agent)
	used.Teams = maps.Clone(used.Teams)
	for team, use := range used.Teams {
		if r.Teams.Have(team, before.Agent) {
			used.Teams[team] = addTo(use)
		}
	}
	entries := map[string]budget.Use{}
	maps.Copy(entries, used.HostDay)
	for entry := range r.HostDay {
		if budget.HostMatches(entry, before.Host) && budget.HostMatches(entry, of.Host) {
			entries[entry] = add(entries[entry])
		}
	}
	used.HostDay = entries
	f.Used = used
	return f
}
