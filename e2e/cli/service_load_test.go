//go:build linux

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/relay"
	"x402-wallet/internal/sandbox"
)

var (
	loadSessions = flag.Int("sessions", 60, "sessions of TestManySessions")
	loadCalls    = flag.Int("calls", 120, "paid calls of TestManySessions, over all sessions")
)

// session is one agent's session, without a process of its own.
type session struct {
	t     *testing.T
	says  *io.PipeWriter
	hears *bufio.Reader
	next  int
}

func (s *service) session(ctx context.Context) *session {
	in, says := io.Pipe()
	hears, out := io.Pipe()
	go func() {
		_ = relay.Pass(ctx, s.Socket, relay.Hello{}, in, out)
		_ = out.Close()
	}()
	c := &session{t: s.t, says: says, hears: bufio.NewReader(hears)}
	c.ask("initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	_, _ = io.WriteString(says, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return c
}

// ask is the text of the answer; "" where the session has ended.
func (c *session) ask(method, params string) string {
	c.next++
	_, err := fmt.Fprintf(c.says, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.next, method, params)
	if err != nil {
		return ""
	}
	for {
		line, err := c.hears.ReadString('\n')
		if err != nil {
			return ""
		}
		var m struct{ ID int }
		if json.Unmarshal([]byte(line), &m) == nil && m.ID == c.next {
			return line
		}
	}
}

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
			agents[i] = s.session(ctx)
			<-gate
		})
	}
	opening.Wait()
	t.Logf("%d sessions: %d sockets, %d MiB", len(agents), connections(t, s.Cmd.Process.Pid),
		resident(t, s.Cmd.Process.Pid, "RssAnon"))

	dying, kill := context.WithCancel(ctx)
	for range 10 { // who asks for much and reads nothing, and who dies in the middle of it
		slow := s.session(dying)
		go func() {
			for n := range 1000 {
				if _, err := fmt.Fprintf(slow.says, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n",
					100+n); err != nil {
					return
				}
			}
		}()
	}
	var paying, pinging sync.WaitGroup
	began, paid := time.Now(), make(chan struct{}, *loadCalls)
	for i, agent := range agents[1:] {
		paying.Go(func() {
			for n := i; n < *loadCalls; n += len(agents) - 1 {
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
	stop := make(chan struct{})
	var pings []time.Duration
	pinging.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			asked := time.Now()
			if agents[0].ask("ping", "{}") == "" {
				t.Error("the session that pings has ended")
				return
			}
			pings = append(pings, time.Since(asked))
		}
	})
	paying.Wait()
	took := time.Since(began)
	close(stop)
	pinging.Wait()
	require.Len(t, paid, *loadCalls)
	require.Len(t, w.Settlements(), *loadCalls+1)
	slices.Sort(pings)
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
