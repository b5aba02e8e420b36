package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

// story is one run of the demo.
type story struct {
	out                         io.Writer
	program, alerts, prometheus string

	// makes the owner's wallet, and says where its money is; nil: x402-wallet init does, with keys that take
	// a second to open, as they should
	makes func(home, passphrase string) (address string, err error)

	dir        string
	passphrase string
	world      *sandbox.Sandbox
	ledger     *pgtest.Cluster
	behind     *upstream
	looksOn    onlooker
	shops      []*shop
	machines   []*machine
	watch      string // Prometheus' host:port
	ends       []func() error

	scenes int
	bought int // forecasts and reports that were paid for
}

// What config.toml and the shops say, and what the owner raises it to.
const (
	dayBefore, dayAfter = "0.55", "2.50"
	roomBefore          = 5 // forecasts
	left                = "$0.05"
)

// run tells the story.
func run(ctx context.Context, s *story) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() { err = errors.Join(err, s.end()) }()
	started := time.Now()
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.print("A fleet on this machine: play money, real signatures, a real PostgreSQL, nothing leaves.\n")
	for _, scene := range []func(context.Context) error{s.ownerSeals, s.machinesJoin, s.agentsPay,
		s.budgetRunsOut, s.ownerRaises, s.ownerApproves, s.oneStops, s.shownAgain, s.whoPaid, s.figures} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	s.print("\nEverything worked in %.0f s. The files are in examples/fleet; its README says how to "+
		"run them for good.\n", time.Since(started).Seconds())
	return nil
}

func (s *story) print(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *story) scene(title string) {
	s.scenes++
	s.print("\n%2d. %s\n", s.scenes, title)
}

func (s *story) line(who, format string, args ...any) {
	s.print("    %-11s %s\n", who, fmt.Sprintf(format, args...))
}

func (s *story) ownerSeals(ctx context.Context) error {
	s.scene("The owner makes the fleet: x402-wallet policy seal --fleet")
	if err := errors.Join(s.opensUpstream(ctx), s.places(ctx), s.makesLedger()); err != nil {
		return err
	}
	if err := s.makesWallet(ctx); err != nil {
		return err
	}
	if err := s.writesRules(dayBefore); err != nil {
		return err
	}
	if err := s.types(ctx, "policy", "seal", "--fleet"); err != nil {
		return err
	}
	s.line("owner", "types the passphrase; PostgreSQL has the rules, signed by a key that only the owner has")
	s.line("rules", "all agents together: $%s a day, $1.00 a call, above $0.50 a person is asked", dayBefore)
	return s.letsIn()
}

func (s *story) machinesJoin(ctx context.Context) error {
	s.scene("Three agents and two paywalls join by join.json, without a person")
	err := s.enrols(ctx, "research-*", "research", "--keystore", s.at("keystore.json"))
	for _, team := range []string{"writing", "shops"} {
		if err == nil {
			err = s.enrols(ctx, map[string]string{"writing": "writing-*", "shops": "shop-*"}[team], team)
		}
	}
	if err != nil {
		return err
	}
	s.line("owner", "enrols research-*, writing-* and shop-*: one join.json for each, with no secret in it")
	for _, p := range s.shops {
		if err := s.opens(ctx, p); err != nil {
			return err
		}
		s.line(p.name, "x402-wallet paywall, no keystore: sells forecasts at $0.10 and reports at $0.60")
	}
	for _, name := range []string{"research-1", "research-2", "writing-1"} {
		team, _, _ := strings.Cut(name, "-")
		m := &machine{name: name, team: team}
		s.machines = append(s.machines, m)
		if err := s.begins(ctx, m); err != nil {
			return err
		}
		s.line(name, "x402-wallet serve has the keys; its agent has join.json and a socket")
	}
	return s.watches(ctx)
}

// buys has an agent buy at a shop; tool and question say what.
func (s *story) buys(ctx context.Context, m *machine, p *shop, tool, question string) (answer, error) {
	got, err := m.agent.calls(ctx, "x402_call_tool", map[string]any{"server": "http://" + p.buyers + "/mcp",
		"tool": tool, "arguments": map[string]any{"q": question}})
	if got.Status == "paid" {
		s.bought++
	}
	return got, err
}

// paid is buys where it has to be paid.
func (s *story) paid(ctx context.Context, m *machine, p *shop, tool, question string) error {
	got, err := s.buys(ctx, m, p, tool, question)
	switch {
	case err != nil:
		return err
	case got.Status != "paid" || !strings.Contains(got.text, "sunny"):
		return fmt.Errorf("%s should have bought a %s, and got %s", m.name, tool, got.text)
	}
	s.line(m.name, "buys a %s at %s: paid %s", tool, p.name, got.Price)
	return s.books()
}

// books compares what the agents were told with what the chain and the tool's server counted.
func (s *story) books() error {
	if settled, runs := len(s.world.Settlements()), int(s.behind.runs.Load()); settled != s.bought ||
		runs != s.bought {
		return fmt.Errorf("the agents bought %d times, the chain has %d payments and the server ran %d times",
			s.bought, settled, runs)
	}
	return nil
}

// refused says of a refusal that it is the one that it should be, and names this.
func (s *story) refused(m *machine, got answer, code, names string) error {
	if got.Error != code || !strings.Contains(got.Message+got.Hint, names) {
		return fmt.Errorf("%s should be refused with %s, naming %s, and got %s", m.name, code, names,
			got.text)
	}
	s.line(m.name, "%s: %s", got.Error, got.Message)
	return nil
}

func (s *story) agentsPay(ctx context.Context) error {
	s.scene("They buy at both paywalls, which share the fleet's ledger")
	for i, m := range s.machines {
		if err := s.paid(ctx, m, s.shops[i%2], "forecast", "monday"); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) budgetRunsOut(ctx context.Context) error {
	s.scene("The organisation's budget runs out, across all of them: six more calls at once")
	type outcome struct {
		m   *machine
		got answer
		err error
	}
	before := s.bought
	all := make([]outcome, 0, 6)
	var mu sync.Mutex
	var buying sync.WaitGroup
	for _, m := range s.machines {
		for i, p := range s.shops {
			buying.Go(func() {
				got, err := m.agent.calls(ctx, "x402_call_tool", map[string]any{
					"server": "http://" + p.buyers + "/mcp", "tool": "forecast",
					"arguments": map[string]any{"q": fmt.Sprint("tuesday ", i)}})
				mu.Lock()
				defer mu.Unlock()
				all = append(all, outcome{m, got, err})
			})
		}
	}
	buying.Wait()
	var last *outcome
	for _, o := range all {
		switch {
		case o.err != nil:
			return o.err
		case o.got.Status == "paid":
			s.bought++
			continue
		case o.got.Error != "BUDGET_EXCEEDED" || !strings.Contains(o.got.Message+o.got.Hint, left):
			return fmt.Errorf("%s should be refused, with what is left, and got %s", o.m.name, o.got.text)
		}
		last = &o
	}
	if s.bought != roomBefore || last == nil {
		return fmt.Errorf("%d of the six were paid, with room for %d", s.bought-before, roomBefore-before)
	}
	s.line("all", "%d are paid, %d are refused", s.bought-before, 6-s.bought+before)
	return errors.Join(s.refused(last.m, last.got, "BUDGET_EXCEEDED", left), s.books())
}

func (s *story) ownerRaises(ctx context.Context) error {
	s.scene("The owner raises it on their own machine; no other is touched")
	if err := s.writesRules(dayAfter); err != nil {
		return err
	}
	if err := s.types(ctx, "policy", "seal", "--fleet"); err != nil {
		return err
	}
	s.line("owner", "day = %q in config.toml, and x402-wallet policy seal --fleet", dayAfter)
	return s.paid(ctx, s.machines[2], s.shops[0], "forecast", "wednesday")
}

func (s *story) ownerApproves(ctx context.Context) error {
	s.scene("A report costs more than an agent may spend unasked")
	m, p := s.machines[0], s.shops[1]
	got, err := s.buys(ctx, m, p, "report", "2026")
	if err == nil {
		err = s.refused(m, got, "APPROVAL_REQUIRED", "$0.60")
	}
	if err != nil {
		return err
	}
	id := regexp.MustCompile(`apr_\w+`).FindString(got.text)
	if err := s.types(ctx, "approve", id); err != nil {
		return err
	}
	s.line("owner", "x402-wallet approve %s, on the owner's machine", id)
	return s.paid(ctx, m, p, "report", "2026")
}

func (s *story) oneStops(ctx context.Context) error {
	s.scene("One machine stops all of them: x402-wallet freeze")
	if _, err := s.does(ctx, s.machines[1].home, "freeze"); err != nil {
		return err
	}
	s.line(s.machines[1].name, "x402-wallet freeze")
	for _, i := range []int{0, 2} {
		got, err := s.buys(ctx, s.machines[i], s.shops[0], "forecast", "thursday")
		if err == nil {
			err = s.refused(s.machines[i], got, "WALLET_FROZEN", "")
		}
		if err != nil {
			return err
		}
	}
	if err := s.types(ctx, "unfreeze"); err != nil {
		return err
	}
	s.line("owner", "x402-wallet unfreeze: only the owner's key lifts it")
	return s.paid(ctx, s.machines[0], s.shops[0], "forecast", "thursday")
}

func (s *story) shownAgain(ctx context.Context) error {
	s.scene("Somebody who saw a payment on its way shows it again, at both paywalls")
	payments := s.looksOn.payments()
	if len(payments) < s.bought {
		return fmt.Errorf("%d payments were seen, and %d made", len(payments), s.bought)
	}
	for _, p := range s.shops {
		said, err := p.shown(ctx, payments[0])
		if err != nil {
			return err
		}
		const used = "this payment has been used"
		if !strings.Contains(said, used) || strings.Contains(said, "sunny") {
			return fmt.Errorf("%s should refuse it, and says %s", p.name, said)
		}
		s.line(p.name, "%s; it buys one call", used)
	}
	return s.books()
}

func (s *story) whoPaid(ctx context.Context) error {
	s.scene("The owner sees all of it: history, history verify")
	byAgent, sum := map[string]int{}, 0
	for _, m := range s.machines {
		said, err := s.does(ctx, s.owner(), "history", "--agent", m.name, "--json", "--limit", "100")
		if err != nil {
			return err
		}
		var out struct{ Count int }
		if err := json.Unmarshal([]byte(said), &out); err != nil {
			return err
		}
		s.line("history", "--agent %s: %d payments", m.name, out.Count)
		byAgent[m.name] = out.Count
		sum += out.Count
		if out.Count != m.agent.counts["paid"] {
			return fmt.Errorf("%s was told of %d payments", m.name, m.agent.counts["paid"])
		}
	}
	if sum != s.bought {
		return fmt.Errorf("%d payments were made: %v", s.bought, byAgent)
	}
	if _, err := s.does(ctx, s.owner(), "history", "verify"); err != nil {
		return err
	}
	s.line("verify", "the chains of all machines are whole, and the budgets' counters are sums of payments")
	return nil
}

// figures waits until Prometheus has scraped all that happened.
func (s *story) figures(ctx context.Context) error {
	s.scene("What Prometheus knows: sum by (agent, outcome, code) (x402_wallet_payments_total)")
	want := map[string]int{}
	for _, m := range s.machines {
		for what, n := range m.agent.counts {
			want[m.name+" "+what] = n
		}
	}
	if err := s.waits(ctx, "sum by (agent, outcome, code) (x402_wallet_payments_total)", want); err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(want)) {
		name, outcome, _ := strings.Cut(what, " ")
		s.line(name, "%d %s", want[what], outcome)
	}
	if err := s.waits(ctx, `sum by (outcome) (x402_wallet_sales_total{outcome="delivered"})`,
		map[string]int{"delivered": s.bought}); err != nil {
		return err
	}
	s.line("paywalls", "%d delivered", s.bought)
	return nil
}

// waits asks Prometheus until it answers this.
func (s *story) waits(ctx context.Context, expression string, want map[string]int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		got, err := s.asks(ctx, expression)
		if err == nil && maps.Equal(got, want) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("what Prometheus says is %v, and %v happened (%w)", got, want, err)
		}
		pause(ctx)
	}
}
