package pay

import "context"

type agentKey struct{}

// WithAgent is a context whose calls are those of one of the agents that share the wallet, by its name in the
// owner's rules. What it buys counts in its own windows, too, and is nobody else's: no other agent gets,
// replays or goes on with it.
func WithAgent(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, agentKey{}, name)
}

// AgentFrom is the agent whose calls a context's are; "": a caller without a name, as the command line or a
// wallet in the agent's own process.
func AgentFrom(ctx context.Context) string {
	name, _ := ctx.Value(agentKey{}).(string)
	return name
}
