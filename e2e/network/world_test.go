// Package network holds a wallet's paid calls over a network: a seller and a node over HTTPS behind
// wires with a round trip, and names. What is asserted are counts; times are for benchmarks.
//
// The wallet is the program itself, package app in a process of its own, that drives no code but its
// own. Only two things are set in that process, because the product lets nobody set them: whom it trusts
// (this package's authority, as if the system did) and whom it asks for names. A seller's name must lead
// to a public address, which no test has; so the seller is localhost, and only the node has a name that
// is asked for. Both go through the same memory of names (package seller).
package network

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/app"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
)

const (
	authorityEnv = "TEST_AUTHORITY"  // its file; set, this program is a wallet
	namesEnv     = "TEST_NAMESERVER" // host:port
	nodeName     = "node.x402.test"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(sellerHome); home != "" {
		if err := sell(home); err != nil {
			panic(err)
		}
		return
	}
	if file := os.Getenv(authorityEnv); file != "" {
		encoded, err := os.ReadFile(file)
		pool := x509.NewCertPool()
		if err != nil || !pool.AppendCertsFromPEM(encoded) {
			panic("no authority")
		}
		x509.SetFallbackRoots(pool) // x509usefallbackroots in GODEBUG makes them the only ones
		names := os.Getenv(namesEnv)
		net.DefaultResolver.PreferGo = true
		net.DefaultResolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", names)
		}
		os.Exit(app.Main("0.0.0-network"))
	}
	os.Exit(m.Run())
}

type world struct {
	*sandbox.Sandbox
	authority    *authority
	names        string
	seller, node party
	questions    atomic.Int64 // of names
}

func newWorld(t testing.TB, rtt time.Duration) *world {
	near := must.Get(sandbox.Start(sandbox.Options{}))(t)
	t.Cleanup(func() { require.NoError(t, near.Close()) })
	w := &world{Sandbox: near, authority: newAuthority(t)}
	w.names = serveNames(t, rtt, &w.questions)
	far := func(name, target string, p *party) string {
		return name + ":" + w.authority.serveFar(t, name, target, rtt, p)
	}
	seller := far("localhost", near.SellerURL, &w.seller)
	near.EVMNodeURL = "https://" + far(nodeName, near.EVMNodeURL, &w.node)
	near.SolanaNodeURL = "https://" + far(nodeName, near.SolanaNodeURL, &w.node)
	near.SellerURL, near.Loopback = "https://"+seller, append(near.Loopback, seller)
	return w
}

type payer struct {
	home  testworld.Home
	stop  func() // ends the process
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu      sync.Mutex
	next    int
	waiting map[int]chan answer // nil when the wallet has ended
}

type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// newPayer starts a wallet with money on both chains; delegated, it spends the owner's on Solana.
func (w *world) newPayer(t testing.TB, delegated bool) *payer {
	rules := sandbox.Rules{Session: "1000", Day: "1000", Month: "1000"}
	if delegated {
		rules.TokenAccount = w.OwnerAccount
	}
	home := testworld.NewHome(t, strings.Replace(w.Config(rules), "[budget]", "[budget]\nrate = 100000", 1))
	w.Fund(home.EVM, 1000*sandbox.USDC)
	if delegated {
		w.Delegate(home.Solana, 1000*sandbox.USDC)
	} else {
		w.Fund(home.Solana, 1000*sandbox.USDC)
	}
	return w.start(t, home)
}

// start begins a process on a wallet that may have paid before.
func (w *world) start(t testing.TB, home testworld.Home) *payer {
	own := must.Get(os.Executable())(t)
	cmd := exec.Command(own, "mcp")
	cmd.Env = home.Env(authorityEnv+"="+w.authority.file, namesEnv+"="+w.names,
		"GODEBUG=x509usefallbackroots=1", "LOG_LEVEL=error")
	cmd.Stderr = os.Stderr
	p := &payer{home: home, cmd: cmd, waiting: map[int]chan answer{}}
	p.stdin = must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		p.hear(stdout)
	}()
	p.stop = sync.OnceFunc(func() {
		_ = p.stdin.Close()
		<-heard
		_ = cmd.Wait()
	})
	t.Cleanup(p.stop)
	_, err := p.request("initialize", map[string]any{"protocolVersion": "2025-11-25",
		"capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "network", "version": "1"}})
	require.NoError(t, err)
	require.NoError(t, p.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}))
	return p
}

func (p *payer) hear(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		var a answer
		if err == nil && json.Unmarshal(line, &a) == nil && a.ID != 0 {
			p.mu.Lock()
			if waits := p.waiting[a.ID]; waits != nil {
				waits <- a
				delete(p.waiting, a.ID)
			}
			p.mu.Unlock()
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, waits := range p.waiting {
		close(waits)
	}
	p.waiting = nil
}

func (p *payer) write(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = p.stdin.Write(append(line, '\n')) // in one go: *os.File serves one writer at a time
	return err
}

func (p *payer) request(method string, params any) (json.RawMessage, error) {
	p.mu.Lock()
	if p.waiting == nil {
		p.mu.Unlock()
		return nil, io.ErrUnexpectedEOF
	}
	p.next++
	id, waits := p.next, make(chan answer, 1)
	p.waiting[id] = waits
	p.mu.Unlock()
	if err := p.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method,
		"params": params}); err != nil {
		return nil, err
	}
	a, ok := <-waits
	switch {
	case !ok:
		return nil, io.ErrUnexpectedEOF
	case a.Error != nil:
		return nil, fmt.Errorf("%s: %s", method, a.Error)
	}
	return a.Result, nil
}

func (p *payer) pay(url string) (time.Duration, error) {
	started := time.Now()
	raw, err := p.request("tools/call", map[string]any{"name": "x402_pay",
		"arguments": map[string]any{"url": url}})
	took := time.Since(started)
	var result struct {
		IsError bool `json:"isError"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &result)
	}
	if err == nil && result.IsError {
		err = fmt.Errorf("not paid: %s", raw)
	}
	return took, err
}

// memory is the most that the wallet ever held in memory, in MiB; 0 where the system does not tell.
func (p *payer) memory() float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		return 0
	}
	kib, _ := strconv.ParseFloat(string(found[1]), 64)
	return kib / 1024
}

// cpu is what the wallet has computed so far, in milliseconds; 0 where the system does not tell.
func (p *payer) cpu() float64 { return testworld.CPUOf(p.cmd.Process.Pid) }
