package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
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
	Sales  []struct{ Status, Resource, Price, Amount, Network, PayTo, Payer, TransactionSignature string }
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
			"= \"0.002\" }]\n", lab.SVM.Network, lab.EVM.Network))
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

// passOnEnv makes this test binary a facilitator that is a program: it passes what it gets on to the one at
// that URL.
const passOnEnv = "X402_TEST_PASS_ON"

func passOn(url, request string) error {
	var response *http.Response
	var err error
	if request == "supported" {
		response, err = http.Get(url + "/supported")
	} else {
		body, _ := io.ReadAll(os.Stdin)
		response, err = http.Post(url+"/"+request, "application/json", bytes.NewReader(body))
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// A facilitator that is a program, the reference's own, verifies and settles what the reference client pays
// our paywall on a real chain. When its answer is lost, the chain says what came of the payment.
func TestAProgramSettlesForOurPaywall(t *testing.T) {
	lab := Start(t)
	lab.EVMMint(lab.EVM.Client.Address, 1_000_000)
	node := must.Get(exec.LookPath("node"))(t)
	script := must.Get(filepath.Abs(filepath.Join("lab", "parties", "settle-command.mjs")))(t)
	own := []string{node, script, lab.EVM.URL}
	losing := []string{"/bin/sh", "-c", `case "$3" in settle) "$0" "$@" >/dev/null;; *) exec "$0" "$@";; esac`}
	for name, argv := range map[string][]string{"answers": own, "loses its answer": append(losing, own...)} {
		t.Run(name, func(t *testing.T) {
			lab := lab.For(t)
			earned := lab.EVMBalance(lab.EVM.PayTo)
			s := newWaysShop(t, lab, func(o *paywall.Options) {
				o.Facilitators = facilitator.New(facilitator.Options{List: []facilitator.Facilitator{
					{Name: "program", Command: &facilitator.Command{Argv: argv,
						Env: []string{"PATH=/usr/bin:/bin"}}},
					{Name: "never asked", URL: lab.Facilitators[0]}}})
			}, paywall.Tool{Name: "report", Accepts: at(lab, "0.001", nil)})
			lab.ResetLogs()
			got := s.buy(t, lab, map[string]any{"path": "/report", "scheme": "exact"},
				map[string]any{"path": "/report", "again": true})
			require.Equal(t, 200, got[0].Status, "%+v", got)
			require.Equal(t, "goods 1", got[0].Body)
			require.Equal(t, http.StatusConflict, got[1].Status, "%+v", got[1])
			require.Equal(t, 1, s.served())
			require.Equal(t, earned+1000, lab.EVMBalance(lab.EVM.PayTo), "once")
			require.Equal(t, []EVMTransfer{{From: lab.EVM.Client.Address, To: lab.EVM.PayTo, Amount: 1000}},
				lab.EVMTransfers(got[0].Receipt.Transaction))
			sales := s.sales()
			require.Len(t, sales, 1)
			require.Equal(t, book.SaleSettled, sales[0].State)
			require.Equal(t, "program", sales[0].Facilitator)
			require.NotContains(t, opsOf(lab.FacilitatorLog(0)), "settle")
		})
	}
}

// The command of a paywall has what it sells settled by a program of paywall.toml.
func TestPaywallIsSettledByAProgram(t *testing.T) {
	own := must.Get(os.Executable())(t)
	s := newShop(t, "")
	text := must.Get(os.ReadFile(s.file))(t)
	writePrivate(t, s.file, string(text)+fmt.Sprintf("[[facilitators]]\nname = \"mine\"\ncommand = "+
		"[\"/usr/bin/env\", %q, %q]\nassets = [\"USDC\"]\nmax_price = \"0.01\"\n",
		passOnEnv+"="+s.world.FacilitatorURL, own))
	got := s.buys(t, s.overStdio(t))
	require.False(t, got.IsError, "%+v", got)
	require.Len(t, s.world.Payments(), 1)
	var earned struct {
		Sales []struct{ Status, Facilitator string }
	}
	runWallet(t, s.home, s.bin, &earned, "paywall", "earnings", "--json")
	require.Equal(t, "settled", earned.Sales[0].Status)
	require.Equal(t, "mine", earned.Sales[0].Facilitator)
}
