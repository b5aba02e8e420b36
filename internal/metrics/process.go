package metrics

import (
	"context"
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

func (p *Process) write(_ context.Context, t text) {
	const build = "x402_wallet_build_info"
	t.family(build, gauge, "Which program it is.")
	t.sample(build, "1", "version", p.Version, "goversion", runtime.Version())
	t.number("process_start_time_seconds", "When the process began, since 1970.", since1970(p.Started))
	t.number("go_goroutines", "Goroutines that there are.", count(runtime.NumGoroutine()))
	u := used()
	if u.cpu >= 0 {
		const cpu = "process_cpu_seconds_total"
		t.family(cpu, counter, "What the process has computed, user and system.")
		t.sample(cpu, seconds(u.cpu))
	}
	for _, g := range []struct {
		name, help string
		value      int
	}{{"process_resident_memory_bytes", "Memory that the process has in use.", u.resident},
		{"process_open_fds", "File descriptors that are open.", u.openFDs},
		{"process_max_fds", "File descriptors that may be open.", u.mostOpen}} {
		if g.value >= 0 {
			t.number(g.name, g.help, count(g.value))
		}
	}
}
