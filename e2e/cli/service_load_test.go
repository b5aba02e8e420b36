//go:build linux

package cli

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/sandbox"
)

var (
	loadSessions  = flag.Int("sessions", 60, "sessions of TestManySessions")
	loadCalls     = flag.Int("calls", 120, "paid calls of all agents together")
	loadProcesses = flag.Int("processes", 3, "agents of TestManyProcesses")
	loadRate      = flag.Int("rate", 0, "paid calls a second; 0: as many as there can be")
)

// Many sessions at one service, some of which never read what they asked for and some of which die: the
// others are served, everything that was paid was paid once, and what the dead took is given back.
func TestManySessions(t *testing.T) {
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return strings.Replace(w.rules(sandbox.Rules{Session: "100", Day: "100"}), "[budget]",
			"[budget]\nrate = 100000", 1)
	})
	w.Fund(w.evm, 100*sandbox.USDC)
	s := startService(t, append(env, passphraseFile(t)))
	first := serve(t, s.env()...)
	require.Contains(t, first.call("x402_pay", weather(w, "first")), `"status":"paid"`)
	before := connections(t, s.Cmd.Process.Pid)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var opening sync.WaitGroup
	agents := make([]*session, *loadSessions)
	gate := make(chan struct{}, 50)
	for i := range agents {
		opening.Go(func() {
			gate <- struct{}{}
			agents[i] = openSession(ctx, s.Socket)
			<-gate
		})
	}
	opening.Wait()
	t.Logf("%d sessions: %d sockets, %d MiB", len(agents), connections(t, s.Cmd.Process.Pid),
		resident(t, s.Cmd.Process.Pid, "RssAnon"))

	dying, kill := context.WithCancel(ctx)
	for range 10 { // who asks for much and reads nothing, and who dies in the middle of it
		slow := openSession(dying, s.Socket)
		go func() {
			for n := range 1000 {
				if _, err := fmt.Fprintf(slow.says, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n",
					100+n); err != nil {
					return
				}
			}
		}()
	}
	pinging := startPinger(t, s.Socket)
	took := payAll(t, w, agents[1:])
	pings := pinging()
	require.Len(t, w.Settlements(), *loadCalls+1)
	t.Logf("%d payments in %s, %.0f a second; %d MiB; a ping beside them: median %s, 99 %% %s", *loadCalls,
		took.Round(time.Millisecond), float64(*loadCalls)/took.Seconds(),
		resident(t, s.Cmd.Process.Pid, "RssAnon"),
		pings[len(pings)/2], pings[len(pings)*99/100])
	kill()
	end()
	require.Eventually(t, func() bool { return connections(t, s.Cmd.Process.Pid) <= before },
		20*time.Second, 50*time.Millisecond, "what sessions took is given back")
	require.Zero(t, s.Stop())
}

// The same by agents with a process each on the one wallet, which is the way without a service.
func TestManyProcesses(t *testing.T) {
	w, env := householdWith(t, sandbox.Options{}, func(w *world) string {
		return strings.Replace(w.rules(sandbox.Rules{Session: "100", Day: "100"}), "[budget]",
			"[budget]\nrate = 100000", 1)
	})
	w.Fund(w.evm, 100*sandbox.USDC)
	env = append(env, passphraseFile(t))
	agents, processes := make([]*session, *loadProcesses), make([]*mcpClient, *loadProcesses)
	for i := range agents {
		processes[i] = serve(t, env...)
		agents[i] = &session{says: processes[i].in, hears: bufio.NewReader(processes[i].from)}
		agents[i].begin()
	}
	took := payAll(t, w, agents)
	require.Len(t, w.Settlements(), *loadCalls)
	memory := int64(0)
	for _, p := range processes {
		memory += resident(t, p.cmd.Process.Pid, "RssAnon")
	}
	t.Logf("%d payments by %d processes in %s, %.0f a second; %d MiB", *loadCalls, len(agents),
		took.Round(time.Millisecond), float64(*loadCalls)/took.Seconds(), memory)
}

// payAll has agents make all paid calls, each one after the other, and says how long it took.
func payAll(t *testing.T, w *world, agents []*session) time.Duration {
	t.Helper()
	var paying sync.WaitGroup
	began, turns, paid := time.Now(), ticks(*loadRate), make(chan struct{}, *loadCalls)
	for i, agent := range agents {
		paying.Go(func() {
			for n := i; n < *loadCalls; n += len(agents) {
				<-turns
				answer := agent.ask("tools/call", fmt.Sprintf(`{"name":"x402_pay","arguments":%s}`,
					weather(w, strconv.Itoa(n))))
				if !strings.Contains(answer, `\"status\":\"paid\"`) {
					t.Errorf("%d: %s", n, answer)
					return
				}
				paid <- struct{}{}
			}
		})
	}
	paying.Wait()
	took := time.Since(began)
	require.Len(t, paid, *loadCalls)
	return took
}

// ticks come that many times a second; 0: whenever somebody asks.
func ticks(rate int) <-chan time.Time {
	if rate == 0 {
		always := make(chan time.Time)
		close(always)
		return always
	}
	return time.NewTicker(time.Second / time.Duration(rate)).C
}

// connections is how many Unix sockets a process has.
func connections(t *testing.T, pid int) (n int) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	known, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	for _, fd := range list {
		to, _ := os.Readlink(filepath.Join(dir, fd.Name()))
		inode, isSocket := strings.CutPrefix(strings.TrimSuffix(to, "]"), "socket:[")
		if isSocket && strings.Contains(string(known), " "+inode+" ") {
			n++
		}
	}
	return n
}
