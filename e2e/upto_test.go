package e2e

import (
	"flag"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/e2e/testworld"
)

// patient runs the test that waits until what was signed has expired by the wallet's own clock, which nobody
// sets: two and a half minutes.
var patient = flag.Bool("patient", false, "wait until what was signed for has expired: minutes")

// What upto may come to is held, and what the chain shows to have moved is what is paid: once that is final
// and nothing else can come of it, the rest is free again.
func TestPaysUpto(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	p := payFor(t, w, lab.Seller+"/upto/short?charge=7000")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, []string{"7000", "$0.007", "$0.02"}, []string{p.AmountPaid, p.Price, p.UpTo})
	require.Equal(t, uint64(1_000_000-7_000), lab.EVMBalance(home.EVM))
	require.Equal(t, "0.02", p.Budget.Session.Spent, "all that was signed for counts: %+v", p.Budget)

	lab.EVMMine(0)
	bin := testworld.Build(t)
	if !*patient {
		runWallet(t, home, bin, nil, "reconcile", "--json")
		require.Equal(t, "$0.02", history(t, w)[0].Price, "as long as it may be charged again")
		runWallet(t, home, bin, nil, "history", "verify")
		return
	}
	for until := time.Now().Add(6 * time.Minute); ; time.Sleep(5 * time.Second) {
		runWallet(t, home, bin, nil, "reconcile", "--json")
		row := history(t, w)[0]
		if row.Proof == "chain" || time.Now().After(until) {
			require.Equal(t, []string{"settled", "chain", "$0.007"}, []string{row.Status, row.Proof,
				row.Price})
			break
		}
		require.Equal(t, "$0.02", row.Price)
		lab.EVMMine(0)
	}
	receipt := requireReceipt(t, home, history(t, w)[0].PaymentID)
	require.Contains(t, receipt, `"amount": "7000"`)
	require.Contains(t, receipt, `"upTo": "20000"`)
	p = payFor(t, w, lab.Seller+"/evm")
	require.Equal(t, "0.008", p.Budget.Session.Spent, "%+v", p.Budget)
	runWallet(t, home, bin, nil, "history", "verify")
}

// Nothing charged is no end: it may be charged until it expires. That is booked, and no second purchase.
func TestUptoChargedNothingAndThenSomething(t *testing.T) {
	lab := Start(t)
	between := sellBy(t, lab.Seller)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{hostPort(between.url)}})
	lab.EVMApprovePermit2(home.EVM, 40_000)
	between.does(func(out http.ResponseWriter, settle func() *http.Response) {
		a := settle()
		for key, values := range a.Header {
			out.Header()[key] = values
		}
		out.WriteHeader(a.StatusCode)
		_, _ = out.Write([]byte(bodyOf(t, a)))
	})
	p := payFor(t, w, between.url+"/upto?charge=0")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, []string{"0", "$0.02"}, []string{p.AmountPaid, p.UpTo})
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
	require.Equal(t, "0.02", p.Budget.Session.Held, "%+v", p.Budget)
	require.Equal(t, "unknown", history(t, w)[0].Status)

	transaction := lab.EVMSettlePermit(between.payments.Load().Payload, lab.EVM.Facilitator, 20_000)
	lab.EVMMine(0)
	runWallet(t, home, testworld.Build(t), nil, "reconcile", "--json")
	row := history(t, w)[0]
	require.Equal(t, []string{"settled", "chain", transaction, "$0.02"},
		[]string{row.Status, row.Proof, row.TransactionSignature, row.Price})
	require.Len(t, history(t, w), 1)
	require.Equal(t, uint64(980_000), lab.EVMBalance(home.EVM))
}

// More than was signed for cannot be charged, and what the seller says of it changes nothing.
func TestUptoChargesNoMoreThanWasSignedFor(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})
	p := payFor(t, w, lab.Seller+"/upto/sponsored?charge=20001")
	require.Equal(t, "SETTLEMENT_FAILED", p.Error, "%+v", p)
	require.Equal(t, "20000", p.Spent, "held until it expires")
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
}

// Who alone can settle, and says what it comes to, is one of the owner's facilitators, or a person is asked.
func TestUptoBySomebodyElsesFacilitatorAsks(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{Facilitators: []string{lab.SellerOzskr}})
	p := payFor(t, w, lab.Seller+"/upto/sponsored")
	require.Equal(t, "APPROVAL_REQUIRED", p.Error, "%+v", p)
	require.Contains(t, p.Message, lab.EVM.Facilitator)
	require.Empty(t, history(t, w))
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(home.EVM))
}
