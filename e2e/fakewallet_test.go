package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/child/childtest"
)

// The fake wallet is this test binary itself, run with fakeWalletEnv set. It knows just enough to
// try the harness on.

const fakeWalletEnv = "E2E_FAKE_WALLET"

// fakeBin makes an executable that is the fake wallet, because harness and wallet share no
// environment.
func fakeBin(t *testing.T) string {
	self, err := os.Executable()
	require.NoError(t, err)
	bin := filepath.Join(t.TempDir(), "fake-wallet")
	childtest.Write(t, bin, fmt.Sprintf(`%s=1 exec %q "$@"`, fakeWalletEnv, self))
	return bin
}

func fakeWallet(args []string) int {
	if args[0] == "mcp" {
		return fakeServer()
	}
	return 2
}

// fakeServer answers tools/call: echo gives its arguments back, refuse is a tool error, slow
// answers after what was asked later, ask asks the client and tells its answer, and die ends the
// process.
func fakeServer() int {
	say := func(m map[string]any) {
		m["jsonrpc"] = "2.0"
		line, _ := json.Marshal(m)
		fmt.Println(string(line))
	}
	result := func(id any, text string, structured any, isError bool) {
		content := []any{map[string]any{"type": "text", "text": text}}
		say(map[string]any{"id": id, "result": map[string]any{"content": content,
			"structuredContent": structured, "isError": isError}})
	}
	var slow, asking any
	fmt.Fprintln(os.Stderr, "fake wallet at", os.Getenv("X402_WALLET_HOME"), os.Getenv("EXTRA"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     any
			Method string
			Params struct {
				Name, ProtocolVersion string
				Arguments             map[string]any
				RequestID             any
			}
			Result any
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return 1
		}
		switch {
		case m.Method == "initialize":
			say(map[string]any{"id": m.ID,
				"result": map[string]any{"protocolVersion": m.Params.ProtocolVersion}})
		case m.Method == "notifications/cancelled":
			fmt.Fprintln(os.Stderr, "cancelled")
		case m.Method == "" && m.ID == "q":
			result(asking, "answered", m.Result, false)
		case m.Method != "tools/call": // a notification
		case m.Params.Name == "echo":
			result(m.ID, "echo", m.Params.Arguments, false)
			if slow != nil {
				result(slow, "slow", nil, false)
			}
		case m.Params.Name == "refuse":
			result(m.ID, "no", map[string]any{"error": "BUDGET_EXCEEDED"}, true)
		case m.Params.Name == "slow":
			slow = m.ID
		case m.Params.Name == "ask":
			asking = m.ID
			say(map[string]any{"id": "q", "method": "elicitation/create",
				"params": map[string]any{"message": "pay?"}})
		case m.Params.Name == "die":
			return 3
		case m.Params.Name == "never":
		default:
			say(map[string]any{"id": m.ID, "error": map[string]any{"code": -32602,
				"message": "no such tool"}})
		}
	}
	time.Sleep(10 * time.Millisecond) // a wallet with work to finish
	return 0
}
