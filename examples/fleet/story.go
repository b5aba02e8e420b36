// Command fleet shows a fleet on one machine, with play money and no network: two replicas of the wallet's
// service, and a paywall, share one ledger in a PostgreSQL of their own. It speaks to x402-wallet by its
// command lines and by MCP, as people and agents do, and fails when anything is not as it says.
// `make demo-fleet` runs it.
//
// Order of reading: story.go, parties.go, programs.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/sandbox"
)

const (
	// patience bounds all of it: a CI that waits for ever helps nobody.
	patience = 3 * time.Minute
	// follows is how soon a replica goes by the rules of another: a second, and more on a busy machine.
	follows = 5 * time.Second
	// The owner's limit for a day, how many calls at $0.10 fit into it, and the limit that it is raised to.
	dayBefore, roomBefore, dayAfter = "1.00", 10, "3.00"
)

var agents = []string{"research", "writing"}

type story struct {
	out     io.Writer
	program string
	// makes replaces x402-wallet init, whose keys take a second to open, in tests. It may be nil.
	makes func(home, rules, passphrase string) error

	dir      string
	world    *sandbox.Sandbox
	ledger   string       // the table of config.toml that names it
	tools    string       // the URL of the server of tools
	runs     atomic.Int64 // of its tool
	shop     string       // the paywall's URL
	homes    [2]string
	services [2]*running
	sessions [2]map[string]*mcp.ClientSession // of the agents, with each replica
	ends     []func()                         // done when all is over, the last first

	kills  atomic.Bool // replica 1 is killed when the next payment is on the chain
	scenes int
	bought map[string]int // calls that were paid, by agent
}

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

// failure is the panic by which check ends a story.
type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func failf(format string, args ...any) { check(fmt.Errorf(format, args...)) }

func run(ctx context.Context, s *story) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		for i := len(s.ends) - 1; i >= 0; i-- {
			s.ends[i]()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			f, is := p.(failure)
			if !is {
				panic(p)
			}
			err = f.error
		}
	}()
	started := time.Now()
	s.begin(ctx)
	s.print("A fleet on this machine: play money, real signatures, a real PostgreSQL, nothing leaves.\n")
	for _, scene := range []func(context.Context){s.ownerSetsUp, s.agentsPay, s.budgetRunsOut, s.ownerRaises,
		s.oneStops, s.oneAgentLeaves, s.oneDies, s.ownerLooks} {
		scene(ctx)
	}
	s.print("\nEverything worked in %.0f s. docs/fleet.md says how to set one up.\n",
		time.Since(started).Seconds())
	return nil
}

func (s *story) print(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *story) scene(title string) {
	s.scenes++
	s.print("\n%d. %s\n", s.scenes, title)
}

func (s *story) line(who, format string, args ...any) {
	s.print("   %-9s %s\n", who, fmt.Sprintf(format, args...))
}

func (s *story) ownerSetsUp(ctx context.Context) {
	s.scene("The owner sets up two replicas of the service, on one ledger in PostgreSQL")
	s.opensShop(ctx)
	s.line("paywall", "sells forecasts at $0.10, with no keystore; its book is in PostgreSQL")
	s.makesWallet(ctx)
	s.line("owner", "x402-wallet init: the rules are sealed; both agents may spend $%s a day", dayBefore)
	s.copiesHome()
	s.line("owner", "copies keystore.json and config.toml to a second home")
	for i := range s.homes {
		s.serves(ctx, i)
		s.line(fmt.Sprint("replica ", i+1), "x402-wallet serve --http: research and writing come with tokens")
	}
}

// buys has an agent buy through a replica. The question makes it another purchase.
func (s *story) buys(ctx context.Context, replica int, agent, question, key string) (answer, error) {
	return call(ctx, s.sessions[replica][agent], "x402_call_tool", map[string]any{"server": s.shop,
		"tool": "forecast", "arguments": map[string]any{"q": question}, "idempotencyKey": key})
}

// paid is buys where it has to be paid.
func (s *story) paid(ctx context.Context, replica int, agent, question string) {
	got, err := s.buys(ctx, replica, agent, question, "")
	check(err)
	if got.Status != "paid" || !strings.Contains(got.text, "sunny") {
		failf("%s should have bought a forecast at replica %d, and got %s", agent, replica+1, got.text)
	}
	s.bought[agent]++
	s.line(agent, "buys a forecast through replica %d: paid %s", replica+1, got.Price)
	s.compare()
}

// compare holds the answers that the agents got against the chain, and against the server of tools.
func (s *story) compare() {
	bought := s.bought["research"] + s.bought["writing"]
	settled, runs := len(s.world.Settlements()), int(s.runs.Load())
	if settled != bought || runs != bought {
		failf("%d calls were paid, the chain has %d payments, the tool ran %d times", bought, settled, runs)
	}
}

// refused checks that a refusal has this code, and names this.
func refused(got answer, code, names string) error {
	if got.Error != code || !strings.Contains(got.Message, names) {
		return fmt.Errorf("the call should be refused with %s, naming %q, and got %s", code, names, got.text)
	}
	return nil
}

func (s *story) agentsPay(ctx context.Context) {
	s.scene("Each agent buys through each replica")
	for replica := range s.homes {
		for _, agent := range agents {
			s.paid(ctx, replica, agent, fmt.Sprint("monday ", replica))
		}
	}
}

func (s *story) budgetRunsOut(ctx context.Context) {
	s.scene("The day's budget runs out across both: 16 more calls at once")
	var calls sync.WaitGroup
	var mu sync.Mutex
	var last answer
	var problems error
	for i := range 16 {
		replica, agent := i%2, agents[i/2%2]
		calls.Go(func() {
			got, err := s.buys(ctx, replica, agent, fmt.Sprint("tuesday ", i), "")
			mu.Lock()
			defer mu.Unlock()
			if err == nil && got.Status == "paid" {
				s.bought[agent]++
				return
			}
			last, problems = got, errors.Join(problems, err, refused(got, "BUDGET_EXCEEDED", "is left of"))
		})
	}
	calls.Wait()
	check(problems)
	s.compare()
	if n := s.bought["research"] + s.bought["writing"]; n != roomBefore {
		failf("%d calls were paid, and %d fit into $%s", n, roomBefore, dayBefore)
	}
	s.line("", "%d calls in all are paid, on the chain too; the others are refused:", roomBefore)
	s.line("", "%s: %s", last.Error, last.Message)
}

func (s *story) ownerRaises(ctx context.Context) {
	s.scene("The owner raises it at replica 1: x402-wallet budget set day " + dayAfter)
	s.types(ctx, s.homes[0], "budget", "set", "day", dayAfter)
	s.line("owner", "types the passphrase")
	for since := time.Now(); ; time.Sleep(tick) {
		got, err := s.buys(ctx, 1, "writing", "wednesday", "")
		check(err)
		if got.Status == "paid" {
			s.line("writing", "buys through replica 2, %.1f s later", time.Since(since).Seconds())
			break
		}
		if got.Error != "POLICY_UNSEALED" { // its key looks at the seal of the new rules
			check(refused(got, "BUDGET_EXCEEDED", "is left of"))
		}
		if time.Since(since) > follows {
			failf("replica 2 does not go by the new rules after %v", follows)
		}
	}
	s.bought["writing"]++
	s.compare()
}

func (s *story) oneStops(ctx context.Context) {
	s.scene("A freeze at replica 2 stops all: x402-wallet freeze")
	s.command(ctx, s.homes[1], "freeze")
	for replica := range s.homes {
		got, err := s.buys(ctx, replica, "research", "thursday", "")
		check(errors.Join(err, refused(got, "WALLET_FROZEN", "")))
		s.line("research", "at replica %d: %s: %s", replica+1, got.Error, got.Message)
	}
	s.types(ctx, s.homes[0], "unfreeze")
	s.line("owner", "x402-wallet unfreeze at replica 1, with the passphrase")
	s.paid(ctx, 1, "research", "thursday")
}

func (s *story) oneAgentLeaves(ctx context.Context) {
	s.scene("The owner revokes an agent at replica 2: x402-wallet agents revoke writing")
	s.command(ctx, s.homes[1], "agents", "revoke", "writing")
	since := time.Now()
	for {
		got, err := call(ctx, s.sessions[0]["writing"], "x402_check_balance", map[string]any{})
		if err != nil || got.Error != "" {
			break
		}
		if time.Since(since) > follows {
			failf("replica 1 lets writing in after %v: %s", follows, got.text)
		}
		time.Sleep(tick)
	}
	s.line("writing", "is not let in at replica 1, %.1f s later", time.Since(since).Seconds())
}

func (s *story) oneDies(ctx context.Context) {
	s.scene("Replica 1 is killed while its payment is under way")
	s.kills.Store(true)
	if got, err := s.buys(ctx, 0, "research", "friday", "friday-1"); err == nil {
		failf("replica 1 was killed, and answers %s", got.text)
	}
	s.line("replica 1", "kill -9, when the payment was on the chain, and the paywall had not answered")
	since := time.Now()
	got, err := s.buys(ctx, 1, "research", "friday", "friday-1")
	check(err)
	if got.Error != "" || !strings.Contains(got.text, "sunny") {
		failf("replica 2 should have got the forecast, and answers %s", got.text)
	}
	s.bought["research"]++
	s.line("research", "makes the same call at replica 2, which brings the same payment: done after %.0f s",
		time.Since(since).Seconds())
	s.compare()
}

func (s *story) ownerLooks(ctx context.Context) {
	s.scene("The owner sees all of it: history, history verify")
	for _, agent := range agents {
		var list struct{ Count int }
		text := s.command(ctx, s.homes[1], "history", "--agent", agent, "--json", "--limit", "100")
		check(json.Unmarshal([]byte(text), &list))
		if list.Count != s.bought[agent] {
			failf("the history has %d payments of %s, and not %d", list.Count, agent, s.bought[agent])
		}
		s.line("history", "--agent %s: %d payments", agent, list.Count)
	}
	s.command(ctx, s.homes[1], "history", "verify")
	s.line("verify", "the audit chain is whole, and the budgets are the sums of its payments")
}
