// Package mcpconn is how this program speaks MCP, below the SDK: what the SDK's own transports lack
// against a peer that is careless or hostile. tools serves the agent with it, seller reaches paid
// servers with it, and the paywall does both.
//
// What must stay true: nothing a peer writes can end the session of others or take memory without a
// bound. A line that is no message costs that line (stdio.go, command.go), an HTTP answer that is
// no message costs its own call (http.go, stream.go), a list is read to a limit (list.go), and a
// program that was started is ended in bounded time with all that it started (command.go).
//
// mirror.go shows on a server of ours what another server has, and tells clients only of what
// really changed.
package mcpconn
