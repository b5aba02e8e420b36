package metrics

import (
	"maps"
	"slices"
	"time"
)

// maxSeries bounds the values of one family (of a histogram: its histograms). Agents, tools, networks and
// facilitators of one owner times our words stay far below it.
const maxSeries = 1000

// other stands for all labels of what found no place any more.
const other = "other"

// key is the values of a family's labels, in their order; those that it does not have are "".
type key [3]string

// table has a family's values by their labels. The zero value is empty.
type table[V any] struct{ of map[key]*V }

// at is the value of these labels, to be read or changed.
func (t *table[V]) at(labels ...string) *V {
	var k key
	copy(k[:], labels)
	if v := t.of[k]; v != nil {
		return v
	}
	if t.of == nil {
		t.of = map[key]*V{}
	}
	if len(t.of) >= maxSeries-1 { // the last place is for all the others
		k = key{}
		for i := range labels {
			k[i] = other
		}
		if v := t.of[k]; v != nil {
			return v
		}
	}
	v := new(V)
	t.of[k] = v
	return v
}

// each calls do for all values, in the order of their labels, with names and values of labels in turn.
func (t *table[V]) each(names []string, do func(v V, labels []string)) {
	for _, k := range slices.SortedFunc(maps.Keys(t.of), func(a, b key) int {
		return slices.Compare(a[:], b[:])
	}) {
		var labels []string
		for i, name := range names {
			labels = append(labels, name, k[i])
		}
		do(*t.of[k], labels)
	}
}

// samples writes a family.
func samples[V any](t text, name, kind, help string, of *table[V], value func(V) string, labels ...string) {
	t.family(name, kind, help)
	of.each(labels, func(v V, labels []string) { t.sample(name, value(v), labels...) })
}

// bounds are those of all histograms, in seconds: a write of the ledger takes a few milliseconds, a chain up
// to a minute.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// histogram counts how long something took.
type histogram struct {
	within [len(bounds)]uint64 // by the first bound that it is within
	count  uint64
	sum    time.Duration
}

func (h *histogram) add(took time.Duration) {
	h.count++
	h.sum += took
	for i, bound := range bounds {
		if took.Seconds() <= bound {
			h.within[i]++
			return
		}
	}
}

// histograms writes a family of them.
func histograms(t text, name, help string, of *table[histogram], labels ...string) {
	t.family(name, histo, help)
	of.each(labels, func(h histogram, labels []string) {
		bucket := func(n uint64, le string) {
			t.sample(name+"_bucket", count(n), append(slices.Clone(labels), "le", le)...)
		}
		var sum uint64
		for i, bound := range bounds {
			sum += h.within[i]
			bucket(sum, float(bound))
		}
		bucket(h.count, "+Inf")
		t.sample(name+"_sum", seconds(h.sum), labels...)
		t.sample(name+"_count", count(h.count), labels...)
	})
}
