package paywall

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"x402-wallet/chain/evm"
	"x402-wallet/chain/svm"
	"x402-wallet/e2e/schemes"
	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/internal/sandbox"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
	"x402-wallet/x402/wire"
)

// testBook is the book of all tests, because making one takes half a second under the race detector.
var testBook *book.Book

// No test leaves a goroutine behind.
func TestMain(m *testing.M) {
	if version := os.Getenv("PAYWALL_TEST_BEHIND"); version != "" { // this process is the upstream server
		var versions []string
		if version != "1" {
			versions = []string{version}
		}
		_ = behind(versions...).Run(context.Background(), &mcp.StdioTransport{})
		return
	}
	home, err := os.MkdirTemp("", "paywall")
	if err != nil {
		panic(err)
	}
	if testBook, err = book.Make(context.Background(), book.Place{Home: home}); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(closing{m, home})
}

// closing closes the book before goroutines are counted.
type closing struct {
	*testing.M
	home string
}

func (c closing) Run() int {
	code := c.M.Run()
	testBook.Close()
	os.RemoveAll(c.home)
	return code
}

// lab is a server with a paywall, a facilitator that checks signatures and keeps its own accounts, and a
// buyer.
type lab struct {
	*sandbox.Sandbox
	paywall *Paywall
	began   time.Time
	client  *mcp.ClientSession
	payer   *payer
	runs    atomic.Int32 // of the tool, whatever became of it
	tool    func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error)
}

const product = "sunny in Lisbon"

// newLab starts one that sells the tool "search" for a tenth of a cent on both networks; change may
// spoil the options.
func newLab(t *testing.T, change func(*lab, *Options)) *lab {
	t.Helper()
	all := must.Get(schemes.Start(sandbox.Options{Delay: 300 * time.Millisecond}))(t)
	t.Cleanup(func() { require.NoError(t, all.Close()) })
	world := all.Sandbox
	l := &lab{Sandbox: world, began: time.Now()}
	l.payer = newPayer(t, world)
	l.tool = func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: product}},
			StructuredContent: json.RawMessage(`{"sky":"clear"}`)}, nil
	}
	o := Options{Facilitators: newFacilitators(world), Store: testBook,
		Tools: []Tool{{Name: "search", Description: "Weather", Accepts: []Option{
			{Network: sandbox.EVM, PayTo: world.PayToEVM, Price: "0.001"},
			{Network: sandbox.Solana, PayTo: world.PayToSolana, Price: "0.001"},
		}}}}
	if change != nil {
		change(l, &o)
	}
	l.paywall = must.Get(New(o))(t)
	t.Cleanup(func() { require.NoError(t, l.paywall.Close(context.Background())) })
	l.client, _ = connect(t, l.server(), nil)
	return l
}

func newFacilitators(world *sandbox.Sandbox) *facilitator.Client {
	quick := func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "sandbox",
		URL: world.FacilitatorURL}}, Sleep: quick})
}

func (l *lab) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	schema := map[string]any{"type": "object"}
	server.AddTool(&mcp.Tool{Name: "search", InputSchema: schema,
		OutputSchema: map[string]any{"type": "object", "required": []string{"sky"}}},
		func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			l.runs.Add(1)
			return l.tool(ctx, request)
		})
	server.AddTool(&mcp.Tool{Name: "hello", InputSchema: schema},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hi"}}}, nil
		})
	l.paywall.Protect(server)
	return server
}

func connect(t *testing.T, server *mcp.Server, o *mcp.ClientOptions) (*mcp.ClientSession,
	*mcp.ServerSession) {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	there := must.Get(server.Connect(context.Background(), near, nil))(t)
	client := must.Get(mcp.NewClient(&mcp.Implementation{Name: "buyer", Version: "1"},
		o).Connect(context.Background(), far, nil))(t)
	t.Cleanup(func() { client.Close(); there.Wait() })
	return client, there
}

type got struct {
	t *testing.T
	wire.MCPMessage
	text    string // of the first item
	isError bool
	meta    map[string]any
}

func read(t *testing.T, result *mcp.CallToolResult, err error) got {
	t.Helper()
	g := got{t: t}
	var own *jsonrpc.Error
	if errors.As(err, &own) {
		g.Code, g.Data, g.text = own.Code, own.Data, own.Message
		return g
	}
	require.NoError(t, err)
	g.Result = must.Get(json.Marshal(result))(t)
	g.isError, g.meta = result.IsError, result.Meta
	if len(result.Content) > 0 {
		if item, ok := result.Content[0].(*mcp.TextContent); ok {
			g.text = item.Text
		}
	}
	return g
}

func (l *lab) call(t *testing.T, arguments any, meta map[string]any) got {
	t.Helper()
	result, err := l.client.CallTool(t.Context(), &mcp.CallToolParams{Meta: maps.Clone(meta), Name: "search",
		Arguments: arguments})
	return read(t, result, err)
}

func callBy(t *testing.T, client *mcp.ClientSession, tool string, meta map[string]any) got {
	t.Helper()
	result, err := client.CallTool(t.Context(), callOf(tool, meta))
	return read(t, result, err)
}

func (g got) challenge() *wire.Challenge {
	g.t.Helper()
	c, err := wire.ReadMCPChallenge(g.MCPMessage)
	require.NoError(g.t, err)
	require.NotNil(g.t, c, "asks for payment: %s %s", g.Result, g.Data)
	return c
}

// asksNothing says that a client which pays by reflex does not pay again.
func (g got) asksNothing() {
	g.t.Helper()
	c, err := wire.ReadMCPChallenge(g.MCPMessage)
	require.NoError(g.t, err)
	require.Nil(g.t, c, "%s", g.Result)
}

func (g got) receipt() *wire.Settlement {
	g.t.Helper()
	s, err := wire.ReadMCPSettlement(g.MCPMessage)
	require.NoError(g.t, err)
	return s
}

type payer struct {
	*evm.Exact
	nonce     [32]byte // of what is signed; zero: a random one
	solanaKey onchain.Signer
	solana    *svm.Exact
	world     *sandbox.Sandbox
}

func newPayer(t *testing.T, world *sandbox.Sandbox) *payer {
	t.Helper()
	p := &payer{world: world, solanaKey: testworld.NewSolanaKey(t)}
	p.Exact = evm.New(evm.Options{Signer: testworld.NewEVMKey(t), Rand: nonces{p},
		RPC: map[string]string{sandbox.EVM: world.EVMNodeURL}})
	world.Fund(p.Address(), 10000000)
	return p
}

// nonces is where a payer's nonces come from.
type nonces struct{ *payer }

func (n nonces) Read(p []byte) (int, error) {
	if n.nonce != [32]byte{} {
		return copy(p, n.nonce[:]), nil
	}
	return rand.Read(p)
}

// sign makes the PaymentPayload for one of a challenge's options.
func (p *payer) sign(t *testing.T, c *wire.Challenge, i int, ext map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	return p.signFor(t, c, c.Accepts[i], c.Accepts[i].MaxTimeout, ext)
}

func (p *payer) signFor(t *testing.T, c *wire.Challenge, r x402.Requirement, validity time.Duration,
	ext map[string]json.RawMessage) json.RawMessage {
	t.Helper()
	asset, ok := x402.NewRegistry(nil).Asset(r.Network, r.Asset)
	require.True(t, ok)
	a := must.Get(p.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: asset, Source: p.Address(),
		Validity: validity, Now: time.Now()}))(t)
	return must.Get(wire.EncodePayload(c, r, a.Payload, ext))(t)
}

func meta(c *wire.Challenge, payload json.RawMessage) map[string]any {
	all := map[string]any{}
	for key, value := range wire.Attach(c.Dialect, payload).Meta {
		all[key] = value
	}
	return all
}

func (l *lab) buy(t *testing.T, arguments any) got {
	t.Helper()
	c := l.call(t, arguments, nil).challenge()
	return l.call(t, arguments, meta(c, l.payer.sign(t, c, 0, nil)))
}

func (l *lab) sales(t *testing.T) []book.Sale {
	t.Helper()
	list, _, _, err := testBook.Sales(t.Context(), book.SaleFilter{After: l.began})
	require.NoError(t, err)
	return list
}

// nothingMoved judges by the chain: no money, and no answer.
func (l *lab) nothingMoved(t *testing.T, g got) {
	t.Helper()
	require.Empty(t, l.Settlements())
	require.NotContains(t, fmt.Sprint(string(g.Result), string(g.Data)), product)
}

// openSolana gives the payer play dollars on Solana, in a token account of its own.
func (p *payer) openSolana(t *testing.T) {
	t.Helper()
	p.solana = svm.New(svm.Options{Signer: p.solanaKey,
		RPC: map[string]string{sandbox.Solana: p.world.SolanaNodeURL}})
	p.world.Fund(p.solanaKey.Address(), 10000000)
}

func (p *payer) signSolana(t *testing.T, c *wire.Challenge, i int) json.RawMessage {
	t.Helper()
	r := c.Accepts[i]
	asset, ok := x402.NewRegistry(nil).Asset(r.Network, r.Asset)
	require.True(t, ok)
	funds := must.Get(p.solana.Funds(t.Context(), r.Network, asset))(t)
	a, err := p.solana.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: asset,
		Source: funds.Source, Validity: r.MaxTimeout, Now: time.Now()})
	require.NoError(t, err)
	return must.Get(wire.EncodePayload(c, r, a.Payload, nil))(t)
}

func (p *payer) spendAll(t *testing.T, c *wire.Challenge) {
	t.Helper()
	r := c.Accepts[0]
	r.Amount = money.NewAmount(p.world.Balance(p.Address()))
	r.Raw = json.RawMessage(replaced(t, r.Raw, `"1000"`, `"`+r.Amount.String()+`"`))
	p.settle(t, r, p.signFor(t, c, r, time.Minute, nil))
}

// settle brings a payment to the facilitator itself.
func (p *payer) settle(t *testing.T, r x402.Requirement, payload json.RawMessage) {
	t.Helper()
	body := fmt.Sprintf(`{"x402Version":2,"paymentPayload":%s,"paymentRequirements":%s}`, payload, r.Raw)
	answer, err := http.Post(p.world.FacilitatorURL+"/settle", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	require.Contains(t, string(text), `"success":true`)
	http.DefaultClient.CloseIdleConnections()
}

// replaced is text with one part replaced, which has to be there.
func replaced(t *testing.T, text []byte, old, by string) []byte {
	t.Helper()
	require.Contains(t, string(text), old)
	return []byte(strings.ReplaceAll(string(text), old, by))
}

func without(t *testing.T, object json.RawMessage, key string) json.RawMessage {
	t.Helper()
	all := must.JSON[map[string]json.RawMessage](object)(t)
	require.Contains(t, all, key)
	delete(all, key)
	return jsonOf(all)
}

func expiryOf(t *testing.T, payment json.RawMessage) time.Time {
	t.Helper()
	var said struct {
		Payload struct {
			Authorization struct {
				ValidBefore int64 `json:"validBefore,string"`
			} `json:"authorization"`
		} `json:"payload"`
	}
	require.NoError(t, json.Unmarshal(payment, &said))
	return time.Unix(said.Payload.Authorization.ValidBefore, 0)
}

// leaves is a hook before the tool runs: the tool has this long until its payment could not be settled
// in time. What comes before the tool may take as long as it does on a busy machine.
func (l *lab) leaves(limit time.Duration) func(context.Context, *Sale) error {
	return func(_ context.Context, s *Sale) error {
		l.paywall.settleMargin = time.Until(s.Expires) - limit
		return nil
	}
}

func post(t *testing.T, url, body string, header map[string]string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		request.Header.Set(name, value)
		if name == "Host" {
			request.Host = value
		}
	}
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	http.DefaultClient.CloseIdleConnections()
	return response.StatusCode, string(text)
}

func failing(words string) func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: words}}}, nil
	}
}

func callOf(name string, meta map[string]any) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: name, Meta: maps.Clone(meta)}
}
