package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

func play(t *testing.T, o x402test.Options) (*x402test.Sandbox, string, testworld.Home) {
	world, bin := x402test.New(t, o), testworld.Build(t)
	home := testworld.NewHome(t, world.WalletConfig())
	world.Fund(t, home.EVM, "10.00")
	return world, bin, home
}

const weather = `{"city":"Lisbon","celsius":21,"sky":"clear"}`

// ownTools is how many tools the wallet has by itself.
const ownTools = 12

const newest = testworld.Newest

// Every protocol there is, on the same binary: the list of tools, and a payment.
func TestProtocolEras(t *testing.T) {
	world, bin, home := play(t, x402test.Options{})
	url := world.SellerURL + "/weather"
	var lists []string
	paidFor := func(t *testing.T, a answer) {
		require.Equal(t, "paid", a.Status, "%+v", a)
		require.JSONEq(t, weather, a.Content)
	}
	names := func(result json.RawMessage) string {
		list := must.JSON[struct{ Tools []json.RawMessage }](result)(t)
		require.Len(t, list.Tools, ownTools)
		return string(must.Get(json.Marshal(list.Tools))(t))
	}
	for _, version := range []string{"2024-11-05", "2025-03-26", "2025-06-18", protocolVersion} {
		t.Run(version, func(t *testing.T) {
			w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: version})
			hello := helloOf(t, w)
			require.Equal(t, version, hello.ProtocolVersion)
			require.Equal(t, "x402-wallet", hello.ServerInfo.Name)
			require.Contains(t, hello.Capabilities, "tools")
			require.Less(t, len(hello.Instructions), 1000)
			lists = append(lists, names(request(t, w, "tools/list", nil)))
			paidFor(t, payFor(t, w, url))
			request(t, w, "ping", nil)
			require.NoError(t, w.Close())
		})
	}
	t.Run(newest, func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: newest})
		with := func(name string, arguments map[string]any) map[string]any {
			return map[string]any{"name": name, "arguments": arguments, "_meta": map[string]any{
				"io.modelcontextprotocol/protocolVersion":    newest,
				"io.modelcontextprotocol/clientCapabilities": map[string]any{},
				"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
			}}
		}
		var known struct {
			SupportedVersions []string
			Instructions      string
		}
		require.NoError(t, json.Unmarshal(request(t, w, "server/discover", with("", nil)), &known))
		require.Subset(t, known.SupportedVersions,
			[]string{"2024-11-05", "2025-03-26", "2025-06-18", protocolVersion, newest})
		require.NotEmpty(t, known.Instructions)
		lists = append(lists, names(request(t, w, "tools/list", with("", nil))))
		result := request(t, w, "tools/call", with("x402_pay", map[string]any{"url": url}))
		paidFor(t, answerIn(t, result))
		require.Contains(t, string(result), `"resultType":"complete"`)
		result = request(t, w, "tools/call", with("x402_history", map[string]any{"limit": 1}))
		require.Empty(t, answerIn(t, result).Error)
	})
	for _, list := range lists[1:] {
		require.Equal(t, lists[0], list, "every client sees the same tools")
	}
	world.AssertPaid(t, 5, x402test.Payment{Payer: home.EVM, Path: "/weather"})

	t.Run("a version that never was", func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: "1999-01-01"})
		require.Equal(t, protocolVersion, helloOf(t, w).ProtocolVersion)
	})
	t.Run("no handshake", func(t *testing.T) {
		w := testworld.StartWalletWith(t, bin, home, WalletOptions{Version: newest})
		_, err := w.Request(t.Context(), "tools/list", nil)
		var refused *testworld.RPCError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, -32600, refused.Code)
	})
}

type hello struct {
	ProtocolVersion, Instructions string
	Capabilities                  map[string]any
	ServerInfo                    struct{ Name, Version string }
}

func helloOf(t *testing.T, w *Wallet) (h hello) {
	require.NoError(t, json.Unmarshal(w.Initialize, &h))
	return h
}

func request(t *testing.T, w *Wallet, method string, params any) json.RawMessage {
	result, err := w.Request(t.Context(), method, params)
	require.NoError(t, err, w.Stderr())
	return result
}

func answerIn(t *testing.T, result json.RawMessage) (a answer) {
	r := must.JSON[struct{ StructuredContent answer }](result)(t)
	return r.StructuredContent
}

// The old name of a tool is answered and not listed; init may run while the server does.
func TestOldNameAndLateInit(t *testing.T) {
	world := x402test.New(t)
	bin, home := testworld.Build(t), testworld.NewHome(t, "")
	given := filepath.Join(home.User, "given.toml")
	writePrivate(t, given, world.WalletConfig())

	w := testworld.StartWallet(t, bin, home)
	setup := func() (s struct {
		Ready, Locked bool
		Addresses     struct{ Solana, EVM string }
		NextSteps     []string
	}) {
		r := must.Get(w.Call(t.Context(), "x402_setup_agent", map[string]any{}))(t)
		require.NoError(t, json.Unmarshal(r.Structured, &s))
		return s
	}
	before := setup()
	require.False(t, before.Ready)
	require.Contains(t, strings.Join(before.NextSteps, " "), "x402-wallet init")
	require.Equal(t, "WALLET_NOT_FOUND", call(t, w, "x402_transaction_history", nil).Error)

	runWallet(t, home, bin, nil, "init", "--passphrase-file", home.PassphraseFile, "--config", given,
		"--json")
	after := setup()
	require.False(t, after.Ready, "it has no money")
	require.NotEmpty(t, after.Addresses.EVM)
	world.Fund(t, after.Addresses.EVM, "1.00")
	require.True(t, setup().Ready)
	require.Equal(t, "paid", payFor(t, w, world.SellerURL+"/weather").Status)

	list := must.Get(w.Call(t.Context(), "x402_history", nil))(t)
	require.JSONEq(t, list.Text, must.Get(w.Call(t.Context(), "x402_transaction_history", nil))(t).Text)
	require.NotContains(t, string(request(t, w, "tools/list", nil)), "x402_transaction_history")
}
