package tools

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"x402-wallet/budget"
	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/history/asking"
	"x402-wallet/history/historytest"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/pay"
	"x402-wallet/scheme"
	"x402-wallet/scheme/exact"
	"x402-wallet/seller"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

var exactEVM = pay.SchemeKey{Scheme: x402.Exact, Family: "eip155"}

// world is a sandbox with a wallet in it: real engine, ledger, chains' code and transport; the
// keys lie open.
type world struct {
	*sandbox.Sandbox
	wallet *Wallet
	keys   *openKeys
	log    *lockedText
}

type rules struct {
	options      sandbox.Options
	tokenAccount string
	noSession    bool
}

func newWorld(t testing.TB, r rules) *world {
	r.options.Extend = schemes.WalletSettles
	s := must.Get(sandbox.Start(r.options))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	store := testworld.NewStore(t, "")
	keys := &openKeys{evm: testworld.NewEVMKey(t), solana: testworld.NewSolanaKey(t)}
	w := &world{Sandbox: s, keys: keys, log: &lockedText{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	assets := x402.NewRegistry(nil)
	nodes := seller.NodeClient(s.Loopback, "")
	onEVM := evm.New(evm.Options{Signer: w.keys.evm, RPC: map[string]string{sandbox.EVM: s.EVMNodeURL},
		HTTP: nodes, Rand: rand.Reader, Now: time.Now})
	configured := map[string]string{}
	if r.tokenAccount != "" {
		configured[sandbox.Solana] = r.tokenAccount
	}
	onSolana := svm.New(svm.Options{Signer: w.keys.solana,
		RPC: map[string]string{sandbox.Solana: s.SolanaNodeURL}, TokenAccounts: configured, HTTP: nodes,
		Rand: rand.Reader, Now: time.Now})
	session := dollars("5")
	budgets := budget.Rules{PerCall: dollars("1"), Session: &session, Day: dollars("10"),
		Month: dollars("100"), ApproveAbove: dollars("1"), Rate: 1000}
	if r.noSession {
		budgets.Session = nil
	}
	w.wallet = &Wallet{
		Engine: &pay.Engine{
			Rules:  budgets,
			Assets: assets,
			Store:  store,
			Asker:  asking.Asker{Store: store},
			Guard:  historytest.Guard{Store: store},
			Now:    time.Now,
			Log:    log,
			Policy: pay.Policy{Prefer: []string{sandbox.EVM, sandbox.Solana}, Schemes: []string{"exact"},
				MaxTimeout: 5 * time.Minute, Deadline: 30 * time.Second, MaxWait: time.Minute},
			Ways: []scheme.Way{exact.Way{}},
			Schemes: map[pay.SchemeKey]pay.Scheme{
				exactEVM: onEVM, {Scheme: x402.Exact, Family: "solana"}: onSolana,
			},
			Transport: seller.New(seller.Options{Loopback: s.Loopback}),
			Settler: facilitator.New(facilitator.Options{HTTP: nodes,
				List: []facilitator.Facilitator{{Name: "sandbox", URL: s.FacilitatorURL}}}),
		},
		Store: store, Keys: w.keys, EVM: onEVM, Solana: onSolana, TokenAccounts: configured,
		Networks: []string{sandbox.EVM, sandbox.Solana},
	}
	return w
}

func dollars(text string) money.Dollars {
	d, err := money.ParseDollars(text)
	if err != nil {
		panic(err)
	}
	return d
}

type openKeys struct {
	evm    onchain.Signer
	solana onchain.Signer
	locked bool
	unlock func(ctx context.Context, passphrase []byte) error // nil where no test unlocks them
}

func (k *openKeys) Addresses() (solana, evm string) { return k.solana.Address(), k.evm.Address() }
func (k *openKeys) Locked() bool                    { return k.locked }
func (k *openKeys) Unlock(ctx context.Context, passphrase []byte) error {
	return k.unlock(ctx, passphrase)
}

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// client is an MCP client that writes the protocol's lines itself.
type client struct {
	t       *testing.T
	in      io.WriteCloser
	answers chan string
	done    chan error // what Run returned
	next    int
	schemas map[string]*jsonschema.Resolved // of answers, by tool, without room for unknown properties
	tools   json.RawMessage
	hello   json.RawMessage // the result of initialize
}

// serve runs the server and shakes hands. The session ends with the test.
func serve(t *testing.T, s *Server) *client { return serveAs(t, s, "2025-11-25", map[string]any{}) }

func serveAs(t *testing.T, s *Server, version string, capabilities map[string]any) *client {
	c := connect(t, s)
	c.hello = c.ask("initialize", map[string]any{"protocolVersion": version, "capabilities": capabilities,
		"clientInfo": map[string]any{"name": "test", "version": "1"}})
	c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	c.tools = c.ask("tools/list", nil)
	c.schemas = answerSchemas(t, c.tools)
	return c
}

func connect(t *testing.T, s *Server) *client {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	c := &client{t: t, in: toServer, answers: make(chan string, 1000), done: make(chan error, 1)}
	go func() { c.done <- s.Run(context.Background(), in, out) }()
	go func() {
		defer close(c.answers)
		lines := bufio.NewReader(fromServer)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			c.answers <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() {
		c.in.Close()
		select {
		case <-c.done:
		case <-time.After(time.Minute):
			t.Error("the server did not end with its input")
		}
	})
	return c
}

func (w *world) serve(t *testing.T) *client { return serve(t, w.server()) }

func (w *world) server() *Server {
	return &Server{Version: "test", Log: w.wallet.Engine.Log, Open: func(context.Context) (*Wallet, error) {
		return w.wallet, nil
	}}
}

// answerSchemas are the outputSchemas as published, and of answers that are no errors also with only their
// own form and nothing that it does not name ("closed").
func answerSchemas(t *testing.T, list json.RawMessage) map[string]*jsonschema.Resolved {
	tools := must.JSON[struct {
		Tools []struct {
			Name         string
			OutputSchema *jsonschema.Schema
		}
	}](list)(t)
	schemas := map[string]*jsonschema.Resolved{}
	for _, tool := range tools.Tools {
		s := tool.OutputSchema
		asPublished := must.Get(s.CloneSchemas().Resolve(nil))(t)
		schemas[tool.Name] = asPublished
		s.Required, s.AnyOf = s.AnyOf[0].Required, nil
		if tool.Name == delegationName {
			s.Properties = schemaOf[DelegationOut]().Properties // with what is of one kind of account alone
		}
		closeObjects(s)
		schemas["closed "+tool.Name] = must.Get(s.Resolve(nil))(t)
	}
	schemas["closed "+callName] = schemas["closed "+payName] // its own says only what has to be there
	return schemas
}

func closeObjects(s *jsonschema.Schema) {
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
	for _, p := range s.Properties {
		closeObjects(p)
	}
	if s.Items != nil {
		closeObjects(s.Items)
	}
}

func (c *client) send(m any) {
	text := must.Get(json.Marshal(m))(c.t)
	c.raw(string(text) + "\n")
}

func (c *client) raw(text string) {
	must.Get(io.WriteString(c.in, text))(c.t)
}

func (c *client) hear() string {
	c.t.Helper()
	select {
	case line, open := <-c.answers:
		require.True(c.t, open, "the server ended")
		return line
	case <-time.After(time.Minute):
		require.FailNow(c.t, "the server says nothing")
		return ""
	}
}

type rpcAnswer struct {
	ID, Result json.RawMessage
	Error      *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

func (c *client) request(method string, params any) rpcAnswer {
	c.t.Helper()
	c.next++
	message := map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method}
	if params != nil {
		message["params"] = params
	}
	c.send(message)
	return must.JSON[rpcAnswer]([]byte(c.hear()))(c.t)
}

func (c *client) ask(method string, params any) json.RawMessage {
	c.t.Helper()
	a := c.request(method, params)
	require.Nil(c.t, a.Error)
	return a.Result
}

// call calls a tool, whose arguments may be raw JSON, and checks what must be so of every answer.
func (c *client) call(tool string, arguments any, into any) (isError bool) {
	c.t.Helper()
	result := c.ask("tools/call", map[string]any{"name": tool, "arguments": arguments})
	r := must.JSON[struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Type, Text string }
	}](result)(c.t)
	require.Equal(c.t, 1, len(r.Content), "nothing beside the answer")
	require.Equal(c.t, "text", r.Content[0].Type)
	require.JSONEq(c.t, string(r.StructuredContent), r.Content[0].Text, "the same JSON in both places")
	value := must.JSON[any](r.StructuredContent)(c.t)
	if s := c.schemas[tool]; s != nil { // else it is an old name, or another server's tool
		require.NoError(c.t, s.Validate(value), "%s", r.StructuredContent)
		if !r.IsError {
			require.NoError(c.t, c.schemas["closed "+tool].Validate(value), "%s", r.StructuredContent)
		}
	}
	if into != nil {
		require.NoError(c.t, json.Unmarshal(r.StructuredContent, into))
	}
	return r.IsError
}

// ok calls a tool that has to succeed and gives its answer as generic JSON.
func (c *client) ok(tool string, arguments any) map[string]any {
	c.t.Helper()
	var out map[string]any
	require.False(c.t, c.call(tool, arguments, &out), "%v", out)
	return out
}

func (c *client) refused(tool string, arguments any) (f Failure) {
	c.t.Helper()
	var out map[string]any
	require.True(c.t, c.call(tool, arguments, &out), "%v", out)
	text, _ := json.Marshal(out)
	require.NoError(c.t, json.Unmarshal(text, &f))
	names := slices.Sorted(maps.Keys(out))
	if f.PaymentID == "" {
		require.Equal(c.t, []string{"details", "error", "fixedBy", "hint", "message", "next", "safeToRetry",
			"spent"}, names)
	}
	require.NotEmpty(c.t, f.Message)
	require.NotEmpty(c.t, f.FixedBy)
	require.NotNil(c.t, f.Details, "details is always an object")
	return f
}

// dead is a port that nobody listens on any more.
func dead(t *testing.T) string {
	s := must.Get(sandbox.Start(sandbox.Options{}))(t)
	require.NoError(t, s.Close())
	return s.SellerURL
}

// richWorld is one whose wallet has a dollar on EVM.
func richWorld(t testing.TB) *world {
	w := newWorld(t, rules{})
	w.Fund(w.address(sandbox.EVM), sandbox.USDC)
	return w
}
