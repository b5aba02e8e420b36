package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/config/callers"
	"x402-wallet/internal/must"
	"x402-wallet/internal/pgtest"
)

// setup is a way to run the wallet.
type setup struct {
	name    string
	rules   func(s *stand) string // more of config.toml; nil: nothing
	account string                // the account that pays; "": the wallet's own
	limit   []string              // the window whose edge is tried: what `budget set` takes
	prepare func(s *stand)        // once; nil: nothing
	start   func(s *stand, i int) agent
	count   int // of processes, at which purchases are tried by turns; 0: one
}

// agent is who calls the wallet's tools, with the process that pays.
type agent interface {
	Call(ctx context.Context, tool string, args any) (testworld.Result, error)
	Kill() // the process that pays, by SIGKILL
}

const token = "x402w_matrixmatrixmatrixmatrixmatrixmatrixmatrix0"

var session, ofAgent = []string{"session"}, []string{"day", "--agent", "ann"}

var setups = []setup{
	{name: "unlock agent", limit: session, prepare: unlock, start: withoutPassphrase},
	{name: "passphrase file", limit: session, start: func(s *stand, _ int) agent {
		return testworld.StartWallet(s.pair, s.bin, s.home)
	}},
	{name: "page", limit: session, start: onPage},
	{name: "service", limit: ofAgent, rules: namesAnn, start: atService},
	{name: "account of a team", limit: []string{"day", "--account", "desk"}, account: "desk",
		rules: func(s *stand) string {
			return namesAnn(s) + "[budget.teams.desk]\naccount = true\nagents = [\"an*\"]\nday = \"5.00\"\n"
		}, start: atService},
	{name: "two replicas", limit: ofAgent, count: 2, start: asReplica, rules: func(s *stand) string {
		return namesAnn(s) + fmt.Sprintf("[ledger]\nurl = %q\n", pgtest.Shared(s.pair).Database(s.pair))
	}},
}

func namesAnn(*stand) string {
	return fmt.Sprintf("[agents.ann]\ntoken = %q\nday = \"5.00\"\n", callers.TokenHash(token))
}

// unlock starts the unlock agent, until the test ends.
func unlock(s *stand) {
	s.run(nil, "unlock", "--passphrase-file", s.home.PassphraseFile)
	s.pair.Cleanup(func() { s.home.Run(s.pair, s.bin, 0, nil, "lock") })
}

const noPassphrase = "X402_WALLET_PASSPHRASE_FILE="

func withoutPassphrase(s *stand, _ int) agent {
	return testworld.StartWallet(s.pair, s.bin, s.home, noPassphrase)
}

// onPage is a client that opens the wallet's page, where a person types the passphrase.
func onPage(s *stand, _ int) agent {
	types := func(method string, params json.RawMessage) (any, error) {
		var asks struct{ Mode, URL string }
		if json.Unmarshal(params, &asks) != nil || asks.Mode != "url" {
			return nil, errors.New("only pages are opened here")
		}
		page := must.Get(url.Parse(asks.URL))(s.pair)
		form := strings.NewReader(url.Values{"passphrase": {testworld.Passphrase}}.Encode())
		post := must.Get(http.NewRequest(http.MethodPost, asks.URL, form))(s.pair)
		post.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		post.Header.Set("Origin", "http://"+page.Host)
		said, err := http.DefaultClient.Do(post)
		if err != nil {
			return nil, err
		}
		return map[string]any{"action": "accept"}, said.Body.Close()
	}
	return testworld.StartWalletWith(s.pair, s.bin, s.home, testworld.WalletOptions{
		Env: []string{noPassphrase}, OnRequest: types,
		Capabilities: map[string]any{"elicitation": map[string]any{"url": map[string]any{}}}})
}

// guest is an agent of a service: over stdio by what its host starts, which passes everything on.
type guest struct {
	*testworld.Wallet
	service *testworld.Service
}

func atService(s *stand, _ int) agent {
	service := testworld.StartService(s.pair, s.bin, s.home.Env())
	host := testworld.NewHome(s.pair, "")
	return guest{testworld.StartWallet(s.pair, s.bin, host, noPassphrase,
		"X402_WALLET_SERVICE="+service.Socket, "X402_WALLET_TOKEN="+token), service}
}

func (a guest) Kill() {
	kill(a.service)
	a.Wallet.Kill()
}

func kill(service *testworld.Service) {
	_ = service.Cmd.Process.Kill()
	service.Stop()
}

// replica is a service of a fleet, reached over HTTP. Each call is a session of its own.
type replica struct {
	t       testing.TB
	service *testworld.Service
}

func asReplica(s *stand, i int) agent {
	home := s.home
	if i > 0 {
		home.Dir = filepath.Join(filepath.Dir(home.Dir), fmt.Sprint("replica", i))
		if os.Mkdir(home.Dir, 0o700) == nil {
			for _, name := range []string{"keystore.json", "config.toml"} {
				text := must.Get(os.ReadFile(filepath.Join(s.home.Dir, name)))(s.pair)
				require.NoError(s.pair, os.WriteFile(filepath.Join(home.Dir, name), text, 0o600))
			}
		}
	}
	return replica{s.pair, testworld.StartService(s.pair, s.bin, home.Env(), "--http", "127.0.0.1:0")}
}

func (r replica) Kill() { kill(r.service) }

func (r replica) Call(ctx context.Context, tool string, args any) (testworld.Result, error) {
	client, err := mcp.NewClient(&mcp.Implementation{Name: "ann", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: r.service.URL, DisableStandaloneSSE: true, MaxRetries: -1,
			HTTPClient: &http.Client{Transport: testworld.Bearer(token)}}, nil)
	if err != nil {
		return testworld.Result{}, err
	}
	defer client.Close()
	said, err := client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return testworld.Result{}, err
	}
	text, err := json.Marshal(said.StructuredContent)
	return testworld.Result{IsError: said.IsError, Structured: text, Text: string(text)}, err
}
