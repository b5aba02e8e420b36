package budget

import (
	"maps"
	"slices"
)

// After is what the facts of a payment, of, are when another one of the same agent has been held before it:
// of several payments that are held in one step each is decided on as if those before it were held already.
func (r Rules) After(f Facts, of, before Ask) Facts {
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
	add := func(u Use) Use { return Use{Spent: u.Spent, Held: u.Held.Add(before.Price)} }
	addTo := func(n NodeUsage) NodeUsage { return NodeUsage{Day: add(n.Day), Month: add(n.Month)} }
	used := f.Used
	used.Session, used.Day, used.Month = add(used.Session), add(used.Day), add(used.Month)
	used.Agent = addTo(used.Agent)
	used.Teams = maps.Clone(used.Teams)
	for team, use := range used.Teams {
		if r.Teams.Have(team, before.Agent) {
			used.Teams[team] = addTo(use)
		}
	}
	entries := map[string]Use{}
	maps.Copy(entries, used.HostDay)
	for _, entry := range r.hostEntries(before.Host) {
		if slices.Contains(r.hostEntries(of.Host), entry) {
			entries[entry] = add(entries[entry])
		}
	}
	used.HostDay = entries
	f.Used = used
	return f
}
