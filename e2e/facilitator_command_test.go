package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/facilitator"
	"x402-wallet/internal/must"
	"x402-wallet/paywall"
	"x402-wallet/paywall/book"
)

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
