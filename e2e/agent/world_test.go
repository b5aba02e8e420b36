package agent

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// world is what all trials share: the sandbox's chains and facilitator, and a market on one port in which
// every trial has a stand of its own. What a wallet paid is told by its own addresses.
type world struct {
	*sandbox.Sandbox
	shop string // the market's URL

	mu     sync.Mutex
	stands []*stand
}

func newWorld(t *testing.T) *world {
	s := must.Get(sandbox.Start(sandbox.Options{Finality: time.Second}))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w := &world{Sandbox: s}
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	t.Cleanup(func() { _ = server.Close() })
	w.shop = "http://" + listener.Addr().String()
	s.Loopback = append(s.Loopback, listener.Addr().String())
	return w
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	var at *stand
	for _, s := range w.stands {
		if strings.HasPrefix(r.URL.Path, s.prefix+"/") {
			at = s
		}
	}
	w.mu.Unlock()
	if at == nil {
		http.NotFound(out, r)
		return
	}
	at.ServeHTTP(out, r)
}

func (w *world) rent(wares map[string]goods) *stand {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.stands) + 1
	s := &stand{world: w, prefix: fmt.Sprint("/s", n), goods: wares, onSolana: w.PayToSolana,
		onEVM: fmt.Sprintf("0x%040x", 0xA11CE000+n), asked: map[string]int{}, byHash: map[[32]byte]*sale{},
		refused: map[[32]byte]bool{}}
	w.stands = append(w.stands, s)
	return s
}

func (w *world) token(network string) string {
	asset, _ := x402.NewRegistry(nil).Named(network, "")
	return asset.Address
}

// setup is what a scenario needs beside its goods. The zero value is a funded, unlocked wallet under the
// sandbox's usual rules, at a host that cannot ask its person.
type setup struct {
	goods  map[string]goods
	rules  sandbox.Rules
	limits string // more lines of [budget]
	policy string // more lines of [policy]
	elicit string // what the person answers in the host: "accept", "decline"; "": the host cannot ask
	person bool   // the owner sits at a terminal, and does what they are told to
	purse  uint64 // what the wallet has on Base Sepolia; 0: ten dollars
	empty  bool   // it has nothing
	locked bool   // nothing opens it but its person
	absent bool   // there is no wallet
	solana bool   // it pays from what its owner delegated
	tools  []tool // sold by an MCP server, "shop" in its config
	market bool   // the task is about the sandbox's own seller, whom discovery lists

	before func(*agent) // what happened before the task; not in the transcript
}

func (w *world) enter(t *testing.T, s setup) *agent {
	at := w.rent(s.goods)
	rules := ""
	if !s.absent {
		if s.tools != nil {
			at.mcp = w.sells(t, at, s.tools)
			s.rules.Extra += fmt.Sprintf("[servers.shop]\nurl = %q\n", at.url("/mcp"))
		}
		rules = w.Config(s.rules)
		rules = strings.Replace(rules, "[budget]\n", "[budget]\n"+s.limits, 1)
		rules = strings.Replace(rules, "[policy]\n", "[policy]\n"+s.policy, 1)
	}
	home := testworld.NewHome(t, rules)
	w.endow(s, home)
	var env []string
	if s.locked || s.absent {
		env = lockedOut
	}
	a := &agent{t: t, home: home, stand: at, host: startHost(t, home, env, s.elicit)}
	a.person = &person{home}
	require.NoError(t, os.MkdirAll(filepath.Dir(a.person.key()), 0o700))
	require.NoError(t, os.WriteFile(a.person.key(), w.OwnerKeypair, 0o600))
	if s.before != nil {
		s.before(a)
		a.transcript, a.said = nil, ""
	}
	if !s.person {
		a.person = nil
	}
	return a
}

func (w *world) endow(s setup, home testworld.Home) {
	if !s.empty && !s.absent {
		w.Fund(home.EVM, cmp.Or(s.purse, 10*sandbox.USDC))
	}
	if s.solana {
		w.Delegate(home.Solana, mill)
	}
}

// lockedOut is in the environment of a wallet that nothing opens.
var lockedOut = []string{"X402_WALLET_PASSPHRASE_FILE="}
