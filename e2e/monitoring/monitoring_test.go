package monitoring

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

// Everything that the dashboard and the alert rules ask has an answer, and each alert fires, where payments
// are paid, refused, unknown and frozen, and whatever else can go wrong has.
func TestARealPrometheus(t *testing.T) {
	w := newWorld(t)
	jobs := maps.Clone(w.metrics)
	jobs["x402-down"] = "127.0.0.1:1"
	p := watches(t, jobs)
	dashboard := readDashboard(t)

	require.Contains(t, w.pays("alice", "/weather"), `paid`)
	require.Contains(t, w.shops("bob"), "sunny")
	require.Contains(t, w.pays("bob", "/report"), "APPROVAL_REQUIRED")
	w.crowds()
	w.fails("evm node down", func() { w.pays("bob", "/weather") }, nil)
	w.fails("facilitator down", func() { w.shops("bob") }, nil)
	for _, begun := range []string{`x402_wallet_facilitator_requests_total{outcome="no_answer"}`,
		`x402_wallet_node_requests_total{outcome="error"}`, `x402_wallet_sales_total{outcome="delivered"}`, `x402_wallet_paywall_refused_total`,
		`x402_wallet_payments_total{code="APPROVAL_REQUIRED"}`} {
		// what begins at something does not increase: Prometheus has to see it first
		until(t, begun, func() bool { return p.answers(begun) })
	}
	for range 8 {
		w.pays("alice", "/weather")
	}
	require.Contains(t, w.pays("bob", "/report"), "APPROVAL_REQUIRED")
	require.Contains(t, w.shops("bob"), "sunny")
	w.crowds()
	w.Inject("seller cuts before", 1)
	require.Contains(t, w.pays("bob", "/weather"), "OUTCOME_UNKNOWN")
	w.pays("alice", "/weather")
	require.Contains(t, w.pays("alice", "/weather"), "BUDGET_EXCEEDED")

	w.fails("evm node down", func() { w.pays("bob", "/weather") },
		func() bool { return p.fired("X402NodeFailing") != nil })
	w.fails("facilitator down", func() { w.shops("bob") },
		func() bool { return p.fired("X402FacilitatorFailing") != nil })
	cmd := w.home.Command(t.Context(), w.bin, "freeze")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Contains(t, w.pays("bob", "/weather"), "WALLET_FROZEN")

	asked := append(dashboard.expressions(), `x402_wallet_payments_total{code="WALLET_FROZEN"}`)
	until(t, "an answer to everything that is asked", func() bool {
		asked = slices.DeleteFunc(asked, p.answers)
		if len(asked) > 0 {
			t.Logf("not answered yet: %q", asked)
		}
		return len(asked) == 0
	})
	wanted := map[string]map[string]string{
		"X402BudgetNearlyUsed":      {"job": "x402-wallet", "agent": "alice", "window": "day"},
		"X402Frozen":                {"job": "x402-wallet"},
		"X402AccountFrozen":         {"job": "x402-left"},
		"X402ApprovalWaiting":       {"job": "x402-left"},
		"X402PaymentUnknownTooLong": {"job": "x402-left"},
		"X402FacilitatorFailing":    {"job": "x402-paywall", "facilitator": "sandbox"},
		"X402NodeFailing":           {"job": "x402-wallet", "network": sandbox.EVM},
		"X402LedgerUnreadable":      {"job": "x402-gone"},
		"X402Down":                  {"job": "x402-down"},
		"X402LowBalance":            {"job": "x402-wallet", "network": sandbox.EVM, "asset": "USDC"},
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(wanted)), p.rules())
	for alert, labels := range wanted {
		until(t, alert, func() bool {
			return slices.ContainsFunc(p.fired(alert), func(has map[string]string) bool {
				for name, value := range labels {
					if has[name] != value {
						return false
					}
				}
				return true
			})
		})
	}
	for _, of := range p.fired("X402Frozen") {
		require.Equal(t, "x402-wallet", of["job"], "of the other one account is frozen")
	}
	w.judge()
}

// judge has promtool look at all that is scraped, and compares it with the page.
func (w *world) judge() {
	w.t.Helper()
	promtool := installed(w.t, "promtool")
	families := map[string]bool{}
	for job := range w.metrics {
		text := w.scrape(job)
		check := exec.CommandContext(w.t.Context(), promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		said, err := check.CombinedOutput()
		require.NoError(w.t, err, "%s: %s", job, said)
		require.Empty(w.t, string(said), job)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(text, -1) {
			families[m[1]] = true
		}
	}
	page := must.Get(os.ReadFile(filepath.Join(pages, "../operating.md")))(w.t)
	_, section, found := strings.Cut(string(page), "\n## Monitoring\n")
	require.True(w.t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	written := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)`((?:x402|process|go)_[a-z0-9_]+)(?:\\{[a-z,]+\\})?`").
		FindAllStringSubmatch(section, -1) {
		written[m[1]] = true
	}
	require.Equal(w.t, slices.Sorted(maps.Keys(families)), slices.Sorted(maps.Keys(written)),
		"what is served, and what docs/operating.md has")
}

// The alerts fire when they should, and no sooner.
func TestAlertRules(t *testing.T) {
	promtool := installed(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = pages
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", args, said)
	}
	tested := must.Get(os.ReadFile(filepath.Join(pages, "alerts_test.yml")))(t)
	rules := must.Get(os.ReadFile(filepath.Join(pages, "alerts.yml")))(t)
	names := regexp.MustCompile(`- alert: (\S+)`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		at := regexp.MustCompile(`alertname: `+name[1]+`\n( +exp_alerts)?`).
			FindAllStringSubmatch(string(tested), -1)
		fires := slices.IndexFunc(at, func(m []string) bool { return m[1] != "" })
		is := slices.IndexFunc(at, func(m []string) bool { return m[1] == "" })
		require.True(t, fires >= 0 && is >= 0, "%s is tested when it fires, and when it does not", name[1])
	}
}

// What Grafana takes: panels that do not lie on each other, each with the variable as its source.
func TestTheDashboardIsGrafanas(t *testing.T) {
	d := readDashboard(t)
	variables := map[any]any{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	require.Equal(t, map[any]any{"datasource": "datasource", "instance": "query"}, variables)
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		for _, target := range p.Targets {
			require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			require.Contains(t, target.Expr, `instance=~"$instance"`, p.Title)
		}
	}
}
