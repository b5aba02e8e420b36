package metrics

import (
	"context"
	"io"
	"runtime"
	"time"
)

// Process is this process: which program it is, and what it takes of the machine.
type Process struct {
	Version string
	Started time.Time
}

// usage is what the system says of this process; -1 where it does not.
type usage struct {
	cpu               time.Duration
	resident          int // bytes
	openFDs, mostOpen int // file descriptors
}

func (p *Process) write(_ context.Context, w io.Writer) {
	var out set
	defer out.writeTo(w)
	out.setGauge("x402_wallet_build_info", 1, "version", p.Version, "goversion", runtime.Version())
	out.setGauge("process_start_time_seconds", timestamp(p.Started))
	out.setGauge("go_goroutines", float64(runtime.NumGoroutine()))
	u := used()
	if u.cpu >= 0 {
		out.add("process_cpu_seconds_total", u.cpu.Seconds())
	}
	for name, value := range map[string]int{"process_resident_memory_bytes": u.resident,
		"process_open_fds": u.openFDs, "process_max_fds": u.mostOpen} {
		if value >= 0 {
			out.setGauge(name, float64(value))
		}
	}
}
