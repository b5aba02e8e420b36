package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/wallet/imported"
)

// batchSeller is the reference server and facilitator of batch-settlement (e2e/lab/parties/batch.mjs).
type batchSeller struct {
	HTTP    string `json:"http"`
	Control string `json:"control"`
	// of the facilitator alone, for sellers elsewhere
	Facilitator string `json:"facilitator"`
}

func startBatch(t testing.TB, lab *Lab) *batchSeller {
	options := must.Get(json.Marshal(map[string]string{"evm": lab.EVM.URL, "payTo": lab.EVM.PayTo}))(t)
	s := &batchSeller{}
	stop, err := startScript(filepath.Join("lab", "parties", "batch.mjs"), options, s)
	require.NoError(t, err, "run make test (or e2e/lab/prep.sh) first")
	t.Cleanup(stop)
	return s
}

type batchNews struct {
	Sent     []string // what the facilitator called
	Asked    int
	Vouchers []string // their ceilings
	Hold     int      // answers that are still to be held
}

func (s *batchSeller) control(t *testing.T, state string) (news batchNews) {
	response := must.Get(http.Post(s.Control, "application/json", bytes.NewReader([]byte(state))))(t)
	text := bodyOf(t, response)
	require.NoError(t, json.Unmarshal([]byte(text), &news), "%s", text)
	return news
}

func (s *batchSeller) options() ConfigOptions {
	return ConfigOptions{Budget: plenty, Loopback: []string{hostPort(s.HTTP)}}
}

// Accounts of anvil's, with ether for gas. Each is one test's: a channel is known by its payer.
const (
	batchLostKey = "0x92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e"
	batchExitKey = "0x4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356"
)

// homeOf is a wallet with a key that there is already, and an empty ledger.
func homeOf(t *testing.T, rules, key string) testworld.Home {
	file := filepath.Join(t.TempDir(), "key.hex")
	writePrivate(t, file, key)
	imported := must.Get(imported.Read(t.Context(), "key-file:evm", file, nil))(t)
	home := testworld.NewHome(t, "")
	var err error
	home.EVM, home.Solana, err = testworld.MakeHome(home.Dir, rules, testworld.Passphrase, imported)
	require.NoError(t, err)
	return home
}

func channelCommand(t *testing.T, home testworld.Home, code int, into any, args ...string) {
	endWallet(t, home, testworld.Build(t), code, into, append([]string{"channel"}, args...)...)
}

type depositsAnswer struct {
	Deposits []struct{ Server, Deposited, Charged, Promised, Locked, Stopped string }
}

// A deposit with the first call, then vouchers alone: the deposit is the seller's minimum, no transaction is
// made for the calls after it, and the budgets count it once.
func TestPaysThroughAChannelWithADeposit(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	w, home := funded(t, lab, seller.options())

	p := payFor(t, w, seller.HTTP+"/paid?n=1")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	for _, n := range []string{"2", "3", "4"} {
		p = payFor(t, w, seller.HTTP+"/paid?n="+n)
		require.Equal(t, "paid", p.Status, "%+v", p)
		require.Equal(t, "$0.001", p.Price)
		require.Equal(t, "0.01", p.Budget.Session.Spent, "counted when it was deposited, and once")
	}
	news := seller.control(t, `{}`)
	require.Empty(t, news.Sent)
	require.Equal(t, []string{"2000", "3000", "4000"}, news.Vouchers)
	require.Equal(t, uint64(990_000), lab.EVMBalance(home.EVM))
	require.Len(t, history(t, w), 4)

	var shown depositsAnswer
	channelCommand(t, home, 0, &shown, "list")
	require.Len(t, shown.Deposits, 1)
	require.Equal(t, []string{"10000", "4000", "4000", "6000"}, []string{shown.Deposits[0].Deposited,
		shown.Deposits[0].Charged, shown.Deposits[0].Promised, shown.Deposits[0].Locked})

	for n := range 7 { // the tenth call is the last that the deposit covers
		p = payFor(t, w, fmt.Sprintf("%s/paid?m=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	require.Equal(t, []string{"deposit"}, seller.control(t, `{}`).Sent)
	require.Equal(t, uint64(980_000), lab.EVMBalance(home.EVM))

	seller.control(t, `{"claim":true}`)
	var report struct{ Settled, Failed int }
	runWallet(t, home, testworld.Build(t), &report, "reconcile")
	require.Zero(t, report.Failed)
}

// What was not charged comes back: from the seller, and without it.
func TestADepositComesBack(t *testing.T) {
	lab := Start(t)
	seller := startBatch(t, lab)
	home := homeOf(t, lab.Config(seller.options()), batchExitKey)
	lab.EVMMint(home.EVM, 1_000_000)
	before := lab.EVMBalance(home.EVM)
	host := hostPort(seller.HTTP)
	pay := func(n int) {
		w := testworld.StartWallet(t, testworld.Build(t), home)
		defer w.Close()
		p := payFor(t, w, fmt.Sprintf("%s/paid?n=%d", seller.HTTP, n))
		require.Equal(t, "paid", p.Status, "%+v", p)
	}
	pay(1)
	pay(2)
	var refunds struct {
		Refunds []struct{ Refunded, Transaction string }
	}
	channelCommand(t, home, 0, &refunds, "refund", host)
	require.Len(t, refunds.Refunds, 1)
	require.Equal(t, "8000", refunds.Refunds[0].Refunded)
	require.Equal(t, before-2_000, lab.EVMBalance(home.EVM))
	channelCommand(t, home, 0, &refunds, "refund", host)
	require.Empty(t, refunds.Refunds)

	pay(3)
	require.Equal(t, before-12_000, lab.EVMBalance(home.EVM))
	var steps struct {
		Steps []struct {
			Amount, Ready string
			IsLast        bool
			Transaction   struct{ Unsigned, TransactionHash string }
		}
	}
	channelCommand(t, home, 0, &steps, "withdraw", host)
	require.Len(t, steps.Steps, 1)
	require.Contains(t, steps.Steps[0].Transaction.Unsigned, "0x02")
	w := testworld.StartWallet(t, testworld.Build(t), home)
	require.Equal(t, "POLICY_DENIED", payFor(t, w, seller.HTTP+"/paid?n=4").Error, "it is asked back")
	w.Close()
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.NotEmpty(t, steps.Steps[0].Transaction.TransactionHash)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.NotEmpty(t, steps.Steps[0].Ready, "the delay")
	lab.EVMIncreaseTime(900)
	channelCommand(t, home, 0, &steps, "withdraw", host, "--sign")
	require.True(t, steps.Steps[0].IsLast)
	require.Equal(t, before-2_000, lab.EVMBalance(home.EVM), "all that the seller did not claim in time")
}
