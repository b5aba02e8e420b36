// Package agent tries the wallet as a model meets it: the built program over stdio, as an MCP host starts
// it; sellers that are honest, broken or hostile; a task in words; and a script in place of the model. Each
// scenario is played twice: right, by a script that reads nothing but the answers and does what their next
// step says; and wrong, as careless models do. Then a judge reads the books of sellers, chains and wallet,
// and the transcript. `go test -v ./e2e/agent` shows the table.
//
// What must stay true: nothing is found in a right play, and in a wrong one exactly what is the script's
// own fault. What the wallet is there to prevent is never found.
//
// In the order of reading: trials_test.go, agent_test.go (the scripted model, its MCP host, its person),
// world_test.go, stand_test.go (what it lives in), judge_test.go; the scenarios are in plays_*_test.go;
// judged_test.go shows that the judge says no.
package agent

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"x402-wallet/e2e/testworld"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // most of a trial is waiting
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}

type scenario struct {
	name  string
	task  string // as the person puts it
	setup setup
	wants wants
	right func(*agent)
	wrong func(*agent)
	finds []string // what the judge says of the wrong play; nothing where the wallet prevents all harm
}

type trial struct {
	name, play             string
	calls, payments, chars int
	verdict                string
}

func TestTrials(t *testing.T) {
	w := newWorld(t)
	testworld.Build(t)
	var mu sync.Mutex
	var table []trial
	t.Run("scenario", func(t *testing.T) {
		for _, s := range slices.Concat(buying, contents, troubles, limits, people, servers) {
			for _, play := range []string{"right", "wrong"} {
				t.Run(s.name+"/"+play, func(t *testing.T) {
					t.Parallel()
					line := w.try(t, s, play)
					mu.Lock()
					defer mu.Unlock()
					table = append(table, line)
				})
			}
		}
	})
	slices.SortFunc(table, func(a, b trial) int { return strings.Compare(a.name+a.play, b.name+b.play) })
	var text strings.Builder
	columns := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	fmt.Fprintln(columns, "scenario\tplay\tcalls\tpayments\tcharacters\tverdict")
	for _, l := range table {
		fmt.Fprintf(columns, "%s\t%s\t%d\t%d\t%d\t%s\n", l.name, l.play, l.calls, l.payments, l.chars,
			l.verdict)
	}
	_ = columns.Flush()
	t.Logf("%d trials\n%s", len(table), &text)
}

func (w *world) try(t *testing.T, s scenario, play string) trial {
	if s.setup.solana {
		w = newWorld(t) // where nobody else spends from the owner's account
	}
	a := w.enter(t, s.setup)
	script, expected := s.right, []string(nil)
	if play == "wrong" {
		script, expected = s.wrong, s.finds
	}
	script(a)
	r := w.record(t, a, s)
	found := judge(r)
	kinds := kindsOf(found)
	var wrongly []string
	for _, f := range found {
		if !slices.Contains(expected, f.kind) {
			wrongly = append(wrongly, f.kind+": "+f.what)
		}
	}
	for _, kind := range expected {
		if !slices.Contains(kinds, kind) {
			wrongly = append(wrongly, "and not: "+kind)
		}
	}
	if len(wrongly) > 0 {
		t.Errorf("the judge says\n%s\n\n%s", strings.Join(wrongly, "\n"), a)
	}
	line := trial{name: s.name, play: play, payments: len(r.transfers), verdict: "nothing found"}
	for _, s := range r.steps {
		if s.command == "" {
			line.calls++
		}
		line.chars += utf8.RuneCountInString(s.got.text) - utf8.RuneCountInString(s.got.str("content"))
	}
	if len(kinds) > 0 {
		line.verdict = strings.Join(kinds, "; ")
	}
	return line
}

func kindsOf(found []finding) (kinds []string) {
	for _, f := range found {
		if !slices.Contains(kinds, f.kind) {
			kinds = append(kinds, f.kind)
		}
	}
	return kinds
}

func (w *world) record(t *testing.T, a *agent, s scenario) record {
	r := record{wants: s.wants, steps: a.transcript, said: a.said, market: w.shop + a.stand.prefix}
	if s.setup.market {
		r.market = w.SellerURL
	}
	home := a.home
	for _, moved := range w.Settlements() {
		if strings.EqualFold(moved.Payer, home.EVM) || moved.Signer == home.Solana {
			r.transfers = append(r.transfers, moved)
		}
	}
	a.stand.mu.Lock()
	r.sales = slices.Clone(a.stand.sales)
	a.stand.mu.Unlock()
	r.history = a.closedBooks()
	r.takes = func(command string) error { return (&person{home}).understands(t, command) }
	return r
}

// closedBooks is the wallet's history when no payment is under way any more: of a call that was given up,
// the seller may be serving still.
func (a *agent) closedBooks() (books answer) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		books = a.host.call("x402_history", args{"limit": 100}, patience)
		if !strings.Contains(books.text, `"status":"submitted"`) {
			break
		}
	}
	return books
}

func (a *agent) String() string {
	var text strings.Builder
	for _, s := range a.transcript {
		if s.command != "" {
			fmt.Fprintf(&text, "the person types: %s\n", s.command)
			continue
		}
		answered := s.got.text
		if len(answered) > 2000 {
			answered = answered[:1000] + " … " + answered[len(answered)-1000:]
		}
		fmt.Fprintf(&text, "%s %v\n  → %s\n", s.tool, s.args, answered)
	}
	return text.String() + "said: " + a.said
}
