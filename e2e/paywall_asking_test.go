package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// askingServer starts a server of the reference SDK that asks its client back.
func askingServer(t *testing.T) (url string) {
	cmd := exec.Command("node", filepath.Join("lab", "mcp", "asking.mjs"))
	stdin := must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	said := &tail{}
	cmd.Stderr = said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		late := time.AfterFunc(stopWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	})
	late := time.AfterFunc(startWait, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan(), "run make test (or e2e/lab/prep.sh) first")
	return lines.Text()
}

// A server of the reference SDK asks its client back, on the call's stream and on the session's. Behind
// our paywall each buyer is asked what is theirs, by clients of both SDKs, while they pay and where
// it is free; and what is told of a resource arrives.
func TestReferenceServerAsksThroughThePaywall(t *testing.T) {
	s := newShop(t, "")
	writePrivate(t, s.file, fmt.Sprintf("url = %q\nlisten = \"127.0.0.1:0\"\nnetwork = \"base-sepolia\"\n"+
		"[tools.search]\nprice = \"0.001\"\n", askingServer(t)))
	endpoint := startPaywall(t, s.home, s.bin, s.file).url

	type told struct {
		Initialize   map[string]any
		Can          map[string]any
		Ask, Updated string
	}
	heard := make(chan error, 2)
	for _, name := range []string{"Oslo", "Rome"} { // at once
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), opWait)
			defer cancel()
			out, err := exec.CommandContext(ctx, "node", filepath.Join("lab", "mcp", "asked.mjs"),
				endpoint, name).
				Output()
			var got told
			if err == nil {
				err = json.Unmarshal(out, &got)
			}
			want := fmt.Sprintf("%[1]s of %[1]s file:///%[1]s", name)
			if err == nil && (got.Ask != want || got.Updated != "weather://today" || len(got.Can) != 3 ||
				got.Initialize["logging"] == nil) {
				err = fmt.Errorf("%s heard %s", name, out)
			}
			heard <- err
		}()
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "buyer"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"city": "Bonn"}}, nil
		},
		CreateMessageHandler: func(context.Context,
			*mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "m", Role: "assistant",
				Content: &mcp.TextContent{Text: "of Bonn"}}, nil
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///Bonn"})
	session := must.Get(client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}))(t)
	defer session.Close()
	asked := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search"}))(t)
	given := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search",
		Meta: mcp.Meta{"x402/payment": signOffer(t, s.world, asked)}}))(t)
	require.Equal(t, "Bonn of Bonn file:///Bonn", given.Content[0].(*mcp.TextContent).Text)
	s.world.AssertPaidOnce(t, x402test.Payment{})
	for range 2 {
		require.NoError(t, <-heard)
	}

	// of a client of 2026-07-28 it hears that it cannot be asked: it asks in another way
	since := must.Get(client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint}, nil))(t)
	defer since.Close()
	can := must.Get(since.CallTool(t.Context(), &mcp.CallToolParams{Name: "can"}))(t)
	require.False(t, strings.Contains(can.Content[0].(*mcp.TextContent).Text, "elicitation"))
}
