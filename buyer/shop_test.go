package buyer_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/agent"
	"x402-wallet/evm"
	"x402-wallet/facilitator"
	"x402-wallet/internal/sandbox"
	"x402-wallet/svm"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// shop is a strict MCP server with one paid tool, resource and prompt: what it is paid with is verified and settled by the
// sandbox's facilitator, on chains that keep their own books. after lies on command.
type shop struct {
	world   *sandbox.Sandbox
	settler *facilitator.Client

	mu      sync.Mutex
	style   string           // "structured", "text", "error", "v1", "cloudflare"
	accepts []map[string]any // nil: one option on each chain, EVM first
	after   func(payload json.RawMessage) (*mcp.CallToolResult, error)
	says    *jsonrpc.Error // instead of asking
	paid    []string       // the payloads that came, as they came
}

func (s *shop) set(change func(*shop)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *shop) payments() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.paid...)
}

func onEVM(w *sandbox.Sandbox, amount int) map[string]any {
	asset, _ := x402.NewRegistry(nil).Default(sandbox.EVM)
	return map[string]any{"scheme": "exact", "network": sandbox.EVM, "amount": fmt.Sprint(amount), "asset": asset.Address,
		"payTo": w.PayToEVM, "maxTimeoutSeconds": 60, "extra": map[string]any{"name": asset.Name, "version": asset.Version}}
}

func onSolana(w *sandbox.Sandbox, amount int) map[string]any {
	asset, _ := x402.NewRegistry(nil).Default(sandbox.Solana)
	return map[string]any{"scheme": "exact", "network": sandbox.Solana, "amount": fmt.Sprint(amount), "asset": asset.Address,
		"payTo": w.PayToSolana, "maxTimeoutSeconds": 60, "extra": map[string]any{"feePayer": w.FeePayer}}
}

// challenge is what the shop asks, and its options as the facilitator wants them.
func (s *shop) challenge() (string, []map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	accepts := s.accepts
	if accepts == nil {
		accepts = []map[string]any{onEVM(s.world, 1000), onSolana(s.world, 1000)}
	}
	version := 2
	if s.style == "v1" {
		version = 1
		first := onEVM(s.world, 1000)
		first["network"], first["maxAmountRequired"], first["resource"] = "base-sepolia", first["amount"], "mcp://tool/report"
		first["description"], first["mimeType"] = "", ""
		delete(first, "amount")
		accepts = []map[string]any{first}
	}
	text, _ := json.Marshal(map[string]any{"x402Version": version, "error": "Payment required", "accepts": accepts,
		"resource": map[string]any{"url": "mcp://tool/report"}})
	return string(text), accepts
}

func (s *shop) ask() (*mcp.CallToolResult, error) {
	text, _ := s.challenge()
	s.mu.Lock()
	style, says := s.style, s.says
	s.mu.Unlock()
	if says != nil {
		return nil, says
	}
	switch style {
	case "error":
		return nil, &jsonrpc.Error{Code: 402, Message: "Payment required", Data: json.RawMessage(text)}
	case "text":
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "pay first"}, &mcp.TextContent{Text: text}}}, nil
	case "cloudflare":
		return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"x402/error": json.RawMessage(text)}, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	default:
		return &mcp.CallToolResult{IsError: true, StructuredContent: json.RawMessage(text), Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
}

// sell is the shop's answer to a call with this _meta.
func (s *shop) sell(ctx context.Context, meta mcp.Meta) (*mcp.CallToolResult, error) {
	value, paid := meta["x402/payment"]
	if !paid {
		return s.ask()
	}
	payload, err := json.Marshal(value)
	if encoded, isText := value.(string); isText && s.style == "cloudflare" {
		payload, err = base64.StdEncoding.DecodeString(encoded)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.paid = append(s.paid, string(payload))
	after := s.after
	s.mu.Unlock()
	if after != nil {
		return after(payload)
	}
	receipt, err := s.settle(ctx, payload)
	if err != nil {
		return s.ask()
	}
	return &mcp.CallToolResult{Meta: mcp.Meta{"x402/payment-response": receipt}, Content: []mcp.Content{&mcp.TextContent{Text: "the report"}}}, nil
}

func (s *shop) settle(ctx context.Context, payload json.RawMessage) (json.RawMessage, error) {
	var said struct {
		X402Version int
		Network     string          // V1
		Accepted    json.RawMessage // V2: the option, word for word
	}
	if err := json.Unmarshal(payload, &said); err != nil {
		return nil, err
	}
	_, accepts := s.challenge()
	for _, option := range accepts {
		network := option["network"].(string)
		var accepted map[string]any
		_ = json.Unmarshal(said.Accepted, &accepted)
		asked, _ := json.Marshal(option)
		if chosen, _ := json.Marshal(accepted); said.Network != network && !bytes.Equal(chosen, asked) {
			continue
		}
		requirement, _ := json.Marshal(option)
		canonical, _ := x402.Network(network)
		submission := facilitator.Submission{Network: canonical, Version: said.X402Version, Payload: payload, Requirements: requirement, Validity: 60e9}
		if valid, reason, err := s.settler.Verify(ctx, submission); err != nil || !valid {
			return nil, fmt.Errorf("not valid: %s %w", reason, err)
		}
		if result := s.settler.Settle(ctx, submission); result.Outcome == facilitator.Settled {
			return result.Settlement.Raw, nil
		}
	}
	return nil, fmt.Errorf("not settled")
}

// open starts the shop on a server and connects a client's session with it.
func (s *shop) open(ctx context.Context) (*mcp.ClientSession, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	schema := map[string]any{"type": "object"}
	server.AddTool(&mcp.Tool{Name: "report", InputSchema: schema}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return s.sell(ctx, r.Params.Meta)
	})
	server.AddTool(&mcp.Tool{Name: "weather", InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}, Meta: mcp.Meta{"seen": r.Params.Meta["mine"]}}, nil
	})
	server.AddResource(&mcp.Resource{URI: "shop://report", Name: "report"}, func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		got, err := s.sell(ctx, r.Params.Meta)
		if err != nil {
			return nil, err
		}
		return &mcp.ReadResourceResult{Meta: got.Meta, Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: "the report"}}}, nil
	})
	server.AddPrompt(&mcp.Prompt{Name: "report"}, func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		got, err := s.sell(ctx, r.Params.Meta)
		if err != nil {
			return nil, err
		}
		return &mcp.GetPromptResult{Meta: got.Meta, Description: "the report"}, nil
	})
	there, here := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, there, nil); err != nil {
		return nil, err
	}
	return mcp.NewClient(&mcp.Implementation{Name: "program", Version: "1"}, nil).Connect(ctx, here, nil)
}

func newShop(world *sandbox.Sandbox) *shop {
	return &shop{world: world, settler: facilitator.New(facilitator.Options{List: []facilitator.Facilitator{{Name: "sandbox", URL: world.FacilitatorURL}}})}
}

// keys are one wallet's for all tests: deriving its encryption key costs as much as all of them.
var keys = sync.OnceValues(func() (*wallet.Wallet, error) {
	dir, err := os.MkdirTemp("", "buyer")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return wallet.Create(context.Background(), filepath.Join(dir, "wallet"), wallet.FromValue("correct horse battery"), wallet.Options{N: 1 << 14})
})

// signers are a wallet's two keys, with money on both chains.
func signers(world *sandbox.Sandbox) (onEVM *evm.Exact, onSolana *svm.Exact, err error) {
	keys, err := keys()
	if err != nil {
		return nil, nil, err
	}
	world.Fund(keys.EVM().Address(), sandbox.USDC)
	world.FundSolana(keys.Solana().Address(), sandbox.USDC)
	nodes := map[string]string{sandbox.EVM: world.EVMNodeURL, sandbox.Solana: world.SolanaNodeURL}
	return evm.New(evm.Options{Signer: agent.EVM{EVMSigner: keys.EVM()}, RPC: nodes}), svm.New(svm.Options{Signer: agent.Solana{SolanaSigner: keys.Solana()}, RPC: nodes}), nil
}

// trade is a shop, a session with it, and the signers of a wallet.
type trade struct {
	*shop
	session  *mcp.ClientSession
	onEVM    *evm.Exact
	onSolana *svm.Exact
}

func newTrade(t *testing.T) *trade {
	t.Helper()
	world, err := sandbox.Start(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, world.Close()) })
	tr := &trade{shop: newShop(world)}
	tr.onEVM, tr.onSolana, err = signers(world)
	require.NoError(t, err)
	tr.session, err = tr.open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tr.session.Close() })
	return tr
}

func compact(t *testing.T, raw string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, []byte(raw)))
	return out.String()
}
