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
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"x402-wallet/internal/pgtest"
	"x402-wallet/internal/sandbox"
)

// toolServer is the MCP server whose tools the paywall sells. It knows nothing of money.
type toolServer struct {
	url     string
	runs    atomic.Int64
	began   chan struct{} // takes one when the tool that waits has begun
	proceed chan struct{} // closed when it may go on
}

func (s *story) startTools(ctx context.Context) error {
	t := &toolServer{began: make(chan struct{}, 1), proceed: make(chan struct{})}
	s.tools = t
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	for _, name := range []string{"forecast", "report"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}},
			func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				n := t.runs.Add(1)
				if name == "report" {
					t.began <- struct{}{}
					select {
					case <-t.proceed:
					case <-ctx.Done():
					}
				}
				text := fmt.Sprintf("%s %d: sunny", name, n)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
			})
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(listener) }()
	s.atEnd(web.Close)
	t.url = "http://" + listener.Addr().String() + "/mcp"
	return nil
}

// begin makes the directory, the world of play money, the ledger's server, and the server of tools.
func (s *story) begin(ctx context.Context) (err error) {
	if s.program, err = filepath.Abs(s.program); err != nil {
		return err
	}
	if _, err := os.Stat(s.program); err != nil {
		return fmt.Errorf("there is no wallet (make build): %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "x402-fleet-"); err != nil {
		return err
	}
	s.atEnd(func() error { return os.RemoveAll(s.dir) })
	if s.world, err = sandbox.Start(sandbox.Options{}); err != nil {
		return err
	}
	s.atEnd(s.world.Close)
	server, err := pgtest.Open()
	if err != nil {
		return err
	}
	s.atEnd(func() error { server.Close(); return nil })
	s.ledger = fmt.Sprintf("\n[ledger]\nurl = %q\n", "postgres://postgres@/postgres?host="+server.Dir())
	return s.startTools(ctx)
}

// opensShop starts a paywall in a home of its own, with no keystore: it is paid, and cannot spend.
func (s *story) opensShop(ctx context.Context) error {
	home, file := s.at("shop"), s.at("shop.toml")
	selling := fmt.Sprintf("url = %q\nlisten = '127.0.0.1:0'\nnetwork = %q\npay_to = %q\n"+
		"[tools.forecast]\nprice = '0.10'\n[tools.report]\nprice = '0.10'\n",
		s.tools.url, sandbox.EVM, s.world.PayToEVM)
	err := errors.Join(os.Mkdir(home, 0o700), os.WriteFile(file, []byte(selling), 0o600),
		os.WriteFile(filepath.Join(home, "config.toml"), []byte(s.world.Config(sandbox.Rules{Extra: s.ledger})), 0o600))
	if err != nil {
		return err
	}
	paywall, err := s.start(s.wallet(ctx, home, "paywall", "--config", file))
	if err == nil {
		s.shop, err = paywall.prints(ctx, `url="?(http://[0-9.:]+/mcp)`)
	}
	return err
}

// makesWallet makes the owner's wallet, seals the rules of the fleet, and funds the wallet.
func (s *story) makesWallet(ctx context.Context) error {
	shop, _ := http.NewRequest(http.MethodGet, s.shop, nil)
	s.world.Loopback = append(s.world.Loopback, shop.Host)
	extra := s.ledger
	for _, agent := range agents {
		extra += fmt.Sprintf("[agents.%s]\ntoken = 'sha256:%x'\n", agent, sha256.Sum256([]byte(tokenOf(agent))))
	}
	rules := s.world.Config(sandbox.Rules{Day: dayBefore, Session: "50.00", Extra: extra})
	err := errors.Join(os.WriteFile(s.at("rules.toml"), []byte(rules), 0o600),
		os.WriteFile(s.at("passphrase"), []byte(passphrase+"\n"), 0o600))
	if err != nil {
		return err
	}
	if s.makes != nil {
		address, err := s.makes(s.homes[0], rules, passphrase)
		s.world.Fund(address, 100*sandbox.USDC)
		return err
	}
	text, err := s.command(ctx, s.homes[0], "init", "--json", "--passphrase-file", s.at("passphrase"),
		"--config", s.at("rules.toml"))
	if err != nil {
		return err
	}
	var made struct {
		Addresses []struct{ Chain, Address string }
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		return fmt.Errorf("x402-wallet init: %w", err)
	}
	for _, a := range made.Addresses {
		if a.Chain == "evm" {
			s.world.Fund(a.Address, 100*sandbox.USDC)
		}
	}
	return nil
}

// copiesHome makes the home of a further replica.
func (s *story) copiesHome() error {
	if err := os.Mkdir(s.homes[1], 0o700); err != nil {
		return err
	}
	for _, name := range []string{"keystore.json", "config.toml"} {
		text, err := os.ReadFile(filepath.Join(s.homes[0], name))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.homes[1], name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serves starts the service of a replica, and connects both agents.
func (s *story) serves(ctx context.Context, i int) error {
	cmd := s.wallet(ctx, s.homes[i], "serve", "--http", "127.0.0.1:0", "--socket", s.at(fmt.Sprint("s", i)))
	cmd.Env = append(cmd.Env, "X402_WALLET_PASSPHRASE_FILE="+s.at("passphrase"))
	service, err := s.start(cmd)
	if err != nil {
		return err
	}
	s.services[i] = service
	endpoint, err := service.prints(ctx, `and at (http://[0-9.:]+/mcp)`)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		session, err := s.connect(ctx, endpoint, tokenOf(agent))
		if err != nil {
			return fmt.Errorf("%s at replica %d: %w\n%s", agent, i+1, err, service.text())
		}
		s.sessions[i][agent] = session
		s.atEnd(func() error { _ = session.Close(); return nil }) // one of the services was killed
	}
	return nil
}
