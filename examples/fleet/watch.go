package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// watches starts a Prometheus on all machines, with prometheus.yml and the alert rules.
func (s *story) watches(ctx context.Context) error {
	var signers []string
	for _, m := range s.machines {
		signers = append(signers, "'"+m.metrics+"'")
	}
	conf, err := file("prometheus.yml", "15s", "250ms",
		"'127.0.0.1:9401', '127.0.0.1:9402', '127.0.0.1:9403'", strings.Join(signers, ", "),
		"'127.0.0.1:9404', '127.0.0.1:9405'", "'"+s.shops[0].metrics+"', '"+s.shops[1].metrics+"'")
	if err != nil {
		return err
	}
	rules, err := os.ReadFile(s.alerts)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"prometheus.yml": conf, "alerts.yml": string(rules)} {
		if err := os.WriteFile(s.at(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, s.prometheus, "--config.file="+s.at("prometheus.yml"),
		"--web.listen-address=127.0.0.1:0", "--storage.tsdb.path="+s.at("prometheus"))
	cmd.Env = []string{"HOME=" + s.dir, "TMPDIR=" + s.dir}
	p, err := s.serve("Prometheus", cmd)
	if err == nil {
		s.watch, err = p.says(ctx, `msg="Listening on" address=([0-9.:]+)`)
	}
	if err == nil {
		_, err = p.says(ctx, `(Server is ready to receive web requests)`)
	}
	return err
}

// asks is what Prometheus knows: a sum by labels, joined by spaces.
func (s *story) asks(ctx context.Context, expression string) (sums map[string]int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+s.watch+"/api/v1/query?"+url.Values{"query": {expression}}.Encode(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var said struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil || said.Status != "success" {
		return nil, fmt.Errorf("ask Prometheus for %s: %s %w", expression, said.Error, err)
	}
	sums = map[string]int{}
	for _, series := range said.Data.Result {
		text, _ := series.Value[1].(string)
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		labels := series.Metric
		words := []string{labels["agent"], labels["outcome"], labels["code"]}
		key := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
		if n > 0 {
			sums[key] = int(n)
		}
	}
	return sums, nil
}
