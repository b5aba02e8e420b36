package metrics

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// text writes the format.
type text struct{ w io.Writer }

// The types of families.
const (
	counter = "counter"
	gauge   = "gauge"
	histo   = "histogram"
)

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

// number is a gauge without labels.
func (t text) number(name, help, value string) {
	t.family(name, gauge, help)
	t.sample(name, value)
}

func count[N int | uint64](n N) string { return strconv.FormatUint(uint64(n), 10) }

func float(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func seconds(d time.Duration) string { return float(d.Seconds()) }

// since1970 is a moment as Prometheus' functions take it.
func since1970(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// age is how long ago something was; 0: it was not, or our clock is behind.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "0"
	}
	return seconds(max(now.Sub(then), 0))
}

func digit(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}
