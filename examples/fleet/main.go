// Command fleet shows a fleet on one machine, with play money and no network: two replicas of the wallet's
// service and a paywall share one ledger in a PostgreSQL of their own. It speaks to x402-wallet by its command
// lines and by MCP, as people and agents do, and fails when anything is not as it says. `make demo-fleet` runs
// it.
//
// Order of reading: main.go, story.go, parties.go, programs.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	program := flag.String("program", "bin/x402-wallet", "the wallet's `PROGRAM`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &story{out: os.Stdout, program: *program})
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nthe demo did not go as it should: %v\n", err)
		os.Exit(1)
	}
}
