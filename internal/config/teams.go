package config

import (
	"fmt"
	"slices"

	"x402-wallet/budget"
	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// Team is [budget.teams.NAME]: agents that share limits, below those of its parent and of the owner.
type Team struct {
	Agents     []string       `toml:"agents"` // names, and patterns of names
	Parent     string         `toml:"parent"` // the team that it is a part of; "": of none
	PerCall    *money.Dollars `toml:"-"`
	Day, Month *money.Dollars `toml:"-"`
	Rate       int            `toml:"-"`           // payments per minute; 0: none
	AllowHosts []string       `toml:"allow_hosts"` // of those that are allowed above it; empty: all of them
	Labels     []string       `toml:"labels"`      // its names in the owner's books: "cost=42"
	// it has an account of its own, and an agent of its own name that pays from it
	Account bool `toml:"account"`
}

// eachAgent is [budget.agents."PATTERN"]: what each agent whose name matches may do.
type eachAgent struct {
	PerCall    *money.Dollars
	Day, Month *money.Dollars
	Rate       int
}

type fileTeam struct {
	Team
	fileEachAgent
}

type fileEachAgent struct {
	PerCall *string `toml:"per_call"`
	Day     *string `toml:"day"`
	Month   *string `toml:"month"`
	Rate    *int    `toml:"rate"`
}

const (
	// maxTeams and maxPatterns (of all teams together) bound what is looked through for each payment, and how
	// long the patterns take to compare with each other when the rules are read.
	maxTeams    = 256
	maxPatterns = 1000
	// maxEachAgent bounds the patterns that have limits for each agent, likewise.
	maxEachAgent = 256
	// maxLabels is how many labels a team may have.
	maxLabels = 16
	// maxRate is the most payments per minute that a rate may say.
	maxRate = 100_000
)

var namePattern = pattern.Lazy(`^[a-z*][a-z0-9_*-]{0,39}$`)

// notAPattern says what is right.
const notAPattern = "%q is no agent's name and no pattern: 1 to 40 of a-z, 0-9, -, _ and *, which stands " +
	"for any letters, and first a letter or *"

func (c *Checker) teams(written map[string]fileTeam) map[string]Team {
	teams := map[string]Team{}
	c.Refuse(len(written) > maxTeams, "budget.teams", "are %d; at most %d are taken", len(written), maxTeams)
	patterns := 0
	for _, name := range sorted(written) {
		key, f := Dotted("budget", "teams", name), written[name]
		c.Refuse(!agentName().MatchString(name), key,
			"a team's name is 1 to 40 of a-z, 0-9, - and _, and begins with a letter")
		if f.Account && !slices.Contains(f.Agents, name) {
			f.Agents = append(slices.Clone(f.Agents), name)
		}
		patterns += len(f.Agents)
		for _, each := range f.Agents {
			c.Refuse(!namePattern().MatchString(each), key+".agents", notAPattern, each)
		}
		c.Refuse(hasTwice(f.Agents), key+".agents", "has a name or pattern twice")
		c.Refuse(len(f.Labels) > maxLabels, key+".labels", "are %d; at most %d are taken", len(f.Labels),
			maxLabels)
		for _, label := range f.Labels {
			c.plainText(key+".labels", label, MaxLabel)
		}
		t, limits := f.Team, c.limitsOfEach(key, f.fileEachAgent)
		t.PerCall, t.Day, t.Month, t.Rate = limits.PerCall, limits.Day, limits.Month, limits.Rate
		t.AllowHosts = c.patterns(key+".allow_hosts", f.AllowHosts)
		teams[name] = t
	}
	if patterns > maxPatterns {
		c.Fail("budget.teams", "have %d names and patterns of agents; at most %d are taken", patterns,
			maxPatterns)
		return teams
	}
	c.parents(teams)
	c.ambiguous(teams)
	return teams
}

// parents refuses a parent that is no team, a team above itself, and too many above each other.
func (c *Checker) parents(teams map[string]Team) {
	tree := Tree(teams)
	for _, name := range sorted(teams) {
		parent, key := teams[name].Parent, Dotted("budget", "teams", name, "parent")
		_, known := teams[parent]
		c.Refuse(parent != "" && !known, key, "there is no team %q", parent)
		up := tree.Up(name)
		isEndless := teams[up[len(up)-1]].Parent != "" && len(up) == budget.MaxDepth
		switch {
		case slices.Contains(up[1:], name):
			c.Fail(key, "puts the team above itself")
		case isEndless && !hasTwice(up):
			c.Fail(key, "is one too many: at most %d teams stand above each other", budget.MaxDepth)
		}
	}
}

func hasTwice(list []string) bool {
	for i, each := range list {
		if slices.Contains(list[:i], each) {
			return true
		}
	}
	return false
}

// ambiguous refuses two teams with patterns that a name can match of which neither is more specific: an agent
// is in one team.
func (c *Checker) ambiguous(teams map[string]Team) {
	type entry struct{ team, pattern string }
	var seen []entry
	for _, name := range sorted(teams) {
		before := seen
		for _, each := range teams[name].Agents {
			for _, other := range before {
				if budget.Specific(other.pattern) == budget.Specific(each) &&
					overlap(other.pattern, each) {
					c.Fail(Dotted("budget", "teams", name, "agents"), "%q and %q of the team %s "+
						"can mean the same agent, and neither is more specific: an agent is in one team",
						each, other.pattern, other.team)
				}
			}
			seen = append(seen, entry{name, each})
		}
	}
}

// Tree is the teams as package budget has them.
func Tree(teams map[string]Team) budget.Teams {
	tree := budget.Teams{}
	for name, t := range teams {
		tree[name] = budget.Team{Agents: t.Agents, Parent: t.Parent, PerCall: t.PerCall, Day: t.Day,
			Month: t.Month, Rate: t.Rate, AllowHosts: t.AllowHosts, Account: t.Account}
	}
	return tree
}

func (c *Checker) eachAgent(written map[string]fileEachAgent) map[string]eachAgent {
	list := map[string]eachAgent{}
	c.Refuse(len(written) > maxEachAgent, "budget.agents", "are %d; at most %d are taken", len(written),
		maxEachAgent)
	for _, name := range sorted(written) {
		key, f := Dotted("budget", "agents", name), written[name]
		c.Refuse(!namePattern().MatchString(name), key, notAPattern, name)
		list[name] = c.limitsOfEach(key, f)
	}
	return list
}

func (c *Checker) limitsOfEach(key string, f fileEachAgent) eachAgent {
	return eachAgent{PerCall: c.cap(key+".per_call", f.PerCall), Day: c.cap(key+".day", f.Day),
		Month: c.cap(key+".month", f.Month), Rate: c.ownRate(key+".rate", f.Rate)}
}

// ownRate checks payments per minute; 0 where nothing is written.
func (c *Checker) ownRate(key string, written *int) int {
	if written == nil {
		return 0
	}
	return c.Whole(key, written, 1, 1, maxRate)
}

// unknownMembers warns of names in teams that no agent has: a name that is misspelt is a limit that is not
// there.
func (c *Checker) unknownMembers(teams map[string]Team, agents map[string]Agent) {
	for _, team := range sorted(teams) {
		for _, name := range teams[team].Agents {
			_, known := agents[name]
			known = known || (name == team && teams[team].Account)
			if !known && agentName().MatchString(name) {
				c.warnings = append(c.warnings, fmt.Sprintf("the team %s has the agent %s, and there is no "+
					"[agents.%s]", team, name, name))
			}
		}
	}
}

// AccountOf is the account that an agent pays from; "": the wallet's own.
func (c *Config) AccountOf(agent string) string {
	for _, t := range c.Budget.Teams {
		if t.Account {
			return Tree(c.Budget.Teams).Account(agent)
		}
	}
	return ""
}

// Accounts are the names of those besides the wallet's own.
func (c *Config) Accounts() (names []string) {
	for _, name := range sorted(c.Budget.Teams) {
		if c.Budget.Teams[name].Account {
			names = append(names, name)
		}
	}
	return names
}

// CheckAccountName refuses what is no name for one: INVALID_ARGUMENT.
func CheckAccountName(name string) error {
	if agentName().MatchString(name) {
		return nil
	}
	return x402.Errorf(x402.InvalidArgument, "%s is no account's name: that is 1 to 40 of a-z, 0-9, - and "+
		"_, and begins with a letter", x402.Quote(name))
}

// HasAccount reports whether there is one of this name; none in a nil Config.
func (c *Config) HasAccount(name string) bool { return c != nil && c.Budget.Teams[name].Account }

// NoAccount is the error where there is none of a name: INVALID_ARGUMENT.
func NoAccount(name string) error {
	return x402.Errorf(x402.InvalidArgument, "the wallet has no account %s", x402.Quote(name)).
		WithHint("x402-wallet account list shows those there are; x402-wallet account add makes one")
}
