package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

type npmPaywall struct {
	testworld.Home
	bin, dir string
	s        *shops
	url      string // of the endpoint, where it listens
}

// newNPMPaywall writes the paywall's files, one for HTTP and one for stdio, and starts it on a free port.
// Everything is paid to the wallet's own addresses, by default on EVM.
func newNPMPaywall(t testing.TB, s *shops, head, tools string) *npmPaywall {
	t.Helper()
	p := &npmPaywall{Home: testworld.NewHome(t, s.lab.Config(ConfigOptions{})), bin: testworld.Build(t), s: s,
		dir: t.TempDir()}
	s.lab.SVMFund(p.Solana, "", 0) // a payee needs a token account
	command, err := json.Marshal([]string{s.node, filepath.Join(filepath.Dir(s.script), "plain.mjs"), s.log})
	require.NoError(t, err)
	for name, listen := range map[string]string{"http.toml": "127.0.0.1:0", "stdio.toml": ""} {
		writePrivate(t, filepath.Join(p.dir, name),
			fmt.Sprintf("command = %s\nnetwork = %q\nlisten = %q\n%s\n%s\n", command, s.lab.EVM.Network,
				listen, head, tools))
	}
	p.url = startPaywall(t, p.Home, p.bin, filepath.Join(p.dir, "http.toml"),
		"X402_WALLET_PASSPHRASE_FILE=/nonexistent").url // to be paid needs no key
	return p
}

func (p *npmPaywall) onStdio() []string {
	return []string{"/usr/bin/env", "X402_WALLET_HOME=" + p.Dir, "HOME=" + p.User, p.bin, "paywall",
		"--config", filepath.Join(p.dir, "stdio.toml")}
}

func (p *npmPaywall) sales(t testing.TB) (out struct {
	Sales []struct {
		Status, Resource, Price, Amount, Network, PayTo, Payer, TransactionSignature string
	}
	Totals map[string]string
}) {
	t.Helper()
	runWallet(t, p.Home, p.bin, &out, "paywall", "earnings", "--json", "--limit", "100")
	return out
}

const sold = "[tools.echo]\nprice = \"0.001\"\n[tools.boom]\nprice = \"0.001\"\n"

// What a plain npm server sells through our paywall, every reference client can buy: over
// streamable HTTP and over stdio.
func TestReferenceClientsBuyAtOurPaywall(t *testing.T) {
	lab := Start(t)
	s := openShops(t, lab)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	for _, c := range []struct{ payer, head string }{
		{"spec", ""},
		{"spec", `dialect = "error"`},
		{"cloudflare", `dialect = "cloudflare"`},
		{"x402-mcp", `dialect = "x402-mcp"`},
	} {
		t.Run(c.payer+" "+c.head, func(t *testing.T) {
			p := newNPMPaywall(t, s, c.head, sold)
			bought := uint64(0)
			for _, target := range []any{p.url, p.onStdio()} {
				call := map[string]any{"target": target}
				paid := s.payAs(t, c.payer, p.url, "echo", map[string]any{"text": "a"}, call)
				require.Nil(t, paid.Error, "%+v", paid.Error)
				require.False(t, paid.Result.IsError, "%+v", paid.Result)
				require.NotEmpty(t, paid.Challenge, "it was asked for money")
				require.Equal(t, "echo: a", paid.Result.Content[0].Text)
				bought += 1000
				require.Equal(t, bought, lab.EVMBalance(p.EVM))

				free := s.payAs(t, c.payer, p.url, "hello", map[string]any{"name": "b"}, call)
				require.Equal(t, "hello b", free.Result.Content[0].Text)
				require.Empty(t, free.Challenge)
			}
			out := p.sales(t)
			require.Len(t, out.Sales, 2)
			require.Equal(t, map[string]string{"USDC": "0.002"}, out.Totals)
			for _, sale := range out.Sales {
				require.Equal(t, []string{"settled", "mcp://tool/echo", "$0.001"}, []string{sale.Status,
					sale.Resource, sale.Price})
				require.True(t, strings.EqualFold(lab.EVM.Client.Address, sale.Payer))
				transfers := lab.EVMTransfers(sale.TransactionSignature)
				require.Len(t, transfers, 1)
				require.Equal(t, uint64(1000), transfers[0].Amount)
			}
		})
	}
}

// Our wallet buys at our paywall, on both chains, by URL and by the name of a configured server; and the
// reference client on Solana.
func TestPaywallIsPaidByAWallet(t *testing.T) {
	lab := Start(t)
	s := openShops(t, lab)
	p := newNPMPaywall(t, s, "",
		fmt.Sprintf("[tools.echo]\naccepts = [{ network = %q, price = \"0.001\" }, { network = %q, price "+
			"= \"0.002\" }]\n",
			lab.SVM.Network, lab.EVM.Network))
	for _, c := range []struct {
		server, network, price string
		earned                 func() uint64
	}{
		{"shop", lab.SVM.Network, "$0.001", func() uint64 { return lab.SVMBalance(p.Solana, "") }},
		{p.url, lab.EVM.Network, "$0.002", func() uint64 { return lab.EVMBalance(p.EVM) / 2 }},
	} {
		w, _ := funded(t, lab, ConfigOptions{Loopback: []string{p.url}, Policy: fmt.Sprintf("prefer = [%q]",
			c.network), More: fmt.Sprintf("[servers.shop]\nurl = %q\n", p.url)})
		paid := call(t, w, "x402_call_tool", map[string]any{"server": c.server, "tool": "echo",
			"arguments": map[string]any{"text": c.network}})
		require.Equal(t, "paid", paid.Status, "%+v", paid)
		require.Equal(t, "echo: "+c.network, paid.Content)
		require.Equal(t, c.network, paid.Network)
		require.Equal(t, c.price, paid.Price)
		require.NotEmpty(t, paid.TransactionSignature)
		require.Equal(t, uint64(1000), c.earned())
	}
	require.Equal(t, map[string]string{"USDC": "0.003"}, p.sales(t).Totals)

	onSolana := lab.SVMBalance(p.Solana, "")
	key := lab.SVMKey("client")
	var numbers []int // 64: the private key and the public one
	require.NoError(t, json.Unmarshal(key.Keypair, &numbers))
	var private []byte
	for _, n := range numbers[:32] {
		private = append(private, byte(n))
	}
	lab.SVMFund(key.Address, "", 1_000_000)
	paid := s.payAs(t, "spec", p.url, "echo", map[string]any{"text": "b"},
		map[string]any{"key": nil, "solanaKey": hex.EncodeToString(private), "solanaNode": lab.SVM.URL})
	require.Nil(t, paid.Error, "%+v", paid.Error)
	require.Equal(t, "echo: b", paid.Result.Content[0].Text)
	require.Equal(t, onSolana+1000, lab.SVMBalance(p.Solana, ""))
}
