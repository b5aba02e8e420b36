//go:build linux

package pay

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// BenchmarkCrowd: calls that are all made at once, in one process: the processors' time for each, which is
// flat, and the largest memory of the process, which is its own only where one size is run by itself.
func BenchmarkCrowd(b *testing.B) {
	for _, calls := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(calls), func(b *testing.B) {
			before, made := cpuTime(b), 0
			for b.Loop() {
				b.StopTimer()
				e := crowdBench(b, calls)
				b.StartTimer()
				e.payAll(b, calls)
				made += calls
			}
			used := cpuTime(b) - before
			b.ReportMetric(float64(used.Microseconds())/float64(made)/1000, "cpu-ms/call")
			b.ReportMetric(b.Elapsed().Seconds()/float64(made)*float64(calls), "s/crowd")
			b.ReportMetric(peakMemory(b), "peak-MiB")
		})
	}
}

func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func peakMemory(t testing.TB) float64 {
	text := must.Get(os.ReadFile("/proc/self/status"))(t)
	_, line, found := strings.Cut(string(text), "VmHWM:")
	var kib float64
	must.Get(fmt.Sscan(line, &kib))(t)
	require.True(t, found)
	return kib / 1024
}
