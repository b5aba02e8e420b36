// x402-wallet is the wallet of an AI agent: an MCP server over stdio for the agent, a command line for the
// person who owns the money. Package app joins the parts; see docs/design.md for the way through them.
package main

import (
	"os"

	"x402-wallet/app"
)

// Both are set by the release (-ldflags -X main.version=…): releaseKey is the public key that signed
// it, as the second word of an OpenSSH .pub file.
var (
	version    = "0.1.0-dev"
	releaseKey = ""
)

func main() { os.Exit(app.Main(version, releaseKey)) }
