package e2e

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/sandbox"
)

// The official client over real stdio, in every era that can ask: the person says no, says nothing,
// and accepts it. A client without a person is refused.
func TestApprovalAtTheClient(t *testing.T) {
	world, err := sandbox.Start(sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, world.Close()) })
	bin := testworld.Build(t)
	for i, version := range []string{"2025-06-18", "2025-11-25", newest} {
		t.Run(version, func(t *testing.T) {
			home := testworld.NewHome(t, world.Config(sandbox.Rules{ApproveAbove: "0.0005"}))
			world.Fund(home.EVM, sandbox.USDC)
			var asked []*mcp.ElicitParams
			var action string
			call := func(o *mcp.ClientOptions) (a answer) {
				cmd := home.Command(t.Context(), bin, "mcp")
				session, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, o).
					Connect(t.Context(), &mcp.CommandTransport{Command: cmd},
						&mcp.ClientSessionOptions{ProtocolVersion: version})
				require.NoError(t, err)
				defer session.Close()
				out, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "x402_pay",
					Arguments: map[string]any{"url": world.SellerURL + "/weather?" + version}})
				require.NoError(t, err)
				text, err := json.Marshal(out.StructuredContent)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &a))
				return a
			}
			person := &mcp.ClientOptions{ElicitationHandler: func(_ context.Context,
				r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked = append(asked, r.Params)
				return &mcp.ElicitResult{Action: action}, nil
			}}
			require.Equal(t, "APPROVAL_REQUIRED", call(nil).Error)
			for _, c := range []struct{ action, code, status string }{
				{"decline", "APPROVAL_DECLINED", ""}, {"cancel", "APPROVAL_REQUIRED", ""},
				{"accept", "", "paid"}, {"decline", "APPROVAL_DECLINED", ""},
			} {
				action = c.action
				a := call(person)
				require.Equal(t, c.code, a.Error, c.action)
				require.Equal(t, c.status, a.Status, c.action)
			}
			require.Len(t, asked, 4)
			require.Equal(t, "form", asked[0].Mode)
			require.Contains(t, asked[0].Message, "Pay $0.001 to ")
			require.Contains(t, asked[0].Message, world.PayToEVM)
			require.Len(t, world.Settlements(), i+1)
		})
	}
}
