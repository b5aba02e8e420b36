// x402-wallet is the wallet of an AI agent: an MCP server over stdio for the agent, a command line for the
// person who owns the money. Package app joins the parts; see docs/design.md for the way through them.
package main

import (
	"os"

	"x402-wallet/app"
)

// version is set at the build: -ldflags -X main.version=…
var version = "0.1.0-dev"

func main() { os.Exit(app.Main(version)) }
