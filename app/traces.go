package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"unicode"

	"x402-wallet/internal/config"
	"x402-wallet/internal/otlp"
	"x402-wallet/internal/pattern"
	"x402-wallet/internal/steps"
	"x402-wallet/seller"
)

// traces says whether calls are traced; strangers: it is they who make them.
func traces(rules *config.Config, strangers bool) steps.Traces {
	t := rules.Traces
	return steps.Traces{On: t.Endpoint != "", Sample: t.Sample, PassOn: t.PassOn, Strangers: strangers}
}

// spans sends spans to the collector that the rules name; nil: they name none.
func (a *app) spans(rules *config.Config) *otlp.Exporter {
	t := rules.Traces
	if t.Endpoint == "" {
		return nil
	}
	host, _ := os.Hostname() // else it is not known
	x := &otlp.Exporter{URL: t.Endpoint, HTTP: seller.NodeClient(nil, rules.Network.Proxy), Log: a.log,
		Ending: &a.telling,
		Of:     otlp.Resource{Service: "x402-wallet", Version: a.version, Instance: rand.Text(), Host: host}}
	if t.HeadersFile != "" {
		x.Headers = func() (http.Header, error) { return headersIn(t.HeadersFile) }
	}
	return x
}

var headerName = pattern.Lazy(`^[A-Za-z0-9_-]+$`)

// headersIn reads an owner-only file with a line "Name: value" for each header.
func headersIn(path string) (http.Header, error) {
	text, err := config.ReadSecretFile(path)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for i, line := range strings.Split(strings.TrimSpace(text.Reveal()), "\n") {
		name, value, hasBoth := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		isValue := value != "" && !strings.ContainsFunc(value, unicode.IsControl)
		if !hasBoth || !headerName().MatchString(name) || !isValue {
			return nil, fmt.Errorf("line %d is not \"Name: value\"", i+1) // it is not shown: it may be a key
		}
		header.Set(name, value)
	}
	return header, nil
}

// observer is who is told of calls and sales: the log, the owner's collector and metrics, where they are to
// be. nil: nobody, and then nothing is noted.
func (a *app) observer(h openHome) func(steps.Report) {
	var list []func(steps.Report)
	level := slog.LevelDebug // in text, which people read, it is for who looks for faults
	if a.format.isJSON() {
		level = slog.LevelInfo
	}
	if a.log.Enabled(context.Background(), level) {
		list = append(list, func(r steps.Report) { logCall(a.log, level, r) })
	}
	if h.spans != nil {
		list = append(list, h.spans.Add)
	}
	if a.watch != nil {
		list = append(list, a.watch)
	}
	if len(list) == 0 {
		return nil
	}
	labels := agentLabels(h.rules)
	return func(r steps.Report) {
		r.Label = labels[r.Agent]
		for _, told := range list {
			told(r)
		}
	}
}
