package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/x402test"
)

// Our wallet buys a session, a resource, a prompt and a tool at our paywall, which it reaches by HTTP or
// starts as a command. Each is paid once, and stands in the seller's book.
func TestPaywallSellsResourcesPromptsAndSessions(t *testing.T) {
	for _, over := range []string{"HTTP", "stdio"} {
		t.Run(over, func(t *testing.T) {
			world, bin := x402test.New(t, x402test.Options{}), testworld.Build(t)
			shop := testworld.NewHome(t, world.WalletConfig())
			file := filepath.Join(t.TempDir(), "shop.toml")
			own := must.Get(os.Executable())(t)
			text := fmt.Sprintf("command = [\"/usr/bin/env\", %q, %q]\nnetwork = \"base-sepolia\"\n",
				behindEnv+"="+filepath.Join(t.TempDir(), "runs"), own)
			text += "[tools.search]\nprice = \"0.001\"\n[resources.\"weather://archive/*\"]\n" +
				"price = \"0.002\"\n[prompts.report]\nprice = \"0.003\"\n[entry]\nprice = \"0.004\"\n"
			server, rules := "[servers.shop]\n", world.WalletConfig()
			if over == "HTTP" {
				writePrivate(t, file, "listen = \"127.0.0.1:0\"\n"+text)
				url := startPaywall(t, shop, bin, file).url
				host := strings.Split(url, "/")[2]
				rules = strings.Replace(rules, "loopback = [", fmt.Sprintf("loopback = [%q, ", host), 1)
				server += fmt.Sprintf("url = %q\n", url)
			} else {
				writePrivate(t, file, text)
				server += fmt.Sprintf("sandbox = false\ncommand = [\"/usr/bin/env\", "+
					"\"X402_WALLET_HOME=%s\", \"HOME=%s\", %q, \"paywall\", \"--config\", %q]\n",
					shop.Dir, shop.User, bin, file)
			}
			buyer := testworld.NewHome(t, rules+server)
			world.Fund(t, buyer.EVM, "1.00")
			w := testworld.StartWalletWith(t, bin, buyer, WalletOptions{})
			for _, c := range []struct{ kind, name, content string }{
				{"resource", "weather://archive/1999", "rainy in 1999"}, {"prompt", "report", "about Lisbon"},
				{"tool", "search", "sunny from search"},
			} {
				in := map[string]any{"server": "shop", c.kind: c.name}
				if c.kind == "prompt" {
					in["arguments"] = map[string]any{"city": "Lisbon"}
				}
				paid := call(t, w, "x402_call_tool", in)
				require.Equal(t, "paid", paid.Status, "%+v", paid)
				require.Contains(t, paid.Content, c.content)
			}
			var labels []string
			var sold []uint64
			for _, p := range world.Payments() {
				sold = append(sold, p.Amount)
			}
			require.Equal(t, []uint64{4000, 2000, 3000, 1000}, sold, "the session once, before the rest")
			var earned struct {
				Sales  []struct{ Resource, Status string }
				Totals map[string]string
			}
			runWallet(t, shop, bin, &earned, "paywall", "earnings", "--json")
			for _, s := range earned.Sales {
				require.Equal(t, "settled", s.Status)
				labels = append(labels, s.Resource)
			}
			require.Equal(t, map[string]string{"USDC": "0.01"}, earned.Totals)
			require.Equal(t, []string{"mcp://tool/search", "mcp://prompt/report",
				"mcp://resource/weather:%2F%2Farchive%2F1999"}, labels[:3])

			var bought struct{ Status, Content string } // by the command
			runWallet(t, buyer, bin, &bought, "call", "shop", "--resource", "weather://archive/2000",
				"--json")
			require.Equal(t, "paid", bought.Status)
			require.Contains(t, bought.Content, "rainy in 2000")
			runWallet(t, buyer, bin, &bought, "call", "shop", "--prompt", "report", "-d", `{"city":"Faro"}`, "--json")
			require.Contains(t, bought.Content, "about Faro")
		})
	}
}

// The same on real chains, settled by the reference facilitator.
func TestWaresArePaidOnBothChains(t *testing.T) {
	lab := Start(t)
	shop, bin := testworld.NewHome(t, lab.Config(ConfigOptions{})), testworld.Build(t)
	lab.SVMFund(shop.Solana, "", 0) // a payee needs a token account
	file := filepath.Join(t.TempDir(), "shop.toml")
	writePrivate(t, file, fmt.Sprintf("listen = \"127.0.0.1:0\"\ncommand = [\"/usr/bin/env\", %q, %q]\n"+
		"network = %q\n[resources.\"weather://archive/*\"]\nprice = \"0.002\"\n[entry]\nprice = \"0.004\"\n"+
		"[prompts.report]\nnetwork = %q\nprice = \"0.003\"\n",
		behindEnv+"="+filepath.Join(t.TempDir(), "runs"),
		must.Get(os.Executable())(t), lab.EVM.Network, lab.SVM.Network))
	url := startPaywall(t, shop, bin, file).url
	w, _ := funded(t, lab, ConfigOptions{Loopback: []string{url},
		More: fmt.Sprintf("[servers.shop]\nurl = %q\n", url)})
	paid := call(t, w, "x402_call_tool", map[string]any{"server": "shop",
		"resource": "weather://archive/1999"})
	require.Equal(t, []string{"paid", lab.EVM.Network}, []string{paid.Status, paid.Network}, "%+v", paid)
	require.Contains(t, paid.Content, "rainy in 1999")
	require.Equal(t, uint64(6000), lab.EVMBalance(shop.EVM), "the session and the resource")
	paid = call(t, w, "x402_call_tool", map[string]any{"server": "shop", "prompt": "report"})
	require.Equal(t, []string{"paid", lab.SVM.Network}, []string{paid.Status, paid.Network}, "%+v", paid)
	require.Equal(t, uint64(3000), lab.SVMBalance(shop.Solana, ""))
}
