// Command fleet shows a fleet of wallets on one machine, with play money and no network: a PostgreSQL and a
// Prometheus of its own, three agents with their signers, two paywalls, and an owner. It speaks to
// x402-wallet by its command lines and by MCP, as people and agents do, with the files beside it, and fails
// when anything is not as it says. `make demo-fleet` runs it.
//
// Order of reading: main.go, story.go, then machines.go, shops.go, programs.go and watch.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// patience bounds all of it: a CI that waits for ever helps nobody.
const patience = 3 * time.Minute

func main() {
	program := flag.String("program", "bin/x402-wallet", "the wallet's `PROGRAM`")
	alerts := flag.String("alerts", "docs/monitoring/alerts.yml", "the alert rules' `FILE`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &story{out: os.Stdout, program: *program, alerts: *alerts})
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nthe demo did not go as it should: %v\n", err)
		os.Exit(1)
	}
}
