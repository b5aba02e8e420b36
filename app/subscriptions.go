package app

import (
	"x402-wallet/budget"
	"x402-wallet/internal/config"
	"x402-wallet/tools"
)

// subscriptions are the owner's standing orders, with the requests that they make.
func subscriptions(c *config.Config) map[string]tools.Subscription {
	list := map[string]tools.Subscription{}
	for name, s := range c.Subscriptions {
		list[name] = tools.Subscription{
			Subscription: budget.Subscription{Name: name, Agent: s.Agent, Since: s.Since, Every: s.Every,
				Until: s.Until, Max: s.Max, Total: s.Total, Paused: s.Paused, PayTo: s.PayTo},
			Call: tools.PayIn{URL: s.URL, Method: s.Method, Headers: s.Headers, Body: s.Body,
				Network: s.Network, Asset: s.Asset},
		}.Ordered()
	}
	return list
}

// subscriptionRules are those as rules that payments are decided by. One whose request cannot be made pays
// nothing.
func subscriptionRules(c *config.Config) map[string]budget.Subscription {
	list := map[string]budget.Subscription{}
	for name, s := range subscriptions(c) {
		if s.Problem == nil {
			list[name] = s.Subscription
		}
	}
	return list
}
