package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/sandbox"
)

// patience bounds all of it: a CI that waits for ever helps nobody.
const patience = 3 * time.Minute

// The owner's limit for a day, the limit that it is raised to, and how many calls fit into the first.
const (
	dayBefore, dayAfter = "1.00", "3.00"
	roomBefore          = 10
)

// follows is how soon a replica goes by what the owner did at another: a second, and some for a busy machine.
const follows = 3 * time.Second

// passphrase is that of play money.
const passphrase = "correct horse battery staple"

var agents = []string{"research", "writing"}

// tokenOf is the bearer token of an agent.
func tokenOf(agent string) string { return "token-of-" + agent }

// story is one run of the demo.
type story struct {
	out     io.Writer
	program string

	// makes replaces x402-wallet init, whose keys take a second to open, in tests. It may be nil.
	makes func(home, rules, passphrase string) (address string, err error)

	dir      string
	world    *sandbox.Sandbox
	ledger   string // the table of config.toml that names it
	tools    *toolServer
	shop     string // the paywall's URL
	homes    [2]string
	services [2]*running
	sessions [2]map[string]*mcp.ClientSession // of the agents, with each replica
	ends     []func() error

	scenes int
	bought map[string]int // calls that were paid, by agent
}

// run tells the story.
func run(ctx context.Context, s *story) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() { err = errors.Join(err, s.end()) }()
	started := time.Now()
	s.bought = map[string]int{}
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.print("A fleet on this machine: play money, real signatures, a real PostgreSQL, nothing leaves.\n")
	for _, scene := range []func(context.Context) error{s.ownerSetsUp, s.agentsPay, s.budgetRunsOut,
		s.ownerRaises, s.oneStops, s.oneDies, s.allAdds} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	s.print("\nEverything worked in %.0f s. docs/fleet.md says how to set one up.\n", time.Since(started).Seconds())
	return nil
}

// atEnd notes what is done when all is over, the last first.
func (s *story) atEnd(do func() error) { s.ends = append(s.ends, do) }

func (s *story) end() (err error) {
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

func (s *story) at(name string) string { return filepath.Join(s.dir, name) }

func (s *story) print(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *story) scene(title string) {
	s.scenes++
	s.print("\n%d. %s\n", s.scenes, title)
}

func (s *story) line(who, format string, args ...any) {
	s.print("   %-9s %s\n", who, fmt.Sprintf(format, args...))
}

func (s *story) ownerSetsUp(ctx context.Context) error {
	s.scene("The owner sets up two replicas of the service, on one ledger in PostgreSQL")
	s.homes = [2]string{s.at("first"), s.at("second")}
	s.sessions = [2]map[string]*mcp.ClientSession{{}, {}}
	if err := s.opensShop(ctx); err != nil {
		return err
	}
	s.line("paywall", "sells forecasts and reports at $0.10, with no keystore; its book of sales is in PostgreSQL")
	if err := s.makesWallet(ctx); err != nil {
		return err
	}
	s.line("owner", "x402-wallet init --config FILE: the rules are sealed; all agents together may spend $%s a day",
		dayBefore)
	if err := s.copiesHome(); err != nil {
		return err
	}
	s.line("owner", "copies keystore.json and config.toml to a second home")
	for i := range s.homes {
		if err := s.serves(ctx, i); err != nil {
			return err
		}
		s.line(fmt.Sprint("replica ", i+1), "x402-wallet serve --http: research and writing come with their tokens")
	}
	return nil
}

// buys has an agent buy through a replica. The question makes it another purchase.
func (s *story) buys(ctx context.Context, replica int, agent, tool, question string) (answer, error) {
	return call(ctx, s.sessions[replica][agent], "x402_call_tool", map[string]any{"server": s.shop, "tool": tool,
		"arguments": map[string]any{"q": question}})
}

// paid is buys where it has to be paid.
func (s *story) paid(ctx context.Context, replica int, agent, question string) error {
	got, err := s.buys(ctx, replica, agent, "forecast", question)
	if err != nil {
		return err
	}
	if got.Status != "paid" || !strings.Contains(got.text, "sunny") {
		return fmt.Errorf("%s should have bought a forecast at replica %d, and got %s", agent, replica+1, got.text)
	}
	s.bought[agent]++
	s.line(agent, "buys a forecast through replica %d: paid %s", replica+1, got.Price)
	return s.compares()
}

// total is how many calls were paid.
func (s *story) total() int { return s.bought["research"] + s.bought["writing"] }

// compares what the agents were told with the chain, and with the server of tools.
func (s *story) compares() error {
	settled, runs := len(s.world.Settlements()), int(s.tools.runs.Load())
	if settled != s.total() || runs != s.total() {
		return fmt.Errorf("the agents bought %d times, the chain has %d payments and the tools ran %d times",
			s.total(), settled, runs)
	}
	return nil
}

// refused checks that a refusal has this code, and names this.
func refused(got answer, code, names string) error {
	if got.Error != code || !strings.Contains(got.Message+got.Hint, names) {
		return fmt.Errorf("the call should be refused with %s, naming %q, and got %s", code, names, got.text)
	}
	return nil
}

func (s *story) agentsPay(ctx context.Context) error {
	s.scene("Each agent buys through each replica")
	for replica := range s.homes {
		for _, agent := range agents {
			if err := s.paid(ctx, replica, agent, fmt.Sprint("monday ", replica)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *story) budgetRunsOut(ctx context.Context) error {
	s.scene("The day's budget runs out across both: 16 more calls at once")
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		last  answer
		fault error
	)
	for i := range 16 {
		replica, agent := i%2, agents[i/2%2]
		calls.Go(func() {
			got, err := s.buys(ctx, replica, agent, "forecast", fmt.Sprint("tuesday ", i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil && got.Status == "paid" {
				s.bought[agent]++
				return
			}
			last = got
			fault = errors.Join(fault, err, refused(got, "BUDGET_EXCEEDED", "$0.00"))
		})
	}
	calls.Wait()
	if err := errors.Join(fault, s.compares()); err != nil {
		return err
	}
	if s.total() != roomBefore {
		return fmt.Errorf("%d calls were paid, and %d fit into $%s", s.total(), roomBefore, dayBefore)
	}
	s.line("all", "%d calls are paid until now, as the chain and the tools say too; the others are refused:", roomBefore)
	s.line("", "%s: %s", last.Error, last.Message)
	return nil
}

func (s *story) ownerRaises(ctx context.Context) error {
	s.scene("The owner raises it at replica 1: x402-wallet budget set day " + dayAfter)
	if err := s.types(ctx, s.homes[0], "budget", "set", "day", dayAfter); err != nil {
		return err
	}
	since := time.Now()
	s.line("owner", "types the passphrase")
	for {
		got, err := s.buys(ctx, 1, "writing", "forecast", "wednesday")
		if err != nil {
			return err
		}
		if got.Status == "paid" {
			break
		}
		if err := refused(got, "BUDGET_EXCEEDED", ""); err != nil || time.Since(since) > follows {
			return errors.Join(err, fmt.Errorf("replica 2 does not go by the new rules after %v", follows))
		}
		pause(ctx)
	}
	s.bought["writing"]++
	s.line("writing", "buys through replica 2, %.1f s later", time.Since(since).Seconds())
	return s.compares()
}

func (s *story) oneStops(ctx context.Context) error {
	s.scene("A freeze at replica 2 stops all: x402-wallet freeze")
	if _, err := s.command(ctx, s.homes[1], "freeze"); err != nil {
		return err
	}
	for replica := range s.homes {
		got, err := s.buys(ctx, replica, "research", "forecast", "thursday")
		if err == nil {
			err = refused(got, "WALLET_FROZEN", "")
		}
		if err != nil {
			return err
		}
		s.line("research", "at replica %d: %s: %s", replica+1, got.Error, got.Message)
	}
	if err := s.types(ctx, s.homes[0], "unfreeze"); err != nil {
		return err
	}
	s.line("owner", "x402-wallet unfreeze at replica 1, with the passphrase")
	return s.paid(ctx, 1, "research", "thursday")
}

func (s *story) oneDies(ctx context.Context) error {
	s.scene("Replica 1 is killed while its payment is signed and under way")
	lost := make(chan error, 1)
	go func() {
		_, err := s.buys(ctx, 0, "research", "report", "friday")
		lost <- err
	}()
	select {
	case <-s.tools.began:
	case <-ctx.Done():
		return errors.New("the payment for the report did not reach the paywall")
	}
	s.services[0].kill()
	if <-lost == nil {
		return errors.New("the agent got an answer of a replica that was killed")
	}
	s.line("replica 1", "kill -9, while the paywall makes the report that it was paid for")
	close(s.tools.proceed)
	since := time.Now()
	got, err := s.buys(ctx, 1, "research", "report", "friday")
	if err != nil {
		return err
	}
	if got.Error != "" || !strings.Contains(got.text, "report") {
		return fmt.Errorf("replica 2 should have got the report, and answers %s", got.text)
	}
	s.bought["research"]++
	s.line("research", "makes the same call at replica 2, and has the report %.0f s later, paid once",
		time.Since(since).Seconds())
	return s.compares()
}

func (s *story) allAdds(ctx context.Context) error {
	s.scene("The owner sees all of it: history, history verify")
	for _, agent := range agents {
		text, err := s.command(ctx, s.homes[1], "history", "--agent", agent, "--status", "settled", "--json",
			"--limit", "100")
		if err != nil {
			return err
		}
		var out struct{ Count int }
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			return err
		}
		if out.Count != s.bought[agent] {
			return fmt.Errorf("the history has %d payments of %s, which bought %d times", out.Count, agent,
				s.bought[agent])
		}
		s.line("history", "--agent %s: %d payments", agent, out.Count)
	}
	if _, err := s.command(ctx, s.homes[1], "history", "verify"); err != nil {
		return err
	}
	s.line("verify", "the audit chain is whole, and the budgets are the sums of its payments")
	return s.compares()
}
