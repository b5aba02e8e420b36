// Package metrics says how a service stands in Prometheus' text format (version 0.0.4): what its process
// counted, and what the ledger holds at that moment.
//
// What must stay true: a label is an agent's name of the owner's rules or a word of our own. What a
// stranger or an agent wrote is in none, so that nobody makes series.
package metrics

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"x402-wallet/x402/money"
)

// Standing is how a service stands now; maps are by agent.
type Standing struct {
	Held, Unknown     map[string]money.Dollars // of payments without an end
	Waiting, Sessions map[string]int           // approvals, and who is connected
	Frozen            bool
}

// Process counts what its calls came to. The zero value is ready.
type Process struct {
	Started time.Time

	mu       sync.Mutex
	payments map[[3]string]uint64 // by agent, outcome, code
	paid     map[string]money.Dollars
	within   [len(bounds)]uint64 // calls by the first bound they are within
	calls    uint64
	took     time.Duration
}

// bounds are those of the histogram, in seconds.
var bounds = [...]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Call counts a call that may pay: its outcome and code are words of ours, paid is what it cost.
func (p *Process) Call(agent, outcome, code string, paid money.Dollars, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.payments == nil {
		p.payments, p.paid = map[[3]string]uint64{}, map[string]money.Dollars{}
	}
	p.payments[[3]string{agent, outcome, code}]++
	if paid > 0 {
		p.paid[agent] += paid
	}
	p.calls++
	p.took += took
	for i, bound := range bounds {
		if took.Seconds() <= bound {
			p.within[i]++
			break
		}
	}
}

// Handler answers GET /metrics. What the ledger does not tell is left out.
func (p *Process) Handler(now func(context.Context) (Standing, error)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		standing, err := now(r.Context())
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		p.write(w, standing, err == nil)
	})
	return mux
}

func (p *Process) write(w io.Writer, s Standing, isRead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := text{w}
	t.family("x402_wallet_payments_total", "counter", "Calls that may pay, by what they came to.")
	for _, of := range slices.SortedFunc(maps.Keys(p.payments), func(a, b [3]string) int {
		return slices.Compare(a[:], b[:])
	}) {
		t.sample("x402_wallet_payments_total", strconv.FormatUint(p.payments[of], 10), "agent", of[0],
			"outcome", of[1], "code", of[2])
	}
	t.dollars("x402_wallet_paid_dollars_total", "counter", "What calls paid.", p.paid)
	t.family("x402_wallet_payment_seconds", "histogram", "How long calls that may pay took.")
	var sum uint64
	for i, bound := range bounds {
		sum += p.within[i]
		t.sample("x402_wallet_payment_seconds_bucket", strconv.FormatUint(sum, 10), "le",
			strconv.FormatFloat(bound, 'g', -1, 64))
	}
	t.sample("x402_wallet_payment_seconds_bucket", strconv.FormatUint(p.calls, 10), "le", "+Inf")
	t.sample("x402_wallet_payment_seconds_sum", strconv.FormatFloat(p.took.Seconds(), 'g', -1, 64))
	t.sample("x402_wallet_payment_seconds_count", strconv.FormatUint(p.calls, 10))
	t.number("process_start_time_seconds", "When the process began, since 1970.",
		strconv.FormatFloat(float64(p.Started.UnixMilli())/1000, 'f', 3, 64))
	t.counts("x402_wallet_sessions", "Sessions of agents.", s.Sessions)
	t.number("x402_wallet_ledger_readable", "Whether the ledger could be read: 0 or 1.", digit(isRead))
	if !isRead {
		return
	}
	t.dollars("x402_wallet_held_dollars", "gauge", "Held for payments under way.", s.Held)
	t.dollars("x402_wallet_unknown_dollars", "gauge", "Held for payments whose outcome is not known.",
		s.Unknown)
	t.counts("x402_wallet_approvals_waiting", "Approvals that wait for a person.", s.Waiting)
	t.number("x402_wallet_frozen", "Whether everything is frozen: 0 or 1.", digit(s.Frozen))
}

// text writes the format.
type text struct{ w io.Writer }

func (t text) family(name, kind, help string) {
	fmt.Fprintf(t.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample is one line; labels are names and values in turn.
func (t text) sample(name, value string, labels ...string) {
	var list []string
	for label := range slices.Chunk(labels, 2) {
		list = append(list, label[0]+`="`+escaped.Replace(label[1])+`"`)
	}
	if len(list) > 0 {
		name += "{" + strings.Join(list, ",") + "}"
	}
	fmt.Fprintln(t.w, name, value)
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (t text) number(name, help, value string) {
	t.family(name, "gauge", help)
	t.sample(name, value)
}

func (t text) dollars(name, kind, help string, of map[string]money.Dollars) {
	t.family(name, kind, help)
	for _, agent := range slices.Sorted(maps.Keys(of)) {
		t.sample(name, of[agent].String(), "agent", agent)
	}
}

func (t text) counts(name, help string, of map[string]int) {
	t.family(name, "gauge", help)
	for _, agent := range slices.Sorted(maps.Keys(of)) {
		t.sample(name, strconv.Itoa(of[agent]), "agent", agent)
	}
}

func digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
