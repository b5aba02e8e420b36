// Package metrics serves figures of a service, a paywall or a ledger in Prometheus' text format (version
// 0.0.4): what a process counted, and what the ledger holds at that moment. docs/operating.md lists them.
//
// What must stay true: a label is a name of the owner's rules or a word of our own, never what a seller or an
// agent wrote; and a family has at most maxSeries series.
//
// The files: set.go (bounded families), help.go (their descriptions), process.go (this process), calls.go
// (agents' calls, facilitators and nodes), ledger.go (what the ledger holds), sales.go (a paywall).
package metrics

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/ownfile"
)

// Source is a part of what is served.
type Source interface {
	write(ctx context.Context, w io.Writer)
}

// readFor is how long the ledger may take: Prometheus waits for ten seconds, and the rest is to come too.
const readFor = 4 * time.Second

// Handler answers GET /metrics with all sources, one request after the other: whoever may read cannot have
// the ledger read many times at once.
func Handler(sources ...Source) http.Handler {
	turn := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		var all bytes.Buffer // whoever reads slowly holds up nothing that counts
		for _, s := range sources {
			s.write(r.Context(), &all)
		}
		<-turn
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(all.Bytes())
	})
	return mux
}

// fileMode lets node_exporter, which is another user, read the file.
const fileMode = 0o644

// WriteFile writes all sources into a file, whole or not at all. process tells the figures of several
// processes apart, as a label of each; "": there is one.
func WriteFile(ctx context.Context, path, process string, sources ...Source) error {
	var all bytes.Buffer
	for _, s := range sources {
		s.write(ctx, &all)
	}
	text := all.String()
	if process != "" {
		text = labelled(text, `process=`+strconv.Quote(process))
	}
	return ownfile.Replace(path, fileMode, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// labelled adds a label to each line of Prometheus' text format that is a figure.
func labelled(text, label string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		end := strings.IndexAny(line, "{ ")
		switch {
		case strings.HasPrefix(line, "#") || end < 0:
			out.WriteString(line)
		case line[end] == '{':
			out.WriteString(line[:end+1] + label + "," + line[end+1:])
		default:
			out.WriteString(line[:end] + "{" + label + "}" + line[end:])
		}
	}
	return out.String()
}
