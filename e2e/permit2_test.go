package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm"
	"x402-wallet/e2e/testlab"
	"x402-wallet/e2e/testworld"
	"x402-wallet/internal/must"
	"x402-wallet/scheme/permit2"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
	"x402-wallet/x402/onchain"
)

// The reference server and facilitator are paid by Permit2: with an approval that is signed with the payment,
// and with one that the owner made, and not without. Nothing of an approval is left behind.
func TestPaysByPermit2(t *testing.T) {
	lab := Start(t)
	w, home := funded(t, lab, ConfigOptions{})

	p := payFor(t, w, lab.Seller+"/permit2/sponsored")
	require.Equal(t, "paid", p.Status, "%+v", p)
	require.Equal(t, uint64(1_000_000-price), lab.EVMBalance(home.EVM))
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))
	require.Equal(t, []EVMTransfer{{From: home.EVM, To: lab.EVM.PayTo, Amount: price}},
		lab.EVMTransfers(history(t, w)[0].TransactionSignature))

	p = payFor(t, w, lab.Seller+"/permit2")
	require.Equal(t, "NO_DELEGATION", p.Error, "%+v", p)
	require.Contains(t, p.Message, "Permit2")
	p = payFor(t, w, lab.Seller+"/permit2/erc20")
	require.Equal(t, "NO_DELEGATION", p.Error, "no transaction is signed: %+v", p)
	require.Contains(t, p.Message, "erc20ApprovalGasSponsoring")
	require.Len(t, history(t, w), 1)
	require.Zero(t, lab.EVMAllowanceOfPermit2(home.EVM))

	lab.EVMApprovePermit2(home.EVM, 2*price+price/2)
	for _, path := range []string{"/permit2", "/permit2/sponsored"} { // an approval that is enough is used
		p = buyAnew(t, w, lab.Seller+path)
		require.Equal(t, "paid", p.Status, "%s: %+v", path, p)
	}
	require.Equal(t, uint64(1_000_000-3*price), lab.EVMBalance(home.EVM))
	require.Equal(t, uint64(price/2), lab.EVMAllowanceOfPermit2(home.EVM))
	p = payFor(t, w, lab.Seller+"/permit2")
	require.Equal(t, "DELEGATION_EXHAUSTED", p.Error, "%+v", p)
	require.Len(t, lab.EVMSpentNonces(home.EVM), 0, "nothing by EIP-3009")
	require.Len(t, history(t, w), 3)

	only, own := funded(t, lab, ConfigOptions{Policy: `schemes = ["exact"]`})
	p = payFor(t, only, lab.Seller+"/permit2/sponsored")
	require.Equal(t, "INVALID_REQUIREMENT", p.Error, "%+v", p)
	require.Contains(t, p.Message, "policy.schemes")
	require.Equal(t, uint64(1_000_000), lab.EVMBalance(own.EVM))
}

type permitOf struct {
	Payload    json.RawMessage
	Extensions map[string]struct {
		Info struct{ SignedTransaction, Spender string }
	}
}

// proxySeller passes everything on to a seller, and does with the answers to payments what a test says.
type proxySeller struct {
	url      string
	payments atomic.Pointer[permitOf]
	// instead answers a payment, after or without the seller; nil: the seller does
	instead atomic.Pointer[func(w http.ResponseWriter, settle func() *http.Response)]
}

func sellBy(t *testing.T, seller string) *proxySeller {
	t.Helper()
	s := &proxySeller{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ask := func() *http.Response {
			q, err := http.NewRequest(r.Method, seller+r.URL.String(), nil)
			if err != nil {
				t.Error(err)
				return nil
			}
			q.Header = r.Header.Clone()
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Error(err)
			}
			return a
		}
		if sent := r.Header.Get("PAYMENT-SIGNATURE"); sent != "" {
			var p permitOf
			text, err := base64.StdEncoding.DecodeString(sent)
			if err != nil || json.Unmarshal(text, &p) != nil {
				t.Errorf("the payment cannot be read: %s", sent)
			}
			s.payments.Store(&p)
			if do := s.instead.Load(); do != nil {
				(*do)(w, ask)
				return
			}
		}
		a := ask()
		if a == nil {
			return
		}
		for key, values := range a.Header {
			w.Header()[key] = values
		}
		w.WriteHeader(a.StatusCode)
		_, _ = w.Write([]byte(bodyOf(t, a)))
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *proxySeller) does(do func(w http.ResponseWriter, settle func() *http.Response)) {
	if do == nil {
		s.instead.Store(nil)
		return
	}
	s.instead.Store(&do)
}

// An exact permit is a bearer cheque: when a seller refuses the payment and a stranger brings it to the
// chain, that is found, and booked as what was paid.
func TestAStrangersSettlementOfOurPermitIsBooked(t *testing.T) {
	lab := Start(t)
	between := sellBy(t, lab.Seller)
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{testlab.HostPort(between.url)}})
	lab.EVMApprovePermit2(home.EVM, price)
	between.does(func(out http.ResponseWriter,
		_ func() *http.Response) {
		out.WriteHeader(http.StatusForbidden)
	})
	p := payFor(t, w, between.url+"/permit2")
	require.Equal(t, "PAYMENT_REJECTED", p.Error, "%+v", p)
	require.Equal(t, "$0.001", history(t, w)[0].Price)

	transaction := lab.EVMSettlePermit(between.payments.Load().Payload, vaultOwner, 0)
	var report struct{ Settled int }
	runWallet(t, home, testworld.Build(t), &report, "reconcile", "--json")
	row := history(t, w)[0]
	require.Equal(t, []string{"settled", "chain", transaction},
		[]string{row.Status, row.Proof, row.TransactionSignature})
	require.Equal(t, uint64(1_000_000-price), lab.EVMBalance(home.EVM))
	require.Len(t, history(t, w), 1)
	requireReceipt(t, home, row.PaymentID)
}

func requireReceipt(t *testing.T, home testworld.Home, payment string) (text string) {
	t.Helper()
	bin := testworld.Build(t)
	var receipt json.RawMessage
	runWallet(t, home, bin, &receipt, "show", payment, "--receipt")
	file := filepath.Join(t.TempDir(), "receipt.json")
	writePrivate(t, file, string(receipt))
	runWallet(t, home, bin, nil, "verify-receipt", file)
	return string(receipt)
}

// What the chain says of payments by Permit2, on a chain: unused, used by whoever it was, invalidated by the
// owner, and past the deadline.
func TestStatusOfPermit2(t *testing.T) {
	lab := Start(t)
	lab = lab.For(t)
	key := testworld.NewEVMKey(t)
	lab.EVMMint(key.Address(), 1_000_000)
	lab.EVMApprovePermit2(key.Address(), 500_000)
	asset, _ := x402.NewRegistry(nil).Asset(lab.EVM.Network, lab.EVM.Asset)
	pays := permit2.NewPayer(evm.New(evm.Options{Signer: key,
		RPC: map[string]string{lab.EVM.Network: lab.EVM.URL}}), nil)
	extra := map[string]json.RawMessage{"assetTransferMethod": json.RawMessage(`"permit2"`)}
	upto := map[string]json.RawMessage{"facilitatorAddress": json.RawMessage(`"` + vaultOwner + `"`)}
	sign := func(scheme string) (json.RawMessage, x402.Evidence) {
		t.Helper()
		r := x402.Requirement{Version: 2, Scheme: scheme, Network: lab.EVM.Network,
			Amount: money.NewAmount(price),
			Asset:  lab.EVM.Asset, PayTo: lab.EVM.PayTo, MaxTimeout: time.Minute, Extra: extra}
		if scheme == x402.Upto {
			r.Extra = upto
		}
		made := must.Get(pays.Authorize(t.Context(), onchain.Order{Requirement: r, Asset: asset,
			Source: key.Address(), Validity: time.Minute, Now: time.Now()}))(t)
		require.Empty(t, made.Extensions)
		return made.Payload, made.Evidence
	}
	status := func(e x402.Evidence) x402.Status {
		t.Helper()
		return must.Get(pays.Status(t.Context(), e))(t)
	}
	_, unused := sign(x402.Exact)
	require.Equal(t, x402.Open, status(unused).State)
	require.True(t, status(unused).Unused)

	payload, byStranger := sign(x402.Exact)
	transaction := lab.EVMSettlePermit(payload, lab.EVM.PayTo, 0)
	got := status(byStranger)
	require.Equal(t, []any{x402.Settled, transaction}, []any{got.State, got.Transaction})
	_, second := sign(x402.Exact) // another of the same amount to the same payee
	require.Equal(t, x402.Open, status(second).State)

	_, invalidated := sign(x402.Exact)
	lab.EVMInvalidatePermit(key.Address(), decimal(t, invalidated.Nonce))
	require.Equal(t, x402.Open, status(invalidated).State, "not final yet")

	payload, metered := sign(x402.Upto)
	used := lab.EVMSettlePermit(payload, vaultOwner, 300)
	got = status(metered)
	require.Equal(t, x402.Open, got.State, "what it came to is not final yet")
	lab.EVMMine(0)
	got = status(metered)
	require.Equal(t, []any{x402.Settled, used, "300"}, []any{got.State, got.Transaction, got.Amount.String()})
	require.Equal(t, x402.Expired, status(invalidated).State)

	lab.EVMIncreaseTime(3600)
	require.Equal(t, x402.Expired, status(unused).State)
	require.Equal(t, x402.Expired, status(second).State)
	require.Equal(t, x402.Settled, status(byStranger).State)
	require.Equal(t, x402.Settled, status(metered).State)
	require.Equal(t, x402.Expired, status(invalidated).State)
}

func decimal(t *testing.T, nonce string) string {
	t.Helper()
	var word [32]byte
	must.Get(hex.Decode(word[:], []byte(nonce[2:])))(t)
	amount, ok := money.AmountFromBytes(word[:])
	require.True(t, ok)
	return amount.String()
}

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
	w, home := funded(t, lab, ConfigOptions{Loopback: []string{testlab.HostPort(between.url)}})
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
