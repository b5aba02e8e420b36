package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/loopback"
	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

// passphrase is that of play money.
const passphrase = "correct horse battery staple"

func tokenOf(agent string) string { return "token-of-" + agent }

func (s *story) atEnd(do func()) { s.ends = append(s.ends, do) }

func (s *story) at(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *story) write(text string, names ...string) {
	path := s.at(names...)
	check(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
}

// begin makes the directory, the world of play money, the ledger's server, and the server of tools.
func (s *story) begin(ctx context.Context) {
	var err error
	s.program, err = filepath.Abs(s.program)
	check(err)
	s.dir, err = os.MkdirTemp("", "x402-fleet-")
	check(err)
	s.atEnd(func() { _ = os.RemoveAll(s.dir) })
	s.world, err = sandbox.Start(sandbox.Options{OnPayment: func(sandbox.Settlement) {
		if s.kills.CompareAndSwap(true, false) {
			s.services[0].kill()
		}
	}})
	check(err)
	s.atEnd(func() { _ = s.world.Close() })
	server, err := pgtest.Open()
	check(err)
	s.atEnd(server.Close)
	s.ledger = fmt.Sprintf("[ledger]\nurl = %q\n", server.URL("postgres"))
	s.homes, s.bought = [2]string{s.at("first"), s.at("second")}, map[string]int{}
	s.startTools(ctx)
}

// startTools starts the MCP server whose tool the paywall sells. It knows nothing of money.
func (s *story) startTools(ctx context.Context) {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "forecast", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := fmt.Sprintf("forecast %d: sunny", s.runs.Add(1))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	check(err)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := loopback.Door{Hosts: loopback.Local}.Server(handler)
	go func() { _ = web.Serve(listener) }()
	s.atEnd(func() { _ = web.Close() })
	s.tools = "http://" + listener.Addr().String() + "/mcp"
}

// opensShop starts a paywall in a home of its own, with no keystore: it is paid, and cannot spend.
func (s *story) opensShop(ctx context.Context) {
	s.write(s.world.Config(sandbox.Rules{Extra: s.ledger}), "shop", "config.toml")
	s.write(fmt.Sprintf("url = %q\nlisten = '127.0.0.1:0'\nnetwork = %q\npay_to = %q\n"+
		"[tools.forecast]\nprice = '0.10'\n", s.tools, sandbox.EVM, s.world.PayToEVM), "shop.toml")
	paywall := s.start(s.wallet(ctx, s.at("shop"), "paywall", "--config", s.at("shop.toml")))
	s.shop = paywall.prints(ctx, `url=(http://[0-9.:]+/mcp)`)
}

// makesWallet makes the owner's wallet, with the rules of the fleet, and funds it.
func (s *story) makesWallet(ctx context.Context) {
	rules := sandbox.Rules{Day: dayBefore, Extra: s.ledger}
	for _, agent := range agents {
		hash := sha256.Sum256([]byte(tokenOf(agent)))
		rules.Extra += fmt.Sprintf("[agents.%s]\ntoken = 'sha256:%x'\n", agent, hash)
	}
	place := strings.TrimSuffix(strings.TrimPrefix(s.shop, "http://"), "/mcp")
	s.world.Loopback = append(s.world.Loopback, place)
	s.write(s.world.Config(rules), "rules.toml")
	s.write(passphrase+"\n", "passphrase")
	if s.makes != nil {
		check(s.makes(s.homes[0], s.world.Config(rules), passphrase))
	} else {
		s.command(ctx, s.homes[0], "init", "--passphrase-file", s.at("passphrase"),
			"--config", s.at("rules.toml"))
	}
	text, err := os.ReadFile(filepath.Join(s.homes[0], "keystore.json"))
	check(err)
	var keystore struct {
		Keys []struct{ Chain, Address string }
	}
	check(json.Unmarshal(text, &keystore))
	for _, key := range keystore.Keys {
		if key.Chain == "evm" {
			s.world.Fund(key.Address, 100*sandbox.USDC)
		}
	}
}

// copiesHome makes the home of a further replica.
func (s *story) copiesHome() {
	for _, name := range []string{"keystore.json", "config.toml"} {
		text, err := os.ReadFile(filepath.Join(s.homes[0], name))
		check(err)
		s.write(string(text), "second", name)
	}
}

// serves starts the service of a replica, and connects both agents.
func (s *story) serves(ctx context.Context, i int) {
	cmd := s.wallet(ctx, s.homes[i], "serve", "--http", "127.0.0.1:0", "--socket", s.homes[i]+".sock")
	cmd.Env = append(cmd.Env, "X402_WALLET_PASSPHRASE_FILE="+s.at("passphrase"))
	s.services[i], s.sessions[i] = s.start(cmd), map[string]*mcp.ClientSession{}
	endpoint := s.services[i].prints(ctx, `and at (http://[0-9.:]+/mcp)`)
	for _, agent := range agents {
		client := mcp.NewClient(&mcp.Implementation{Name: agent, Version: "1"}, nil)
		session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint,
			HTTPClient: &http.Client{Transport: bearer(tokenOf(agent))}, DisableStandaloneSSE: true}, nil)
		check(err)
		s.sessions[i][agent] = session
		s.atEnd(func() { _ = session.Close() })
	}
}
