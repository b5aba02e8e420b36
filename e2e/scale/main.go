// scale simulates the budgets of a fleet in virtual time: what one row of a ledger carries, and what comes
// after it. docs/scale.md has its figures, and what follows from them.
//
//	go run ./e2e/scale [-size 1e5] [-shape leases] [-seed 1] [-service 670us] [-step 100us]
//
// Read in this order: node.go a row of a budget, and what a transaction does with it; world.go calls,
// locks and crashes; demand.go who buys; remote.go several databases; offline.go leases that are no rows;
// judge.go and audit.go what must stay true; shapes.go and sizes.go what is tried.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	only := flag.String("size", "", "only sizes that begin so: row, 1e3, 1e5, 1e6, 1e7, offline")
	name := flag.String("shape", "", "only shapes whose names contain this")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	service := flag.Duration("service", 670*time.Microsecond, "how long a payment has a row locked")
	step := flag.Duration("step", 100*time.Microsecond, "how long each row below that is locked longer")
	flag.Parse()
	tables := sizes(setting{length: 300 * second, seed: *seed, capPercent: 90,
		service: instant(service.Microseconds()), step: instant(step.Microseconds()),
		outageEvery: 600 * second, restartEvery: 100 * second, down: 2 * second, lost: 0.001, failed: 0.02})
	failed := false
	for _, z := range tables {
		if strings.HasPrefix(z.name, *only) {
			failed = !z.print(*name) || failed
		}
	}
	if failed {
		os.Exit(1)
	}
}

// print runs a size's shapes, two at a time, and writes its table.
func (z size) print(only string) (ok bool) {
	begun := time.Now()
	lines := make([]string, len(z.runs))
	places := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i, r := range z.runs {
		if !strings.Contains(r.shape.name, only) {
			continue
		}
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			lines[i] = r.line()
		})
	}
	all.Wait()
	text := strings.Join(lines, "")
	if text == "" {
		return true
	}
	fmt.Printf("## %s (seed %d)\n\n%s%s\n%s\n", z.title, z.runs[0].seed, z.wants(), z.head, text)
	fmt.Fprintf(os.Stderr, "%s: %.0f s\n", z.name, time.Since(begun).Seconds())
	return !strings.Contains(text, "FAILED")
}
