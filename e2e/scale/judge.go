package main

import "x402-wallet/x402/money"

// A judge adds up, by itself, what agents were allowed to pay, and knows the owner's caps. It sees
// holds and releases, no rows and no leases.
type judge struct {
	cap, teamCap, agentCap money.Dollars
	spent                  money.Dollars // held or paid, and not given back
	teams, agents          []money.Dollars
	broken                 money.Dollars // the most that a cap was passed by
}

func (j *judge) hold(team, agent int32, price money.Dollars) {
	j.spent += price
	j.teams[team] += price
	over := max(j.spent-j.cap, j.teams[team]-j.teamCap)
	if j.agents != nil {
		j.agents[agent] += price
		over = max(over, j.agents[agent]-j.agentCap)
	}
	j.broken = max(j.broken, over)
}

func (j *judge) release(team, agent int32, price money.Dollars) {
	j.spent -= price
	j.teams[team] -= price
	if j.agents != nil {
		j.agents[agent] -= price
	}
}

// hasRoom reports whether every cap of the owner's has room for price: a refusal then is needless.
func (j *judge) hasRoom(team, agent int32, price money.Dollars) bool {
	if j.agents != nil && j.agents[agent]+price > j.agentCap {
		return false
	}
	return j.spent+price <= j.cap && j.teams[team]+price <= j.teamCap
}
