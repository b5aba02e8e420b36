// Package monitoring tries the metrics with a real Prometheus: what docs/monitoring has for it, on a service,
// a paywall and dashboards that are the real program, in a world of play money.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
)

var pages = filepath.Join("..", "..", "docs", "monitoring")

func installed(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	require.NoError(t, err, "the metrics are tried with a real Prometheus: "+
		"apt-get install -y --no-install-recommends prometheus")
	return path
}

type prometheus struct {
	t  *testing.T
	at string
}

// watches starts a Prometheus on jobs (name to host:port) with the alert rules, whose alerts fire at once:
// for how long something has to last, promtool tests.
func watches(t *testing.T, jobs map[string]string) prometheus {
	t.Helper()
	dir := t.TempDir()
	rules := must.Get(os.ReadFile(filepath.Join(pages, "alerts.yml")))(t)
	rules = regexp.MustCompile(`(?m)^(\s+for:) .*$`).ReplaceAll(rules, []byte("$1 0s"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alerts.yml"), rules, 0o600))
	conf := "global:\n  scrape_interval: 250ms\n  scrape_timeout: 250ms\n  evaluation_interval: 250ms\n" +
		"rule_files: [alerts.yml]\nscrape_configs:\n"
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		conf += fmt.Sprintf("  - job_name: %s\n    static_configs: [{targets: ['%s']}]\n", job, jobs[job])
	}
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(conf), 0o600))
	p := start(t, exec.CommandContext(t.Context(), installed(t, "prometheus"), "--config.file="+file,
		"--web.listen-address=127.0.0.1:0", "--storage.tsdb.path="+filepath.Join(dir, "data")))
	at := p.says(`msg="Listening on" address=([0-9.:]+)`)
	p.says(`(Server is ready to receive web requests)`)
	return prometheus{t, "http://" + at}
}

func (p prometheus) get(path string, ask url.Values, into any) {
	p.t.Helper()
	answer := must.Get(http.Get(p.at + path + "?" + ask.Encode()))(p.t)
	defer answer.Body.Close()
	var said struct {
		Status, Error string
		Data          json.RawMessage
	}
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&said))
	require.Equal(p.t, "success", said.Status, "%s %s: %s", path, ask, said.Error)
	require.NoError(p.t, json.Unmarshal(said.Data, into))
}

// answers reports whether an expression has an answer now: a series.
func (p prometheus) answers(expression string) bool { return len(p.query(expression)) > 0 }

func (p prometheus) query(expression string) (series []map[string]string) {
	p.t.Helper()
	var data struct {
		ResultType string
		Result     []struct{ Metric map[string]string }
	}
	p.get("/api/v1/query", url.Values{"query": {expression}}, &data)
	require.Equal(p.t, "vector", data.ResultType, expression)
	for _, s := range data.Result {
		series = append(series, s.Metric)
	}
	return series
}

// fired are the labels with which an alert fired until now.
func (p prometheus) fired(alert string) []map[string]string {
	p.t.Helper()
	return p.query(fmt.Sprintf(`max_over_time(ALERTS{alertname=%q,alertstate="firing"}[1h])`, alert))
}

func (p prometheus) rules() (known []string) {
	p.t.Helper()
	var data struct {
		Groups []struct{ Rules []struct{ Name string } }
	}
	p.get("/api/v1/rules", nil, &data)
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			known = append(known, r.Name)
		}
	}
	return known
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  *struct{ Type, UID string }
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		RefID, Expr string
		Datasource  struct{ Type, UID string }
	}
}

type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Query any }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(pages, "grafana-dashboard.json")))(t)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// expressions are those of a dashboard, as Grafana asks them for all instances.
func (d dashboard) expressions() (list []string) {
	filled := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			list = append(list, filled.Replace(target.Expr))
		}
	}
	return list
}

// patience is how long is waited for what comes in a moment on a machine with nothing else to do.
const patience = 2 * time.Minute

type program struct {
	t   *testing.T
	cmd *exec.Cmd

	mu   sync.Mutex
	said bytes.Buffer
}

func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.WaitDelay = 10 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd.Args[:2], p.text())
		}
	})
	return p
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// says waits for what it says, and gives the expression's group.
func (p *program) says(pattern string) string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	var found []string
	until(p.t, pattern, func() bool {
		found = expression.FindStringSubmatch(p.text())
		return found != nil
	})
	return found[1]
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	const every = 50 * time.Millisecond
	for end := time.Now().Add(patience); !is(); time.Sleep(every) {
		require.True(t, time.Now().Before(end), "waited in vain for %s", what)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	testworld.RemoveBuild()
	os.Exit(code)
}
