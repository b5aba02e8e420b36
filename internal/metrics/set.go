package metrics

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"x402-wallet/x402/money"
)

// maxSeries bounds the series of one family. The agents, tools, networks and facilitators of one owner, times
// our words, stay far below it.
const maxSeries = 1000

// other replaces every label of a series that is beyond maxSeries.
const other = "other"

// bounds are the upper bounds of all histograms, in seconds. A write of the ledger takes a few milliseconds,
// a chain up to a minute.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// set is a set of metrics whose families are bounded. The zero value is empty and ready. Labels are names
// and values in turn. It is safe for concurrent use.
type set struct {
	once    sync.Once
	library *metrics.Set

	mu       sync.Mutex
	families map[string]map[string]bool // the series of each family
}

func (s *set) metrics() *metrics.Set {
	s.once.Do(func() {
		metrics.ExposeMetadata(true) // the types of families
		s.library = metrics.NewSet()
	})
	return s.library
}

func (s *set) increment(family string, labels ...string) {
	s.metrics().GetOrCreateCounter(s.series(family, labels)).Inc()
}

// setCounter sets a counter that is kept elsewhere.
func (s *set) setCounter(family string, value uint64, labels ...string) {
	s.metrics().GetOrCreateCounter(s.series(family, labels)).Set(value)
}

func (s *set) add(family string, value float64, labels ...string) {
	s.metrics().GetOrCreateFloatCounter(s.series(family, labels)).Add(value)
}

func (s *set) observe(family string, d time.Duration, labels ...string) {
	s.histogram(family, labels...).Update(d.Seconds())
}

func (s *set) histogram(family string, labels ...string) *metrics.PrometheusHistogram {
	return s.metrics().GetOrCreatePrometheusHistogramExt(s.series(family, labels), bounds)
}

func (s *set) setGauge(family string, value float64, labels ...string) {
	s.metrics().GetOrCreateGauge(s.series(family, labels), nil).Set(value)
}

func (s *set) writeTo(w io.Writer) {
	var text bytes.Buffer
	s.metrics().WritePrometheus(&text)
	writeWithHelp(w, text.Bytes())
}

// series returns the name of a series, or that of the family's last one if maxSeries is reached.
func (s *set) series(family string, labels []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.families == nil {
		s.families = map[string]map[string]bool{}
	}
	known := s.families[family]
	if known == nil {
		known = map[string]bool{}
		s.families[family] = known
	}
	name := seriesName(family, labels)
	if !known[name] && len(known) >= maxSeries-1 {
		labels = slices.Clone(labels)
		for i := 1; i < len(labels); i += 2 {
			labels[i] = other
		}
		name = seriesName(family, labels)
	}
	known[name] = true
	return name
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func seriesName(family string, labels []string) string {
	if len(labels) == 0 {
		return family
	}
	var list []string
	for label := range slices.Chunk(labels, 2) {
		list = append(list, label[0]+`="`+escaped.Replace(label[1])+`"`)
	}
	return family + "{" + strings.Join(list, ",") + "}"
}

// setGauges sets one gauge for each of the first maxSeries-1 keys of a map, in their order. The others are
// left out: one gauge cannot stand for all of them.
func setGauges[V any](s *set, family, label string, values map[string]V, number func(V) float64) {
	keys := slices.Sorted(maps.Keys(values))
	for _, key := range keys[:min(len(keys), maxSeries-1)] {
		s.setGauge(family, number(values[key]), label, key)
	}
}

// timestamp returns a time in seconds since 1970, to a millisecond.
func timestamp(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// age returns the seconds since then. It returns 0 if then is zero or our clock is behind.
func age(now, then time.Time) float64 {
	if then.IsZero() {
		return 0
	}
	return max(now.Sub(then), 0).Seconds()
}

func whole(n int) float64 { return float64(n) }

func dollars(d money.Dollars) float64 { return float64(d) / microPerDollar }

const microPerDollar = 1e6

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
