package app

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"x402-wallet/history/sqldb"
	"x402-wallet/internal/metrics"
	"x402-wallet/tools"
)

// metricsEvery is how often the file of [metrics] is written.
const metricsEvery = 15 * time.Second

// showMetrics shows the figures of a process that serves one agent, where [metrics] says so. Whatever goes
// wrong with them, the agent is served. wait is to be called when it is not any more.
func (a *app) showMetrics(ctx context.Context, server *tools.Server) (wait func()) {
	rules, err := a.rules()
	if err != nil || (rules.Metrics.Listen == "" && rules.Metrics.File == "") {
		return func() {}
	}
	calls := &metrics.Calls{}
	server.Count, a.watch = calls.Call, countSteps(calls)
	ledger := metrics.Ledger{Read: server.Standing}
	if rules.Metrics.File != "" {
		return a.keepMetricsFile(ctx, rules.Metrics.File, server, calls, ledger)
	}
	l, at, err := listenMetrics(ctx, rules.Metrics.Listen)
	if err != nil {
		a.log.Warn("no metrics are served", "err", err)
		return func() {}
	}
	a.log.Info("serving metrics", "at", at)
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.serveMetrics(ctx, l, calls, ledger)
	}()
	return func() { end(); <-done }
}

// keepMetricsFile writes the file from time to time, and for the last time when the agent has left. The first
// of several processes has the file of that name, and each other one a file of its own for as long as it
// lives.
func (a *app) keepMetricsFile(ctx context.Context, path string, server *tools.Server,
	sources ...metrics.Source) (wait func()) {
	process := ""
	lock, held := lockMetrics(path)
	if !held {
		process = strconv.Itoa(os.Getpid())
		end := filepath.Ext(path)
		path = strings.TrimSuffix(path, end) + "-" + process + end
	}
	sources = append([]metrics.Source{&metrics.Process{Version: a.version, Started: time.Now()}, &a.parties},
		sources...)
	write := func(ctx context.Context) {
		if err := metrics.WriteFile(ctx, path, process, sources...); err != nil {
			a.log.Warn("the metrics could not be written", "file", path, "err", err)
		}
	}
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(metricsEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				write(ctx)
			}
		}
	}()
	server.Ending = func(ctx context.Context) {
		end()
		<-done
		write(context.WithoutCancel(ctx))
	}
	return func() {
		end()
		<-done
		if held {
			_ = lock.Close()
		} else {
			// another process shows the ledger; a file for each one that was would pile up
			_ = os.Remove(path)
		}
	}
}

// lockMetrics takes the file of metrics for this process.
func lockMetrics(path string) (lock *os.File, held bool) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false
	}
	held, err = sqldb.LockFile(lock)
	if err != nil || !held {
		_ = lock.Close()
		return nil, false
	}
	return lock, true
}
