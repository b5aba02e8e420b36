//go:build crash && linux

package crash

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"

	"github.com/stretchr/testify/require"
)

var (
	pointsFlag = flag.Int("points", 1500, "how many points to reach, spread evenly")
	longFlag   = flag.Bool("long", false, "try all points")
	onlyFlag   = flag.String("only", "",
		`only these points: "SCENARIO CALL N ACT", as a violation names one; SCENARIO may be *, the rest is a regular expression`)
)

// point is a fault in a scenario.
type point struct {
	scenario *scenario
	fault    fault
}

func (p point) String() string {
	return fmt.Sprintf("%s %s %d %s", p.scenario.name, p.fault.call, p.fault.n, p.fault.act)
}

// TestSweep breaks the real binary at every point, or as many as there is time for, with the ledger on each
// engine.
func TestSweep(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { sweep(t, nil) })
	t.Run("PostgreSQL", func(t *testing.T) {
		sweep(t, &databases{server: pgtest.Start(t, "fsync = off"), free: make(chan *database, 100)})
	})
}

func sweep(t *testing.T, in *databases) {
	bin := binary(t)
	fmt.Println("crash:", t.Name())
	if os.Geteuid() != 0 {
		fmt.Println("crash: not root: the files that calls are about cannot be seen, so no disk fails, " +
			"and points are named by number alone")
	}
	start := time.Now()
	points, others := spread(record(t, bin, in), *pointsFlag)
	all, wanted := len(points)+len(others), len(points)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		tally = tallies{}
		done  int
	)
	next := func() (p point, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(points) == 0 {
			return p, false
		}
		p, points = points[0], points[1:]
		return p, true
	}
	for range 4 { // each waits for its processes half of the time
		wg.Go(func() {
			for p, ok := next(); ok; p, ok = next() {
				r, err := p.scenario.execute(bin, in, &p.fault)
				again := ""
				if err == nil && len(r.wrong) > 0 {
					again = "not the second time"
					second, err := p.scenario.execute(bin, in, &p.fault)
					if err != nil || len(second.wrong) > 0 {
						again = "the second time too"
					}
				}
				mu.Lock()
				tally.add(t, p, r, err, again)
				if err == nil && !r.hit {
					// what a run does varies a little: another point takes the place of one that
					// did not come
					if len(others) > 0 {
						points, others = append(points, others[0]), others[1:]
					}
				} else {
					done++
					if done%100 == 0 {
						fmt.Printf("crash: %d of %d points, %.0f s\n", done, wanted,
							time.Since(start).Seconds())
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	var total count
	for _, s := range scenarios {
		if c := tally[s.name]; c != nil {
			fmt.Printf("crash: %-18s %5d points reached, %d not, %d violations\n", s.name, c.points, c.missed,
				c.violations)
			total.points, total.missed, total.violations = total.points+c.points, total.missed+c.missed,
				total.violations+c.violations
		}
	}
	fmt.Printf("crash: %d points of %d reached, %d not, %d violations, %.0f s\n", total.points, all,
		total.missed, total.violations, time.Since(start).Seconds())
	require.NotZero(t, total.points)
	require.Less(t, total.missed*10, total.points,
		"too many points were not reached: what was recorded is not what happens")
}

type count struct{ points, missed, violations int }

// tallies counts by scenario.
type tallies map[string]*count

func (all tallies) add(t *testing.T, p point, r *run, err error, again string) {
	c := all[p.scenario.name]
	if c == nil {
		c = &count{}
		all[p.scenario.name] = c
	}
	if err != nil {
		t.Errorf("%s: %v", p, err)
		return
	}
	if r.hit {
		c.points++
	} else {
		c.missed++
	}
	if len(r.wrong) > 0 {
		c.violations++
		t.Errorf("VIOLATION at %q (%s), %s\n\t%s\n\twhat happened: %s\n\tagain: make crash ON=%s ONLY='%s'",
			p, r.target(), again, strings.Join(r.wrong, "\n\t"), strings.Join(r.notes, "; "),
			path.Base(t.Name()), p)
	}
}

// record runs every scenario unbroken, and lists the points there are.
func record(t *testing.T, bin string, in *databases) (points []point) {
	name, rest, _ := strings.Cut(*onlyFlag, " ")
	wanted := regexp.MustCompile("^(?:" + rest + ")")
	for i := range scenarios {
		s := &scenarios[i]
		if name != "" && name != "*" && name != s.name {
			continue
		}
		r := must.Get(s.execute(bin, in, nil))(t)
		require.Empty(t, r.wrong, "%s, unbroken: %s", s.name, r.notes)
		require.NotEmpty(t, r.calls)
		own := faults(r.calls)
		counts := map[string]int{}
		for _, c := range r.calls {
			counts[c.kind]++
		}
		fmt.Printf("crash: %-18s %5d calls, %5d points %v\n", s.name, len(r.calls), len(own), counts)
		for _, f := range own {
			if wanted.MatchString(fmt.Sprintf("%s %d %s", f.call, f.n, f.act)) {
				points = append(points, point{s, f})
			}
		}
	}
	require.NotEmpty(t, points, "there is no point %q", *onlyFlag)
	return points
}

// faults are what can be injected into these calls: the process's death at each; after each by
// which something left; and on every third call that needs the disk, a disk that is full from there
// on, and one error (on all in the long form).
func faults(calls []call) (list []fault) {
	onDisk := 0
	for _, c := range calls {
		list = append(list, fault{c.kind, c.n, kill})
		if c.kind == "send" || c.kind == "connect" || c.kind == "print" {
			list = append(list, fault{c.kind, c.n, killAfter})
		}
		for _, act := range []string{noSpace, ioError} {
			if failing(act, c.kind, c.target) {
				onDisk++
				if *longFlag || *onlyFlag != "" || onDisk%3 == 0 {
					list = append(list, fault{c.kind, c.n, act})
				}
			}
		}
	}
	return list
}

// spread takes n of the points, evenly, of the slow ones only one in twenty; in the long form all. The
// others may take the place of those that turn out not to be there.
func spread(points []point, n int) (some, others []point) {
	if *longFlag {
		return points, nil
	}
	nth := map[int]int{}
	points = slices.DeleteFunc(points, func(p point) bool {
		one := 1
		if *onlyFlag == "" && p.scenario.slow {
			one = 20
		}
		nth[one]++
		return nth[one]%one != 0
	})
	taken := 0
	for i, p := range points {
		if taken < n && i*n/len(points) >= taken { // n of len(points), at equal distances
			some, taken = append(some, p), taken+1
		} else {
			others = append(others, p)
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return some, others
}

// binary is the wallet, unmodified: that of X402_WALLET_BIN, or built now.
func binary(t *testing.T) string {
	if bin := os.Getenv("X402_WALLET_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "x402-wallet")
	cmd := exec.Command("go", "build", "-o", bin, "x402-wallet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}
