package buyer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/buyer"
	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
)

// hanging is a signer whose node does not answer.
type hanging struct{ buyer.Signer }

func (h hanging) Funds(ctx context.Context, _ string, _ x402.AssetInfo) (x402.Funds, error) {
	<-ctx.Done()
	return x402.Funds{}, ctx.Err()
}

// The client's half of the 33 tests that mark3labs/x402-go planned and never wrote (seeds/000's origin, specs/007 tasks.md); the
// server's is in paywall/seeds_test.go. Elsewhere are: T010 several signers: TestWrapWantsSignersAndALimit, TestWhichOptionIsPaid;
// T011 error 402 and T013 _meta["x402/payment"]: TestEveryWayToAskIsPaid, whose shop takes a payment nowhere else; T012, T055, T056 EVM
// and Solana, T016, T057 the next signer, T054 their order (there are no token priorities: Choose has them), T078 all fail, T082 above
// all limits: TestWhichOptionIsPaid; T014 free tools: TestAFreeToolIsCalledOnceAndAsItIs; T015 each its own payment:
// TestAHundredCallsAtOnce.
func TestSeed000(t *testing.T) {
	t.Run("T058 the next signer within five seconds, where the first one's node hangs", func(t *testing.T) {
		tr := newTrade(t)
		began := time.Now()
		_, err := tr.wrap(t, func(o *buyer.Options) { o.Signers[0] = hanging{tr.onEVM} }).CallTool(t.Context(), report)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, sandbox.Solana, tr.world.Settlements()[0].Network)
	})
	for name, spoil := range map[string]func(asked string) string{
		"no accepts":           func(s string) string { return strings.Replace(s, `"accepts"`, `"rejects"`, 1) },
		"accepts is an object": func(string) string { return `{"x402Version":2,"accepts":{}}` },
		"an amount in hex":     func(s string) string { return strings.ReplaceAll(s, `"amount":"1000"`, `"amount":"0x3e8"`) },
		"a negative amount":    func(s string) string { return strings.ReplaceAll(s, `"amount":"1000"`, `"amount":"-1"`) },
		"no payee":             func(s string) string { return strings.ReplaceAll(s, `"payTo"`, `"paysTo"`) },
		"amounts twice":        func(s string) string { return strings.ReplaceAll(s, `"amount":"1000"`, `"amount":"1","amount":"1000"`) },
		"version 9":            func(s string) string { return strings.Replace(s, `"x402Version":2`, `"x402Version":9`, 1) },
	} {
		t.Run("T081 malformed: "+name, func(t *testing.T) {
			tr := newTrade(t)
			asked, _ := tr.challenge()
			bad := spoil(asked)
			require.NotEqual(t, asked, bad)
			tr.set(func(s *shop) { s.says = &jsonrpc.Error{Code: 402, Message: "Payment required", Data: []byte(bad)} })
			_, err := tr.wrap(t, nil).CallTool(t.Context(), report)
			require.Error(t, err)
			require.Empty(t, tr.payments(), "nothing is signed for what cannot be read")
			require.Zero(t, tr.world.Signatures())
		})
	}
	t.Run("T083–T086 the codes of JSON-RPC ask for nothing, and come as they are", func(t *testing.T) {
		tr := newTrade(t)
		for _, c := range []int64{jsonrpc.CodeParseError, jsonrpc.CodeInvalidParams, jsonrpc.CodeInternalError, jsonrpc.CodeMethodNotFound} {
			tr.set(func(s *shop) { s.says = &jsonrpc.Error{Code: c, Message: "no x402 here"} })
			_, err := tr.wrap(t, nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "report"})
			var own *jsonrpc.Error
			require.ErrorAs(t, err, &own)
			require.Equal(t, c, own.Code)
			require.Empty(t, tr.payments())
		}
	})
}
